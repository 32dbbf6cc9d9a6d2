"""Implementations beside each other: time and bytes by size; bars where there is one size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuperf.errors import UsageError
from gpuperf.model.record import Record, Run
from gpuperf.report.axes import Axes, dtype_of, implementation_of
from gpuperf.report.caption import contracts_text
from gpuperf.report.chart.file import DPI, save_figure, targets_of
from gpuperf.report.chart.style import COLOURS, FAINT, GRID, INK, MARKERS, rc_parameters
from gpuperf.report.rows import Entry, entries
from gpuperf.report.scene import chart_title
from gpuperf.report.series import KINDS
from gpuperf.report.text import clean, shorten
from gpuperf.report.view import View, best_known
from gpuperf.units import format_bytes, format_number, format_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_comparison"]

LONGEST = 30  # characters of a name
LINES: tuple[Any, ...] = ("-", "--", ":", "-.")  # of the variants of one implementation
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
    found = [e for e in entries(run) if e.time is not None]
    axes = Axes([e.record for e in found], run.header.main)
    rows = list(_rows(found, axes))
    if not rows:
        raise UsageError("no implementation has a time: nothing to draw", "the table says why")
    import matplotlib

    title = chart_title(run, axes, [row.entry.record for row in rows])
    with matplotlib.rc_context(rc_parameters()):
        drawn = _figure(run, rows, title, axes.head)
        for target in targets:
            save_figure(drawn, target, title)


def _rows(found: Sequence[Entry], axes: Axes) -> Iterable[_Row]:
    several = len({dtype_of(e.record) for e in found}) > 1
    for entry in found:
        record, time = entry.record, entry.time
        variant = [f"{axis}={record.case.point.get(axis, '')}" for axis in axes.named]
        variant += [dtype_of(record)] if several else []
        order = axes.order(record)
        if time is not None:
            yield _Row(
                shorten(implementation_of(record, False), LONGEST), clean(", ".join(variant)),
                order[0] if order else 0.0, _size(axes, record), entry, time.median_s,
            )  # fmt: skip


def _size(axes: Axes, record: Record) -> str:
    return shorten(axes.brief(record), LONGEST)


def _figure(run: Run, rows: Sequence[_Row], title: str, sizes: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.implementation for row in rows))
    by_size = len({row.size for row in rows}) > 1
    height = 5.6 if by_size else 1.9 + 0.32 * len(rows)
    figure = Figure(figsize=(11.0, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=not by_size)
    kind = best_known(row.entry.counted for row in rows)
    panels = (
        (left, "time of a call", [row.time_s for row in rows], format_time),
        (right, f"bytes through DRAM, {WORDS[kind]}", [_bytes(row, kind) for row in rows],
         format_bytes),
    )
    for axes, heading, values, show in panels:
        draw = _lines if by_size else _bars
        draw(axes, rows, names, values, show)
        axes.set_title(heading, loc="left", fontsize=11, color=INK)
        axes.spines[["top", "right"]].set_visible(False)
    if by_size:
        _legend(figure, rows, names)
        for axes in (left, right):
            axes.set_xlabel(shorten(sizes, LONGEST))
    contracts = contracts_text([run.header.contract, *run.header.variants])
    figure.text(0.02, 0.985, title, fontsize=14, fontweight="bold", color=INK, va="top")
    figure.text(0.02, 0.985 - 0.3 / height, contracts, fontsize=9.5, color=INK, va="top")
    version = f"run {clean(run.header.run)} · gpuperf {clean(run.header.gpuperf)}"
    figure.text(0.02, 0.008, version, fontsize=8, color=FAINT, va="bottom")
    figure.subplots_adjust(
        left=0.08 if by_size else 0.2, right=0.98, top=1 - (1.35 if by_size else 0.95) / height,
        bottom=(0.75 if by_size else 0.4) / height, wspace=0.22 if by_size else 0.06,
    )  # fmt: skip
    return figure


def _bytes(row: _Row, view: View) -> float | None:
    return row.entry.counted.bytes_of(KINDS[view])


def _lines(
    axes: Any, rows: Sequence[_Row], names: Sequence[str], values: Sequence[float | None], show: Any
) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

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
    axes.set_xscale("log")
    axes.set_yscale("log")
    sizes = {row.size: row.label.split("×")[0] for row in rows}
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


def _legend(figure: Figure, rows: Sequence[_Row], names: Sequence[str]) -> None:
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
    top = 1 - 0.62 / figure.get_figheight()
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.02, top), frameon=False, fontsize=9,
        ncols=min(len(handles), 6), borderpad=0, borderaxespad=0, columnspacing=1.4,
    )  # fmt: skip


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
    axes.set_xlim(0, 1.32 * most)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
