"""Read a task and a submission from files, as data: no code of theirs runs here."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.files import is_regular, read_regular
from gpuperf.judge.task import FORMATS, Format, Submission, TaskSource

LARGEST = 16 << 20  # bytes of a file
READABLE = "give a text file in UTF-8 that you may read"
SHAPES = (
    "a task has one of four forms: KernelBench's (Model, get_inputs), GPU MODE's (task.yml, "
    "reference.py with generate_input), flashinfer-bench's (a definition in JSON), or a file with "
    "a Workload"
)


def read_text(path: Path) -> str:
    """Return the text of *path*. Raises: UsageError."""
    try:
        return read_regular(path, LARGEST).decode()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", READABLE) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text in UTF-8", READABLE) from None


def read_json(path: Path) -> Mapping[str, Any]:
    """Return the object in *path*. Raises: UsageError."""
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} holds no JSON object")
    return value


def names_in(path: Path) -> set[str]:
    """Return the names that the module *path* defines at its top. Raises: UsageError."""
    try:
        tree = ast.parse(read_text(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} is not Python: {error}") from None
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {t.id for t in targets if isinstance(t, ast.Name)}
    return names


def detect_format(against: Path) -> Format:
    """Return the format of the task *against*, by the names in its files. Raises: UsageError."""
    if against.is_dir() or against.name in ("task.yml", "task.yaml"):
        return "gpumode"
    if against.suffix == ".json":
        return "flashinfer"
    names = names_in(_existing(against))
    if "Model" in names and "get_inputs" in names:
        return "kernelbench"
    if "generate_input" in names:
        return "gpumode"
    if "Workload" in names:
        return "gpuperf"
    raise UsageError(f"{against} holds no task that the judge knows", SHAPES)


def read_task(against: Path, format: str, cases: int, point: str = "") -> TaskSource:
    """Return the task in *against*, with at most *cases* cases. Raises: UsageError."""
    known = {name: name for name in FORMATS}
    kind = detect_format(against) if format == "auto" else known[format]  # type: ignore[index]
    if point and kind != "gpuperf":
        raise UsageError(f"a task of {kind} has no points", "leave --point out")
    if kind == "kernelbench":
        return TaskSource(kind, str(_existing(against).absolute()))
    if kind == "gpumode":
        from gpuperf.judge.formats.gpumode import read_gpumode

        return read_gpumode(against, cases)
    if kind == "flashinfer":
        from gpuperf.judge.formats.flashinfer import read_definition

        return read_definition(against, cases)
    from gpuperf.judge.formats.workload import read_workload

    return read_workload(against, point)


def read_submission(path: Path, task: TaskSource, folder: Path) -> Submission:
    """Return the submission in *path*; sources inside a JSON file go into *folder*.

    Raises: UsageError.
    """
    if task.format == "flashinfer" and path.suffix == ".json":
        from gpuperf.judge.formats.flashinfer import read_solution

        return read_solution(path, task, folder)
    return Submission(str(_existing(path).absolute()), name=path.name)


def _existing(path: Path) -> Path:
    if not is_regular(path):
        raise UsageError(f"no file {str(path)!r}", "give the path of a file")
    return path
