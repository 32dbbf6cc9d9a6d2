"""Judge a corpus of known cheats and honest kernels, and report how often the judge is wrong.

Outcomes can be kept in a file, so that several sittings add up: a sample is judged again only if
its text has changed, or if it could not be decided.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.gate.calibration import bound
from gpuperf.judge.clerk import Clerk
from gpuperf.judge.corpus import Kind, Sample
from gpuperf.judge.fact import Status
from gpuperf.judge.reading import read_task
from gpuperf.judge.rule import Judgement, judge_case
from gpuperf.judge.run import serving
from gpuperf.judge.settings import Settings
from gpuperf.judge.task import Submission
from gpuperf.model.codec import decode, encode
from gpuperf.run.forking import ForkServer
from gpuperf.show.table import Column, Mood, Table, fill, notes_of

ACCUSED: frozenset[Status] = frozenset({"cheat", "wrong", "suspect"})
LONGEST = 500  # characters of a reason


@dataclass(frozen=True)
class Outcome:
    """What the judge said of a sample, the grade of its evidence, the facts that failed and those
    that were unavailable, each with its sentence, and the seconds that it took."""

    sample: Sample
    status: Status
    reason: str
    speedup: float | None = None
    grade: str = ""
    failed: Mapping[str, str] | None = None
    unavailable: Mapping[str, str] | None = None
    took_s: float = 0.0

    @property
    def mistaken(self) -> bool:
        """Whether a cheat is valid, or an honest submission is accused."""
        if self.sample.kind == "cheat":
            return self.status == "valid"
        return self.status in ACCUSED


@dataclass(frozen=True)
class Kept:
    """An outcome in a file, by the name of its sample, the hash of its texts, and the device."""

    name: str
    sha256: str
    device: str
    status: Status
    reason: str
    speedup: float | None = None
    grade: str = ""
    failed: Mapping[str, str] | None = None
    unavailable: Mapping[str, str] | None = None
    took_s: float = 0.0


@dataclass
class SelfTest:
    """A test of the judge on *samples*, for *budget_s* seconds; outcomes are kept in *file*."""

    samples: Sequence[Sample]
    settings: Settings
    say: Callable[[str], None]
    budget_s: float = float("inf")
    file: Path | None = None
    _ends: float = float("inf")

    def run(self) -> list[Outcome]:
        """Return the kept outcomes and those of the samples that the device and the time allow.

        Raises: CannotMeasure, UsageError.
        """
        self._ends = time.monotonic() + self.budget_s
        mine = [s for s in self.samples if s.runs_on(self.settings.may_use_gpu)]
        outcomes = list(self._kept(mine))
        done = {outcome.sample.name for outcome in outcomes}
        left = [sample for sample in mine if sample.name not in done]
        with serving(self.settings) as server:
            for group in _groups(left):
                if time.monotonic() < self._ends:
                    outcomes += self._judge_group(group, server)
        return outcomes

    def _kept(self, samples: Sequence[Sample]) -> Iterator[Outcome]:
        """Yield the outcomes in the file. Raises: UsageError."""
        if self.file is None or not self.file.exists():
            return
        known: dict[str, Kept] = {}
        for line in self.file.read_text(encoding="utf-8").splitlines():
            try:
                kept = decode(line, Kept)
            except ValueError:
                hint = "give another file, or delete it"
                raise UsageError(f"{self.file} holds no outcomes of the judge", hint) from None
            known[kept.name] = kept
        for sample in samples:
            one = known.get(sample.name)
            if one is None or one.status == "inconclusive":
                continue
            if (one.sha256, one.device) == (sample.sha256(), self.settings.device):
                yield Outcome(
                    sample,
                    one.status,
                    one.reason,
                    one.speedup,
                    one.grade,
                    one.failed,
                    one.unavailable,
                    one.took_s,
                )

    def _keep(self, outcome: Outcome) -> None:
        if self.file is None:
            return
        kept = Kept(
            outcome.sample.name,
            outcome.sample.sha256(),
            self.settings.device,
            outcome.status,
            outcome.reason,
            outcome.speedup,
            outcome.grade,
            outcome.failed,
            outcome.unavailable,
            outcome.took_s,
        )
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("ab") as file:
            file.write(encode(kept) + b"\n")

    def _judge_group(self, group: Sequence[Sample], server: ForkServer | None) -> list[Outcome]:
        """Judge samples of one task, on copies of all files."""
        outcomes: list[Outcome] = []
        left = list(group)
        while left and time.monotonic() < self._ends:
            folder = Path(tempfile.mkdtemp(prefix="gpuperf-selftest-"))
            try:
                reference = folder / f"{left[0].task}.py"
                reference.write_text(left[0].texts()[0], encoding="utf-8")
                source = read_task(reference, "kernelbench", 1)
                with Clerk(source, source.cases[0], self.settings, server) as clerk:
                    while left and time.monotonic() < self._ends:
                        outcome = self._judge(clerk, left.pop(0), folder)
                        outcomes.append(outcome)
                        self._keep(outcome)
                        self.say(f"{outcome.sample.name}: {outcome.status}")
                        if outcome.status == "inconclusive" or clerk.is_spoiled():
                            break
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return outcomes

    def _judge(self, clerk: Clerk, sample: Sample, folder: Path) -> Outcome:
        began = time.monotonic()
        copy = folder / f"submitted_{sample.name}.py"
        copy.write_text(sample.texts()[1], encoding="utf-8")
        try:
            evidence = clerk.judge(Submission(str(copy), name=copy.name))
        except CannotMeasure as error:  # the sample may have harmed the other workers
            took_s = time.monotonic() - began
            return Outcome(sample, "inconclusive", str(error)[:LONGEST], took_s=took_s)
        judged = judge_case(evidence)
        return Outcome(
            sample,
            judged.status,
            judged.reason[:LONGEST],
            judged.score.speedup if judged.score else None,
            evidence.grade,
            _sentences(judged, "failed"),
            _sentences(judged, "unavailable"),
            round(time.monotonic() - began, 3),
        )


def _sentences(judged: Judgement, result: str) -> dict[str, str]:
    return {one.name: one.text[:LONGEST] for one in judged.facts if one.result == result}


def _groups(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Return *samples* by task: cheats first, then groups with variants that compile fast."""
    by: dict[tuple[str, str, bool], list[Sample]] = {}
    for sample in samples:
        family = sample.path.stem if sample.variant else ""
        by.setdefault((family, sample.task, sample.variant == "compiled"), []).append(sample)
    order = sorted(by, key=lambda key: (key[2], key[0] != "", key[0], key[1]))
    return [by[key] for key in order]


def rates_table(outcomes: Sequence[Outcome], skipped: int, left: int = 0) -> Table:
    """Return the table of all outcomes, with both rates and their 95 % bounds below it.

    *skipped* samples need another device, and for *left* there was no time.
    """
    order = sorted(outcomes, key=lambda o: (not o.mistaken, o.sample.kind, o.sample.name))
    cells = [
        (o.status, o.sample.kind, o.sample.name, f"{o.speedup:.3g}×" if o.speedup else "", o.grade)
        for o in order
    ]
    heads = (
        Column("status", left=True),
        Column("is", left=True),
        Column("submission", left=True, identity=True),
        Column("speed-up"),
        Column("grade"),
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
        notes.append(f"{skipped} submissions need another device, and were not judged")
    if left:
        notes.append(f"{left} submissions are left for another sitting")
    return Table(
        tuple(columns),
        details=details,
        notes=notes_of(*notes),
        rows=[json.loads(encode(_row(outcome))) for outcome in order],
    )


def _row(outcome: Outcome) -> dict[str, object]:
    sample = outcome.sample
    return {
        "submission": sample.name,
        "kind": sample.kind,
        "family": sample.summary.partition(":")[0] if sample.kind == "cheat" else "",
        "status": outcome.status,
        "reason": outcome.reason,
        "speedup": outcome.speedup,
        "grade": outcome.grade,
        "failed": outcome.failed or {},
        "unavailable": outcome.unavailable or {},
        "took_s": outcome.took_s,
    }


def _rate(outcomes: Sequence[Outcome], kind: Kind, what: str) -> str:
    """Return a sentence with the rate of mistakes on one *kind*, and its exact 95 % bound."""
    own = [o for o in outcomes if o.sample.kind == kind]
    if not own:
        return f"no {kind} submission was judged"
    wrong = sum(o.mistaken for o in own)
    most = bound(wrong, len(own), True) * 100
    noun = "cheats" if kind == "cheat" else "honest submissions"
    return f"{wrong} of {len(own)} {noun} {what} (rate ≤ {most:.3g} % with 95 % confidence)"
