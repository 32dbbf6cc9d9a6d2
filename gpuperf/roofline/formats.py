"""Render a run as table, JSON, CSV or markdown."""

from __future__ import annotations

from typing import Any

from gpuperf.model.codec import to_builtins
from gpuperf.model.record import Run
from gpuperf.roofline.caption import run_roofs
from gpuperf.roofline.columns import in_order
from gpuperf.roofline.rows import rows
from gpuperf.roofline.table import sheet
from gpuperf.show.data import to_csv, to_json
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.text import to_ascii

SCHEMA = 1  # of the JSON report


def render_run(run: Run, format: str = "table", screen: Screen = WIDE) -> str:
    """Render *run* as text that ends with a newline.

    Raises: UnknownName for a format that does not exist.
    """
    if format == "json":
        value = {"schema": SCHEMA, "header": _header(run), "rows": rows(run)}
        return to_json(value, screen.ascii)
    if format == "csv":
        return to_ascii(_csv(run)) if screen.ascii else _csv(run)
    return render([sheet(run)], format, screen)


def _header(run: Run) -> dict[str, Any]:
    header = run.header
    return {
        "run": header.run,
        "created": header.created,
        "gpuperf": header.gpuperf,
        "command": list(header.command),
        "device": to_builtins(header.device),
        "world": header.world,
        "baseline": header.baseline or None,
        "contract": to_builtins(header.contract),
        "fingerprint": to_builtins(header.fingerprint),
        "peaks": header.peaks.id if header.peaks else None,
        "peaks_reason": header.peaks_reason,
        "ceilings": header.ceilings.id if header.ceilings else None,
        "roofs": [
            {
                "kind": roof.kind,
                "label": roof.label,
                "origin": roof.origin,
                "value": roof.value,
                "unit": roof.figure.unit,
                "sureness": roof.figure.status,
                "condition": roof.figure.condition,
                "source": roof.figure.source,
            }
            for roof in run_roofs(run)
        ],
        "problems": list(run.problems),
    }


def _csv(run: Run) -> str:
    flat = [flatten(row) for row in rows(run)]
    return to_csv(flat, in_order(name for row in flat for name in row))


def flatten(row: dict[str, Any]) -> dict[str, Any]:
    """Return *row* without nesting: keys like `point.m`, lists as text joined by semicolons."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            flat.update({f"{key}.{name}": item for name, item in value.items()})
        elif isinstance(value, list):
            flat[key] = "; ".join(_item(v) for v in value)
        else:
            flat[key] = value
    return flat


def _item(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    if "message" in value:
        return f"{value['kind']}: {value['message']}"
    return f"{value['count']} {value['name']}"
