"""A case over many runs: its times by date, the levels between its steps, and where the
environment changed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.history.study import Point, Segment, Series
from gpuperf.history.table import MOVED, changed_text, last_step, marked_text, rule_text
from gpuperf.history.trend import Axis, axis_of, label_axis, label_times, limits_of, panels_of
from gpuperf.model.changepoints import ChangePoint
from gpuperf.model.text import clean, shorten
from gpuperf.show.figure import COLOURS, FAINT, INK, figure

WIDTH, PANEL = 11.0, 3.2  # inches
MOST_PANELS = 4
MOST_LINES = 12  # of environments in a panel
MOST_LABELS = 12  # of steps in a panel
MOST_BEYOND = 8  # outliers with their figure
CROWD = 150  # points, from which on they are drawn small
LONGEST = 110
WORDS = 36  # characters beside a line
ROOM = 0.34  # of the height, above the points: for words
NEAR = 0.2  # of the width: words closer to each other stand in two rows
READING = (
    "dots: a run's median over its processes; bars: the middle half of them, of one process of its "
    "samples · black: the median between steps · dashed: the environment changes"
)
SLOWER, FASTER = COLOURS[1], COLOURS[2]
IN_TURN = (COLOURS[0], "#6f9fc0")  # segments one after the other
BESIDE = (COLOURS[0], COLOURS[3], COLOURS[5], COLOURS[4], "#8a8a8a")  # at the same time


def draw_history(series: Series, paths: Sequence[Path]) -> None:
    """Draw *series* to each of *paths*, PNG or SVG by suffix.

    Raises: UsageError for another suffix, an unwritable path, and a series without a point.
    """
    if not series.points:
        raise UsageError("the case has no time: nothing to draw", "the table says why")
    panels = panels_of(series)
    shown = panels[:MOST_PANELS]
    axis = axis_of(series, max(panels, key=lambda panel: sum(len(s.points) for s in panel)))
    title = shorten(clean(series.case), LONGEST)
    lines = (_outcome(series), _alike(series, len(panels) - len(shown)))
    with figure(paths, title, lines, _reading(series), WIDTH) as frame:
        parts = frame.stack(*[PANEL] * len(shown), sharex=True)
        for part, panel in zip(parts, shown, strict=True):
            _draw_panel(part, panel, axis)
        if len(shown) > 1:
            _name_panels(parts, shown)
        label_axis(parts[-1], axis)
        frame.fit()


def _draw_panel(part: Any, panel: Sequence[Segment], axis: Axis) -> None:
    """One panel: points, levels, steps, and the environments."""
    limits = low, high = limits_of(panel)
    both = sorted(
        ((axis.at(point), point, segment) for segment in panel for point in segment.points),
        key=lambda each: each[0],
    )
    stretches = [(s, [p for _, p, _ in own]) for s, own in _grouped(both)]
    beside = len(stretches) > len(panel)
    small = len(both) > CROWD
    for i, segment in enumerate(panel):
        color = BESIDE[i % len(BESIDE)] if beside else IN_TURN[i % 2]
        label = _label(segment, panel) if beside else None
        _draw_points(part, segment, axis, color, small, limits, label)
    for segment, points in stretches:
        _draw_levels(part, segment, points, axis)
    part.set_ylim(low, high + (high - low) * ROOM)
    part.margins(x=0.02)
    _draw_environments(part, panel, stretches, axis)
    _draw_steps(part, panel, axis, high)
    if beside:
        part.legend(fontsize=8, loc="lower left", ncols=min(4, len(panel)))
    label_times(part, high)
    part.tick_params(labelsize=9.5)
    part.grid(True, axis="y")


def _grouped(both: Sequence[Any]) -> list[tuple[Segment, list[Any]]]:
    """(place, point, segment) in stretches of one segment."""
    found: list[tuple[Segment, list[Any]]] = []
    for each in both:
        if not found or found[-1][0] is not each[2]:
            found.append((each[2], []))
        found[-1][1].append(each)
    return found


def _label(segment: Segment, panel: Sequence[Segment]) -> str:
    """The facts in which it differs from others of its panel."""
    known = [dict(other.environment.fixed + other.environment.soft) for other in panel]
    facts = dict(segment.environment.fixed + segment.environment.soft)
    told = [
        f"{name} {value}"
        for name, value in facts.items()
        if any(other.get(name) != value for other in known)
    ]
    return shorten(clean(", ".join(told)), WORDS) or "another environment"


def _draw_points(
    part: Any,
    segment: Segment,
    axis: Axis,
    color: str,
    small: bool,
    limits: tuple[float, float],
    label: str | None,
) -> None:
    low, high = limits
    inside = [point for point in segment.points if low <= point.median_s <= high]
    xs, ys = [axis.at(p) for p in inside], [p.median_s for p in inside]
    reach = [
        [max(0.0, p.median_s - p.low_s) for p in inside],
        [max(0.0, p.high_s - p.median_s) for p in inside],
    ]
    part.errorbar(
        xs, ys, yerr=reach, fmt="none", ecolor=color, elinewidth=0.8, alpha=0.2 if small else 0.4
    )
    part.plot(
        xs,
        ys,
        linestyle="none",
        marker="o",
        markersize=2.8 if small else 4.4,
        color=color,
        alpha=0.65 if small else 0.95,
        markeredgewidth=0,
        zorder=3,
        label=label,
    )
    kept = {id(point) for point in inside}
    beyond = [point for point in segment.points if id(point) not in kept]
    middle = statistics.median(point.median_s for point in segment.points)
    for point in beyond:
        above = point.median_s > high
        place = axis.at(point), high if above else low
        part.plot(
            *place,
            marker="^" if above else "v",
            markersize=5.5,
            color=color,
            markerfacecolor="white",
            zorder=3,
        )
        if len(beyond) <= MOST_BEYOND:
            part.annotate(
                f"{(point.median_s / middle - 1) * 100:+.0f} %",
                place,
                fontsize=8,
                color=color,
                xytext=(0, 4 if above else -4),
                textcoords="offset points",
                ha="center",
                va="bottom" if above else "top",
            )


def _draw_levels(part: Any, segment: Segment, points: Sequence[Point], axis: Axis) -> None:
    """The medians between steps, along *points*, and steps as ways from one to the next."""
    places = {id(point): i for i, point in enumerate(segment.points)}
    line: dict[str, Any] = {"color": INK, "linewidth": 1.8, "zorder": 4}
    before: tuple[float, float] | None = None
    for first, end in segment.levels():
        own = [point for point in points if first <= places[id(point)] < end]
        if not own:
            continue
        middle = statistics.median(point.median_s for point in segment.points[first:end])
        left, right = axis.at(own[0]), axis.at(own[-1])
        if before is not None:
            place = (before[0] + left) / 2
            part.plot([before[0], place], [before[1]] * 2, **line)
            part.plot(
                [place] * 2,
                [before[1], middle],
                linewidth=2.8,
                solid_capstyle="butt",
                color=SLOWER if middle > before[1] else FASTER,
                zorder=5,
            )
            left = place
        part.plot([left, right], [middle] * 2, **line)
        before = right, middle


def _draw_environments(
    part: Any,
    panel: Sequence[Segment],
    stretches: Sequence[tuple[Segment, Sequence[Point]]],
    axis: Axis,
) -> None:
    """A line wherever the next point is of another environment, with what changed."""
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


def _draw_steps(part: Any, panel: Sequence[Segment], axis: Axis, high: float) -> None:
    """The greatest steps by their changes."""
    steps = [(segment, step) for segment in panel for step in segment.steps]
    steps.sort(key=lambda both: -abs(both[1].change))
    for segment, step in steps[:MOST_LABELS]:
        points = segment.points
        place = (axis.at(points[step.at - 1]) + axis.at(points[step.at])) / 2
        top = max(max(p.median_s, p.high_s) for p in points[max(0, step.at - 4) : step.at + 4])
        part.annotate(
            f"{marked_text(segment, step)}\n{_interval(step)}",
            (place, min(top, high)),
            xytext=(0, 6),
            textcoords="offset points",
            fontsize=8.5,
            ha="center",
            va="bottom",
            color=SLOWER if step.change > 0 else FASTER,
            fontweight="bold",
            zorder=7,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
        )


def _interval(step: ChangePoint) -> str:
    return f"{step.low * 100:+.1f} … {step.high * 100:+.1f}"


def _name_panels(parts: Sequence[Any], panels: Sequence[Sequence[Segment]]) -> None:
    """What each panel is of that others are not."""
    known = [dict(panel[0].environment.fixed) for panel in panels]
    names = dict.fromkeys(name for facts in known for name in facts)
    names = dict.fromkeys(n for n in names if len({facts.get(n) for facts in known}) > 1)
    for part, facts in zip(parts, known, strict=True):
        told = ", ".join(f"{name} {facts.get(name, 'unknown')}" for name in list(names)[:4])
        part.set_title(shorten(clean(told), LONGEST), loc="left", fontsize=9.5, color=INK)


def _reading(series: Series) -> tuple[str, str]:
    """Describe how to read the chart."""
    steps = ((segment, step) for segment in series.segments for step in segment.steps)
    moved = f" · {MOVED}" if any(segment.moved(step) for segment, step in steps) else ""
    return READING, rule_text([series]) + moved


def _alike(series: Series, missing: int) -> str:
    """Describe what all points have in common, and count the environments that are *missing*."""
    whole = [dict(segment.environment.fixed) for segment in series.segments]
    facts = {
        name: value
        for name, value in whole[0].items()
        if all(other.get(name) == value for other in whole)
    }
    words = (
        ("product", "{}"),
        ("timer", "{} timer"),
        ("cache", "{} cache"),
        ("regime", "{}"),
        ("data", "{} data"),
    )
    known = " · ".join(word.format(facts[name]) for name, word in words if name in facts)
    left = f"{missing} environments more are not drawn" if missing else ""
    return " · ".join(filter(None, (shorten(clean(known), LONGEST), left)))


def _outcome(series: Series) -> str:
    """`2 steps in 120 runs; last: +3.1 % (+2.8 … +3.4), slower from 2026-03-01 on, run …`."""
    count = sum(len(segment.steps) for segment in series.segments)
    runs = len({point.run for point, _ in series.points})
    told = f"{_counted(count, 'step')} in {_counted(runs, 'run')}"
    found = last_step(series)
    if found is None:
        return told
    segment, step = found
    when, run = segment.points[step.at].when, clean(segment.points[step.at].run)
    way = "slower" if step.change > 0 else "faster"
    change = f"{'last: ' if count > 1 else ''}{marked_text(segment, step)} ({_interval(step)})"
    return f"{told}; {change}, {way} from {when:%Y-%m-%d} on, run {shorten(run, 50)}"


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
