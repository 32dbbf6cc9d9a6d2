"""Judge a corpus of known cheats and honest kernels, and report how often the judge is wrong.

Outcomes can be kept in a file, so that several sittings add up: a sample is judged again only if
its text, the version of gpuperf, the isolation or the device has changed, or if it could not be
decided.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import gpuperf
from gpuperf.errors import CannotMeasure
from gpuperf.gate.calibration import bound
from gpuperf.judge.clerk import Clerk
from gpuperf.judge.corpus import Kind, Sample
from gpuperf.judge.outcomes import Basis, KeptOutcomes, Outcome
from gpuperf.judge.reading import read_task
from gpuperf.judge.rule import Judgement, judge_case
from gpuperf.judge.run import serving
from gpuperf.judge.settings import Settings
from gpuperf.judge.task import Submission
from gpuperf.model.codec import to_builtins
from gpuperf.run.forking import ForkServer, may_have_gpu
from gpuperf.show.table import Column, Mood, Table, fill, notes_of

LONGEST = 500  # characters of a reason


@dataclass
class SelfTest:
    """A test of the judge on *samples*, for *budget_s* seconds; outcomes are kept in *file*.

    `part` is the number of a part of the samples, from 0, and the number of parts. `able` are the
    samples for the device, once the test has run.
    """

    samples: Sequence[Sample]
    settings: Settings
    say: Callable[[str], None]
    budget_s: float = float("inf")
    file: Path | None = None
    part: tuple[int, int] = (0, 1)
    able: Sequence[Sample] = ()
    _kept: KeptOutcomes | None = None
    _device: str = "cpu"
    _ends: float = float("inf")

    def run(self) -> list[Outcome]:
        """Return the kept outcomes and those of the samples that the device and the time allow.

        Raises: CannotMeasure.
        """
        self._ends = time.monotonic() + self.budget_s
        self._kept = KeptOutcomes(self.file) if self.file else None
        with serving(self.settings) as server:
            self._device = self._opened(server)
            self.able = [s for s in self.samples if s.runs_on(self._device != "cpu")]
            outcomes = self._usable()
            done = {outcome.name for outcome in outcomes}
            # Of all groups, whatever other parts have judged already.
            for group in share_of(_groups(self.able), *self.part):
                left = [sample for sample in group if sample.name not in done]
                if left and time.monotonic() < self._ends:
                    outcomes += self._judge_group(left, server)
        return outcomes

    def _opened(self, server: ForkServer | None) -> str:
        """Return the name of the GPU that the workers open, or `cpu`. Raises: CannotMeasure."""
        if not may_have_gpu(self.settings.device):
            return "cpu"
        with self._clerk(self.samples[0], server) as (clerk, _):
            opened = clerk.load().opened
        return opened.device.name if opened and opened.device.kind != "cpu" else "cpu"

    def _basis(self, sample: Sample) -> Basis:
        isolation = self.settings.isolation
        return Basis(sample.sha256(), gpuperf.__version__, isolation, self._device)

    def _usable(self) -> list[Outcome]:
        """Return the kept outcomes of these samples, version, isolation and device."""
        if self._kept is None:
            return []
        bases = {sample.name: (sample.kind, self._basis(sample)) for sample in self.able}
        if others := self._kept.set_aside(bases):
            self.say(others)
        return self._kept.of(bases)

    def _keep(self, outcome: Outcome) -> None:
        if self._kept is not None:
            self._kept.add(outcome)

    @contextmanager
    def _clerk(self, sample: Sample, server: ForkServer | None) -> Iterator[tuple[Clerk, Path]]:
        """Provide a clerk for the task of *sample*, and the folder of its copy."""
        folder = Path(tempfile.mkdtemp(prefix="gpuperf-selftest-"))
        try:
            reference = folder / f"{sample.task}.py"
            reference.write_text(sample.texts()[0], encoding="utf-8")
            source = read_task(reference, "kernelbench", 1)
            with Clerk(source, source.cases[0], self.settings, server) as clerk:
                yield clerk, folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _judge_group(self, group: Sequence[Sample], server: ForkServer | None) -> list[Outcome]:
        """Judge samples of one task, on copies of all files."""
        outcomes: list[Outcome] = []
        left = list(group)
        while left and time.monotonic() < self._ends:
            with self._clerk(left[0], server) as (clerk, folder):
                while left and time.monotonic() < self._ends:
                    outcome = self._judge(clerk, left.pop(0), folder)
                    outcomes.append(outcome)
                    self._keep(outcome)
                    self.say(f"{outcome.name}: {outcome.status}")
                    if outcome.status == "inconclusive" or clerk.is_spoiled():
                        break
        return outcomes

    def _judge(self, clerk: Clerk, sample: Sample, folder: Path) -> Outcome:
        began = time.monotonic()
        copy = folder / f"submitted_{sample.name}.py"
        copy.write_text(sample.texts()[1], encoding="utf-8")
        family = sample.summary.partition(":")[0] if sample.kind == "cheat" else ""
        named = Outcome(
            sample.name, sample.kind, family, "inconclusive", "", basis=self._basis(sample)
        )
        try:
            evidence = clerk.judge(Submission(str(copy), name=copy.name))
        except CannotMeasure as error:  # the sample may have harmed the other workers
            took_s = time.monotonic() - began
            return replace(named, reason=str(error)[:LONGEST], took_s=took_s)
        judged = judge_case(replace(evidence, forbidden=sample.forbidden))
        return replace(
            named,
            status=judged.status,
            reason=judged.reason[:LONGEST],
            speedup=judged.score.speedup if judged.score else None,
            grade=evidence.grade,
            failed=_sentences(judged, "failed"),
            unavailable=_sentences(judged, "unavailable"),
            took_s=round(time.monotonic() - began, 3),
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


def share_of(groups: Sequence[Sequence[Sample]], number: int, parts: int) -> list[Sequence[Sample]]:
    """Return part *number* of *parts* of *groups*, in their order; each has about as many samples.

    A group starts three processes of its own, which takes about as long as one sample.
    """
    loads, own = [0] * parts, []
    for index in sorted(range(len(groups)), key=lambda index: -len(groups[index])):
        least = loads.index(min(loads))
        loads[least] += len(groups[index]) + 1
        if least == number:
            own.append(index)
    return [groups[index] for index in sorted(own)]


def rates_table(outcomes: Sequence[Outcome], skipped: int, left: int = 0) -> Table:
    """Return the table of all outcomes, with both rates and their 95 % bounds below it.

    *skipped* samples need another device, and for *left* there was no time.
    """
    order = sorted(outcomes, key=lambda o: (not o.mistaken, o.kind, o.name))
    cells = [
        (o.status, o.kind, o.name, f"{o.speedup:.3g}×" if o.speedup else "", o.grade) for o in order
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
        rows=[_row(outcome) for outcome in order],
    )


def _row(outcome: Outcome) -> dict[str, object]:
    row = to_builtins(outcome)
    return {"submission": row.pop("name"), **{k: v for k, v in row.items() if k != "basis"}}


def _rate(outcomes: Sequence[Outcome], kind: Kind, what: str) -> str:
    """Return a sentence with the rate of mistakes on one *kind*, and its exact 95 % bound."""
    own = [o for o in outcomes if o.kind == kind]
    if not own:
        return f"no {kind} submission was judged"
    wrong = sum(o.mistaken for o in own)
    most = bound(wrong, len(own), True) * 100
    noun = "cheats" if kind == "cheat" else "honest submissions"
    return f"{wrong} of {len(own)} {noun} {what} (rate ≤ {most:.3g} % with 95 % confidence)"
