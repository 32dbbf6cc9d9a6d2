"""Make the table of a theory, and the list of all."""

from __future__ import annotations

from typing import Any

from gpuperf.show.table import Column, Note, Table, fill
from gpuperf.theory.theory import (
    CLAIMS,
    At,
    Chip,
    Quantity,
    Theory,
    Value,
    find_theory,
    listed_names,
)
from gpuperf.units import format_bytes, format_number, format_rate, format_si, format_time

UNKNOWN = "–"
CLAIMS_QUESTION = "What do the notes say, and is it right?"
PREFIXED = ("FLOP", "FLOP/s", "byte/s", "byte", "s")  # units that a cell shows with a prefix


def theories_table() -> Table:
    """Make a table with a line for each theory: its name and its question."""
    rows = [
        (name, CLAIMS_QUESTION if name == CLAIMS else find_theory(name).question)
        for name in listed_names()
    ]
    columns = (Column("theory", left=True, identity=True), Column("question", left=True, wrap=40))
    data = [{"name": name, "question": question} for name, question in rows]
    return Table(columns=fill(columns, rows), rows=data)


def theory_table(name: str, theory: Theory, at: At, chip: Chip) -> Table:
    """Make the table of *theory* with the values *at* on *chip*, its formulas and its sources."""
    rows = [tuple(row) for row in theory.rows(at, chip)]
    columns = [
        Column(
            quantity.head,
            "" if quantity.unit in PREFIXED else quantity.unit,
            left=any(isinstance(row[index], str) for row in rows),
            identity=index == 0,
        )
        for index, quantity in enumerate(theory.quantities)
    ]
    cells = [
        [cell(value, quantity) for value, quantity in zip(row, theory.quantities, strict=True)]
        for row in rows
    ]
    return Table(
        columns=fill(columns, cells),
        title=f"{name}: {theory.question}",
        lead=(_given(theory, at, chip),),
        notes=_notes(theory),
        rows=[_data(row, theory) for row in rows],
        names=[quantity.key for quantity in theory.quantities],
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


def _data(row: tuple[Value, ...], theory: Theory) -> dict[str, Any]:
    return {quantity.key: value for value, quantity in zip(row, theory.quantities, strict=True)}


def _given(theory: Theory, at: At, chip: Chip) -> str:
    values = []
    for parameter in theory.parameters:
        value = getattr(at, parameter.name)
        texts = [str(each) for each in (value if isinstance(value, tuple) else (value,))]
        shown = texts if len(texts) <= 8 else [*texts[:3], "…", texts[-1]]
        values.append(f"{parameter.name}={','.join(shown)}")
    return " · ".join([chip.peaks.name, *values])


def _notes(theory: Theory) -> tuple[Note, ...]:
    formulas = [(q.head, q.formula) for q in theory.quantities if q.formula]
    notes = [("Note", note) for note in theory.notes]
    return (*formulas, *notes, *(("Source", source) for source in theory.sources))
