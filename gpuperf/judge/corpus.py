"""Read a corpus of known cheats and honest kernels.

A corpus is a folder with `tasks/`, `cheats/`, `honest/` and `families/`. A submission names its
task and the device that it needs (`cpu`, `gpu` or `any`) in an assignment `TASK, DEVICE = "matmul",
"any"`, and its family in its docstring. A file in `families/` is task and honest submissions in
one: `VARIANTS` has the variants of each task, `model(task, variant)` returns a module, and
`inputs(task)` a function that draws inputs. `FORBID = "library"` has a submission in `cheats/` or
`honest/` judged where kernels of libraries are forbidden.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gpuperf.errors import UsageError
from gpuperf.files import is_regular
from gpuperf.judge.evidence import Forbidden
from gpuperf.judge.reading import read_text

Kind = Literal["cheat", "honest"]
FOLDERS: dict[Kind, str] = {"cheat": "cheats", "honest": "honest"}
FAMILIES = "families"
DEVICES = ("cpu", "gpu", "any")
EXAMPLE = 'TASK, DEVICE = "matmul", "cpu"'
EXAMPLE_OF_FAMILY = 'VARIANTS, DEVICE = {"task": ("variant",)}, "gpu", in two assignments'


@dataclass(frozen=True)
class Sample:
    """A submission of a corpus: what it is, its task, the device that it needs, its docstring, its
    variant in a family, and whose kernels are forbidden."""

    path: Path
    kind: Kind
    task: str
    device: str
    summary: str
    variant: str = ""
    forbidden: Forbidden = ""

    @property
    def name(self) -> str:
        """The name of the file, or of a variant of a family."""
        return f"{self.path.stem}_{self.task}_{self.variant}" if self.variant else self.path.stem

    def runs_on(self, gpu: bool) -> bool:
        """Return whether it is to be judged on a GPU, or on a CPU."""
        return self.device in ("any", "gpu" if gpu else "cpu")

    def texts(self) -> tuple[str, str]:
        """Return the text of its task, and its own. Raises: UsageError."""
        if not self.variant:
            task = self.path.parents[1] / "tasks" / f"{self.task}.py"
            return read_text(task), read_text(self.path)
        text = read_text(self.path)
        made = (
            f'\n\nModel, ModelNew = model("{self.task}", "reference"), '
            f'model("{self.task}", "{{}}")\nget_inputs = inputs("{self.task}")\n'
        )
        return text + made.format("reference"), text + made.format(self.variant)

    def sha256(self) -> str:
        """Return the SHA-256 of both texts."""
        return hashlib.sha256("\0".join(self.texts()).encode()).hexdigest()


def read_corpus(folder: Path, only: str = "") -> list[Sample]:
    """Return the samples in *folder* whose names contain *only*. Raises: UsageError."""
    samples = [
        _sample(path, kind)
        for kind, name in FOLDERS.items()
        for path in sorted((folder / name).glob("*.py"))
    ]
    for path in sorted((folder / FAMILIES).glob("*.py")):
        samples += _family(path)
    if not samples:
        raise UsageError(
            f"{folder} holds no corpus", "--corpus tests/cheats/judged of a clone of gpuperf"
        )
    paths: dict[str, Path] = {}
    for sample in samples:
        if sample.name in paths:
            what = f"{paths[sample.name]} and {sample.path} name a submission {sample.name!r}"
            raise UsageError(what, "rename one of the two")
        paths[sample.name] = sample.path
    chosen = [sample for sample in samples if only in sample.name]
    if not chosen:
        raise UsageError(f"no submission in {folder} has {only!r} in its name", "leave out --only")
    return chosen


def _sample(path: Path, kind: Kind) -> Sample:
    tree = _parsed(path)
    match _value(tree, "(TASK, DEVICE)"):
        case (str(task), str(device)) if _is_name(task) and device in DEVICES:
            if not is_regular(path.parents[1] / "tasks" / f"{task}.py"):
                raise UsageError(
                    f"{path} names the unknown task {task!r}", "add its file to tasks/"
                )
            forbidden: Forbidden = _value(tree, "FORBID") or ""
            if forbidden not in ("", "library"):
                raise UsageError(f"{path} forbids {forbidden!r}", 'FORBID = "library"')
            summary = ast.get_docstring(tree) or ""
            return Sample(path, kind, task, device, summary, forbidden=forbidden)
    raise UsageError(f"{path} names no task and device", EXAMPLE)


def _family(path: Path) -> Iterator[Sample]:
    tree = _parsed(path)
    variants, device = _value(tree, "VARIANTS"), _value(tree, "DEVICE")
    if not isinstance(variants, dict) or device not in DEVICES:
        raise UsageError(f"{path} names no variants and device", EXAMPLE_OF_FAMILY)
    for task, names in variants.items():
        if not isinstance(names, list | tuple) or not all(map(_is_name, (task, *names))):
            raise UsageError(f"{path} names the variants of a task by no names", EXAMPLE_OF_FAMILY)
        for name in names:
            yield Sample(path, "honest", task, device, ast.get_docstring(tree) or "", name)


def _is_name(value: Any) -> bool:
    """Return whether *value* can be a part of a file's name, and of the text of a module."""
    return isinstance(value, str) and value.isidentifier()


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(read_text(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} is not Python: {error}", "correct it, or remove it") from None


def _value(tree: ast.Module, name: str) -> Any:
    """Return the literal that is assigned to *name*; None if there is none."""
    for node in tree.body:
        with contextlib.suppress(ValueError, TypeError, RecursionError, MemoryError):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return ast.literal_eval(node.value)
    return None
