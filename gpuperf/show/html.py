"""Render a `Table` as a fragment of HTML: a real table with its caption, notes below.

Every text is cleaned and escaped. End tags that HTML allows to leave out (such as `</td>`) are left
out, since a page may have 5,000 rows; for the same reason the class of the table names its columns
of text (`l3` is the third) and of long text (`w3`). The rows of a long table beyond those that are
shown at first are compressed; the script of the page adds them.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Sequence
from html import escape

from gpuperf.model.text import clean
from gpuperf.show.table import Column, Note, Table

WIDE = 16  # columns from which on a table is printed in smaller letters
TALL = 200  # rows that a page with a script shows at first (page.css)
LONG = 1000  # rows from which on those beyond TALL are compressed


def text(value: str) -> str:
    """Return *value* cleaned and escaped, for an element or for an attribute in quotes."""
    return escape(clean(value), quote=True)


def paragraph(words: str) -> str:
    """Return *words*, a text, as a paragraph."""
    return f"<p class=lead>{text(words)}</p>"


def to_html(table: Table) -> str:
    """Write *table* as HTML, with a newline at the end."""
    parts = [paragraph(line) for line in table.lead]
    if table.title and not table.columns:
        parts.insert(0, f"<p class=title>{text(table.title)}</p>")
    if table.columns:
        parts.append(_table(table))
    parts += [
        _notes("caveats", _details(table)),
        _notes("caveats", table.footnotes),
        _notes("notes", table.notes),
    ]
    return "\n".join(filter(None, parts)) + "\n"


def _table(table: Table) -> str:
    columns = list(table.columns)
    failures = table.failures or ("",) * table.height
    kinds = [f"l{i}" for i, column in enumerate(columns, 1) if column.left]
    kinds += ["wide"] if len(columns) > WIDE else []
    kinds += [f"w{i}" for i, column in enumerate(columns, 1) if column.wrap]
    caption = f"<caption>{text(table.title)}</caption>" if table.title else ""
    label = text(table.title or "table")
    heads = "".join(f"<th scope=col>{_head(column)}" for column in columns)
    rows = [_row(columns, i, failure) for i, failure in enumerate(failures)]
    kind = "scroll tall" if table.height > TALL else "scroll"
    plain = TALL if table.height > LONG else table.height
    return (
        f'<div class="{kind}" role=region aria-label="{label}" tabindex=0>'
        f'<table class="{" ".join(kinds)}">{caption}<thead><tr>{heads}</thead>'
        f"<tbody>{''.join(rows[:plain])}</tbody></table>{_compressed(rows[plain:])}</div>"
    )


def _compressed(rows: Sequence[str]) -> str:
    """Return the element with *rows*, which the script adds to the table before it."""
    if not rows:
        return ""
    packed = base64.b64encode(gzip.compress("".join(rows).encode(), 9, mtime=0)).decode()
    words = f"This page has {len(rows):,} rows more. A script adds them; `gpuperf show` prints all."
    return (
        f"<noscript>{paragraph(words)}</noscript>"
        f'<script type="application/gzip" class=rows>{packed}</script>'
    )


def _head(column: Column) -> str:
    unit = f" <small>{text(column.unit)}</small>" if column.unit else ""
    return f"{text(column.head)}{unit}"


def _row(columns: Sequence[Column], i: int, failure: str) -> str:
    if not failure:
        return "<tr>" + "".join(_cell(column, i) for column in columns)
    shown = [column for column in columns if column.identity]
    span = max(1, len(columns) - len(shown))
    own = "".join(_cell(column, i) for column in shown)
    return f'<tr class=failure>{own}<td class=why colspan="{span}">{text(failure)}'


def _cell(column: Column, i: int) -> str:
    shown = text(column.cells[i].strip())
    mood = column.moods[i] if column.moods else ""
    words = f"<code>{shown}</code>" if column.code else shown
    if column.folds and (lines := column.folds[i]):
        folded = "".join(f"<li>{text(line)}" for line in lines)
        words = f"<details><summary>{words}</summary><ul>{folded}</ul></details>"
    return f"<td class={mood}>{words}" if mood else f"<td>{words}"


def _notes(kind: str, notes: Sequence[Note]) -> str:
    lines = "".join(_lines(notes))
    return f"<ul class={kind}>{lines}</ul>" if lines else ""


def _details(table: Table) -> list[Note]:
    """Return the sentences about each row, under the name of the row."""
    named = [c for c in table.columns if c.identity or c.code] or table.columns[:1]
    return [
        (" ".join(column.cells[i] for column in named), " ".join(sentences))
        for i, sentences in enumerate(table.details)
        if sentences
    ]


def _lines(notes: Sequence[Note]) -> Iterator[str]:
    for heading, words in notes:
        lead = f"<b>{text(heading)}</b> " if heading else ""
        yield f"<li>{lead}{text(words)}"
