"""Write values for programs: JSON, and CSV whose cells a spreadsheet does not execute.

Names may come from files of others. A spreadsheet runs a text that begins with `=`, `+`, `-`, `@`,
a tab or a carriage return as a formula (https://owasp.org/www-community/attacks/CSV_Injection), so
such a text gets an apostrophe before it. Numbers stay numbers, and a text has one line.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuperf.model.text import clean

FORMULA = tuple("=+-@\t\r")


def to_json(value: Any, ascii: bool = False) -> str:
    """Write *value* as JSON with a newline; infinities become null, and texts are cleaned."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=ascii, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {clean(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def to_csv(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Write *rows* as CSV under a head of *names*, with newlines alone between the lines."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(name) for name in names])
    for row in rows:
        writer.writerow([_cell(row.get(name, "")) for name in names])
    return out.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value if value is None or isinstance(value, int | float) else _cell(str(value))
    text = clean(value)
    return f"'{text}" if text.startswith(FORMULA) and len(text) > 1 and not _number(text) else text


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
