"""Draw throughput over a dimension, coloured by the alignment of a row in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuperf.alignment.study import Group, groups
from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.show.axes import moved_axes
from gpuperf.show.contract import how, note
from gpuperf.show.figure import GRID, INK, MARKERS, figure, label_ticks, plain_number
from gpuperf.tiles.alignment import GOOD, HARD
from gpuperf.units import itemsize

EACH = 3.6  # height of a group's panel in inches
MOST_GROUPS = 6  # panels, one below the other
MOST_LINES = 80  # vertical lines of one kind; more would fill a panel with grey
LONGEST = 90
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""))
# From the worst alignment to the best.
SHADES = ("#7F0000", "#D7301F", "#FC8D59", "#E6B800", "#7FBF7B", "#41AB5D", "#238B45", "#0072B2")


def draw_alignment(run: Run, paths: Sequence[Path]) -> None:
    """Draw the study in *run* to each of *paths*, PNG or SVG by suffix.

    Raises: UsageError for another suffix, an unwritable path, and a run with nothing to draw.
    """
    study = groups(run)
    shown = study[:MOST_GROUPS]
    if not shown:
        raise UsageError("no size has a time: nothing to draw", "the table says why")
    left = f" (the first {MOST_GROUPS} of {len(study)})" if len(study) > len(shown) else ""
    title = f"{run.records[0].case.op} on {run.header.device.name}: throughput by alignment{left}"
    lines = f"lines: multiples of {HARD} bytes (thin) and of {GOOD} (thick)"
    if any(len(_multiples(group, step)) > MOST_LINES for group in shown for step in (HARD, GOOD)):
        lines += ", where there are few enough"
    with figure(paths, shorten(title, LONGEST), [how(run)], [note(run, lines)]) as frame:
        panels = frame.stack(*[EACH] * len(shown))
        for panel, group in zip(panels, shown, strict=True):
            _draw(panel, group)
        panels[-1].set_xlabel(shorten("=".join(moved_axes(run)[0]), LONGEST))
        frame.fit()


def _ends(group: Group) -> tuple[int, int]:
    """Return the ends of the x axis, in elements."""
    xs = [point.elements for point in group.points]
    room = max(1, (max(xs) - min(xs)) // 40)
    return min(xs) - room, max(xs) + room


def _multiples(group: Group, step: int) -> range:
    """Return the multiples of *step* bytes along the axis, in elements."""
    low, high = _ends(group)
    elements = max(1, step // itemsize(group.dtype))
    return range(-(-low // elements) * elements, high + 1, elements)


def _draw(axes: Any, group: Group) -> None:
    for step, color, width in ((HARD, GRID, 0.7), (GOOD, "#b0b0b0", 1.3)):
        lines = _multiples(group, step)
        for x in lines if len(lines) <= MOST_LINES else ():
            axes.axvline(x, color=color, linewidth=width, zorder=0)
    for each in group.classes:
        points = [p for p in group.points if p.alignment == each.alignment]
        shade = each.alignment.bit_length() - 1
        axes.plot(
            [p.elements for p in points],
            [p.throughput for p in points],
            linestyle="none",
            marker=MARKERS[shade % len(MARKERS)],
            markersize=5.5,
            color=SHADES[shade],
            label=f"{each.alignment} B{' +' if each.alignment == GOOD else ''}",
            zorder=3,
        )
    axes.set_xlim(*_ends(group))
    most = max(p.throughput for p in group.points)
    factor, prefix = next((f, p) for f, p in PREFIXES if most >= f or f == 1)
    axes.set_ylim(0, most * 1.08)
    label_ticks(axes.yaxis, lambda value: plain_number(value / factor))
    axes.set_ylabel(prefix + group.unit)
    axes.set_title(shorten(group.name, LONGEST), loc="left", fontsize=11, color=INK)
    axes.legend(title="row divisible by", fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
