"""Render the measured roofs of a device beside its data sheet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuperf.model.cost import FlopKind, Flops
from gpuperf.model.peaks import Ceiling, Figure, Peaks
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Table, fill
from gpuperf.units import format_flop_rate, format_percent, format_rate, format_time

PHYSICS = 1.02  # a rate may be this many times that of the observed clock, by errors of both


def render_ceilings(
    ceilings: Peaks, peaks: Peaks | None, format: str, screen: Screen = WIDE
) -> str:
    """Render *ceilings* as table, json, csv or md, with their share of the known *peaks*."""
    rows = _rows(ceilings, peaks)
    columns = fill(COLUMNS, [_cells(row) for row in rows])
    shown = tuple(c for c in columns if format == "md" or set(c.cells) != {"–"})
    return render([Table(shown, rows=rows, names=[c.head for c in COLUMNS])], format, screen)


COLUMNS = (
    Column("roof", left=True),
    Column("p10", keep=3),
    Column("median"),
    Column("p90", keep=3),
    Column("data sheet", keep=4),
    Column("share"),
    Column("remark", left=True, keep=2, wrap=24),
    Column("condition", left=True, keep=1, wrap=40),
)

NAMES = {
    "copy_bandwidth": "DRAM copy",
    "read_bandwidth": "DRAM read",
    "write_bandwidth": "DRAM write",
    "triad_bandwidth": "DRAM triad",
    "l2_bandwidth": "L2 read",
    "l1_bandwidth": "L1 read",
    "h2d_bandwidth": "host to device",
    "d2h_bandwidth": "device to host",
    "launch_latency": "launch, a call",
}
DRAM = ("copy_bandwidth", "read_bandwidth", "write_bandwidth", "triad_bandwidth")


def _rows(ceilings: Peaks, peaks: Peaks | None) -> list[dict[str, Any]]:
    rows = []
    for key, name in NAMES.items():
        if key in ceilings.figures:
            sheet = peaks.bandwidth if peaks and key in DRAM else None
            rows.append(_row(name, ceilings.figures[key], sheet))
    for ceiling in ceilings.compute:
        rows.append(_compute_row(ceiling, peaks))
    return rows


def _compute_row(ceiling: Ceiling, peaks: Peaks | None) -> dict[str, Any]:
    kind: FlopKind = "matmul" if ceiling.accumulate else "elementwise"
    if ceiling.pipe == "special":
        kind = "special"
    flops = Flops(1, kind, ceiling.dtype, ceiling.accumulate, ceiling.function)
    sheet = peaks.ceiling(flops) if peaks else None
    special = f"{ceiling.function}{', accurate' if ceiling.accurate else ''}".strip()
    names = {"special": special or "special function", "elementwise": f"{ceiling.pipe} FMA"}
    name = names.get(kind)
    row = _row(
        f"{ceiling.dtype} {name or f'{ceiling.pipe} matmul'}"
        + (", sustained" if ceiling.regime == "sustained" else ""),
        ceiling.rate,
        sheet.rate if sheet else None,
    )
    if sheet and row["share"] > 1 and sheet.clock_hz and ceiling.clock_hz:
        at_clock = sheet.rate.value * ceiling.clock_hz / sheet.clock_hz
        clocks = f"{ceiling.clock_hz / 1e6:.0f} MHz, and the sheet's is {sheet.clock_hz / 1e6:.0f}"
        if ceiling.rate.value <= PHYSICS * at_clock:
            row["remark"] = f"above the sheet: the clock was {clocks}"
    return row


def _row(roof: str, measured: Figure, sheet: Figure | None) -> dict[str, Any]:
    share = measured.value / sheet.value if sheet else None
    return {
        "roof": roof,
        "unit": measured.unit,
        "measured": measured.value,
        "p10": measured.p10,
        "p90": measured.p90,
        "data_sheet": sheet.value if sheet else None,
        "share": share,
        "remark": "above the sheet: L2 or a higher clock helps" if share and share > 1 else "",
        "condition": measured.condition,
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    shows: dict[str, Callable[[float], str]] = {"byte/s": format_rate, "s": format_time}
    show = shows.get(row["unit"], format_flop_rate)

    def cell(key: str) -> str:
        return show(row[key]) if row[key] else "–"

    return (
        row["roof"],
        cell("p10"),
        cell("measured"),
        cell("p90"),
        cell("data_sheet") if row["data_sheet"] else "–",
        format_percent(row["share"]) if row["share"] else "–",
        row["remark"] or "–",
        row["condition"],
    )
