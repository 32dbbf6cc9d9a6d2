"""Where do the points of a history stand: in which panel, and where along its axes?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gpuperf.history.study import Point, Segment, Series

ALIKE = 1.5  # times that stand in one panel: a step of 3 % is seen beside them
BUNCHED = 5.0  # times closer than on average are half of the points: dates are no axis
YEARS = (1990, 2200)  # of dates that are an axis
REACH = 8.0  # quartile distances from a level: further out is drawn at the edge
BESIDE = 0.6  # of a run, beyond the first and the last
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True)
class Axis:
    """Where points stand: by date, or by number of the run where dates bunch."""

    order: dict[int, float]
    dated: bool
    points: tuple[Point, ...]

    def at(self, point: Point) -> float:
        return self.order[id(point)]


def panels_of(series: Series) -> list[list[Segment]]:
    """Segments that share a panel: those of one contract and hardware, and such as follow each
    other in time and take about as long."""
    tracks: dict[object, list[Segment]] = {}
    for segment in series.segments:
        tracks.setdefault(segment.environment.fixed, []).append(segment)
    panels: list[list[Segment]] = []
    for track in tracks.values():
        fit = next((panel for panel in panels if _follows(track, panel)), None)
        if fit is None:
            panels.append(list(track))
        else:
            fit.extend(track)
    return panels


def _follows(track: Sequence[Segment], panel: Sequence[Segment]) -> bool:
    first = min(segment.points[0].when for segment in track)
    last = max(segment.points[-1].when for segment in panel)
    middles = [
        statistics.median(point.median_s for segment in one for point in segment.points)
        for one in (track, panel)
    ]
    return first > last and max(middles) < ALIKE * min(middles)


def axis_of(series: Series, panel: Sequence[Segment]) -> Axis:
    """Dates, unless those of *panel* bunch."""
    import matplotlib.dates

    dates: Any = matplotlib.dates
    points = tuple(point for point, _ in series.points)
    known = all(YEARS[0] <= point.when.year <= YEARS[1] for point in points)
    whens = sorted(point.when for segment in panel for point in segment.points)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(whens)]
    gaps = [gap for gap in gaps if gap]
    if known and gaps and statistics.median(gaps) * BUNCHED > statistics.fmean(gaps):
        return Axis({id(p): float(dates.date2num(p.when)) for p in points}, True, points)
    runs = {run: i for i, run in enumerate(dict.fromkeys(point.run for point in points), 1)}
    return Axis({id(p): float(runs[p.run]) for p in points}, False, points)


def limits_of(panel: Sequence[Segment]) -> tuple[float, float]:
    """What of the times is shown: all, but for outliers that would flatten the rest."""
    lows, highs = [], []
    for segment in panel:
        for first, end in segment.levels():
            times = sorted(point.median_s for point in segment.points[first:end])
            middle = statistics.median(times)
            quarter = times[len(times) * 3 // 4] - times[len(times) // 4]
            reach = max(REACH * quarter, 0.02 * middle)
            lows.append(max(times[0], middle - reach))
            highs.append(min(times[-1], middle + reach))
    low, high = min(lows), max(highs)
    pad = max(0.06 * (high - low), 0.004 * high)
    return low - pad, high + pad


def label_times(part: Any, high: float) -> None:
    """Times along *part*, in the unit of the greatest."""
    scale, unit = next(((s, u) for s, u in UNITS if high >= s), UNITS[-1])

    def told(value: float, _: object) -> str:
        ticks = part.yaxis.get_majorticklocs()
        step = f"{(ticks[1] - ticks[0]) / scale:.4g}" if len(ticks) > 1 else "0.001"
        return f"{value / scale:.{len(step.partition('.')[2])}f}"

    part.yaxis.set_major_formatter(told)
    part.set_ylabel(f"time, {unit}")


def label_axis(part: Any, axis: Axis) -> None:
    """Dates along the lowest panel; numbers of runs with their dates where those bunch."""
    if axis.dated:
        import matplotlib.dates

        dates: Any = matplotlib.dates
        locator = dates.AutoDateLocator(tz="UTC", maxticks=10)
        part.xaxis.set_major_locator(locator)
        part.xaxis.set_major_formatter(
            dates.ConciseDateFormatter(locator, tz="UTC", show_offset=False)
        )
        ends = (min(p.when for p in axis.points), max(p.when for p in axis.points))
        part.set_xlabel(" … ".join(f"{when:%Y-%m-%d}" for when in ends) + ", UTC", fontsize=9.5)
        return
    from matplotlib.ticker import MaxNLocator

    left, right = part.get_xlim()
    part.set_xlim(left - BESIDE, right + BESIDE)
    days = {round(axis.at(point)): f"{point.when:%Y-%m-%d}" for point in axis.points}
    part.xaxis.set_major_locator(MaxNLocator(9, integer=True, min_n_ticks=1))

    def told(value: float, _: object) -> str:
        day = days.get(round(value)) if value == round(value) else None
        return f"run {value:.0f}\n{day}" if day else ""

    part.xaxis.set_major_formatter(told)
