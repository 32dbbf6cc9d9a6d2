"""In which form does a run leave the program: table, JSON, CSV or markdown?"""

from __future__ import annotations

import io
import json
from typing import Any

from gpuperf.errors import UnknownName
from gpuperf.model.codec import to_builtins
from gpuperf.model.record import Run
from gpuperf.report.caption import run_roofs
from gpuperf.report.cells import to_csv
from gpuperf.report.rows import rows
from gpuperf.report.text import clean_value, to_ascii

__all__ = ["FORMATS", "render"]

FORMATS = ("table", "json", "csv", "md")
SCHEMA = 1  # of the JSON report


def render(
    run: Run, format: str = "table", width: int = 120, color: bool = False, ascii: bool = False
) -> str:
    """*run* as text that ends with a newline. *width*, *color* and *ascii* shape the table only.

    Raises: UnknownName for a format that there is not.
    """
    if format == "json":
        return _json(run)
    if format == "csv":
        return _csv(run)
    if format == "md":
        from gpuperf.report.markdown import markdown

        return markdown(run)
    if format == "table":
        text = _table(run, width, color)
        return to_ascii(text) if ascii else text
    raise UnknownName("format", format, FORMATS)


def _table(run: Run, width: int, color: bool) -> str:
    from rich.console import Console

    from gpuperf.report.table import table

    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
    )
    console.print(table(run, width), crop=False)
    return out.getvalue()


def _json(run: Run) -> str:
    value = {"schema": SCHEMA, "header": _header(run), "rows": rows(run)}
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _header(run: Run) -> dict[str, Any]:
    header = run.header
    value: dict[str, Any] = {
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
    cleaned: dict[str, Any] = clean_value(value)
    return cleaned


def _csv(run: Run) -> str:
    flat = [_flat(row) for row in rows(run)]
    names = list(dict.fromkeys(name for row in flat for name in row))
    first = [n for n in names if "." not in n]
    return to_csv(flat, [*first, *(n for n in names if "." in n)])


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row without nesting: `point.m`, lists as text joined by semicolons."""
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
