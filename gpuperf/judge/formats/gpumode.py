"""Read tasks of GPU MODE: `task.yml`, whose files include `reference.py`.

The judge uses the generator and the checker of `reference.py`, and never runs its `eval.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.judge.formats.yaml import YamlError, read_yaml
from gpuperf.judge.reading import names_in, read_text
from gpuperf.judge.task import TaskCase, TaskSource
from gpuperf.model.text import clean

NAMES = ("task.yml", "task.yaml")
REFERENCE, SLOT = "reference.py", "@SUBMISSION@"


def read_gpumode(against: Path, cases: int) -> TaskSource:
    """Return the task in a folder, in its `task.yml`, or beside its `reference.py`.

    Raises: UsageError.
    """
    folder = against if against.is_dir() else against.parent
    described = next((folder / name for name in NAMES if (folder / name).is_file()), None)
    if described is None:
        raise UsageError(f"{folder} has no task.yml", "the cases of a task stand there")
    try:
        task = read_yaml(read_text(described))
    except YamlError as error:
        raise UsageError(f"{described} cannot be read: {error}") from None
    if not isinstance(task, dict):
        raise UsageError(f"{described} holds no mapping")
    files = _files(task, folder)
    reference = files.get("reference", folder / REFERENCE)
    if "generate_input" not in names_in(reference):
        raise UsageError(f"{reference} has no generate_input")
    return TaskSource(
        "gpumode",
        str(reference.absolute()),
        _cases(task, described)[:cases],
        definition={"modules": {name: str(path.absolute()) for name, path in files.items()}},
    )


def _files(task: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """Return the modules of the task by name, except the slot of the submission."""
    files = {}
    for entry in task.get("files") or ():
        if isinstance(entry, dict) and entry.get("source") != SLOT:
            name, source = str(entry.get("name")), str(entry.get("source"))
            if name.endswith(".py"):
                files[name.removesuffix(".py")] = folder / source
    return files


def _cases(task: Mapping[str, Any], described: Path) -> tuple[TaskCase, ...]:
    entries = task.get("benchmarks") or task.get("tests") or ()
    cases = [entry for entry in entries if isinstance(entry, dict)]
    if not cases:
        raise UsageError(f"{described} lists no benchmarks and no tests")
    return tuple(
        TaskCase(
            clean(",".join(f"{k}={v}" for k, v in case.items() if k != "seed"))[:200] or "default",
            case,
        )
        for case in cases
    )
