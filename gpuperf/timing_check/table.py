"""Render the bias of each timer, and the scatter inside and between processes."""

from __future__ import annotations

from typing import Any

from gpuperf.model.record import Run
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.timing_check.study import CaseTiming, compared_timers, timings
from gpuperf.units import format_time

NOTES = (
    "bias: the timer's trimmed mean over that of CUPTI's busy time of other calls of the same "
    "kernels, less 1; the cache is hot for graph, and cold otherwise; every timer but busy counts "
    "the gaps between several kernels",
    "/span: the default timer over CUPTI's span of several kernels, less 1; CUPTI widens the gaps",
    "in, between: relative standard deviation of the default timer's samples inside a process, and "
    "of the processes' medians",
)


def render_timing(run: Run, format: str, screen: Screen = WIDE) -> str:
    """Render the check as table, json, csv or md."""
    cases = timings(run.records)
    rows = [_row(timing) for timing in cases]
    timers = [t for t in compared_timers() if any(t in timing.bias for timing in cases)]
    columns = (
        Column("case", left=True, wrap=24),
        Column("kernels", keep=2),
        Column("CUPTI busy"),
        Column("span", keep=3),
        *(Column(timer, keep=5) for timer in timers),
        Column("/span", keep=3),
        Column("in", keep=4),
        Column("between", keep=4),
    )
    cells = [_cells(timing, timers) for timing in cases]
    failed = [f"{r.case.id}: {r.status}: {r.reason}" for r in run.records if r.status != "ok"]
    names = [column.head for column in columns]
    table = Table(fill(columns, cells), notes=notes_of(*NOTES, *failed), rows=rows, names=names)
    return render([table], format, screen)


def _row(timing: CaseTiming) -> dict[str, Any]:
    noise = timing.noise
    return {
        "case": timing.case,
        "kernels": timing.kernels,
        "busy_s": timing.busy_s,
        "span_s": timing.span_s,
        **{f"bias_{timer}": timing.bias.get(timer) for timer in compared_timers()},
        "over_span": timing.over_span,
        "within": noise.within if noise else None,
        "between": noise.between if noise else None,
        "processes": noise.processes if noise else None,
    }


def _cells(timing: CaseTiming, timers: list[str]) -> list[str]:
    noise = timing.noise
    return [
        timing.case,
        str(timing.kernels),
        format_time(timing.busy_s),
        format_time(timing.span_s) if timing.span_s and timing.kernels > 1 else "–",
        *(_percent(timing.bias.get(timer)) for timer in timers),
        _percent(timing.over_span),
        f"{noise.within * 100:.2f} %" if noise else "–",
        f"{noise.between * 100:.2f} %" if noise else "–",
    ]


def _percent(bias: float | None) -> str:
    if bias is None:
        return "–"
    return f"{bias * 100:+.1f} %" if abs(bias) < 0.1 else f"{bias * 100:+.0f} %"
