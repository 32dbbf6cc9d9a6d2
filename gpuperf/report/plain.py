"""How is a table shown that is not a run's: measured roofs, a check of the timers?"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuperf.show.data import to_csv
from gpuperf.show.text import escape

__all__ = ["plain_table"]

WIDTH = 160


def plain_table(
    rows: Sequence[Mapping[str, Any]],
    heads: Sequence[str],
    cells: Sequence[Sequence[str]],
    format: str,
    notes: Sequence[str] = (),
    left: Sequence[str] = (),
) -> str:
    """*rows* as json or csv; or as table or md, *cells* under *heads* with *notes* below.
    Both are literal text: in md they are escaped.

    The columns named in *left* stand to the left, as the first one does. Ends with a newline.
    """
    if format == "json":
        return json.dumps(list(rows), indent=2, ensure_ascii=False) + "\n"
    if format == "csv":
        return to_csv(rows, list(rows[0]) if rows else heads)
    if format == "md":
        lines = ["| " + " | ".join(map(escape, heads)) + " |", "|" + "---|" * len(heads)]
        lines += ["| " + " | ".join(map(escape, row)) + " |" for row in cells]
        below = ["", *(f"- {escape(note)}" for note in notes)] if notes else []
        return "\n".join([*lines, *below]) + "\n"
    table = Table(box=None, pad_edge=False)
    for i, head in enumerate(heads):
        right = i and head not in left
        table.add_column(head, justify="right" if right else "left", no_wrap=bool(right))
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(table)
        for note in notes:
            console.print(Text(note))
    return capture.get()
