"""Render a `Table` in GitHub's markdown: every column, and the notes as a list below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuperf.model.text import clean
from gpuperf.show.table import Column, Note, Table
from gpuperf.show.text import escape, escape_line


def to_markdown(table: Table) -> str:
    """Write *table* in GitHub's markdown, with a newline at the end.

    Its texts are escaped, so that they contain no markup.
    """
    shown = table.each(clean)
    parts = [
        [f"**{escape(shown.title)}**"] if shown.title else [],
        [f"- {escape_line(line)}" for line in shown.lead],
        table_lines(shown) if shown.columns else [],
        list(_notes(shown.footnotes)),
        list(_notes(shown.notes)),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def table_lines(table: Table) -> list[str]:
    """Write two lines of head, and a line for each row.

    A failure joins the text of a last column that wraps; otherwise it gets another column.
    """
    columns = list(table.columns)
    failures = table.failures or ("",) * table.height
    if any(failures) and not columns[-1].wrap:
        columns.append(Column("caveats", "", ("",) * table.height, left=True, wrap=1))
    heads = (_words(f"{c.head} {c.unit}".strip()) for c in columns)
    lines = [_line(heads), _line(":--" if c.left else "--:" for c in columns)]
    return lines + [_line(_cells(columns, i, failure)) for i, failure in enumerate(failures)]


def _cells(columns: Sequence[Column], i: int, failure: str) -> list[str]:
    cells = [_cell(c, i) for c in columns]
    if not failure:
        return cells
    shown = [cell if c.identity else "" for c, cell in zip(columns[:-1], cells, strict=False)]
    return [*shown, " · ".join(filter(None, (f"**{escape(failure)}**", cells[-1])))]


def _cell(column: Column, i: int) -> str:
    text = escape(column.cells[i].strip())
    if column.code:
        return f"<code>{text}</code>"
    return f"**{text}**" if column.moods and column.moods[i] == "failure" else text


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _words(text: str) -> str:
    """Escape words of gpuperf; `@clock` would mention a GitHub user of that name."""
    return escape(text.replace("@clock", "at clock"))


def _notes(notes: Iterable[Note]) -> Iterable[str]:
    for heading, text in notes:
        yield f"- **{escape(heading)}**: {_words(text)}" if heading else f"- {escape_line(text)}"
