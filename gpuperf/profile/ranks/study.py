"""Compare the ranks of a distributed program: how long each communicates, and for whom it waits.

The ranks have different clocks, so only durations are compared. A collective that no rank leaves
before all have come is shortest on the rank that came last, which waited for no other: what it
takes longer on another rank, that rank waited. The n-th call of a traced step on one rank belongs
to the n-th call of the same step, name, size and group on the others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuperf.model.collective import JOINT, Collective, Message
from gpuperf.model.record import Record
from gpuperf.model.samples import mean_precision

LATE = 0.02  # share of the step from which on a rank that comes last is a straggler
LONE = 0.5  # share of a rank's waiting in one step from which on that step makes the mean
SURE = 1.0  # relative half-width of the 95 % interval of that time below which it is beyond noise


@dataclass(frozen=True)
class RankRow:
    """A rank: the seconds of its plain step (None without one), and those of a traced step: of the
    whole, in which it computed, communicated, communicated without computing (`exposed_s`), waited
    for others in collectives (None if they cannot be compared), and in which its GPU was idle, as
    its host had launched nothing (None: unknown). In the plain step it waited `data_s` for data.
    """

    rank: int
    device: int
    step_s: float | None
    traced_s: float | None
    compute_s: float | None
    communication_s: float | None
    exposed_s: float | None
    waiting_s: float | None = None
    idle_s: float | None = None
    data_s: float = 0.0

    @property
    def worked_s(self) -> float | None:
        """Return an upper bound of the exposed seconds in which all ranks had come to a collective;
        None if their waiting is unknown."""
        if self.waiting_s is None or self.exposed_s is None:
            return None
        return max(0.0, min(self.exposed_s, (self.communication_s or 0.0) - self.waiting_s))


@dataclass(frozen=True)
class CollectiveRow:
    """A collective of the reporting rank: the calls of a step, the seconds of one on this rank, and
    on the rank that came last to it (None if the ranks cannot be compared), and the seconds of a
    step that are exposed, and in which this rank waited."""

    collective: Collective
    own_s: float
    last_s: float | None
    waiting_s: float | None

    @property
    def call_s(self) -> float:
        """Return the seconds of a call on the rank that came last; if unknown, on this rank."""
        return self.own_s if self.last_s is None else self.last_s


@dataclass(frozen=True)
class LoneWait:
    """A traced step (`step`, from 1 on) with most of the waiting of *rank*: the seconds in it, and
    in the median one of the other steps."""

    rank: int
    step: int
    seconds: float
    usual_s: float


@dataclass(frozen=True)
class Together:
    """The ranks of a region of a program of *world* ranks, compared over *steps* traced steps.

    The rank `straggler` (None: no rank) came `late_s` seconds a step later to the collectives than
    every other rank. `lone` is the step in which a rank waited most, if it makes the mean. `doubt`
    says why ranks cannot be compared, or not all of their collectives.
    """

    world: int
    rows: tuple[RankRow, ...]
    collectives: tuple[CollectiveRow, ...] = ()
    steps: int = 0
    straggler: int | None = None
    late_s: float = 0.0
    doubt: str = ""
    lone: LoneWait | None = None


Span = tuple[float, float]  # begin and end, in seconds by the clock of one rank


@dataclass
class _Compared:
    """Calls of the ranks that belong together: the spans in which each rank waited, by step and by
    message, and the seconds of the shortest calls."""

    waiting: dict[int, list[list[Span]]] = field(default_factory=dict)
    own: dict[Message, dict[int, list[Span]]] = field(default_factory=dict)
    last: dict[Message, list[float]] = field(default_factory=dict)
    skipped: dict[Message, None] = field(default_factory=dict)


def together(records: Sequence[Record], step_s: Mapping[int, float]) -> Together:
    """Compare the ranks by their *records* of one region, the reporting rank's first; *step_s* are
    the seconds of a plain step by rank."""
    steps = _common_steps(records)
    compared = _compare(records, steps) if len(records) > 1 else _Compared()
    waited = {rank: list(map(_covered_s, own)) for rank, own in compared.waiting.items()}
    waiting = {rank: statistics.fmean(own) for rank, own in waited.items()}
    straggler, late_s = _straggler(waited, records)
    return Together(
        records[0].world,
        tuple(_row(record, step_s.get(record.rank), waiting) for record in records),
        tuple(_collective_rows(records[0], compared, len(steps))),
        len(steps) if waiting else 0,
        straggler,
        late_s,
        _doubt(records, steps, compared),
        _lone(waited, records),
    )


def _common_steps(records: Sequence[Record]) -> range:
    """Return the numbers of the steps that all ranks traced; none if the program marks no steps, as
    each rank then traces what it runs in some seconds."""
    begins, ends = [0], []
    for record in records:
        program = record.program
        if program is None or not program.collectives or "plain" not in program.steps:
            return range(0)
        first = program.first.get("trace", 0)
        begins.append(first)
        ends.append(first + len(program.collectives[0].seconds))
    return range(max(begins), min(ends))


def _compare(records: Sequence[Record], steps: range) -> _Compared:
    compared = _Compared()
    messages = dict.fromkeys(
        one.message for record in records for one in _collectives(record) if _is_joint(one.message)
    )
    for step in steps:
        waited: dict[int, list[Span]] = {record.rank: [] for record in records}
        for message in messages:
            calls = {r.rank: own for r in records if (own := _calls(r, message, step))}
            if len(calls) == message.ranks and len(set(map(len, calls.values()))) == 1:
                _add_calls(compared, message, calls, waited)
            else:
                compared.skipped[message] = None
        for rank, spans in waited.items():
            compared.waiting.setdefault(rank, []).append(spans)
    return compared if compared.last else _Compared(skipped=compared.skipped)


def _add_calls(
    compared: _Compared,
    message: Message,
    calls: Mapping[int, Sequence[Span]],
    waited: Mapping[int, list[Span]],
) -> None:
    """Add the *calls* of *message* in one step by rank, whose n-th ones belong together."""
    for ranked in zip(*calls.values(), strict=True):
        shortest = min(end - begin for begin, end in ranked)
        compared.last.setdefault(message, []).append(shortest)
        for rank, (begin, end) in zip(calls, ranked, strict=True):
            span = begin, end - shortest  # the last rank has come: from here on all of them work
            waited[rank].append(span)
            compared.own.setdefault(message, {}).setdefault(rank, []).append(span)


def _covered_s(spans: Sequence[Span]) -> float:
    """Return the seconds of the union of *spans*: a rank may wait in two collectives at once."""
    covered, until = 0.0, -math.inf
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered


def _collectives(record: Record) -> tuple[Collective, ...]:
    return record.program.collectives if record.program else ()


def _is_joint(message: Message) -> bool:
    return message.name in JOINT


def _calls(record: Record, message: Message, step: int) -> list[Span]:
    """Return the span of each call of *message* in the step number *step* of a rank."""
    assert record.program is not None
    at = step - record.program.first.get("trace", 0)
    return [
        (begin, begin + seconds)
        for one in record.program.collectives
        if one.message == message
        for begin, seconds in zip(one.starts[at], one.seconds[at], strict=True)
    ]


def _straggler(
    waiting: Mapping[int, Sequence[float]], records: Sequence[Record]
) -> tuple[int | None, float]:
    """Return the rank for which all others wait, and for how long a step they do at the least;
    (None, 0) if no rank is later than the others beyond the noise between steps."""
    if len(waiting) < 2:
        return None, 0.0
    last = min(waiting, key=lambda rank: statistics.fmean(waiting[rank]))
    others = [own for rank, own in waiting.items() if rank != last]
    late = tuple(
        min(own[step] for own in others) - seconds for step, seconds in enumerate(waiting[last])
    )
    late_s = statistics.fmean(late)
    traced_s = min((_traced(record) or 0.0 for record in records), default=0.0)
    if late_s <= 0 or late_s < LATE * traced_s or mean_precision(late) >= SURE:
        return None, 0.0
    return last, late_s


def _lone(waiting: Mapping[int, Sequence[float]], records: Sequence[Record]) -> LoneWait | None:
    """Return the step that makes the mean of the rank that waits longest; None if no step does, or
    if that mean is a small share of the step."""
    if not waiting:
        return None
    rank = max(waiting, key=lambda rank: statistics.fmean(waiting[rank]))
    own = waiting[rank]
    most_s = max(own)
    traced_s = min((_traced(record) or 0.0 for record in records), default=0.0)
    if len(own) < 3 or sum(own) < LATE * traced_s * len(own) or most_s < LONE * sum(own):
        return None
    at = own.index(most_s)
    return LoneWait(rank, at + 1, most_s, statistics.median([*own[:at], *own[at + 1 :]]))


def _traced(record: Record) -> float | None:
    traced = record.times.get("traced")
    return traced.median_s if traced else None


def _row(record: Record, step_s: float | None, waiting: Mapping[int, float]) -> RankRow:
    seconds = record.program.occupied if record.program else {}
    linked, busy = bool(_collectives(record)), record.times.get("busy")
    return RankRow(
        record.rank,
        record.devices[0] if record.devices else 0,
        step_s,
        _traced(record),
        seconds.get("compute", busy.median_s if busy else None),
        seconds.get("communication") if linked else None,
        seconds.get("exposed"),
        waiting.get(record.rank),
        seconds.get("idle_host"),
        record.program.data_s if record.program else 0.0,
    )


def _collective_rows(record: Record, compared: _Compared, steps: int) -> Iterator[CollectiveRow]:
    for one in _collectives(record):
        calls = sum(map(len, one.seconds))
        last = compared.last.get(one.message)
        own = compared.own.get(one.message, {}).get(record.rank)
        yield CollectiveRow(
            one,
            sum(map(sum, one.seconds)) / calls,
            statistics.fmean(last) if last else None,
            None if own is None else _covered_s(own) / steps,
        )


def _doubt(records: Sequence[Record], steps: range, compared: _Compared) -> str:
    if len(records) < 2 or not any(map(_collectives, records)):
        return ""
    if any(record.program and "plain" not in record.program.steps for record in records):
        return (
            "the program marks no steps, so that each rank traced other ones and waiting is "
            "unknown: call gpuperf.step()"
        )
    if not steps:
        return "no step was traced with collectives on all ranks, so their waiting is unknown"
    if not compared.skipped:
        return ""
    if any(not message.ranks for message in compared.skipped):
        return (
            "the trace does not say between which ranks some collectives are, since the program "
            "has several process groups: waiting in them is unknown"
        )
    names = ", ".join(dict.fromkeys(message.name for message in compared.skipped))
    return (
        f"ranks made different calls of {names}, or some of the group's are missing: waiting in "
        "them is unknown"
    )
