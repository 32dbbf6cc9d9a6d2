"""Draw the times of a case over many runs, with the levels between change points, and lines where
the environment (device, software, contract) changed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.history.study import Point, Segment, Series
from gpuperf.history.table import MOVED, changed_text, interval_text, marked_text, rule_text
from gpuperf.history.trend import TimeAxis, axis_of, label_axis, label_times, limits_of, panels_of
from gpuperf.model.changepoints import LEAST
from gpuperf.model.text import shorten
from gpuperf.show.figure import COLOURS, FAINT, INK, figure

WIDTH, PANEL = 11.0, 3.2  # inches
MOST_PANELS = 4
MOST_LINES = 12  # lines of a panel at which the environment changes
MOST_LABELS = 12  # labelled change points of a panel
MOST_BEYOND = 8  # outliers that are labelled with their distance
CROWD = 150  # points from which on they are drawn small
LONGEST = 110  # characters of a title or a line
WORDS = 36  # characters beside a line
ROOM = 0.34  # share of the height for words above the points
NEAR = 0.2  # share of the width: words closer to each other are in two rows
READING = (
    "dots: the median of a run over its processes; bars: the middle half of the processes, or of "
    "the samples of a single process · black: the median between significant changes · dashed: "
    "the environment changes"
)
SLOWER, FASTER = COLOURS[1], COLOURS[2]
IN_TURN = (COLOURS[0], "#6f9fc0")  # segments that follow each other
BESIDE = (COLOURS[0], COLOURS[3], COLOURS[5], COLOURS[4], "#8a8a8a")  # segments at the same time
Stretch = tuple[Segment, list[Point]]


def draw_history(series: Series, paths: Sequence[Path]) -> None:
    """Draw *series* to each of *paths*, PNG or SVG by suffix.

    Raises: UsageError for another suffix, an unwritable path, and a series without a point.
    """
    if not series.points:
        raise UsageError("the case has no time: nothing to draw", "the table says why")
    panels = panels_of(series)
    shown = panels[:MOST_PANELS]
    axis = axis_of(series, max(panels, key=lambda panel: sum(len(s.points) for s in panel)))
    title = shorten(series.case.id, LONGEST)
    lines = (_summary(series), _common(series, len(panels) - len(shown)))
    moved = any(segment.moved(change) for segment, change in series.change_points)
    notes = (READING, rule_text([series]) + (f" · {MOVED}" if moved else ""))
    with figure(paths, title, lines, notes, WIDTH) as frame:
        parts = frame.stack(*[PANEL] * len(shown), sharex=True)
        for part, panel in zip(parts, shown, strict=True):
            _draw_panel(part, panel, axis)
        if len(shown) > 1:
            _name_panels(parts, shown)
        label_axis(parts[-1], axis)
        frame.fit()


def _draw_panel(part: Any, panel: Sequence[Segment], axis: TimeAxis) -> None:
    """Draw one panel: points, levels, environments and change points."""
    limits = low, high = limits_of(panel)
    stretches = _stretches(panel, axis)
    beside = len(stretches) > len(panel)
    small = sum(len(segment.points) for segment in panel) > CROWD
    for i, segment in enumerate(panel):
        colour = BESIDE[i % len(BESIDE)] if beside else IN_TURN[i % 2]
        _draw_points(part, segment, axis, colour, small, limits)
        if beside:
            part.plot([], [], "o", color=colour, label=_label(segment, panel))
    for segment, points in stretches:
        _draw_levels(part, segment, points, axis)
    part.set_ylim(low, high + (high - low) * ROOM)
    part.margins(x=0.02)
    _draw_environments(part, panel, stretches, axis)
    _draw_changes(part, panel, axis, high)
    if beside:
        part.legend(fontsize=8, loc="lower left", ncols=min(4, len(panel)))
    label_times(part, high)
    part.tick_params(labelsize=9.5)
    part.grid(True, axis="y")


def _stretches(panel: Sequence[Segment], axis: TimeAxis) -> list[Stretch]:
    """Return the points of *panel* from left to right, cut where the next point is of another
    segment, each piece with its segment."""
    points = [(point, segment) for segment in panel for point in segment.points]
    stretches: list[Stretch] = []
    for point, segment in sorted(points, key=lambda each: axis.at(each[0])):
        if not stretches or stretches[-1][0] is not segment:
            stretches.append((segment, []))
        stretches[-1][1].append(point)
    return stretches


def _label(segment: Segment, panel: Sequence[Segment]) -> str:
    """Return the facts (`torch 2.12.0`) in which *segment* differs from others of its panel."""
    known = [dict(other.environment.fixed + other.environment.soft) for other in panel]
    facts = segment.environment.fixed + segment.environment.soft
    differing = [f"{n} {v}" for n, v in facts if any(other.get(n) != v for other in known)]
    return shorten(", ".join(differing), WORDS) or "another environment"


def _draw_points(
    part: Any,
    segment: Segment,
    axis: TimeAxis,
    colour: str,
    small: bool,
    limits: tuple[float, float],
) -> None:
    """Draw the points of *segment* with their bars; those beyond *limits* as arrows."""
    inside = [point for point in segment.points if limits[0] <= point.median_s <= limits[1]]
    xs, ys = [axis.at(p) for p in inside], [p.median_s for p in inside]
    reach = [
        [max(0.0, p.median_s - p.low_s) for p in inside],
        [max(0.0, p.high_s - p.median_s) for p in inside],
    ]
    faint = 0.2 if small else 0.4
    part.errorbar(xs, ys, yerr=reach, fmt="none", ecolor=colour, elinewidth=0.8, alpha=faint)
    part.plot(
        xs,
        ys,
        "o",
        markersize=2.8 if small else 4.4,
        color=colour,
        alpha=0.65 if small else 0.95,
        markeredgewidth=0,
        zorder=3,
    )
    beyond = [p for p in segment.points if not limits[0] <= p.median_s <= limits[1]]
    middle = statistics.median(point.median_s for point in segment.points)
    for point in beyond:
        above = point.median_s > limits[1]
        place = axis.at(point), limits[above]
        marker = "^" if above else "v"
        part.plot(*place, marker, markersize=5.5, color=colour, markerfacecolor="white", zorder=3)
        if len(beyond) <= MOST_BEYOND:
            part.annotate(
                f"{(point.median_s / middle - 1) * 100:+.0f} %",
                place,
                fontsize=8,
                color=colour,
                xytext=(0, 4 if above else -4),
                textcoords="offset points",
                ha="center",
                va="bottom" if above else "top",
            )


def _draw_levels(part: Any, segment: Segment, points: Sequence[Point], axis: TimeAxis) -> None:
    """Draw the medians between change points along *points*, and a riser at each change point."""
    places = {id(point): i for i, point in enumerate(segment.points)}
    line: dict[str, Any] = {"color": INK, "linewidth": 1.8, "zorder": 4}
    before: tuple[float, float] | None = None
    for first, end in segment.levels():
        along = [axis.at(point) for point in points if first <= places[id(point)] < end]
        if not along:
            continue
        middle = statistics.median(point.median_s for point in segment.points[first:end])
        left, right = along[0], along[-1]
        if before is not None:
            place = (before[0] + left) / 2
            part.plot([before[0], place], [before[1]] * 2, **line)
            colour = SLOWER if middle > before[1] else FASTER
            riser = {"linewidth": 2.8, "solid_capstyle": "butt", "color": colour, "zorder": 5}
            part.plot([place] * 2, [before[1], middle], **riser)
            left = place
        part.plot([left, right], [middle] * 2, **line)
        before = right, middle


def _draw_environments(
    part: Any, panel: Sequence[Segment], stretches: Sequence[Stretch], axis: TimeAxis
) -> None:
    """Draw a line with the facts that changed wherever the next point is of another environment."""
    changes = [
        ((axis.at(before[-1]) + axis.at(after[0])) / 2, now.environment.differing(then.environment))
        for (then, before), (now, after) in pairwise(stretches)
    ]
    if len(changes) > MOST_LINES:  # machines side by side: only where each begins
        changes = sorted((axis.at(s.points[0]), s.changed) for s in panel)[1 : MOST_LINES + 1]
    left, right = part.get_xlim()
    taken, row = 0.0, 0
    for place, changed in changes:
        part.axvline(place, color=FAINT, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1)
        along = (place - left) / (right - left)
        backwards = along > 1 - NEAR
        start = along - NEAR if backwards else along
        row = (row + 1) % 3 if start < taken else 0
        taken = start + NEAR
        part.annotate(
            shorten(changed_text(changed, 1), WORDS),
            (place, 1.0),
            fontsize=8,
            color=FAINT,
            xycoords=("data", "axes fraction"),
            xytext=(-4 if backwards else 4, -1 - 10 * row),
            textcoords="offset points",
            ha="right" if backwards else "left",
            va="top",
            zorder=6,
        )


def _draw_changes(part: Any, panel: Sequence[Segment], axis: TimeAxis, high: float) -> None:
    """Label the largest change points of a panel with their change and its interval, in percent."""
    changes = [(segment, change) for segment in panel for change in segment.change_points]
    changes.sort(key=lambda both: -abs(both[1].change))
    for segment, change in changes[:MOST_LABELS]:
        points = segment.points
        place = (axis.at(points[change.at - 1]) + axis.at(points[change.at])) / 2
        near = points[max(0, change.at - 4) : change.at + 4]
        part.annotate(
            f"{marked_text(segment, change)}\n{interval_text(change)}",
            (place, min(high, max(max(p.median_s, p.high_s) for p in near))),
            xytext=(0, 6),
            textcoords="offset points",
            fontsize=8.5,
            ha="center",
            va="bottom",
            color=SLOWER if change.change > 0 else FASTER,
            fontweight="bold",
            zorder=7,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
        )


def _name_panels(parts: Sequence[Any], panels: Sequence[Sequence[Segment]]) -> None:
    """Title each panel with the facts in which it differs from the others."""
    known = [dict(panel[0].environment.fixed) for panel in panels]
    names = dict.fromkeys(name for facts in known for name in facts)
    differing = [n for n in names if len({facts.get(n) for facts in known}) > 1]
    for part, facts in zip(parts, known, strict=True):
        title = ", ".join(f"{name} {facts.get(name, 'unknown')}" for name in differing[:4])
        part.set_title(shorten(title, LONGEST), loc="left", fontsize=9.5, color=INK)


def _common(series: Series, missing: int) -> str:
    """Return the device, timer, cache, regime and data that all points share, and a note on the
    number of environments that are not drawn (*missing*)."""
    first, *others = [dict(segment.environment.fixed) for segment in series.segments]
    common = {n: v for n, v in first.items() if all(other.get(n) == v for other in others)}
    words = (
        *(("product", "{}"), ("timer", "{} timer"), ("cache", "{} cache")),
        *(("regime", "{}"), ("data", "{} data")),
    )
    known = " · ".join(word.format(common[name]) for name, word in words if name in common)
    left = f"{missing} more environments are not drawn" if missing else ""
    return " · ".join(filter(None, (shorten(known, LONGEST), left)))


def _summary(series: Series) -> str:
    """Return `1 significant change in 120 runs: +3.1 % (+2.8 … +3.4), slower from …, run …`,
    or that there are too few runs to search for changes."""
    count = len(series.change_points)
    runs = len({point.run for point, _ in series.points})
    taken = f"{runs} run{'' if runs == 1 else 's'}"
    if not any(segment.searched for segment in series.segments):
        return f"{taken}: too few to search for changes, as {LEAST} of one environment are needed"
    summary = f"{count or 'no'} significant change{'' if count == 1 else 's'} in {taken}"
    if series.last_change is None:
        return summary
    segment, change = series.last_change
    point = segment.points[change.at]
    way = "slower" if change.change > 0 else "faster"
    last = f"{'the last: ' if count > 1 else ''}{marked_text(segment, change)}"
    since = f"{way} from {point.when:%Y-%m-%d} on, run {shorten(point.run, 50)}"
    return f"{summary}; {last} ({interval_text(change)}), {since}"
