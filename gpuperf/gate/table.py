"""Make the table of a gate: a row for each case, worst first, with its cause below it.

By default the table fits 100 columns and 45 lines: it has the cases that changed, cannot be
compared or are too noisy, and the number of other cases.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuperf.gate.verdict import CaseVerdict, GateReport
from gpuperf.gate.wording import (
    cells,
    conditions,
    counts,
    headline,
    names_of,
    notable,
    reasons_of,
    remarks,
    summary,
    word_of,
    words_of,
    worst_first,
)
from gpuperf.model.text import clean, shorten
from gpuperf.show.axes import Names
from gpuperf.show.table import Column, Mood, Table, fill, notes_of

NAME = 48  # characters of a case
# Lines of a brief table, less those between its parts, and characters of a line.
LINES, ROOM = 45 - 7, 96
MOST_REMARKS = 2  # remarks of each kind in a brief table
OWNER = 60  # characters
COLUMNS = (
    Column("verdict", left=True),
    Column("case", left=True, code=True),
    Column("base", keep=3),
    Column("head", keep=4),
    Column("change"),
    Column("95 %", keep=5),
    Column("q", keep=2),
    Column("detectable", keep=1),
)


def columns(cases: Sequence[CaseVerdict], names: Names, report: GateReport) -> tuple[Column, ...]:
    """Return the columns of a table of *cases*."""
    rows = [[word_of(case, report), names.of(case.case), *cells(case)] for case in cases]
    verdict, *others = fill(COLUMNS, rows)
    moods: tuple[Mood, ...] = tuple("failure" if w.isupper() else "" for w in verdict.cells)
    return (Column("verdict", cells=verdict.cells, left=True, moods=moods), *others)


def full_table(report: GateReport) -> Table:
    """Return the table of all cases, with every reason and the conditions."""
    names = names_of(report, NAME)
    cases = worst_first(report)
    notes = [f"{_cases(report)}: {counts(cases, words_of(report))}", *remarks(report, names)]
    return Table(
        columns(cases, names, report),
        lead=(headline(report, names),),
        details=tuple(tuple(_details(case, report)) for case in cases),
        notes=notes_of(*notes, *conditions(report, names)),
    )


def brief_table(report: GateReport) -> Table:
    """Return the table of the cases that are notable, as many as fit `LINES` lines."""
    names = names_of(report, NAME)
    lead = shorten(headline(report, names), 2 * ROOM)
    notes = [
        shorten(t, 2 * ROOM) for t in (*remarks(report, names, MOST_REMARKS), *summary(report))
    ]
    room = LINES - sum(1 + len(text) // ROOM for text in (lead, *notes))
    cases: list[CaseVerdict] = []
    details: list[tuple[str, ...]] = []
    for case in notable(report):
        sentence = tuple(
            f"{t[: ROOM - 1]}…" if len(t) > ROOM else t for t in _details(case, report)[:1]
        )
        room -= 1 + len(sentence)
        if room < 0:
            break
        cases.append(case)
        details.append(sentence)
    shown = {id(case) for case in cases}
    others = [case for case in report.cases if id(case) not in shown]
    words = words_of(report)
    tally = f"{_cases(report)}: {counts(report.cases, words)}"
    if others and cases:
        tally = f"and {len(others):,} more: {counts(others, words)}"
    return Table(
        columns(cases, names, report),
        lead=(lead,),
        details=tuple(details),
        notes=notes_of(f"{tally}; -v shows all" if others else tally, *notes),
    )


def _cases(report: GateReport) -> str:
    return f"{len(report.cases):,} case{'' if len(report.cases) == 1 else 's'}"


def _details(case: CaseVerdict, report: GateReport) -> list[str]:
    sentences = list(reasons_of(case, report))
    if case.owner and case.judged.verdict in ("REGRESSED", "NOT_COMPARABLE"):
        sentences.append(f"owner {shorten(clean(case.owner), OWNER)}")
    return sentences
