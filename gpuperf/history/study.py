"""Reduce the records of many runs to the times of each case in order, environment by environment.

A point is one run in one environment: the median over its processes. An environment is what two
times must share to be compared: the contract, the hard facts, and in a history the software too,
for another torch alone changed a training step by 16 %. All points of one environment are a
segment, even if others were measured in between (on a second machine, or before a driver was rolled
back); change points are searched for within segments only.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from gpuperf.model.changepoints import LEAST, SIDE, ChangePoint
from gpuperf.model.codec import to_builtins
from gpuperf.model.record import Record, Run
from gpuperf.model.samples import LONGEST_S, SHORTEST_S
from gpuperf.model.workload import Case

Facts = tuple[tuple[str, str], ...]
Quartiles = tuple[float, float, float]


@dataclass(frozen=True)
class Environment:
    """The facts by name on which a time depends: `fixed` ones (contract and device) and `soft` ones
    (software)."""

    fixed: Facts
    soft: Facts

    def differing(self, earlier: Environment) -> tuple[str, ...]:
        """Return a text like `torch 2.11.0 → 2.12.0` for each fact that differs from *earlier*."""
        now, then = dict(self.fixed + self.soft), dict(earlier.fixed + earlier.soft)
        names = dict.fromkeys((*now, *then))
        return tuple(
            f"{name} {then.get(name, 'unknown')} → {now.get(name, 'unknown')}"
            for name in names
            if now.get(name) != then.get(name)
        )


@dataclass(frozen=True)
class Reading:
    """The samples of one case in one process, as quartiles in seconds; if these are None, `status`
    says why. `started` is an ISO 8601 date."""

    case: Case
    environment: Environment
    run: str
    started: str
    status: str
    pass_index: int = 0
    rank: int = 0
    host: str = ""
    quartiles_s: Quartiles | None = None


@dataclass(frozen=True)
class Point:
    """A case in one run: the median over its processes, and the quartiles of their medians (with
    one process, of its samples), `low_s` and `high_s`."""

    run: str
    when: datetime
    median_s: float
    low_s: float
    high_s: float
    processes: int
    host: str = ""


@dataclass(frozen=True)
class Segment:
    """The points of one environment in order of time, with the facts that `changed` since the
    nearest earlier environment; `ChangePoint.at` counts from the first point."""

    environment: Environment
    points: tuple[Point, ...]
    changed: tuple[str, ...] = ()
    change_points: tuple[ChangePoint, ...] = ()

    @property
    def searched(self) -> bool:
        """Return whether there are enough points for a search for change points."""
        return len(self.points) >= LEAST

    def moved(self, change: ChangePoint) -> bool:
        """Return whether the `SIDE` runs after *change* are of other hosts than those before it.

        Segments do not depend on the host, since many clouds assign a new host every night. But two
        cards of one model can differ by more than a change of the code, so the host is reported.
        """
        before, after = (
            {point.host for point in self.points[max(0, first) : end]}
            for first, end in ((change.at - SIDE, change.at), (change.at, change.at + SIDE))
        )
        return "" not in before | after and before.isdisjoint(after)

    @property
    def change(self) -> float | None:
        """Return the median of the last `SIDE` points over that of the first `SIDE`, less 1, not
        tested; None if there are fewer than twice as many points."""
        if len(self.points) < 2 * SIDE:
            return None
        times = [point.median_s for point in self.points]
        return statistics.median(times[-SIDE:]) / statistics.median(times[:SIDE]) - 1

    def levels(self) -> tuple[tuple[int, int], ...]:
        """Return (first, end), indices of points, of each level between change points."""
        bounds = [0, *(change.at for change in self.change_points), len(self.points)]
        return tuple(itertools.pairwise(bounds))


@dataclass(frozen=True)
class Series:
    """The segments of a case in the order of their first points, and the number of readings that
    are in no point, by reason (`left_out`)."""

    case: Case
    segments: tuple[Segment, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def points(self) -> tuple[tuple[Point, Segment], ...]:
        """Return all points in the order of time, each with its segment."""
        both = [(point, segment) for segment in self.segments for point in segment.points]
        return tuple(sorted(both, key=lambda each: _order(each[0])))

    @property
    def change_points(self) -> list[tuple[Segment, ChangePoint]]:
        """Return all change points, each with its segment."""
        return [(segment, change) for segment in self.segments for change in segment.change_points]

    @property
    def last_change(self) -> tuple[Segment, ChangePoint] | None:
        """Return the change point with the latest date, with its segment; None without any."""
        return max(self.change_points, key=lambda c: c[0].points[c[1].at].when, default=None)


def readings_of(run: Run) -> Iterator[Reading]:
    """Yield a reading for each record of a case in *run*."""
    for record in run.records:
        if record.kind == "case":
            yield _reading(record, record.started or run.header.created)


def _reading(record: Record, started: str) -> Reading:
    samples, status, quartiles_s = record.samples, str(record.status), None
    if samples is None or status != "ok":
        status = "no time" if status == "ok" else status
    elif not SHORTEST_S < samples.median_s < LONGEST_S:
        status = "a time out of range"
    else:
        quartiles_s = (samples.quantile_s(0.25), samples.median_s, samples.quantile_s(0.75))
    fixed = {**to_builtins(record.contract), **record.fingerprint.hard, "world": record.world}
    return Reading(
        record.case,
        Environment(_facts(fixed), _facts(record.fingerprint.soft)),
        record.run,
        started,
        status,
        record.pass_index,
        record.rank,
        str(record.fingerprint.live.get("host") or ""),
        quartiles_s,
    )


def _facts(values: Mapping[str, Any]) -> Facts:
    """Return the known *values* by name as text."""
    return tuple(
        (name, f"{value:.10g}" if isinstance(value, float) else str(value))
        for name, value in sorted(values.items())
        if value is not None
    )


def series_of(readings: Iterable[Reading]) -> tuple[Series, ...]:
    """Return a series for each case, by id. A reading that is in several files counts once."""
    cases: dict[str, dict[object, Reading]] = {}
    for reading in readings:
        key = (reading.run, reading.environment, reading.pass_index, reading.rank)
        cases.setdefault(reading.case.id, {})[key] = reading
    return tuple(_series(tuple(cases[case].values())) for case in sorted(cases))


def _series(readings: Sequence[Reading]) -> Series:
    runs: dict[tuple[Environment, str], list[tuple[datetime, Quartiles, str]]] = {}
    left_out: Counter[str] = Counter()
    for reading in readings:
        when = _date(reading.started)
        if reading.quartiles_s is None or when is None:
            left_out["no date" if reading.quartiles_s else reading.status] += 1
            continue
        times = (when, reading.quartiles_s, reading.host)
        runs.setdefault((reading.environment, reading.run), []).append(times)
    points: dict[Environment, list[Point]] = {}
    for (environment, run), group in runs.items():
        points.setdefault(environment, []).append(_point(run, group))
    return Series(readings[0].case, _segments(points), dict(left_out))


def _point(run: str, processes: Sequence[tuple[datetime, Quartiles, str]]) -> Point:
    """Return the point of *processes*, which measured a case in *run*."""
    when, (low, middle, high), host = processes[0]
    if len(processes) > 1:
        medians = [quartiles[1] for _, quartiles, _ in processes]
        low, middle, high = statistics.quantiles(medians, n=4, method="inclusive")
        when = min(date for date, _, _ in processes)
    return Point(run, when, middle, low, high, len(processes), host)


def _segments(points: Mapping[Environment, list[Point]]) -> tuple[Segment, ...]:
    """Return a segment for each environment, compared with the nearest one that began earlier."""
    segments: list[Segment] = []
    ordered = {environment: tuple(sorted(p, key=_order)) for environment, p in points.items()}
    for environment, own in sorted(ordered.items(), key=lambda each: _order(each[1][0])):
        nearest = min(
            (segment.environment for segment in reversed(segments)),
            key=lambda other: (other.fixed != environment.fixed, len(environment.differing(other))),
            default=None,
        )
        changed = environment.differing(nearest) if nearest else ()
        segments.append(Segment(environment, own, changed))
    return tuple(segments)


def _order(point: Point) -> tuple[datetime, str]:
    return point.when, point.run


def _date(text: str) -> datetime | None:
    try:
        date = datetime.fromisoformat(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def times_of(series: Sequence[Series]) -> list[list[float]]:
    """Return the times of every segment in order, for `find_change_points`."""
    segments = [segment for each in series for segment in each.segments]
    return [[point.median_s for point in segment.points] for segment in segments]


def with_change_points(
    series: Sequence[Series], change_points: Sequence[tuple[ChangePoint, ...]]
) -> tuple[Series, ...]:
    """Return *series* with the *change_points* that were detected in `times_of(series)`."""
    left = iter(change_points)
    return tuple(
        replace(e, segments=tuple(replace(s, change_points=next(left)) for s in e.segments))
        for e in series
    )
