"""Represent a table as text in cells, without layout.

Each renderer (`terminal`, `markdown`, `data`) takes a `Table` and decides what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpuperf.errors import UnknownName

ALWAYS = 99  # the `keep` of a column that is never dropped

Note = tuple[str, str]  # a heading, which may be empty, and a text
Mood = Literal["", "doubt", "failure"]


@dataclass(frozen=True)
class Column:
    """One column: a head of two lines (name, unit) and a cell for each row.

    A narrow screen drops the column with the lowest `keep` first. `short` has the cells in fewer
    letters for a narrow screen. If `wrap` is not 0, the cells wrap between words and are at least
    `wrap` characters wide. A row that failed shows only its `identity` columns.
    """

    head: str = ""
    unit: str = ""
    cells: tuple[str, ...] = ()
    keep: int = ALWAYS
    left: bool = False
    identity: bool = False
    short: tuple[str, ...] = ()
    wrap: int = 0
    code: bool = False  # markdown shows the cells as code
    moods: tuple[Mood, ...] = ()
    folds: tuple[tuple[str, ...], ...] = ()  # lines that a page folds out below each cell


@dataclass(frozen=True)
class Table:
    """Columns with a title and `lead` lines above them, and footnotes and notes below.

    `failures` has a sentence for each row without figures, which spans all columns, and an empty
    text for the others. `details` has the sentences under each row. `rows` are the values for
    programs, and `names` the head of a CSV without rows. `more` says where to see the columns that
    do not fit on a screen; without it, they are named.
    """

    columns: tuple[Column, ...] = ()
    title: str = ""
    lead: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    details: tuple[tuple[str, ...], ...] = ()
    footnotes: tuple[Note, ...] = ()
    notes: tuple[Note, ...] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    names: Sequence[str] = ()
    more: str = ""

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(self.columns[0].cells) if self.columns else 0

    def each(self, change: Callable[[str], str]) -> Table:
        """Apply *change* to every text of the table."""

        def all_of(texts: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(map(change, texts))

        def notes(pairs: tuple[Note, ...]) -> tuple[Note, ...]:
            return tuple((change(heading), change(text)) for heading, text in pairs)

        columns = (
            replace(
                column,
                head=change(column.head),
                unit=change(column.unit),
                cells=all_of(column.cells),
                short=all_of(column.short),
                folds=tuple(map(all_of, column.folds)),
            )
            for column in self.columns
        )
        return replace(
            self,
            columns=tuple(columns),
            title=change(self.title),
            lead=all_of(self.lead),
            failures=all_of(self.failures),
            details=tuple(map(all_of, self.details)),
            footnotes=notes(self.footnotes),
            notes=notes(self.notes),
        )


def fill(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> tuple[Column, ...]:
    """Fill the cells of *columns* from *rows*."""
    cells = list(zip(*rows, strict=True)) or [()] * len(columns)
    return tuple(replace(c, cells=of) for c, of in zip(columns, cells, strict=True))


def notes_of(*texts: str) -> tuple[Note, ...]:
    """Make notes without headings."""
    return tuple(("", text) for text in texts)


def chosen_columns(table: Table, names: Sequence[str]) -> Table:
    """Reduce *table* to its identity columns and those that *names* name, or `all`.

    A name is a head, or a head and its unit. Raises: UnknownName.
    """
    if list(names) == ["all"]:
        return table
    columns = [c for c in table.columns if c.identity]
    for name in names:
        matches = [c for c in table.columns if name.lower() in _names(c)]
        if not matches:
            known = dict.fromkeys(c.head for c in table.columns if not c.identity)
            raise UnknownName("column", name, tuple(known))
        columns += [replace(c, keep=ALWAYS) for c in matches if c not in columns]
    return replace(table, columns=tuple(columns))


def _names(column: Column) -> tuple[str, ...]:
    unit = column.unit.removesuffix(" %")
    return column.head.lower(), f"{column.head} {unit}".lower(), f"{column.head}-{unit}".lower()
