"""Run the rounds of one process of a submission, and collect what they show."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuperf.errors import CannotMeasure
from gpuperf.judge.device_trial import DeviceTrial
from gpuperf.judge.evidence import (
    Audit,
    CaseEvidence,
    Counted,
    Failure,
    Hardware,
    IdleTime,
    WindowTime,
)
from gpuperf.judge.plan import Plan, Round
from gpuperf.judge.protocol import Check, Checked, Fill, Loaded, Look, Looked, Place, TensorSpec
from gpuperf.judge.score import score_of
from gpuperf.judge.seat import Ended, Refusal, Returned, Seat, ask, idle
from gpuperf.judge.task import Side
from gpuperf.run.connection import LocalConnection

IDLE_S = 0.15  # seconds of a pause in which a seat may run and has nothing to do
NOISY = 1.2  # upper over lower end of the interval, over which more rounds are played ...
LONGER_S = 3.0  # ... for this many seconds
SETTLED = 6  # rounds after which a wrong result ends the trial
ALIGNMENT = 64


@dataclass(frozen=True)
class Bench:
    """The workers of one process of a submission, and the descriptor of the file that results are
    copied into.

    The first of `references` is the reference itself. On a GPU, `hardware` is what was observed of
    it before, and `counted` the counts of those sides that were counted before.
    """

    answers: LocalConnection
    seat: Seat
    references: tuple[Seat, ...]
    results: int
    loaded: Loaded
    slots: int
    hardware: Hardware | None = None
    counted: dict[Side, Counted] = field(default_factory=dict)


@dataclass
class Trial:
    """The rounds of one process of a submission.

    `uncompiled` says why torch.compile of the reference was not timed to the end, if it was not,
    and `uncounted` that the counters of kernels ended the reference's process.
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
    uncounted: bool = False
    _rounds: int = 0
    _gpu: DeviceTrial | None = None

    def __post_init__(self) -> None:
        if (hardware := self.bench.hardware) is not None:
            loaded = self.bench.loaded
            self._gpu = DeviceTrial(
                self.process,
                self._ask_answers,
                hardware.inputs,
                loaded.results,
                loaded.aliases,
                self.bench.counted,
            )

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
            hardware=self._hardware(),
        )

    def _hardware(self) -> Hardware | None:
        if self._gpu is None or self.bench.hardware is None:
            return None
        return self._gpu.added_to(self.bench.hardware, ("submission", "reference"))

    def _run(self) -> None:
        gpu, loaded = self._gpu is not None, self.bench.loaded
        plan = Plan(self.secret, self.bench.slots, loaded.kinds, gpu=gpu, twins=loaded.twins)
        for each in plan.warm_rounds():
            self._round(each)
        self._look()
        plan.call_s = self._call_s()
        began = time.monotonic()
        while self._play(plan.rounds()) and self._is_noisy():
            if time.monotonic() - began > LONGER_S:
                break
        self._look()
        if self._gpu is not None and not any(audit.failed for audit in self._audits):
            self._look_closer(plan, self._gpu)
            self._look()

    def _look(self) -> None:
        """Keep which functions the submission has replaced. Raises: Ended."""
        looked = self.bench.seat.ask(Look())
        named = looked.replaced[:300] if isinstance(looked, Looked) else "a message of the judge"
        self._replaced = self._replaced or named

    def _look_closer(self, plan: Plan, gpu: DeviceTrial) -> None:
        """Record some windows, and count the operations of one call. Raises: Ended."""
        rounds = plan.recorded_rounds()
        for each in rounds:
            self._round(each)
        cost = self.bench.loaded.cost
        if self.process or cost is None or not cost.flops:
            return
        self._ask_answers(Fill(rounds[-1].contents))
        slot = rounds[-1].order[0]
        gpu.count(self.bench.seat, slot)
        self.uncounted = not gpu.count(self.bench.references[0], slot)

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
        """Return the least seconds of a call of the reference in the rounds so far: the first ones
        load libraries."""
        windows = [w for w in self._windows if w.side == "reference" and w.calls]
        return min(w.clerk_s / w.calls for w in windows)

    def _round(self, each: Round) -> None:
        """Fill the slots, let both sides run in turn, and audit some results. Raises: Ended."""
        self._rounds += 1
        self._ask_answers(Fill(each.contents))
        for seat in self._seats(each.submission_first):
            if seat is not self.bench.seat:
                self._reference_window(seat, each)
                continue
            returned = self._window(seat, each)
            self._keep(seat, each, returned)
            self._audit(each, returned)

    def _window(self, seat: Seat, each: Round) -> Returned:
        if self._gpu is not None:
            return self._gpu.window(seat, each, self._rounds)
        return seat.window(each.order)

    def _seats(self, submission_first: bool) -> tuple[Seat, ...]:
        seats = (self.bench.seat, *self.bench.references)
        return seats if submission_first else seats[::-1]

    def _reference_window(self, seat: Seat, each: Round) -> None:
        if seat.side == "compiled" and self.uncompiled:
            return
        try:
            self._keep(seat, each, self._window(seat, each))
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
        """Have the audited results copied out of the seat and compared. Raises: Ended."""
        if self._gpu is None:
            slots, places = self._copied(each, returned)
        else:
            kept, refused = self._gpu.take(self.bench.seat, each, self._rounds, returned.done)
            for index, reason in refused:
                self._refuse(each, index, reason)
            slots = [each.order[index] for index, _ in kept]
            places = [specs for _, specs in kept]
        checked = self._ask_answers(Check(tuple(slots), tuple(places)))
        assert isinstance(checked, Checked)
        self._audits += [self._placed(audit, each) for audit in checked.audits]

    def _refuse(self, each: Round, index: int, reason: str) -> None:
        contents = each.contents[index]
        self._audits.append(self._placed(Audit(contents.slot, contents.kind, reason=reason), each))

    def _copied(
        self, each: Round, returned: Returned
    ) -> tuple[list[int], list[tuple[TensorSpec, ...]]]:
        """Copy the audited results out of the stopped seat; return their slots and tensors."""
        slots, places, end = [], [], 0
        for index in each.audited:
            try:
                specs, end = self._copy(returned.done.places[index], end)
            except Refusal as refusal:
                self._refuse(each, index, str(refusal))
                continue
            slots.append(each.order[index])
            places.append(specs)
        return slots, places

    def _copy(self, places: tuple[Place, ...], end: int) -> tuple[tuple[TensorSpec, ...], int]:
        """Copy a result into the file of results from byte *end*; return its tensors, and the new
        end. Raises: Refusal, CannotMeasure."""
        right = self.bench.loaded.results
        if len(places) != len(right):
            raise Refusal(f"is {len(places)} tensors where the reference is {len(right)}")
        specs = []
        for place, want in zip(places, right, strict=True):
            spec, data = self.bench.seat.read(place, want.bytes, self.bench.loaded.aliases)
            end = -(-end // ALIGNMENT) * ALIGNMENT
            try:
                os.pwrite(self.bench.results, data, end)
            except OSError as error:
                raise CannotMeasure(f"a result cannot be copied: {error.strerror}") from None
            specs.append(
                TensorSpec(spec.shape, spec.strides, spec.dtype, offset=end, bytes=spec.bytes)
            )
            end += len(data)
        return tuple(specs), end

    def _placed(self, audit: Audit, each: Round) -> Audit:
        return replace(audit, process=self.process, window=self._rounds, timed=each.timed)

    def _pause(self) -> None:
        seats = (self.bench.references[0], self.bench.seat)
        self._idles += idle(seats, IDLE_S, self.process)

    def _ask_answers(self, request: Any) -> object:
        try:
            return ask(self.bench.answers, request, self.deadline_s)
        except Ended as ended:
            raise CannotMeasure(f"the answers cannot be computed: {ended}") from None
