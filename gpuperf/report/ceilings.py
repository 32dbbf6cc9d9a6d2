"""How are measured roofs shown, beside the data sheet's?"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuperf.model.cost import Flops
from gpuperf.model.peaks import Figure, Peaks
from gpuperf.units import format_flop_rate, format_percent, format_rate

__all__ = ["render_ceilings"]


def render_ceilings(ceilings: Peaks, peaks: Peaks | None, format: str) -> str:
    """*ceilings* as table, json, csv or md; with the share of *peaks* where it is known."""
    rows = list(_rows(ceilings, peaks))
    if format == "json":
        return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
    if format == "csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]) if rows else ["roof"])
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()
    cells = [_cells(row) for row in rows]
    if format == "md":
        lines = ["| " + " | ".join(HEADS) + " |", "|" + "---|" * len(HEADS)]
        lines += ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in cells]
        return "\n".join(lines) + "\n"
    table = Table(box=None, pad_edge=False)
    for head, side in zip(HEADS, ("left", "right", "right", "right", "left"), strict=True):
        table.add_column(head, justify=side)  # type: ignore[arg-type]
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(file=io.StringIO(), width=160, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


HEADS = ("roof", "measured", "data sheet", "share", "condition")


def _rows(ceilings: Peaks, peaks: Peaks | None) -> list[dict[str, Any]]:
    rows = []
    if ceilings.bandwidth:
        rows.append(_row("DRAM", ceilings.bandwidth, peaks.bandwidth if peaks else None))
    for ceiling in ceilings.compute:
        flops = Flops(1, "matmul", ceiling.dtype, ceiling.accumulate)
        sheet = peaks.ceiling(flops) if peaks else None
        rows.append(
            _row(f"{ceiling.dtype} {ceiling.pipe}", ceiling.rate, sheet.rate if sheet else None)
        )
    return rows


def _row(roof: str, measured: Figure, sheet: Figure | None) -> dict[str, Any]:
    return {
        "roof": roof,
        "unit": measured.unit,
        "measured": measured.value,
        "data_sheet": sheet.value if sheet else None,
        "share": measured.value / sheet.value if sheet else None,
        "condition": measured.condition,
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    show = format_rate if row["unit"] == "byte/s" else format_flop_rate
    return (
        row["roof"],
        show(row["measured"]),
        show(row["data_sheet"]) if row["data_sheet"] else "unknown",
        format_percent(row["share"]) if row["share"] else "–",
        row["condition"],
    )
