"""Lay out the chart of a history: its panels, its time axis, its limits and its labels."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gpuperf.history.study import Point, Segment, Series

ALIKE = 1.5  # times within this ratio share a panel: a change of 3 % is visible beside them
BUNCHED = 5.0  # run numbers replace dates if the mean gap is this many times the median gap
YEARS = (1990, 2200)  # years of plausible dates: with others, run numbers replace dates
REACH = 8.0  # interquartile ranges from a level: points further out are drawn at the edge
BESIDE = 0.6  # runs of empty space before the first and after the last run
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True)
class TimeAxis:
    """The place of each point on the x axis, by `id` of the point: its date in days, or, if not
    `dated`, the number of its run."""

    places: dict[int, float]
    dated: bool
    points: tuple[Point, ...]

    def at(self, point: Point) -> float:
        return self.places[id(point)]


def panels_of(series: Series) -> list[list[Segment]]:
    """Return the segments of *series* by the panel in which they are drawn.

    Segments of one contract and hardware share a panel, and so do those that follow each other in
    time and take about as long.
    """
    tracks: dict[object, list[Segment]] = {}
    for segment in series.segments:
        tracks.setdefault(segment.environment.fixed, []).append(segment)
    panels: list[list[Segment]] = []
    for track in tracks.values():
        panel = next((panel for panel in panels if _follows(track, panel)), None)
        if panel is None:
            panels.append(list(track))
        else:
            panel.extend(track)
    return panels


def _follows(track: Sequence[Segment], panel: Sequence[Segment]) -> bool:
    first = min(segment.points[0].when for segment in track)
    last = max(segment.points[-1].when for segment in panel)
    medians = [
        statistics.median(point.median_s for segment in segments for point in segment.points)
        for segments in (track, panel)
    ]
    return first > last and max(medians) < ALIKE * min(medians)


def axis_of(series: Series, panel: Sequence[Segment]) -> TimeAxis:
    """Return an axis of dates, or of run numbers if dates of *panel* are bunched or implausible."""
    import matplotlib.dates

    dates: Any = matplotlib.dates
    points = tuple(point for point, _ in series.points)
    known = all(YEARS[0] <= point.when.year <= YEARS[1] for point in points)
    whens = sorted(point.when for segment in panel for point in segment.points)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(whens)]
    gaps = [gap for gap in gaps if gap]
    if known and gaps and statistics.median(gaps) * BUNCHED > statistics.fmean(gaps):
        return TimeAxis({id(p): float(dates.date2num(p.when)) for p in points}, True, points)
    runs = {run: i for i, run in enumerate(dict.fromkeys(point.run for point in points), 1)}
    return TimeAxis({id(p): float(runs[p.run]) for p in points}, False, points)


def limits_of(panel: Sequence[Segment]) -> tuple[float, float]:
    """Return the least and greatest seconds on the y axis of *panel*, without far outliers."""
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
    """Label the y axis of *part* in the unit of its greatest time."""
    scale, unit = next(((s, u) for s, u in UNITS if high >= s), UNITS[-1])

    def text(value: float, _: object) -> str:
        ticks = part.yaxis.get_majorticklocs()
        step = f"{(ticks[1] - ticks[0]) / scale:.4g}" if len(ticks) > 1 else "0.001"
        return f"{value / scale:.{len(step.partition('.')[2])}f}"

    part.yaxis.set_major_formatter(text)
    part.set_ylabel(f"time, {unit}")


def label_axis(part: Any, axis: TimeAxis) -> None:
    """Label the x axis of *part* with dates, or with run numbers and their dates."""
    if axis.dated:
        import matplotlib.dates

        dates: Any = matplotlib.dates
        locator = dates.AutoDateLocator(tz="UTC", maxticks=10)
        part.xaxis.set_major_locator(locator)
        part.xaxis.set_major_formatter(
            dates.ConciseDateFormatter(locator, tz="UTC", show_offset=False)
        )
        first, last = min(p.when for p in axis.points), max(p.when for p in axis.points)
        form = "%Y-%m-%d %H:%M" if first.date() == last.date() else "%Y-%m-%d"
        ends = " … ".join(when.strftime(form) for when in (first, last))
        part.set_xlabel(f"{ends}, UTC", fontsize=9.5)
        return
    from matplotlib.ticker import MaxNLocator

    left, right = part.get_xlim()
    part.set_xlim(left - BESIDE, right + BESIDE)
    days = {round(axis.at(point)): f"{point.when:%Y-%m-%d}" for point in axis.points}
    part.xaxis.set_major_locator(MaxNLocator(9, integer=True, min_n_ticks=1))

    def text(value: float, _: object) -> str:
        day = days.get(round(value)) if value == round(value) else None
        return f"run {value:.0f}\n{day}" if day else ""

    part.xaxis.set_major_formatter(text)
