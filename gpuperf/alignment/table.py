"""Render a study of alignment: the loss by alignment, the kernels of each, a better size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpuperf.alignment.study import AlignedPoint, Group, groups
from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.show.axes import moved_axes
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.tiles.alignment import GOOD
from gpuperf.units import format_si, format_time

LONGEST = 60  # characters of a kernel's name
MOST_KERNELS = 3  # kernels that are named for an alignment
MOST_ASKED = 50
NOISY = 0.1  # half a time's interval over the time, above which a note says so
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
    "row: the largest power of two that divides the bytes of a row of this many elements; 128 "
    "stands for 128 and more",
    "loss: of throughput, the median over the sizes, each compared with the best-aligned sizes "
    "around it",
)
SUGGESTION_NOTE = (
    "better: the smallest larger size within 1 % of the best time measured, where the interval of "
    "its gain is above 0"
)


def render_alignment(run: Run, format: str, screen: Screen = WIDE) -> str:
    """Render the study as table or md; as json or csv, a row a size."""
    lost = (record for record in run.records if record.status != "ok")
    notes = [f"{r.case.id}: {r.status}: {r.reason}" for r in lost]
    try:
        study = groups(run)
        axes = "=".join(moved_axes(run)[0])
    except UsageError as error:
        problem = Table(notes=notes_of(str(error), *notes), names=("size",))
        return render([problem], format, screen)
    asked = run.header.asked[:MOST_ASKED]
    rows = [_row(group, point, axes, asked) for group in study for point in group.points]
    notes += _noisy(study)
    tables = [_suggestions(asked, study, axes, notes)] if asked else []
    if not asked or any(len(group.classes) > 1 for group in study):
        tables.append(_classes(study, () if asked else notes))
    tables[0] = replace(tables[0], rows=rows, names=("size",))
    return render(tables, format, screen)


def _noisy(study: Sequence[Group]) -> list[str]:
    points = [point.samples for group in study for point in group.points]
    wide = [s for s in points if s.interval_s[1] - s.interval_s[0] > 2 * NOISY * s.median_s]
    if not wide:
        return []
    return [
        f"the intervals of {len(wide)} of {len(points)} times are wider than ± {NOISY * 100:.0f} "
        "%: losses and gains among them are uncertain"
    ]


def _row(group: Group, point: AlignedPoint, axes: str, asked: Sequence[int]) -> dict[str, Any]:
    low, high = point.samples.interval_s
    suggestion = group.suggest(point.elements) if point.elements in asked else None
    better, gain = (suggestion.better, suggestion.gain) if suggestion else (None, None)
    return {
        "case": point.record.case.id,
        "implementation": group.implementation,
        "dtype": group.dtype,
        "where": group.where,
        "axis": axes,
        "elements": point.elements,
        "row_alignment_bytes": point.alignment,
        "time_s": point.samples.median_s,
        "time_low_s": low,
        "time_high_s": high,
        "per_s": point.throughput,
        "unit": group.unit,
        "kernel": point.kernel,
        "better": better.elements if better else None,
        "gain": gain.value if gain else None,
        "gain_one_process_low": gain.low if gain else None,
        "gain_one_process_high": gain.high if gain else None,
    }


def _classes(study: Sequence[Group], notes: Sequence[str]) -> Table:
    cells = []
    for group in study:
        for each in group.classes:
            named = [f"{shorten(k, LONGEST)} ×{n}" for k, n in each.kernels[:MOST_KERNELS]]
            more = len(each.kernels) - MOST_KERNELS
            cells.append(
                [
                    group.name,
                    f"{each.alignment}{' +' if each.alignment == GOOD else ''}",
                    str(each.count),
                    format_si(each.throughput, group.unit),
                    "–" if each.loss is None else f"{each.loss * 100:.1f} %",
                    ", ".join(named + ([f"{more} more"] if more > 0 else [])) or "unknown",
                ]
            )
    columns = fill(CLASS_COLUMNS, cells)
    return Table(columns[len(study) == 1 :], notes=notes_of(*NOTES, *notes))


def _suggestions(
    asked: Sequence[int], study: Sequence[Group], axes: str, notes: Sequence[str]
) -> Table:
    cells = []
    for group in study:
        for elements in asked:
            suggestion = group.suggest(elements)
            if suggestion is None:
                continue
            better, gain = suggestion.better, suggestion.gain
            time = format_time(suggestion.asked.samples.median_s)
            line = [str(elements), group.name, time]
            if better is None or gain is None:
                cells.append([*line, "none surely", "–", "–", "–"])
                continue
            interval = ""
            if gain.low is not None and gain.high is not None:
                interval = f" ({(gain.low - 1) * 100:.1f} to {(gain.high - 1) * 100:.1f})"
            cells.append(
                [
                    *line,
                    str(better.elements),
                    f"{(better.elements / elements - 1) * 100:.2g} %",
                    format_time(better.samples.median_s),
                    f"{(gain.value - 1) * 100:+.1f} %{interval}",
                ]
            )
    size, *others = SUGGESTION_COLUMNS
    columns = fill([replace(size, head=axes), *others], cells)
    return Table(columns, notes=notes_of(SUGGESTION_NOTE, *notes))
