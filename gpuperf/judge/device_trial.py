"""Observe a GPU in the rounds of a trial: traffic that another process counts, records, results.

Results are copied by the seat, but only after the contents of its inputs were withdrawn, and the
clerk times the copies: what was not computed in the window cannot be computed then unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gpuperf.judge.evidence import CollectTime, Counted, Hardware, RecordedWindow, SeenWindow
from gpuperf.judge.plan import Round
from gpuperf.judge.protocol import (
    IN_INPUT,
    Collect,
    Count,
    Counts,
    Done,
    Fetch,
    Place,
    Release,
    TensorSpec,
    Unwatch,
    Watch,
    Watched,
    Withdraw,
    Withdrawn,
)
from gpuperf.judge.seat import Ended, Refusal, Returned, Seat
from gpuperf.judge.task import Side

PAUSE_S = 0.02  # seconds after a window in which the device must rest
ALIGNMENT = 64
Specs = tuple[TensorSpec, ...]


@dataclass
class DeviceTrial:
    """What one process of a submission makes of a GPU.

    `ask` sends a request to the answers' worker. `results` are the specifications of a result of
    the reference, which may be memory of the inputs if `aliases`. `counted` holds the counts of the
    sides that were counted already.
    """

    process: int
    ask: Callable[[Any], object]
    inputs: Literal["shared", "staged"]
    results: Specs
    aliases: bool
    counted: dict[Side, Counted]
    recorded: list[RecordedWindow] = field(default_factory=list)
    seen: list[SeenWindow] = field(default_factory=list)
    collected: list[CollectTime] = field(default_factory=list)
    probes: list[float] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def added_to(self, hardware: Hardware, sides: Sequence[Side]) -> Hardware:
        """Return *hardware* with what was observed, and the counts of *sides*."""
        counted = hardware.counted or tuple(self.counted[s] for s in sides if s in self.counted)
        return replace(
            hardware,
            recorded=(*hardware.recorded, *self.recorded),
            seen=(*hardware.seen, *self.seen),
            collected=(*hardware.collected, *self.collected),
            counted=counted,
            probes=(*hardware.probes, *self.probes),
            missing={**hardware.missing, **self.missing},
        )

    def window(self, seat: Seat, each: Round, number: int) -> Returned:
        """Let *seat* run the window of a round, and keep what is seen of it. Raises: Ended."""
        self._prepare(seat, each.order)
        if each.watched:
            self.ask(Watch())
        returned = seat.window(each.order, each.recorded)
        if each.watched:
            self._keep_seen(self.ask(Unwatch(PAUSE_S)), seat.side, each, number)
        self._keep_recorded(returned.done, seat.side, each, number)
        if seat.side == "reference" and each.audited:
            places = tuple((index, self._placed(at)) for at, index in enumerate(each.audited))
            self._collect(seat, each, number, places)
        return returned

    def _prepare(self, seat: Seat, slots: Sequence[int]) -> None:
        if self.inputs == "staged":
            seat.ask(Fetch(tuple(slots)))

    def take(
        self, seat: Seat, each: Round, number: int, done: Done
    ) -> tuple[list[tuple[int, Specs]], list[tuple[int, str]]]:
        """Have the audited results copied to the answers' worker.

        Return the calls with the specifications of their copies, and those whose results are
        refused, with the reasons. Raises: Ended.
        """
        kept: list[tuple[int, Specs]] = []
        refused: list[tuple[int, str]] = []
        for index in each.audited:
            try:
                self._check(done.places[index])
            except Refusal as refusal:
                refused.append((index, str(refusal)))
            else:
                kept.append((index, self._placed(len(kept))))
        slots = tuple(each.order[index] for index, _ in kept)
        probe = self.inputs == "staged" or self.aliases
        withdrawn = self.ask(Withdraw(slots, probe))
        assert isinstance(withdrawn, Withdrawn)
        self.probes.append(withdrawn.probe_s)
        if kept:
            self._collect(seat, each, number, tuple(kept))
        if kept and self.inputs == "staged":  # by itself, since the reference's copies have no part
            seat.ask(Collect((), slots, ()))
        return kept, refused

    def _collect(
        self, seat: Seat, each: Round, number: int, places: tuple[tuple[int, Specs], ...]
    ) -> None:
        request = Collect(tuple(i for i, _ in places), (), tuple(specs for _, specs in places))
        clerk_s = seat.timed(request)
        self.collected.append(CollectTime(self.process, number, seat.side, len(places), clerk_s))

    def _check(self, places: tuple[Place, ...]) -> None:
        """Refuse a result that has not the form of the reference's. Raises: Refusal."""
        if len(places) != len(self.results):
            raise Refusal(f"is {len(places)} tensors where the reference is {len(self.results)}")
        for place, want in zip(places, self.results, strict=True):
            if place.odd and not (place.odd == IN_INPUT and self.aliases):
                raise Refusal(place.odd[:200])
            if place.shape != want.shape:
                raise Refusal(f"has the shape {place.shape} where {want.shape} is right")
            if place.dtype != want.dtype:
                raise Refusal(f"has the dtype {place.dtype[:40]} where {want.dtype} is right")

    def _placed(self, position: int) -> Specs:
        """Return the specifications of the copy of a result at *position* in the memory of
        results."""
        end = position * result_bytes(self.results)
        specs = []
        for spec in self.results:
            specs.append(replace_offset(spec, end))
            end += -(-spec.bytes // ALIGNMENT) * ALIGNMENT
        return tuple(specs)

    def _keep_seen(self, watched: object, side: Side, each: Round, number: int) -> None:
        assert isinstance(watched, Watched)
        if watched.missing:
            self.missing["witness"] = watched.missing
            return
        self.seen.append(
            SeenWindow(
                self.process,
                number,
                side,
                len(each.order),
                watched.read,
                watched.written,
                watched.busy_s,
                watched.pause_s,
                watched.pause_bytes,
                watched.pause_busy_s,
            )
        )

    def _keep_recorded(self, done: Done, side: Side, each: Round, number: int) -> None:
        records = done.recorded
        if not each.recorded or records is None:
            return
        if records.missing:
            self.missing["kernels"] = records.missing[:300]
            return
        self.recorded.append(
            RecordedWindow(
                self.process,
                number,
                side,
                len(each.order),
                records.busy_s,
                records.late_s,
                records.ran,
                records.lost,
                records.early_s,
            )
        )

    def count(self, seat: Seat, slot: int) -> bool:
        """Have *seat* count the operations of a call; return False if that ended its process.

        Raises: Ended if a call of the submission raised an error of its own.
        """
        if seat.side in self.counted:
            return True
        try:
            self.ask(Release())
            self._prepare(seat, (slot,))
            counts = seat.ask(Count(slot))
        except Ended as ended:
            self.missing["operations"] = f"the counters of kernels: {ended}"
            return False
        if not isinstance(counts, Counts) or counts.counted is None:
            missing = counts.missing if isinstance(counts, Counts) else "another reply"
            if isinstance(counts, Counts) and counts.raised:
                missing = f"a call raised {counts.raised[:250]} while its kernels were counted"
                if seat.side == "submission":
                    raise Ended("error", missing)
            self.missing["operations"] = missing[:300]
            return True
        operations = _finite(counts.counted.operations)
        self.counted[seat.side] = Counted(seat.side, operations, counts.counted.kernels)
        return True


def _finite(operations: Mapping[str, float]) -> dict[str, float]:
    return {name[:40]: value for name, value in operations.items() if 0 <= value < 1e30}


def result_bytes(results: Specs) -> int:
    """Return the bytes of one result, each tensor at a multiple of the alignment."""
    return sum(-(-spec.bytes // ALIGNMENT) * ALIGNMENT for spec in results) or ALIGNMENT


def replace_offset(spec: TensorSpec, offset: int) -> TensorSpec:
    """Return *spec* at byte *offset*."""
    return TensorSpec(spec.shape, spec.strides, spec.dtype, offset, spec.bytes)
