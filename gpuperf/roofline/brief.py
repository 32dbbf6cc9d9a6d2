"""Reduce a run to a first view of 100 columns and 45 lines, with a line for each kind of caveat.

The whole table (`-v`), JSON and CSV have all columns and notes.
"""

from __future__ import annotations

import string
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.roofline.caption import PROFILED, fewer_bytes, profiled, roof_doubts
from gpuperf.roofline.rows import Entry
from gpuperf.roofline.table import sheet, shown_entries
from gpuperf.roofline.terminal import terminal_roofline
from gpuperf.show.axes import Axes, dtype_of, implementation_of
from gpuperf.show.contract import contracts_text
from gpuperf.show.screen import Screen
from gpuperf.show.table import Column, Mood, Table, chosen_columns
from gpuperf.show.terminal import to_terminal
from gpuperf.show.view import View

WIDTH, HEIGHT = 100, 45  # characters and lines
LEGEND = 6  # lines under a roofline, and the empty one above it
LOWEST, HIGHEST = 10, 17  # fewest and most lines of a roofline
MARKS = string.ascii_lowercase
MOST_ROWS = 3  # rows of a caveat that are named; further ones are counted
LONGEST = 40  # characters of the name of a row
LEFT_OUT = {  # columns that only the whole table has: they explain or repeat other columns
    ("error", "allowed"),
    ("noise", "in, between"),
    ("set", "of L2"),
    ("bytes", "least"),
    ("bytes", "modelled"),
    ("bytes", "measured"),
    ("ops", "model"),
    ("ops", "hardware"),
    ("ops hw", "× model"),
    ("MFU", "@clock %"),
    ("clock", "MHz"),
    ("kernels", "a call"),
}
KEPT_NOTES = ("Baseline", "Skipped", "Gang", "Problem")
MORE = "-v has all"  # the note on columns that do not fit
# `Column.keep` of a comparison's columns, whose speed-ups need more width, as they have intervals.
COMPARED = {
    "interval": 1,
    "attained": 5,
    "compulsory": 5,
    "MFU": 2,
    "AI": 2,
    "memory": 6,
    "moved": 20,
    "bound by": 21,
}


@dataclass
class Doubt:
    """A kind of caveat with its rows by number; `message` and `hint` are those of the first row,
    and `alike` says whether all rows have that message."""

    kind: str
    message: str
    hint: str
    rows: list[int] = field(default_factory=list)
    alike: bool = True


def brief(run: Run) -> Table:
    """Return the table of *run* for a first look."""
    whole = sheet(run)
    shown, axes = shown_entries(run), Axes(run.records, run.header.main)
    doubts = _doubts(shown)
    notes = [note for note in whole.notes if note[0] in KEPT_NOTES] + [*roof_doubts(run)]
    notes += fewer_bytes(shown)
    columns = [c for c in whole.columns if (c.head, c.unit) not in LEFT_OUT and c.head != "caveats"]
    if any(c.head == "MFU" and c.unit == "sheet %" for c in columns):
        columns = [c for c in columns if (c.head, c.unit) != ("MFU", "meas. %")]
    if run.header.baseline:
        columns = [_compared(c) for c in columns]
    if not any(c.head == "MFU" for c in columns):
        notes += [note for note in whole.notes if note[0] == "Unknown"]
    if doubts:
        columns.append(_marks(shown, doubts))
    title = whole.title + (f" · speed-up over {run.header.baseline}" if run.header.baseline else "")
    contracts = list(dict.fromkeys(e.record.contract for e in shown)) or [run.header.contract]
    footnotes = tuple(
        ("", _line(mark, doubt, shown, axes))
        for mark, doubt in zip(MARKS, doubts.values(), strict=False)
    )
    footnotes += tuple(("", line) for line in _hints(shown, axes))
    notes += [("Contract", PROFILED if profiled(shown) else contracts_text(contracts))]
    return replace(
        whole,
        title=title,
        columns=tuple(columns),
        footnotes=footnotes,
        notes=tuple(notes),
        more=MORE,
    )


def render_brief(run: Run, screen: Screen, names: Sequence[str] = ()) -> str:
    """Render the table of *run* for a first look, or its columns *names*.

    Raises: UnknownName for a name that is no column.
    """
    narrow, table = replace(screen, width=min(screen.width, WIDTH)), brief(run)
    if names:
        columns = chosen_columns(sheet(run), names).columns
        narrow, table = screen, replace(table, columns=columns, more="")
    return to_terminal(table, narrow)


def roofline_below(run: Run, screen: Screen, view: View, lines: int) -> str:
    """Render the roofline of *run* below a table of *lines* lines; empty where it does not fit.

    Raises: UsageError if there is nothing to draw.
    """
    height = min(HIGHEST, HEIGHT - LEGEND - lines)
    if height < LOWEST or not any(record.status == "ok" for record in run.records):
        return ""
    width = min(screen.width, WIDTH)
    return "\n" + terminal_roofline(
        run, width, height, screen.color, screen.ascii, view, brief=True
    )


def _compared(column: Column) -> Column:
    """Return a column of a comparison; the head of a speed-up leaves out the title's baseline."""
    unit = column.unit.rpartition(", ")[2] if column.head == "speed-up" else column.unit
    return replace(column, unit=unit, keep=COMPARED.get(column.head, column.keep))


def _doubts(shown: Sequence[Entry]) -> dict[str, Doubt]:
    doubts: dict[str, Doubt] = {}
    for i, entry in enumerate(shown):
        for caveat in entry.caveats:
            kind = caveat.kind
            doubt = doubts.setdefault(kind, Doubt(kind, caveat.message, caveat.hint))
            doubt.rows += [i] if i not in doubt.rows else []
            doubt.alike &= caveat.message == doubt.message
    return doubts


def _hints(shown: Sequence[Entry], axes: Axes) -> Iterator[str]:
    """Return what to do about rows without a time: each hint once, and whole."""
    rows: dict[tuple[str, str], list[int]] = {}
    for i, entry in enumerate(shown):
        if entry.record.hint:
            rows.setdefault((entry.record.status, entry.record.hint), []).append(i)
    for (status, hint), own in rows.items():
        where = _where(own, shown, axes)
        yield f"{status}{f' ({where})' if where else ''}: {hint}"


def _marks(shown: Sequence[Entry], doubts: dict[str, Doubt]) -> Column:
    cells, moods = [], list[Mood]()
    for i, entry in enumerate(shown):
        marks = "".join(
            mark for mark, doubt in zip(MARKS, doubts.values(), strict=False) if i in doubt.rows
        )
        sound = entry.valid or entry.record.status == "impossible"
        cells.append(marks if sound else f"INVALID {marks}".rstrip())
        moods.append("doubt")
    return Column("", "", tuple(cells), left=True, moods=tuple(moods))


def _line(mark: str, doubt: Doubt, shown: Sequence[Entry], axes: Axes) -> str:
    """Return `a launch-bound (128 to 1024): …`: the message and the hint of *doubt*, or as much as
    a line holds, beside the names of fewer rows where that is needed."""
    both = " → ".join(filter(None, (doubt.message, doubt.hint)))
    texts = [both if doubt.alike else "", doubt.hint, doubt.message]
    lead = ""
    for most in range(MOST_ROWS, -1, -1):
        where = _where(doubt.rows, shown, axes, most)
        lead = f"{mark} {doubt.kind}{f' ({where})' if where else ''}: "
        for text in filter(None, texts):
            if len(lead) + len(text) <= WIDTH:
                return lead + text
    room = max(WIDTH - len(lead), 20)
    return lead + textwrap.shorten(doubt.hint or doubt.message, room, placeholder=" …")


def _where(rows: Sequence[int], shown: Sequence[Entry], axes: Axes, most: int = MOST_ROWS) -> str:
    """Name the first *most* of the rows and count the others, unless they are all rows."""
    if len(rows) == len(shown):
        return ""
    if not most:
        return f"{len(rows)} rows"
    names = [_name(shown[i], shown, axes) for i in rows]
    if len(rows) >= MOST_ROWS and list(rows) == list(range(rows[0], rows[-1] + 1)):
        return f"{names[0]} to {names[-1]}"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _name(entry: Entry, shown: Sequence[Entry], axes: Axes) -> str:
    record = entry.record
    parts = [axes.size(record)]
    if len({dtype_of(e.record) for e in shown}) > 1:
        parts.append(dtype_of(record))
    if len({implementation_of(e.record, len(axes.ops) > 1) for e in shown}) > 1:
        parts.append(shorten(implementation_of(record, len(axes.ops) > 1), LONGEST))
    point = record.case.point
    parts += [shorten(f"{axis}={point[axis]}", LONGEST) for axis in axes.named if axis in point]
    return " ".join(filter(None, parts))
