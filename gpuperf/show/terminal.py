"""Render a `Table` for a terminal.

The sentence of a failed row spans all columns, heads have two lines, and a narrow terminal drops
whole columns, the least important first. Numbers never wrap.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from rich.cells import cell_len

from gpuperf.model.text import clean
from gpuperf.show.screen import Screen
from gpuperf.show.table import ALWAYS, Column, Note, Table
from gpuperf.show.text import to_ascii

GAP = "  "
SHORTEN_BEFORE = 5  # cells are shortened before a column with this `keep` or more is dropped
HEADING = 11  # characters of a note's heading
LEAST = 30  # characters that a sentence gets on any screen
FOLD = 24  # characters that a word gets before it is folded

_CODES = {"title": "1", "head": "1", "faint": "2", "failure": "31", "doubt": "33"}  # ANSI

Line = list[tuple[str, str]]  # (text, name of its style)


def to_terminal(table: Table, screen: Screen) -> str:
    """Write *table* in lines that are at most as wide as *screen*, unless names are too long."""

    encoded = to_ascii if screen.ascii else str

    def legible(text: str) -> str:
        return encoded("\n".join(map(clean, text.split("\n"))))

    lines = _lines(table.each(legible), screen.width)
    return encoded("".join(f"{_painted(line, screen.color)}\n" for line in lines))


def _painted(line: Line, color: bool) -> str:
    if not color:
        return "".join(text for text, _ in line)
    return "".join(
        f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and text else text for text, style in line
    )


def _lines(table: Table, width: int) -> Iterator[Line]:
    kept, dropped = _fit(table.columns, width)
    notes = [*table.notes, *_hidden(dropped, table)]
    blocks: tuple[list[Line], ...] = (
        [*_title(table, width)],
        [*_body(table, kept, width)] if table.height else [],
        [*_notes(table.footnotes, width, "doubt")],
        [*_notes(notes, width, "faint")],
    )
    for i, block in enumerate(filter(None, blocks)):
        if i:
            yield []
        yield from block


def _title(table: Table, width: int) -> Iterator[Line]:
    if table.title:
        yield from ([(part, "title")] for part in _wrapped(table.title, max(width, LEAST), "  "))
    for line in table.lead:
        yield from ([(part, "")] for part in _wrapped(line, max(width, LEAST), "  "))


def _hidden(dropped: Sequence[str], table: Table) -> Iterator[Note]:
    if not dropped:
        return
    text = f"for want of width: {', '.join(dropped)}; --format json has all"
    if table.more:
        text = f"{len(dropped)} column{'s' * (len(dropped) > 1)}: {table.more}"
    headed = any(heading for heading, _ in table.notes)
    yield ("Not shown", text) if headed else ("", f"not shown {text}")


def _body(table: Table, columns: Sequence[Column], width: int) -> Iterator[Line]:
    widths = _widths(columns, width)
    yield from _head(columns, widths)
    failures = table.failures or ("",) * table.height
    for i, failure in enumerate(failures):
        if failure:
            yield from _failed_row(columns, widths, i, failure, width)
        else:
            yield from _row(columns, widths, i)
        for sentence in table.details[i] if table.details else ():
            room = max(width - 4, LEAST)
            yield from ([(f"    {part}", "")] for part in _wrapped(sentence, room, "  "))


def _fit(columns: Sequence[Column], width: int) -> tuple[list[Column], list[str]]:
    """Return the columns that fit in *width*, and the heads of those that do not."""
    kept, dropped = list(columns), []
    while kept and _total([_narrowest(c) for c in kept]) > width:
        least = min(kept, key=lambda c: c.keep)
        if least.keep >= SHORTEN_BEFORE and any(c.short for c in kept):
            kept = [replace(c, cells=c.short, short=()) if c.short else c for c in kept]
            continue
        if least.keep == ALWAYS:
            break
        kept.remove(least)
        dropped.append(f"{least.head} {least.unit}".removesuffix(" %").strip())
    return kept, dropped


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _widths(columns: Sequence[Column], width: int) -> list[int]:
    """Compute the width of each column; those that wrap are narrowed, the widest first."""
    widths, least = [_natural(c) for c in columns], [_narrowest(c) for c in columns]
    while (over := _total(widths) - width) > 0:
        wide = [i for i, (now, floor) in enumerate(zip(widths, least, strict=True)) if now > floor]
        if not wide:
            break
        widest, *others = sorted(wide, key=lambda i: -widths[i])
        down_to = max(least[widest], *(widths[i] - 1 for i in others[:1]), 0)
        widths[widest] = max(widths[widest] - over, down_to)
    return widths


def _narrowest(column: Column) -> int:
    """Return the least width of *column*, which may wrap between words and fold long ones."""
    if not column.wrap:
        return _natural(column)
    words = {word for cell in {column.head, *column.cells} for word in cell.split()}
    longest = max(map(_length, words), default=0)
    return min(_natural(column), max(column.wrap, min(longest, FOLD)))


def _natural(column: Column) -> int:
    lines = (line for cell in column.cells for line in cell.split("\n"))
    return max(map(_length, (column.head, column.unit, *lines)))


def _length(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _pad(text: str, width: int, left: bool) -> str:
    space = " " * max(0, width - _length(text))
    return text + space if left else space + text


def _head(columns: Sequence[Column], widths: Sequence[int]) -> Iterator[Line]:
    pairs = list(zip(columns, widths, strict=True))
    for texts in ([c.head for c in columns], [c.unit for c in columns]):
        if any(texts):
            cells = (_pad(t, w, c.left) for t, (c, w) in zip(texts, pairs, strict=True))
            yield [(GAP.join(cells).rstrip(), "head")]
    if any(c.head for c in columns):
        yield [(GAP.join("─" * w for w in widths), "faint")]


def _row(columns: Sequence[Column], widths: Sequence[int], i: int) -> Iterator[Line]:
    pairs = zip(columns, widths, strict=True)
    cells = [_wrapped(c.cells[i], w) if c.wrap else [c.cells[i]] for c, w in pairs]
    for parts in zip_longest(*cells, fillvalue=""):
        last = max((j for j, part in enumerate(parts) if part), default=0)
        line: Line = []
        for j, (column, part) in enumerate(zip(columns, parts[: last + 1], strict=False)):
            text = _pad(part, widths[j], column.left)
            text = text.rstrip() if j == last else text + GAP
            line.append((text, column.moods[i] if column.moods else ""))
        yield line


def _wrapped(text: str, width: int, hang: str = "") -> list[str]:
    """Wrap *text* to *width*; each line keeps its indentation."""
    lines = []
    for part in text.split("\n"):
        indent = part[: len(part) - len(part.lstrip())] + hang
        whole = _length(part) <= width
        lines += [part] if whole else textwrap.wrap(part, width, subsequent_indent=indent) or [""]
    return lines


def _failed_row(
    columns: Sequence[Column], widths: Sequence[int], i: int, failure: str, width: int
) -> Iterator[Line]:
    identity = [(c, w) for c, w in zip(columns, widths, strict=True) if c.identity]
    line = GAP.join(_pad(c.cells[i], w, c.left) for c, w in identity) + GAP
    doubts = [c.cells[i] for c in columns[-1:] if c.wrap and c.cells[i]]
    room = max(width - _length(line), LEAST)
    first, *rest = textwrap.wrap(" · ".join([failure, *doubts]), room) or [""]
    yield [(line, ""), (first, "failure")]
    yield from ([(" " * _length(line), ""), (part, "failure")] for part in rest)


def _notes(notes: Sequence[Note], width: int, style: str) -> Iterator[Line]:
    """Write headings on the left, without repetitions, and the texts beside them."""
    before = ""
    if not any(heading for heading, _ in notes):
        texts: Iterable[str] = (text for _, text in notes)
        yield from ([(part, "")] for text in texts for part in _wrapped(text, width, "  "))
        return
    for heading, text in notes:
        shown = "" if heading == before else heading
        before = heading
        lead = _pad(shown, HEADING, True) + " "
        wrapped = textwrap.wrap(text, max(width - HEADING - 1, LEAST)) or [""]
        if _length(lead) > HEADING + 1:
            yield [(lead.rstrip(), style)]
        else:
            yield [(lead, style), (wrapped.pop(0), "")]
        yield from ([(" " * (HEADING + 1), ""), (part, "")] for part in wrapped)
