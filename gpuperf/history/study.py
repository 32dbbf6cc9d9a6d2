"""How did the time of a case go over many runs, and which of them may stand side by side?

A point is one run in one environment: the median over its processes. An environment is what two
times must share to be compared: the contract, the hard facts, and here the software too, for torch
alone moved a training step by 16 %. The points of one environment are a segment, whatever was
measured elsewhere in between (a second machine, a driver that was rolled back); nothing is ever
drawn, tested or told across two of them.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from gpuperf.model.changepoints import LEAST, SIDE, ChangePoint
from gpuperf.model.codec import to_builtins
from gpuperf.model.record import Record, Run

SHORTEST_S, LONGEST_S = 1e-12, 1e9  # beyond these nobody measured

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Environment:
    """Under what a time was taken: facts by name, `fixed` (contract, hard) and `soft`."""

    fixed: Facts
    soft: Facts

    def differing(self, earlier: Environment) -> tuple[str, ...]:
        """`torch 2.11.0 → 2.12.0` of each fact that *earlier* had otherwise."""
        now, then = dict(self.fixed + self.soft), dict(earlier.fixed + earlier.soft)
        names = dict.fromkeys((*now, *then))
        return tuple(
            f"{name} {then.get(name, 'unknown')} → {now.get(name, 'unknown')}"
            for name in names
            if now.get(name) != then.get(name)
        )


@dataclass(frozen=True)
class Reading:
    """What one process measured of one case: its median, and the quartiles of its samples;
    without them `status` says why there are none. `started` is ISO 8601."""

    case: str
    run: str
    environment: Environment
    started: str
    status: str
    pass_index: int = 0
    rank: int = 0
    median_s: float = math.nan
    low_s: float = math.nan
    high_s: float = math.nan
    host: str = ""


@dataclass(frozen=True)
class Point:
    """A case in one run: the median over its processes, and the middle half of them (of one
    process, of its samples)."""

    run: str
    when: datetime
    median_s: float
    low_s: float
    high_s: float
    processes: int
    host: str = ""


@dataclass(frozen=True)
class Segment:
    """The points of one environment in time order, what it `changed` against the nearest earlier
    one, and the steps among them (`ChangePoint.at` counts from its first point)."""

    environment: Environment
    points: tuple[Point, ...]
    changed: tuple[str, ...] = ()
    steps: tuple[ChangePoint, ...] = ()

    @property
    def told(self) -> bool:
        """Whether it has points enough for steps to be found."""
        return len(self.points) >= LEAST

    def moved(self, step: ChangePoint) -> bool:
        """Whether the runs after *step* are of other hosts than those before it: no fact of the
        environment, since many a cloud has a new host every night, but two cards of a kind differ
        by more than many a change."""
        before, after = (
            {point.host for point in self.points[max(0, first) : end]}
            for first, end in ((step.at - SIDE, step.at), (step.at, step.at + SIDE))
        )
        return "" not in before | after and before.isdisjoint(after)

    @property
    def change(self) -> float | None:
        """The median of its last points over that of its first ones, less 1: no verdict, and None
        where they would be the same points."""
        if len(self.points) < 2 * SIDE:
            return None
        times = [point.median_s for point in self.points]
        return statistics.median(times[-SIDE:]) / statistics.median(times[:SIDE]) - 1

    def levels(self) -> tuple[tuple[int, int], ...]:
        """(first, end) of the points between steps."""
        bounds = [0, *(step.at for step in self.steps), len(self.points)]
        return tuple(itertools.pairwise(bounds))


@dataclass(frozen=True)
class Series:
    """A case over time: its segments by their first points, and how many readings were left out,
    by reason."""

    case: str
    segments: tuple[Segment, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def points(self) -> tuple[tuple[Point, Segment], ...]:
        """All points in time order, each with its segment."""
        both = [(point, segment) for segment in self.segments for point in segment.points]
        return tuple(sorted(both, key=lambda each: _order(each[0])))

    @property
    def last(self) -> Segment | None:
        """The segment of the last point."""
        return self.points[-1][1] if self.segments else None


def readings_of(run: Run) -> Iterator[Reading]:
    """What *run* says of whole cases."""
    for record in run.records:
        if record.kind == "case":
            yield _reading(record, record.started or run.header.created)


def _reading(record: Record, started: str) -> Reading:
    found = Reading(
        record.case.id,
        record.run,
        _environment(record),
        started,
        record.status,
        record.pass_index,
        record.rank,
        host=str(record.fingerprint.live.get("host") or ""),
    )
    samples = record.samples
    if record.status != "ok" or samples is None:
        return replace(found, status=record.status if record.status != "ok" else "no time")
    if not SHORTEST_S < samples.median_s < LONGEST_S:
        return replace(found, status="a time that is none")
    low, high = (samples.quantile_s(share) for share in (0.25, 0.75))
    return replace(found, median_s=samples.median_s, low_s=low, high_s=high)


def _environment(record: Record) -> Environment:
    contract = to_builtins(record.contract)
    fixed = {**contract, **record.fingerprint.hard, "world": record.world}
    return Environment(_facts(fixed), _facts(record.fingerprint.soft))


def _facts(found: Mapping[str, Any]) -> Facts:
    """By name; what is unknown is left out, as one that says nothing is."""
    return tuple(
        (name, f"{value:.10g}" if isinstance(value, float) else str(value))
        for name, value in sorted(found.items())
        if value is not None
    )


def series_of(readings: Iterable[Reading]) -> tuple[Series, ...]:
    """Each case's points, by its id. A reading that several files hold counts once."""
    cases: dict[str, dict[tuple[Any, ...], Reading]] = {}
    for reading in readings:
        key = (reading.run, reading.environment, reading.pass_index, reading.rank)
        cases.setdefault(reading.case, {})[key] = reading
    return tuple(_series(case, tuple(cases[case].values())) for case in sorted(cases))


def _series(case: str, readings: Sequence[Reading]) -> Series:
    groups: dict[tuple[Environment, str], list[tuple[Reading, datetime]]] = {}
    left_out: Counter[str] = Counter()
    for reading in readings:
        when = _date(reading.started)
        if not math.isfinite(reading.median_s):
            left_out[reading.status] += 1
        elif when is None:
            left_out["no date"] += 1
        else:
            groups.setdefault((reading.environment, reading.run), []).append((reading, when))
    points: dict[Environment, list[Point]] = {}
    for (environment, _), group in groups.items():
        points.setdefault(environment, []).append(_point(group))
    return Series(case, _segments(points), dict(left_out))


def _point(group: Sequence[tuple[Reading, datetime]]) -> Point:
    first = group[0][0]
    medians = [reading.median_s for reading, _ in group]
    low, high = first.low_s, first.high_s
    if len(medians) > 1:
        low, _, high = statistics.quantiles(medians, n=4, method="inclusive")
    when = min(date for _, date in group)
    middle = statistics.median(medians)
    return Point(first.run, when, middle, low, high, len(medians), first.host)


def _segments(points: Mapping[Environment, list[Point]]) -> tuple[Segment, ...]:
    """A segment an environment, each told from the nearest one that began before it."""
    found: list[Segment] = []
    whole = {environment: tuple(sorted(own, key=_order)) for environment, own in points.items()}
    for environment, own in sorted(whole.items(), key=lambda each: _order(each[1][0])):
        nearest = min(
            (segment.environment for segment in reversed(found)),
            key=lambda other: (other.fixed != environment.fixed, len(environment.differing(other))),
            default=None,
        )
        changed = environment.differing(nearest) if nearest else ()
        found.append(Segment(environment, own, changed))
    return tuple(found)


def _order(point: Point) -> tuple[datetime, str]:
    return point.when, point.run


def _date(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def times_of(series: Sequence[Series]) -> list[list[float]]:
    """The times of every segment, in order: what `find_change_points` takes."""
    segments = [segment for each in series for segment in each.segments]
    return [[point.median_s for point in segment.points] for segment in segments]


def with_change_points(
    series: Sequence[Series], steps: Sequence[tuple[ChangePoint, ...]]
) -> tuple[Series, ...]:
    """*series* with what `find_change_points` found in `times_of` them."""
    left = iter(steps)
    return tuple(
        replace(each, segments=tuple(replace(s, steps=next(left)) for s in each.segments))
        for each in series
    )
