"""How is a run shown on a terminal as a table?

The layout is our own: rows that failed speak across all columns, heads have two lines, and when
the terminal is narrow whole columns go, the least important first, instead of wrapping.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style

from gpuperf.model.record import Run
from gpuperf.report.caption import Note
from gpuperf.report.rows import rows
from gpuperf.report.sheet import ALWAYS, Column, Sheet, sheet

__all__ = ["rows", "table"]

GAP = "  "
SHORTEN_BEFORE = 5  # columns to keep this much or more stay while shorter cells can save them
HEADING = 11  # columns of a note's heading

_STYLES = {
    "": None,
    "title": Style(bold=True),
    "head": Style(bold=True),
    "faint": Style(dim=True),
    "failure": Style(color="red"),
    "doubt": Style(color="yellow"),
}

Line = list[tuple[str, str]]  # (text, name of its style)


def table(run: Run, width: int) -> RenderableType:
    """The table of *run*, at most *width* columns wide wherever names allow it."""
    return _Lines(tuple(_lines(sheet(run), width)))


@dataclass(frozen=True)
class _Lines:
    """Lines that are printed as they are: no markup, no wrapping, no highlighting."""

    lines: tuple[Line, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines:
            for text, style in line:
                yield Segment(text, _STYLES[style])
            yield Segment.line()


def _lines(of: Sheet, width: int) -> Iterable[Line]:
    kept, dropped = _fit(of.columns, width)
    widths = [_width(c) for c in kept]
    if kept and kept[-1].head == "caveats":
        room = width - sum(widths[:-1]) - len(GAP) * (len(kept) - 1)
        widths[-1] = min(widths[-1], max(room, _narrowest(kept[-1])))
    yield [(of.title, "title")]
    yield []
    yield from _head(kept, widths)
    for i, failure in enumerate(of.failures):
        if failure:
            yield from _failed_row(kept, widths, i, failure, width)
        else:
            yield from _row(kept, widths, i)
    if not of.failures:
        yield [("no records", "faint")]
    if of.footnotes:
        yield []
        yield from _notes(of.footnotes, width, "doubt")
    yield []
    hidden = f"for want of width: {', '.join(dropped)}; --format json has all"
    yield from _notes([*of.notes, *([("Not shown", hidden)] if dropped else [])], width, "faint")


def _fit(columns: Sequence[Column], width: int) -> tuple[list[Column], list[str]]:
    """The columns that fit in *width*, and the heads of the dropped ones."""
    kept, dropped = list(columns), []
    while _total(kept) > width:
        least = min(kept, key=lambda c: c.keep)
        if least.keep >= SHORTEN_BEFORE and any(c.short for c in kept):
            kept = [replace(c, cells=c.short, short=()) if c.short else c for c in kept]
            continue
        if least.keep == ALWAYS:
            break
        kept.remove(least)
        dropped.append(f"{least.head} {least.unit}".removesuffix(" %").strip())
    return kept, dropped


def _total(columns: Sequence[Column]) -> int:
    widths = [_narrowest(c) if c.head == "caveats" else _width(c) for c in columns]
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _narrowest(caveats: Column) -> int:
    """What the caveats' column needs when it wraps between words."""
    words = {word for cell in set(caveats.cells) for word in cell.split(" ")}
    return max(_length(word) for word in (caveats.head, *words))


def _length(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _width(column: Column) -> int:
    return max(_length(text) for text in (column.head, column.unit, *column.cells))


def _pad(text: str, width: int, left: bool) -> str:
    space = " " * max(0, width - _length(text))
    return text + space if left else space + text


def _head(columns: Sequence[Column], widths: Sequence[int]) -> Iterable[Line]:
    pairs = list(zip(columns, widths, strict=True))
    for texts in ([c.head for c in columns], [c.unit for c in columns]):
        cells = (_pad(t, w, c.left) for t, (c, w) in zip(texts, pairs, strict=True))
        yield [(GAP.join(cells).rstrip(), "head")]
    yield [(GAP.join("─" * w for w in widths), "faint")]


def _row(columns: Sequence[Column], widths: Sequence[int], i: int) -> Iterable[Line]:
    last = columns[-1]
    doubts = textwrap.wrap(last.cells[i], widths[-1]) if last.head == "caveats" else []
    own = columns[:-1] if last.head == "caveats" else columns
    line = GAP.join(_pad(c.cells[i], w, c.left) for c, w in zip(own, widths, strict=False))
    if not doubts:
        yield [(line.rstrip(), "")]
        return
    indent = " " * _length(line + GAP)
    yield [(line + GAP, ""), (doubts[0], "doubt")]
    yield from ([(indent, ""), (doubt, "doubt")] for doubt in doubts[1:])


def _failed_row(
    columns: Sequence[Column], widths: Sequence[int], i: int, failure: str, width: int
) -> Iterable[Line]:
    own = [(c, w) for c, w in zip(columns, widths, strict=True) if c.identity]
    line = GAP.join(_pad(c.cells[i], w, c.left) for c, w in own) + GAP
    doubts = [c.cells[i] for c in columns if c.head == "caveats" and c.cells[i]]
    text = " · ".join([failure, *doubts])
    room = max(width - _length(line), 30)
    first, *rest = textwrap.wrap(text, room) or [""]
    yield [(line, ""), (first, "failure")]
    yield from ([(" " * _length(line), ""), (part, "failure")] for part in rest)


def _notes(notes: Iterable[Note], width: int, style: str) -> Iterable[Line]:
    """Headings on the left, each once in a row; the texts hang beside them."""
    before = ""
    for heading, text in notes:
        shown = "" if heading == before else heading
        before = heading
        lead = _pad(shown, HEADING, True) + " "
        wrapped = textwrap.wrap(text, max(width - HEADING - 1, 30)) or [""]
        if _length(lead) > HEADING + 1:
            yield [(lead.rstrip(), style)]
        else:
            yield [(lead, style), (wrapped.pop(0), "")]
        yield from ([(" " * (HEADING + 1), ""), (part, "")] for part in wrapped)
