"""Judge a corpus of known cheats and honest kernels, and report how often the judge is wrong.

A corpus is a folder with `tasks/`, `cheats/` and `honest/`. Each submission names its task and the
device that it needs in an assignment `TASK, DEVICE = "matmul", "cpu"`, and its family in its
docstring.
"""

from __future__ import annotations

import ast
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.gate.calibration import bound
from gpuperf.judge.clerk import Clerk
from gpuperf.judge.fact import Status
from gpuperf.judge.reading import read_task, read_text
from gpuperf.judge.rule import judge_case
from gpuperf.judge.settings import Settings
from gpuperf.judge.task import Submission
from gpuperf.show.table import Column, Mood, Table, fill, notes_of

ACCUSED: frozenset[Status] = frozenset({"cheat", "wrong", "suspect"})
Kind = Literal["cheat", "honest"]
FOLDERS: dict[Kind, str] = {"cheat": "cheats", "honest": "honest"}


@dataclass(frozen=True)
class Sample:
    """A submission of a corpus: what it is, its task, the device that it needs, its docstring."""

    path: Path
    kind: Kind
    task: str
    device: str
    summary: str


@dataclass(frozen=True)
class Outcome:
    """What the judge said of a sample."""

    sample: Sample
    status: Status
    reason: str
    speedup: float | None = None

    @property
    def mistaken(self) -> bool:
        """Whether a cheat is valid, or an honest submission is accused."""
        if self.sample.kind == "cheat":
            return self.status == "valid"
        return self.status in ACCUSED


def read_corpus(folder: Path, only: str = "") -> list[Sample]:
    """Return the samples in *folder* whose names contain *only*. Raises: UsageError."""
    samples = [
        _sample(path, kind)
        for kind, name in FOLDERS.items()
        for path in sorted((folder / name).glob("*.py"))
        if only in path.stem
    ]
    if not samples:
        raise UsageError(
            f"{folder} holds no corpus", "--corpus tests/cheats/judged of a clone of gpuperf"
        )
    return samples


def _sample(path: Path, kind: Kind) -> Sample:
    tree = ast.parse(read_text(path))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "(TASK, DEVICE)":
            task, device = ast.literal_eval(node.value)
            return Sample(path, kind, str(task), str(device), ast.get_docstring(tree) or "")
    raise UsageError(f"{path} names no task", 'TASK, DEVICE = "matmul", "cpu"')


def judge_corpus(
    samples: Sequence[Sample], settings: Settings, say: Callable[[str], None]
) -> list[Outcome]:
    """Judge the *samples* that need no GPU, task by task. Raises: CannotMeasure."""
    outcomes = []
    for task in sorted({sample.task for sample in samples}):
        folder = Path(tempfile.mkdtemp(prefix="gpuperf-selftest-"))
        try:
            own = [s for s in samples if s.task == task and s.device == "cpu"]
            outcomes += _judge_task(own, task, folder, settings, say)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return outcomes


def _judge_task(
    samples: Sequence[Sample],
    task: str,
    folder: Path,
    settings: Settings,
    say: Callable[[str], None],
) -> list[Outcome]:
    """Judge *samples* against one task, on copies of all files."""
    outcomes: list[Outcome] = []
    left = list(samples)
    while left:
        reference = folder / f"{task}.py"
        shutil.copyfile(left[0].path.parents[1] / "tasks" / reference.name, reference)
        source = read_task(reference, "kernelbench", 1)
        with Clerk(source, source.cases[0], settings) as clerk:
            while left:
                sample = left.pop(0)
                copy = folder / sample.path.name
                shutil.copyfile(sample.path, copy)
                try:
                    judged = judge_case(clerk.judge(Submission(str(copy), name=copy.name)))
                except CannotMeasure as error:  # the sample may have harmed the other workers
                    outcomes.append(Outcome(sample, "inconclusive", str(error)))
                    say(f"{sample.path.stem}: {error}")
                    break
                speedup = judged.score.speedup if judged.score else None
                outcomes.append(Outcome(sample, judged.status, judged.reason, speedup))
                say(f"{sample.path.stem}: {judged.status}")
                if clerk.is_spoiled():
                    break
    return outcomes


def rates_table(outcomes: Sequence[Outcome], skipped: int) -> Table:
    """Return the table of all outcomes, with both rates and their 95 % bounds below it."""
    order = sorted(outcomes, key=lambda o: (not o.mistaken, o.sample.kind, o.sample.path.stem))
    cells = [
        (o.status, o.sample.kind, o.sample.path.stem, f"{o.speedup:.3g}×" if o.speedup else "")
        for o in order
    ]
    heads = (
        Column("status", left=True),
        Column("is", left=True),
        Column("submission", left=True, identity=True),
        Column("speed-up"),
    )
    columns = list(fill(heads, cells))
    moods: tuple[Mood, ...] = tuple("failure" if o.mistaken else "" for o in order)
    columns[0] = replace(columns[0], moods=moods)
    details = tuple((o.reason,) if o.reason else () for o in order)
    notes = [_rate(outcomes, "cheat", "were valid"), _rate(outcomes, "honest", "were accused")]
    undecided = sum(o.status == "inconclusive" for o in outcomes)
    if undecided:
        notes.append(f"{undecided} submissions could not be decided")
    if skipped:
        notes.append(f"{skipped} submissions need a GPU, and were not judged")
    rows = [
        {
            "submission": o.sample.path.stem,
            "kind": o.sample.kind,
            "family": o.sample.summary.partition(":")[0] if o.sample.kind == "cheat" else "",
            "status": o.status,
            "reason": o.reason,
            "speedup": o.speedup,
        }
        for o in order
    ]
    return Table(tuple(columns), details=details, notes=notes_of(*notes), rows=rows)


def _rate(outcomes: Sequence[Outcome], kind: Kind, what: str) -> str:
    """Return a sentence with the rate of mistakes on one *kind*, and its exact 95 % bound."""
    own = [o for o in outcomes if o.sample.kind == kind]
    if not own:
        return f"no {kind} submission was judged"
    wrong = sum(o.mistaken for o in own)
    most = bound(wrong, len(own), True) * 100
    noun = "cheats" if kind == "cheat" else "honest submissions"
    return f"{wrong} of {len(own)} {noun} {what} (rate ≤ {most:.3g} % with 95 % confidence)"
