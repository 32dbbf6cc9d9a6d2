"""Run the rounds of one process of a submission, and collect what they show."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuperf.errors import CannotMeasure
from gpuperf.judge.evidence import Audit, CaseEvidence, Failure, IdleTime, WindowTime
from gpuperf.judge.plan import Plan, Round
from gpuperf.judge.protocol import Check, Checked, Fill, Loaded, Place, TensorSpec
from gpuperf.judge.score import score_of
from gpuperf.judge.seat import Ended, Refusal, Returned, Seat, ask
from gpuperf.run.connection import LocalConnection

IDLE_S = 0.15  # seconds of a pause in which a seat may run and has nothing to do
NOISY = 1.2  # upper over lower end of the interval, over which more rounds are played ...
LONGER_S = 3.0  # ... for this many seconds
SETTLED = 6  # rounds after which a wrong result ends the trial
ALIGNMENT = 64


@dataclass(frozen=True)
class Bench:
    """The workers of one process of a submission, and the file that results are copied into.

    The first of `references` is the reference itself.
    """

    answers: LocalConnection
    seat: Seat
    references: tuple[Seat, ...]
    results: Path
    loaded: Loaded
    slots: int


@dataclass
class Trial:
    """The rounds of one process of a submission.

    `uncompiled` says why torch.compile of the reference was not timed to the end, if it was not.
    """

    bench: Bench
    process: int
    secret: int
    deadline_s: float
    _audits: list[Audit] = field(default_factory=list)
    _windows: list[WindowTime] = field(default_factory=list)
    _idles: list[IdleTime] = field(default_factory=list)
    _replaced: str = ""
    uncompiled: str = ""
    _rounds: int = 0

    def run(self, evidence: CaseEvidence) -> CaseEvidence:
        """Return *evidence* with what the rounds show. Raises: CannotMeasure."""
        failure: Failure | None = None
        reason = ""
        try:
            self._run()
        except Ended as ended:
            known: dict[str, Failure] = {"timeout": "timeout", "oom": "oom"}
            failure, reason = known.get(ended.failure, "crashed"), str(ended)
        calls = sum(w.calls for w in self._windows if w.side == "submission")
        return replace(
            evidence,
            failure=failure,
            reason=reason,
            audits=(*evidence.audits, *self._audits),
            windows=(*evidence.windows, *self._windows),
            idles=(*evidence.idles, *self._idles),
            replaced=evidence.replaced or self._replaced,
            seeds=(*evidence.seeds, f"{self.secret:016x}"),
            calls=evidence.calls + calls,
        )

    def _run(self) -> None:
        plan = Plan(self.secret, self.bench.slots, self.bench.loaded.kinds)
        for each in plan.warm_rounds():
            self._round(each)
        plan.call_s = self._call_s()
        began = time.monotonic()
        while self._play(plan.rounds()) and self._is_noisy():
            if time.monotonic() - began > LONGER_S:
                break

    def _play(self, rounds: Sequence[Round]) -> bool:
        """Play *rounds*; return False once a result is wrong. Raises: Ended."""
        pauses = {len(rounds) // 3, len(rounds) - 1}
        for number, each in enumerate(rounds):
            self._round(each)
            if number in pauses:
                self._pause()
            if self._rounds >= SETTLED and any(audit.failed for audit in self._audits):
                return False
        return True

    def _is_noisy(self) -> bool:
        """Return whether further rounds could narrow the interval of the score."""
        score = score_of(CaseEvidence("", windows=tuple(self._windows)))
        return score is None or score.high > NOISY * score.low

    def _call_s(self) -> float:
        """Return the seconds of a call of the reference in the rounds so far."""
        windows = [w for w in self._windows if w.side == "reference" and w.calls]
        return statistics.median(w.clerk_s / w.calls for w in windows)

    def _round(self, each: Round) -> None:
        """Fill the slots, let both sides run in turn, and audit some results. Raises: Ended."""
        self._rounds += 1
        self._ask_answers(Fill(each.contents))
        for seat in self._seats(each.submission_first):
            if seat is not self.bench.seat:
                self._reference_window(seat, each)
                continue
            returned = seat.window(each.order)
            self._keep(seat, each, returned)
            self._replaced = self._replaced or returned.done.replaced[:300]
            self._audit(each, returned)

    def _seats(self, submission_first: bool) -> tuple[Seat, ...]:
        seats = (self.bench.seat, *self.bench.references)
        return seats if submission_first else seats[::-1]

    def _reference_window(self, seat: Seat, each: Round) -> None:
        if seat.side == "compiled" and self.uncompiled:
            return
        try:
            self._keep(seat, each, seat.window(each.order))
        except Ended as ended:
            if seat.side == "compiled":
                self.uncompiled = str(ended)
                return
            raise CannotMeasure(f"the reference failed: {ended}") from None

    def _keep(self, seat: Seat, each: Round, returned: Returned) -> None:
        self._windows.append(
            WindowTime(
                self.process,
                self._rounds,
                seat.side,
                len(each.order),
                returned.clerk_s,
                sum(returned.done.claims),
                returned.cpu_s,
                each.timed,
            )
        )

    def _audit(self, each: Round, returned: Returned) -> None:
        """Copy the audited results out of the stopped seat, and have them compared."""
        slots, places, end = [], [], 0
        with self.bench.results.open("r+b") as file:
            for index in each.audited:
                contents = each.contents[index]
                try:
                    specs, end = self._copy(file.fileno(), returned.done.places[index], end)
                except Refusal as refusal:
                    refused = Audit(contents.slot, contents.kind, reason=str(refusal))
                    self._audits.append(self._placed(refused, each))
                    continue
                slots.append(contents.slot)
                places.append(specs)
        checked = self._ask_answers(Check(tuple(slots), tuple(places)))
        assert isinstance(checked, Checked)
        self._audits += [self._placed(audit, each) for audit in checked.audits]

    def _copy(
        self, file: int, places: tuple[Place, ...], end: int
    ) -> tuple[tuple[TensorSpec, ...], int]:
        """Copy a result into *file* from byte *end*; return its tensors, and the new end."""
        right = self.bench.loaded.results
        if len(places) != len(right):
            raise Refusal(f"is {len(places)} tensors where the reference is {len(right)}")
        specs = []
        for place, want in zip(places, right, strict=True):
            spec, data = self.bench.seat.read(place, want.bytes, self.bench.loaded.aliases)
            end = -(-end // ALIGNMENT) * ALIGNMENT
            os.pwrite(file, data, end)
            specs.append(
                TensorSpec(spec.shape, spec.strides, spec.dtype, offset=end, bytes=spec.bytes)
            )
            end += len(data)
        return tuple(specs), end

    def _placed(self, audit: Audit, each: Round) -> Audit:
        return replace(audit, process=self.process, window=self._rounds, timed=each.timed)

    def _pause(self) -> None:
        for seat in (self.bench.seat, self.bench.references[0]):
            self._idles.append(seat.idle(IDLE_S, self.process))

    def _ask_answers(self, request: Fill | Check) -> object:
        try:
            return ask(self.bench.answers, request, self.deadline_s)
        except Ended as ended:
            raise CannotMeasure(f"the answers cannot be computed: {ended}") from None
