"""Throughput over a dimension, coloured by what divides the bytes of a row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuperf.analysis.alignment import GOOD, HARD, Group, groups, moved_axes
from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.report.caption import contracts_text
from gpuperf.report.chart.file import DPI, save_figure, targets_of
from gpuperf.report.chart.style import FAINT, GRID, INK, MARKERS, plain_number, rc_parameters
from gpuperf.report.text import clean, shorten
from gpuperf.units import itemsize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_alignment"]

WIDTH, EACH, ABOVE, BELOW = 10.0, 4.2, 0.95, 0.75  # inches; of each group
MOST_GROUPS = 6  # drawn below each other
MOST_LINES = 80  # of one kind; closer ones would be a grey ground
LONGEST = 90
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""))
# From the worst alignment to the best.
SHADES = ("#7F0000", "#D7301F", "#FC8D59", "#E6B800", "#7FBF7B", "#41AB5D", "#238B45", "#0072B2")


def draw_alignment(run: Run, paths: Sequence[Path]) -> None:
    """Draw the study in *run* to each of *paths*, PNG or SVG by suffix.

    Raises: UsageError for another suffix, an unwritable path, and a run with nothing to draw.
    """
    targets = targets_of(paths)
    every = groups(run)
    found = every[:MOST_GROUPS]
    if not found:
        raise UsageError("no size has a time: nothing to draw", "the table says why")
    import matplotlib

    op = clean(run.records[0].case.op)
    left = f" (the first {MOST_GROUPS} of {len(every)})" if len(every) > len(found) else ""
    device = clean(run.header.device.name)
    title = shorten(f"{op} on {device}: throughput by alignment{left}", LONGEST)
    with matplotlib.rc_context(rc_parameters()):
        drawn = _figure(run, found, title)
        for target in targets:
            save_figure(drawn, target, title)


def _figure(run: Run, found: Sequence[Group], title: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height = ABOVE + EACH * len(found) + BELOW
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(found), 1, squeeze=False)[:, 0]
    drawn = [_draw(panel, group) for panel, group in zip(panels, found, strict=True)]
    panels[-1].set_xlabel(shorten(clean("=".join(moved_axes(run)[0])), LONGEST))
    contracts = shorten(contracts_text([run.header.contract, *run.header.variants]), LONGEST)
    figure.text(0.02, 1 - 0.1 / height, title, fontsize=14, fontweight="bold", color=INK, va="top")
    figure.text(0.02, 1 - 0.38 / height, contracts, fontsize=9.5, color=INK, va="top")
    lines = f"lines: multiples of {HARD} bytes (thin) and of {GOOD} (thick)"
    if not all(drawn):
        lines += ", where there are few enough"
    note = (
        f"{lines} · "
        f"run {clean(run.header.run)} · gpuperf {clean(run.header.gpuperf)}"
    )
    note = shorten(note, 2 * LONGEST)
    figure.text(0.02, 0.05 / height, note, fontsize=8, color=FAINT, va="bottom")
    figure.subplots_adjust(
        left=0.1, right=0.86, top=1 - ABOVE / height, bottom=BELOW / height, hspace=0.25
    )
    return figure


def _draw(axes: Any, group: Group) -> bool:
    """One group; whether all lines had room."""
    from matplotlib.ticker import FuncFormatter

    xs = [point.elements for point in group.points]
    room = max(1, (max(xs) - min(xs)) // 40)
    low, high = min(xs) - room, max(xs) + room
    every = True
    for step, color, width in ((HARD, GRID, 0.7), (GOOD, "#b0b0b0", 1.3)):
        elements = max(1, step // itemsize(group.dtype))
        lines = range(-(-low // elements) * elements, high + 1, elements)
        every = every and len(lines) <= MOST_LINES
        for x in lines if len(lines) <= MOST_LINES else ():
            axes.axvline(x, color=color, linewidth=width, zorder=0)
    for each in group.classes:
        points = [p for p in group.points if p.alignment == each.alignment]
        shade = each.alignment.bit_length() - 1
        axes.plot(
            [p.elements for p in points], [p.throughput for p in points], linestyle="none",
            marker=MARKERS[shade % len(MARKERS)], markersize=5.5, color=SHADES[shade],
            label=f"{each.alignment} B{' +' if each.alignment == GOOD else ''}", zorder=3,
        )  # fmt: skip
    axes.set_xlim(low, high)
    most = max(p.throughput for p in group.points)
    factor, prefix = next((f, p) for f, p in PREFIXES if most >= f or f == 1)
    axes.set_ylim(0, most * 1.08)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value / factor)))
    axes.set_ylabel(prefix + group.unit)
    axes.set_title(
        shorten(clean(group.name), LONGEST), loc="left", fontsize=11, color=INK,
    )  # fmt: skip
    axes.legend(
        title="row divisible by", frameon=False, fontsize=9, loc="center left",
        bbox_to_anchor=(1.0, 0.5),
    )  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    return every
