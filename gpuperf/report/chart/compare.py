"""Implementations beside each other: time and bytes by size; bars where there is one size."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.report.axes import Axes, dtype_of, implementation_of
from gpuperf.report.caption import contracts_text
from gpuperf.report.chart.file import DPI, save_figure, targets_of
from gpuperf.report.chart.style import COLOURS, FAINT, GRID, INK, MARKERS, rc_parameters
from gpuperf.report.rows import Entry, entries
from gpuperf.report.scene import chart_title
from gpuperf.report.series import KINDS, conditions, in_range
from gpuperf.report.text import clean, shorten
from gpuperf.report.view import View, best_known
from gpuperf.units import format_bytes, format_number, format_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_comparison"]

WIDTH, SIDE = 11.0, 0.02  # inches; the margin of words, as a share of them
LONGEST = 30  # characters of a name
TALLEST = 2.4  # inches of a legend, for the panels to keep some height
WIDEST = 96  # characters of a title
MOST_BARS = 100  # rows of bars: more would make a picture that nothing can show
# Of the variants of one implementation; on, off, … in points.
LINES: tuple[Any, ...] = (
    "-", "--", ":", "-.", (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 4)), (0, (8, 2, 1, 2)),
)  # fmt: skip
WORDS = {"measured": "measured", "modelled": "as modelled", "compulsory": "at least"}


@dataclass(frozen=True)
class _Row:
    """One record: its implementation, what else tells it from others, its size and figures."""

    implementation: str
    variant: str
    size: float
    label: str
    entry: Entry
    time_s: float


def draw_comparison(run: Run, paths: Sequence[Path]) -> None:
    """Draw *run* to each of *paths*, PNG or SVG by suffix.

    Raises: UsageError for another suffix, an unwritable path, and a run with nothing to draw.
    """
    targets = targets_of(paths)
    found = entries(run)
    timed = [e for e in found if e.time is not None and in_range(e.time.median_s)]
    if not timed:
        raise UsageError("no implementation has a time: nothing to draw", "the table says why")
    axes = Axes([e.record for e in timed], run.header.main)
    head, rows = _rows(timed, axes, run.header.main)
    import matplotlib

    title = chart_title(run, axes, [e.record for e in timed])
    shown = {id(e) for e in timed}
    left = [e for e in found if id(e) not in shown]
    left_out = Counter("out of range" if e.time else e.record.status for e in left)
    missing = ", ".join(f"{count} {status}" for status, count in left_out.items())
    with matplotlib.rc_context(rc_parameters()), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes; that is no reason to talk.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        drawn = _figure(run, rows, title, head, missing)
        for target in targets:
            save_figure(drawn, target, title)


def _rows(found: Sequence[Entry], axes: Axes, mains: Sequence[str]) -> tuple[str, list[_Row]]:
    """What the size is called, and the rows. Where several axes vary, each by itself, one of the
    *mains* is the size, or the one with most values, and the others tell the variants apart."""
    orders = [axes.order(e.record) for e in found]
    counts = [len(set(column)) for column in zip(*orders, strict=False)]
    heads = axes.head.split("×")
    main = max(
        range(min(len(counts), len(heads))), default=0,
        key=lambda i: (counts[i] > 1, bool(set(heads[i].split("=")) & set(mains)), counts[i]),
    )  # fmt: skip
    several = len({dtype_of(e.record) for e in found}) > 1
    told = conditions(found)
    rows = []
    for entry, order in zip(found, orders, strict=True):
        record = entry.record
        values = axes.brief(record).split("×")
        others = zip(heads, values, counts, strict=False)
        variant = [
            f"{head}={value}" for i, (head, value, count) in enumerate(others)
            if i != main and count > 1
        ]  # fmt: skip
        variant += [f"{axis}={record.case.point.get(axis, '')}" for axis in axes.named]
        variant += [dtype_of(record)] if several else []
        variant += filter(None, [told[record.contract]])
        rows.append(_Row(
            shorten(implementation_of(record, False), LONGEST),
            shorten(clean(", ".join(variant)), LONGEST),
            order[main] if main < len(order) else 0.0,
            shorten(values[main] if main < len(values) else "", LONGEST),
            entry, entry.time.median_s if entry.time else 0.0,
        ))  # fmt: skip
    return heads[main] if main < len(heads) else axes.head, rows


def _figure(
    run: Run, rows: Sequence[_Row], title: str, sizes: str, missing: str
) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.implementation for row in rows))
    by_size = len({row.size for row in rows}) > 1
    shown = rows if by_size else rows[:MOST_BARS]
    height = 5.6 if by_size else 1.9 + 0.32 * len(shown)
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=not by_size)
    kind = best_known(row.entry.counted for row in rows)
    panels = (
        (left, "time of a call", [row.time_s for row in shown], format_time),
        (right, f"bytes through DRAM, {WORDS[kind]}", [_bytes(row, kind) for row in shown],
         format_bytes),
    )
    for axes, heading, values, show in panels:
        draw = _lines if by_size else _bars
        draw(axes, shown, names, values, show)
        axes.set_title(heading, loc="left", fontsize=11, color=INK)
        axes.spines[["top", "right"]].set_visible(False)
        if by_size:
            axes.set_xlabel(shorten(sizes, LONGEST))
    top = _legend(figure, rows, names) if by_size else 0.6
    more = f"{len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
    _words(figure, run, title, ", ".join(filter(None, (missing, more))))
    figure.subplots_adjust(
        left=0.08 if by_size else _margin(left), right=0.98, top=1 - (top + 0.35) / height,
        bottom=(0.75 if by_size else 0.4) / height, wspace=0.22 if by_size else 0.06,
    )  # fmt: skip
    return figure


def _words(figure: Figure, run: Run, title: str, missing: str) -> None:
    """Title and conditions above, the run and what of it is not drawn below."""
    height = figure.get_figheight()
    contracts = shorten(contracts_text([run.header.contract, *run.header.variants]), 2 * WIDEST)
    left_out = f" · not drawn: {missing}" if missing else ""
    of_run = shorten(clean(run.header.run), LONGEST * 2)
    version = f"run {of_run} · gpuperf {shorten(clean(run.header.gpuperf), LONGEST)}{left_out}"
    for y, text, size, color, weight in (
        (1 - 0.1 / height, shorten(title, WIDEST), 14, INK, "bold"),
        (1 - 0.38 / height, contracts, 9.5, INK, "normal"),
    ):
        figure.text(SIDE, y, text, fontsize=size, fontweight=weight, color=color, va="top")
    figure.text(SIDE, 0.05 / height, version, fontsize=8, color=FAINT, va="bottom")


def _margin(axes: Any) -> float:
    """Room for the names left of the bars, as a share of the width."""
    axes.figure.draw_without_rendering()
    widest = max(label.get_window_extent().width for label in axes.get_yticklabels())
    return float(widest / DPI / WIDTH + SIDE + 0.01)


def _bytes(row: _Row, view: View) -> float | None:
    value = row.entry.counted.bytes_of(KINDS[view])
    return value if value and in_range(value) else None


def _lines(
    axes: Any, rows: Sequence[_Row], names: Sequence[str], values: Sequence[float | None], show: Any
) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    if not any(values):
        axes.text(0.5, 0.5, "unknown", transform=axes.transAxes, ha="center", color=INK)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    variants = list(dict.fromkeys(row.variant for row in rows))
    for i, name in enumerate(names):
        for j, variant in enumerate(variants):
            points = [
                (row.size, value)
                for row, value in zip(rows, values, strict=True)
                if (row.implementation, row.variant) == (name, variant) and value
            ]
            axes.plot(
                *(zip(*sorted(points), strict=True) if points else ((), ())),
                color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)], markersize=6,
                linewidth=1.6, linestyle=LINES[j % len(LINES)],
            )  # fmt: skip
    sizes = {row.size: row.label for row in rows}
    axes.set_xscale("log" if min(sizes) > 0 else "linear")
    axes.set_yscale("log")
    step = max(1, len(sizes) // 8)
    axes.xaxis.set_major_locator(FixedLocator(sorted(sizes)[::step]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: sizes.get(v, "")))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: _brief(show(v))))
    axes.grid(True, color=GRID, linewidth=0.6)


def _brief(quantity: str) -> str:
    number, _, unit = quantity.partition(" ")
    return f"{float(number):g} {unit}"


def _legend(figure: Figure, rows: Sequence[_Row], names: Sequence[str]) -> float:
    """What marks and lines mean, in as few rows as fit; where they end, in inches from above."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)], label=n)
        for i, n in enumerate(names)
    ]
    variants = list(dict.fromkeys(row.variant for row in rows))
    if len(variants) > 1:
        handles += [
            Line2D([], [], color=INK, linestyle=LINES[j % len(LINES)], label=variant)
            for j, variant in enumerate(variants)
        ]
    top = 0.62
    for columns in range(min(len(handles), 6), 0, -1):
        legend = figure.legend(
            handles=handles, loc="upper left", frameon=False, fontsize=9, ncols=columns,
            bbox_to_anchor=(SIDE, 1 - top / figure.get_figheight()), borderpad=0, borderaxespad=0,
            columnspacing=1.4,
        )  # fmt: skip
        figure.draw_without_rendering()
        extent = legend.get_window_extent()
        if extent.x1 <= WIDTH * DPI or columns == 1:
            return top + min(extent.height / DPI, TALLEST)
        legend.remove()
    return top


def _bars(
    axes: Any, rows: Sequence[_Row], names: Sequence[str], values: Sequence[float | None], show: Any
) -> None:
    """One bar a row, from above; the time's has the speed-up beside it."""
    places = [len(rows) - 1 - i for i in range(len(rows))]
    colours = [COLOURS[names.index(row.implementation) % len(COLOURS)] for row in rows]
    axes.barh(places, [value or 0.0 for value in values], color=colours, height=0.62)
    most = max((value for value in values if value), default=1.0)
    for place, row, value in zip(places, rows, values, strict=True):
        faster = row.entry.speedup if show is format_time else None
        text = show(value) if value else "unknown"
        text += f", {format_number(faster.value)}×" if faster else ""
        axes.text((value or 0.0) + 0.015 * most, place, text, va="center", fontsize=9, color=INK)
    labels = [" ".join(filter(None, (row.implementation, row.variant))) for row in rows]
    axes.set_yticks(places, labels)
    axes.set_xlim(0, 1.4 * most)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
