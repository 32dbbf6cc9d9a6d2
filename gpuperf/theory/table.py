"""Make the table of a theory, and the list of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuperf.show.table import Column, Note, Table, fill
from gpuperf.theory.theory import (
    QUESTIONS,
    At,
    Chip,
    Quantity,
    Rows,
    Theory,
    Value,
    find_theory,
    listed_names,
)
from gpuperf.units import format_bytes, format_number, format_rate, format_si, format_time

UNKNOWN = "–"
PREFIXED = ("FLOP", "FLOP/s", "byte/s", "byte", "s")  # units that a cell shows with a prefix


def theories_table() -> Table:
    """Make a table with a line for each theory: its name and its question."""
    rows = [
        (name, QUESTIONS[name] if name in QUESTIONS else find_theory(name).question)
        for name in listed_names()
    ]
    columns = (Column("theory", left=True, identity=True), Column("question", left=True, wrap=40))
    data = [{"name": name, "question": question} for name, question in rows]
    return Table(columns=fill(columns, rows), rows=data)


def theory_tables(name: str, theory: Theory, at: At, chip: Chip) -> list[Table]:
    """Make the tables of *theory* with the values *at* on *chip*: its rows, its parts, and under
    the last its formulas and its sources.

    Where a theory has parts, `table` of a row of JSON is the name of the theory or of the part.
    """
    title = f"{name}: {theory.question}"
    first = _table(title, theory.quantities, theory.rows, at, chip, name if theory.parts else None)
    tables = [replace(first, lead=(_given(theory, at, chip),))]
    tables += [_table(p.title, p.quantities, p.rows, at, chip, p.name) for p in theory.parts]
    return [*tables[:-1], replace(tables[-1], notes=_notes(theory, at, chip))]


def _table(
    title: str, quantities: Sequence[Quantity], rows: Rows, at: At, chip: Chip, part: str | None
) -> Table:
    values = [tuple(row) for row in rows(at, chip)]
    columns = [
        Column(
            quantity.head,
            "" if quantity.unit in PREFIXED else quantity.unit,
            keep=quantity.keep,
            left=any(isinstance(row[index], str) for row in values),
            identity=index == 0,
        )
        for index, quantity in enumerate(quantities)
    ]
    cells = [
        [cell(value, quantity) for value, quantity in zip(row, quantities, strict=True)]
        for row in values
    ]
    keys = [quantity.key for quantity in quantities]
    head = {} if part is None else {"table": part}
    return Table(
        columns=fill(columns, cells),
        title=title,
        rows=[{**head, **dict(zip(keys, row, strict=True))} for row in values],
        names=[*head, *keys],
    )


def cell(value: Value, quantity: Quantity) -> str:
    """Write one value with the prefix that its unit takes."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return value
    if quantity.unit == "byte":
        return format_bytes(value)
    if quantity.unit == "byte/s":
        return format_rate(value)
    if quantity.unit == "s":
        return format_time(value)
    if quantity.unit in PREFIXED:
        return format_si(value, quantity.unit)
    return f"{value:,}" if isinstance(value, int) else format_number(value)


def _given(theory: Theory, at: At, chip: Chip) -> str:
    values = []
    for parameter in theory.parameters:
        value = getattr(at, parameter.name)
        texts = [str(each) for each in (value if isinstance(value, tuple) else (value,))]
        shown = texts if len(texts) <= 8 else [*texts[:3], "…", texts[-1]]
        values.append(f"{parameter.name}={','.join(shown)}")
    return " · ".join([chip.peaks.name, *values])


def _notes(theory: Theory, at: At, chip: Chip) -> tuple[Note, ...]:
    quantities = (*theory.quantities, *(q for part in theory.parts for q in part.quantities))
    formulas = dict.fromkeys((q.head, q.formula) for q in quantities if q.formula)
    notes = [("Note", note) for note in (*theory.remarks(at, chip), *theory.notes)]
    return (*formulas, *notes, *(("Source", source) for source in theory.sources))
