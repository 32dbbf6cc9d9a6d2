"""Draw the times and the bytes of implementations side by side.

One size is drawn as a list of bars, a few sizes as groups of bars, more sizes as lines.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.roofline.rows import Entry, entries_of
from gpuperf.roofline.scene import chart_title
from gpuperf.roofline.series import KINDS, conditions, in_range
from gpuperf.show.axes import Axes, dtype_of, implementation_of
from gpuperf.show.contract import how, note
from gpuperf.show.figure import COLOURS, INK, MARKERS, Frame, decades, figure, tick_values
from gpuperf.show.view import best_known
from gpuperf.units import format_bytes, format_number, format_time

ROW, GROUPS, PLOT = 0.32, 2.3, 3.6  # inches: a bar of a list, a row of groups, a plot of lines
LONGEST = 30  # characters of a name
WIDEST = 96  # characters of a title
MOST_SIZES, MOST_GROUPED = 3, 40  # groups of bars, and bars of a size: more are drawn as lines
CROWD = 20  # number of bars from which on the speed-ups above them are written upright
WIDE = 15.0  # longest over shortest bar, above which the scale is logarithmic
MOST_PLACES = 10  # labels that an axis of sizes has room for
FEW = 2.5  # decades of an axis with ticks between the powers of ten
SHORT = 0.01  # share of the longest bar; shorter intervals are not drawn in a list
MOST_BARS = 100  # rows of bars: a picture of more could not be shown
# The dashes of the variants of one implementation, in points.
LINES: tuple[Any, ...] = (
    "-",
    "--",
    ":",
    "-.",
    (0, (8, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (1, 4)),
    (0, (8, 2, 1, 2)),
)
ERROR: dict[str, Any] = {"ecolor": INK, "elinewidth": 1.2, "capsize": 2.5, "fmt": "none"}
WORDS = {"measured": "measured", "modelled": "as modelled", "compulsory": "at least"}


@dataclass(frozen=True)
class _Row:
    """One record: its implementation, the variant of its other axes, its size and figures."""

    implementation: str
    variant: str
    size: float
    label: str
    entry: Entry
    time_s: float


@dataclass(frozen=True)
class _Metric:
    """A quantity that is compared: its value and interval for each row, and how to write it."""

    name: str
    show: Callable[[float], str]
    values: Sequence[float | None]
    spans: Sequence[tuple[float, float] | None]


def draw_comparison(run: Run, paths: Sequence[Path]) -> None:
    """Draw *run* to each of *paths*, PNG or SVG by suffix.

    Raises: UsageError for another suffix, an unwritable path, and a run with nothing to draw.
    """
    every = entries_of(run)
    timed = [e for e in every if e.time is not None and in_range(e.time.median_s)]
    if not timed:
        raise UsageError("no implementation has a time: nothing to draw", "the table says why")
    axes = Axes([e.record for e in timed], run.header.main)
    head, rows = _rows(timed, axes, run.header.main)
    title = shorten(chart_title(run, axes, [e.record for e in timed]), WIDEST)
    drawn = {id(e) for e in timed}
    left = [e for e in every if id(e) not in drawn]
    left_out = Counter("out of range" if e.time else e.record.status for e in left)
    sizes = {row.size: row.label for row in rows}
    shown = rows[:MOST_BARS] if len(sizes) == 1 else rows
    missing = [f"{count} {status}" for status, count in left_out.items()]
    missing += [f"{len(rows) - len(shown)} more"] if len(rows) > len(shown) else []
    foot = note(run, f"not drawn: {', '.join(missing)}" if missing else "")
    most = max(Counter(row.size for row in rows).values())
    grouped = len(sizes) <= MOST_SIZES and most <= MOST_GROUPED
    draw = _draw_list if len(sizes) == 1 else _draw_groups if grouped else _draw_lines
    with figure(paths, title, [how(run)], [foot]) as frame:
        draw(frame, shown, shorten(head, LONGEST))
        frame.fit(least=1.5)


def _rows(timed: Sequence[Entry], axes: Axes, mains: Sequence[str]) -> tuple[str, list[_Row]]:
    """Return the name of the size, and the rows.

    Where several axes vary by themselves, one of the *mains* is the size, or the axis with most
    values, and the others name the variants.
    """
    orders = [axes.order(e.record) for e in timed]
    counts = [len(set(column)) for column in zip(*orders, strict=False)]
    heads = axes.head.split("×")
    main = max(
        range(min(len(counts), len(heads))),
        default=0,
        key=lambda i: (counts[i] > 1, bool(set(heads[i].split("=")) & set(mains)), counts[i]),
    )
    several = len({dtype_of(e.record) for e in timed}) > 1
    contracts = conditions(entry.record.contract for entry in timed)
    rows = []
    for entry, order in zip(timed, orders, strict=True):
        record = entry.record
        values = axes.values(record)
        others = zip(heads, values, counts, strict=False)
        variant = [
            f"{head}={value}"
            for i, (head, value, count) in enumerate(others)
            if i != main and count > 1
        ]
        variant += axes.others(record)
        variant += [f"{axis}={record.case.point.get(axis) or '–'}" for axis in axes.named]
        variant += [dtype_of(record)] if several else []
        variant += filter(None, [contracts[record.contract]])
        rows.append(
            _Row(
                shorten(implementation_of(record, False), LONGEST),
                shorten(", ".join(variant), LONGEST),
                order[main] if main < len(order) else 0.0,
                shorten(values[main] if main < len(values) else "", LONGEST),
                entry,
                entry.time.median_s if entry.time else 0.0,
            )
        )
    return heads[main] if main < len(heads) else axes.head, rows


def _metrics(rows: Sequence[_Row]) -> list[_Metric]:
    kind = best_known(row.entry.counted for row in rows)
    moved = [row.entry.counted.bytes_of(KINDS[kind]) for row in rows]
    known = [value if value and in_range(value) else None for value in moved]
    unsure = [row.entry.counted.uncertainty if kind == "measured" else None for row in rows]
    around = [(v - u, v + u) if v and u else None for v, u in zip(known, unsure, strict=True)]
    times = [(row.entry.across_s, row.entry.time) for row in rows]
    spans = [across or (time.interval_s if time else None) for across, time in times]
    return [
        _Metric("time of a call", format_time, [row.time_s for row in rows], spans),
        _Metric(f"bytes through DRAM, {WORDS[kind]}", format_bytes, known, around),
    ]


def _reach(value: float, span: tuple[float, float] | None) -> tuple[float, float]:
    """Return how far the interval reaches below and above *value*; zeros if it is unknown."""
    if not span or not in_range(span[1]):
        return 0.0, 0.0
    return max(0.0, value - span[0]), max(0.0, span[1] - value)


def _names(rows: Sequence[_Row]) -> list[str]:
    return list(dict.fromkeys(row.implementation for row in rows))


def _colour(rows: Sequence[_Row], name: str) -> str:
    return COLOURS[_names(rows).index(name) % len(COLOURS)]


def _draw_list(frame: Frame, rows: Sequence[_Row], _: str) -> None:
    """Draw a bar for each row from the top, with its value; bars of time also have the speed-up."""
    panels = frame.stack(ROW * (len(rows) + 0.5), columns=2, sharey=True)
    places = [len(rows) - 1 - i for i in range(len(rows))]
    colours = [_colour(rows, row.implementation) for row in rows]
    labels = [" ".join(filter(None, (row.implementation, row.variant))) for row in rows]
    for axes, metric in zip(panels, _metrics(rows), strict=True):
        _head(axes, metric.name)
        axes.barh(places, [value or 0.0 for value in metric.values], color=colours, height=0.62)
        most = max((value for value in metric.values if value), default=1.0)
        edge = 1.4 * most  # an interval that reaches beyond is cut there
        for place, row, value, span in zip(places, rows, metric.values, metric.spans, strict=True):
            low, high = _reach(value, span) if value else (0.0, 0.0)
            if value and low + high > SHORT * most:
                axes.errorbar(value, place, xerr=[[low], [high]], **ERROR)
            text = metric.show(value) if value else "unknown"
            text += f", {_faster(row)}" if metric.show is format_time and row.entry.speedup else ""
            end = min((value or 0.0) + high, edge) + 0.015 * most
            axes.text(end, place, text, va="center", fontsize=9, color=INK)
        axes.set_xlim(0, edge)
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_yticks(places, labels)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="y", length=0, labelcolor=INK, labelsize=10)


def _faster(row: _Row) -> str:
    return f"{format_number(row.entry.speedup.value)}×" if row.entry.speedup else ""


def _head(axes: Any, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10.5, color=INK)


def _draw_groups(frame: Frame, rows: Sequence[_Row], head: str) -> None:
    from matplotlib.patches import Patch

    frame.legend([Patch(color=_colour(rows, name), label=name) for name in _names(rows)])
    groups = sorted({(row.size, row.label, row.variant): None for row in rows})
    for axes, metric in zip(frame.stack(GROUPS, GROUPS), _metrics(rows), strict=True):
        _scale_bars(axes, metric)
        scaled = ", logarithmic" if axes.get_yscale() == "log" else ""
        _head(axes, metric.name + scaled)
        _draw_bars(axes, rows, metric, groups)
        words = [f"{head} {label}\n{variant}".strip() for _, label, variant in groups]
        axes.set_xticks(range(len(groups)), words)
        axes.set_xlim(-0.5, len(groups) - 0.5)
        axes.tick_params(axis="x", length=0, labelsize=10 if len(groups) <= MOST_SIZES else 8)


def _draw_bars(
    axes: Any, rows: Sequence[_Row], metric: _Metric, groups: Sequence[tuple[float, str, str]]
) -> None:
    """Draw a bar for each row with its interval and, of a time, the speed-up above it."""
    names, (foot, top) = _names(rows), axes.get_ylim()
    width = 0.84 / len(names)
    upright = len(names) * len(groups) > CROWD
    for row, value, span in zip(rows, metric.values, metric.spans, strict=True):
        group = groups.index((row.size, row.label, row.variant))
        place = group + (names.index(row.implementation) + 0.5) * width - 0.42
        low, high = _reach(value, span) if value else (0.0, 0.0)
        if value:
            axes.bar(place, value, width * 0.92, color=_colour(rows, row.implementation))
        if value and low + high > 0:
            axes.errorbar(place, value, yerr=[[min(low, value - foot)], [high]], **ERROR)
        text = _faster(row) if metric.show is format_time and value else "" if value else "unknown"
        cut = value is not None and value + high > top  # then the text is beside the interval
        axes.annotate(
            text,
            (place, (value if cut else value + high) if value else foot),
            (3 if cut else 0, 3),
            textcoords="offset points",
            ha="left" if cut else "center",
            va="bottom",
            fontsize=8,
            rotation=90 if upright or not value else 0,
        )


def _scale_bars(axes: Any, metric: _Metric) -> None:
    """Scale the y axis from 0, or logarithmically where short bars would be too short to see."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    known = [value for value in metric.values if value] or [1.0]
    least, most = min(known), max(known)
    if most > WIDE * least:
        axes.set_yscale("log")
        axes.set_ylim(least / 3, most * (most / least) ** 0.25)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if most > 300 * least else (1.0, 3.0)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, 1.25 * most)
        axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: _brief(metric.show(v)) if v else "0"))
    axes.tick_params(axis="y", labelsize=10)
    axes.grid(axis="y")


def _draw_lines(frame: Frame, rows: Sequence[_Row], head: str) -> None:
    frame.legend(_line_handles(rows))
    panels = frame.stack(PLOT, columns=2)
    for axes, metric in zip(panels, _metrics(rows), strict=True):
        _head(axes, metric.name)
        axes.set_xlabel(head)
        _draw_plot(axes, rows, metric)


def _draw_plot(axes: Any, rows: Sequence[_Row], metric: _Metric) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    names, values, show = _names(rows), metric.values, metric.show
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
                color=COLOURS[i % len(COLOURS)],
                marker=MARKERS[i % len(MARKERS)],
                markersize=6,
                linewidth=1.6,
                linestyle=LINES[j % len(LINES)],
            )
    sizes = {row.size: row.label for row in rows}
    axes.set_xscale("log" if min(sizes) > 0 else "linear")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(_apart(sorted(sizes))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: sizes.get(v, "")))
    low, high = axes.get_ylim()
    few = decades(low, high) < FEW
    places = FixedLocator(tick_values(low, high, (1, 2, 5))) if few else LogLocator(subs=(1.0, 3.0))
    axes.yaxis.set_major_locator(places)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: _brief(show(v))))
    axes.grid(True)


def _apart(sizes: Sequence[float]) -> list[float]:
    """Return those of the rising *sizes* whose labels do not touch on an axis that has them all."""
    place = math.log if sizes[0] > 0 else float
    least = (place(sizes[-1]) - place(sizes[0])) / MOST_PLACES
    kept = [sizes[0]]
    for size in sizes[1:]:
        if place(size) - place(kept[-1]) >= least:
            kept.append(size)
    return kept


def _brief(quantity: str) -> str:
    number, _, unit = quantity.partition(" ")
    return f"{float(number):g} {unit}"


def _line_handles(rows: Sequence[_Row]) -> list[Any]:
    """Return the entries of the legend of lines: implementations, and variants if several."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)], label=n)
        for i, n in enumerate(_names(rows))
    ]
    variants = list(dict.fromkeys(row.variant for row in rows))
    if len(variants) > 1:
        handles += [
            Line2D([], [], color=INK, linestyle=LINES[j % len(LINES)], label=variant)
            for j, variant in enumerate(variants)
        ]
    return handles
