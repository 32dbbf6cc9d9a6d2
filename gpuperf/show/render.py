"""Render tables as terminal text, JSON, CSV, markdown, or a fragment of HTML."""

from __future__ import annotations

from collections.abc import Sequence

from gpuperf.errors import UnknownName
from gpuperf.show.data import to_csv, to_json
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Table
from gpuperf.show.text import to_ascii

FORMATS = ("table", "json", "csv", "md", "html")


def render(tables: Sequence[Table], format: str, screen: Screen = WIDE) -> str:
    """Render *tables* in turn, or their rows as json or csv, with a newline at the end.

    Raises: UnknownName for an unknown format.
    """
    if format == "table":
        from gpuperf.show.terminal import to_terminal

        return "\n".join(to_terminal(table, screen) for table in tables)
    if format == "json":
        return to_json([row for table in tables for row in table.rows], screen.ascii)
    if format == "html":
        from gpuperf.show.html import to_html

        return "\n".join(map(to_html, tables))
    if format == "md":
        from gpuperf.show.markdown import to_markdown

        text = "\n".join(map(to_markdown, tables))
    elif format == "csv":
        rows = [row for table in tables for row in table.rows]
        names = list(dict.fromkeys(name for row in rows for name in row))
        names = names or list(next((t.names for t in tables if t.names), ()))
        text = to_csv(rows, names)
    else:
        raise UnknownName("format", format, FORMATS)
    return to_ascii(text) if screen.ascii else text
