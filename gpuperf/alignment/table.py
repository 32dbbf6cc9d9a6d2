"""Render a study of alignment: the loss by alignment, the kernels of each, a better size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpuperf.alignment.study import AlignedPoint, Group, groups
from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.model.text import clean, shorten
from gpuperf.show.axes import moved_axes
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.units import format_si, format_time

LONGEST = 60  # characters of a kernel's name
MOST_KERNELS = 3  # named of a class
MOST_ASKED = 50
IMPLEMENTATION = Column("implementation", left=True, wrap=12)
CLASS_COLUMNS = (
    IMPLEMENTATION,
    Column("row, bytes", left=True),
    Column("sizes", keep=3),
    Column("median"),
    Column("loss"),
    Column("kernels", left=True, wrap=30),
)
SUGGESTION_COLUMNS = (
    Column(left=True),
    IMPLEMENTATION,
    Column("time"),
    Column("better"),
    Column("wider by", keep=3),
    Column("its time", keep=4),
    Column("gain, one process"),
)
NOTES = (
    "row: the largest power of two that divides the size in bytes (a row's, where the axis that "
    "moves is the length of one), 128 and more together",
    "loss: median over the sizes, each against the best-aligned sizes around it",
)


NOISY = 0.1  # half an interval, of the time


def render_alignment(run: Run, format: str, screen: Screen = WIDE) -> str:
    """The study as table or md; as json or csv, a row a size."""
    lost = (record for record in run.records if record.status != "ok")
    failed = [f"{clean(r.case.id)}: {r.status}: {clean(r.reason)}" for r in lost]
    try:
        found = groups(run)
        axes = "=".join(moved_axes(run)[0])
    except UsageError as error:
        problem = Table(notes=notes_of(str(error), *failed), names=("size",))
        return render([problem], format, screen)
    asked = set(run.header.asked[:MOST_ASKED])
    rows = [_row(group, point, axes, asked) for group in found for point in group.points]
    failed += _noisy(found)
    tables = []
    if run.header.asked:
        tables.append(_suggestions(run, found, axes, failed))
    if not run.header.asked or any(len(group.classes) > 1 for group in found):
        tables.append(_classes(found, () if run.header.asked else failed))
    tables[0] = replace(tables[0], rows=rows, names=("size",))
    return render(tables, format, screen)


def _noisy(found: tuple[Group, ...]) -> list[str]:
    """A word where times are too uncertain for what is made of them."""
    points = [point.samples for group in found for point in group.points]
    wide = [s for s in points if s.interval_s[1] - s.interval_s[0] > 2 * NOISY * s.median_s]
    if not wide:
        return []
    return [
        f"{len(wide)} of {len(points)} times are known to no better than ± {NOISY * 100:.0f} %: "
        "losses and gains among them tell little"
    ]


def _row(group: Group, point: AlignedPoint, axes: str, asked: set[int]) -> dict[str, Any]:
    low, high = point.samples.interval_s
    told = group.suggest(point.elements) if point.elements in asked else None
    better, gain = (told.better, told.gain) if told else (None, None)
    return {
        "case": clean(point.record.case.id),
        "implementation": clean(group.implementation),
        "dtype": clean(group.dtype),
        "where": clean(group.where),
        "axis": clean(axes),
        "elements": point.elements,
        "row_alignment_bytes": point.alignment,
        "time_s": point.samples.median_s,
        "time_low_s": low,
        "time_high_s": high,
        "per_s": point.throughput,
        "unit": group.unit,
        "kernel": clean(point.kernel),
        "better": better.elements if better else None,
        "gain": gain.value if gain else None,
        "gain_one_process_low": gain.low if gain else None,
        "gain_one_process_high": gain.high if gain else None,
    }


def _classes(found: tuple[Group, ...], failed: Sequence[str]) -> Table:
    cells = []
    for group in found:
        for each in group.classes:
            named = [f"{shorten(clean(k), LONGEST)} ×{n}" for k, n in each.kernels[:MOST_KERNELS]]
            more = len(each.kernels) - MOST_KERNELS
            cells.append(
                [
                    clean(group.name),
                    f"{each.alignment}{' +' if each.alignment == 128 else ''}",
                    str(each.count),
                    format_si(each.throughput, group.unit),
                    "–" if each.loss is None else f"{each.loss * 100:.1f} %",
                    ", ".join(named + ([f"{more} more"] if more > 0 else [])) or "unknown",
                ]
            )
    columns = fill(CLASS_COLUMNS, cells)
    columns = columns if len(found) > 1 else columns[1:]
    return Table(columns, notes=notes_of(*NOTES, *failed))


def _suggestions(run: Run, found: tuple[Group, ...], axes: str, failed: Sequence[str]) -> Table:
    cells = []
    for group in found:
        for elements in run.header.asked[:MOST_ASKED]:
            told = group.suggest(elements)
            if told is None:
                continue
            line = [str(elements), clean(group.name), format_time(told.asked.samples.median_s)]
            if told.better is None or told.gain is None:
                cells.append([*line, "none for sure", "–", "–", "–"])
                continue
            gain = (told.gain.value - 1) * 100
            sure = ""
            if told.gain.low is not None and told.gain.high is not None:
                sure = f" ({(told.gain.low - 1) * 100:.1f} to {(told.gain.high - 1) * 100:.1f})"
            wider = told.better.elements / elements - 1
            cells.append(
                [
                    *line,
                    str(told.better.elements),
                    f"{wider * 100:.2g} %",
                    format_time(told.better.samples.median_s),
                    f"{gain:+.1f} %{sure}",
                ]
            )
    note = (
        "better: the smallest size from there on within 1 % of the best time of those tried, where "
        "the interval of its gain is above 0"
    )
    size, *others = SUGGESTION_COLUMNS
    columns = fill([replace(size, head=axes), *others], cells)
    return Table(columns, notes=notes_of(note, *failed))
