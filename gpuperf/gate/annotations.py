"""How does GitHub show a gate beside the steps of a job?

Workflow commands, a line each. GitHub shows ten of each type in a step, so the outcome comes first
and the tenth counts the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from gpuperf.gate.verdict import CaseVerdict, GateReport, hides
from gpuperf.gate.wording import (
    conditions,
    counts,
    figures,
    headline,
    names_of,
    reason_of,
    words_of,
    worst_first,
)
from gpuperf.show.axes import Names

MOST = 10  # of a type in a step
NAME = 100  # characters of a case
Level = Literal["error", "warning", "notice"]
LEVELS: tuple[Level, ...] = ("error", "warning", "notice")


def render_annotations(report: GateReport) -> str:
    """Lines of `::error title=…::…`, `::warning …`, `::notice …`; the first is the outcome."""
    names = names_of(report, NAME)
    outcome: Level = "notice" if report.outcome == "passed" else "error"
    counted = counts(report.cases, words_of(report))
    first = [headline(report, names), counted, *conditions(report, names)[:3]]
    lines = [_line(outcome, f"gpuperf gate: {report.outcome}", "\n".join(first))]
    every = worst_first(report)
    for level in LEVELS:
        own = [case for case in every if _level(case, report.target) == level]
        room = MOST - 1 if level == outcome else MOST
        lines += _lines(level, own, room, names, report)
    return "\n".join(lines) + "\n"


def _level(case: CaseVerdict, target: float) -> Level | None:
    """What fails a gate is an error; what could not hide the target's slowdown is no word worth."""
    match case.judged.verdict:
        case "REGRESSED" | "NOT_COMPARABLE":
            return "error"
        case "INCONCLUSIVE":
            return "warning" if hides(case, target) else None
        case "IMPROVED":
            return "notice"
    return None


def _lines(
    level: Level, own: Sequence[CaseVerdict], room: int, names: Names, report: GateReport
) -> Iterator[str]:
    shown = own if len(own) <= room else own[: room - 1]
    words = words_of(report)
    for case in shown:
        title = f"{words[case.judged.verdict]}: {names.of(case.case)}"
        told = [figures(case), *reason_of(case, report)]
        yield _line(level, title, "\n".join(filter(None, told)) or words[case.judged.verdict])
    if left := own[len(shown) :]:
        told_left = f"{counts(left, words)}: the job's summary and verdict.json have them"
        yield _line(level, f"{len(left):,} more cases", told_left)


def _line(level: Level, title: str, text: str) -> str:
    return f"::{level} title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    """As actions/toolkit escapes a command's message."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """The same of a property, which a colon or a comma would end."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
