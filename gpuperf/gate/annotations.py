"""Annotate the steps of a GitHub job with a gate's report, by workflow commands.

A command is one line. GitHub shows ten of each type for a step, so the outcome comes first and the
tenth says how many cases have no command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from gpuperf.gate.verdict import CaseVerdict, GateReport, hides
from gpuperf.gate.wording import (
    counts,
    figures,
    headline,
    names_of,
    reasons_of,
    summary,
    words_of,
    worst_first,
)
from gpuperf.show.axes import Names

MOST = 10  # commands of a type in a step
NAME = 100  # characters of a case
Level = Literal["error", "warning", "notice"]
LEVELS: tuple[Level, ...] = ("error", "warning", "notice")


def render_annotations(report: GateReport) -> str:
    """Return lines of `::error title=…::…`, `::warning …`, `::notice …`, the outcome first."""
    names = names_of(report, NAME)
    outcome: Level = "notice" if report.outcome == "passed" else "error"
    counted = counts(report.cases, words_of(report))
    text = "\n".join([headline(report, names), counted, *summary(report)])
    lines = [_line(outcome, f"gpuperf gate: {report.outcome}", text)]
    every = worst_first(report)
    for level in LEVELS:
        cases = [case for case in every if _level(case, report.target) == level]
        room = MOST - 1 if level == outcome else MOST
        lines += _lines(level, cases, room, names, report)
    return "\n".join(lines) + "\n"


def _level(case: CaseVerdict, target: float) -> Level | None:
    """Return the type of the command for a case (an error if it fails the gate); None for none."""
    match case.judged.verdict:
        case "REGRESSED" | "NOT_COMPARABLE":
            return "error"
        case "INCONCLUSIVE":
            return "warning" if hides(case, target) else None
        case "IMPROVED":
            return "notice"
    return None


def _lines(
    level: Level, cases: Sequence[CaseVerdict], room: int, names: Names, report: GateReport
) -> Iterator[str]:
    shown = cases if len(cases) <= room else cases[: room - 1]
    words = words_of(report)
    for case in shown:
        word = words[case.judged.verdict]
        sentences = filter(None, (figures(case), *reasons_of(case, report)))
        yield _line(level, f"{word}: {names.of(case.case)}", "\n".join(sentences) or word)
    if left := cases[len(shown) :]:
        text = f"{counts(left, words)}: see the job's summary or verdict.json"
        yield _line(level, f"{len(left):,} more cases", text)


def _line(level: Level, title: str, text: str) -> str:
    return f"::{level} title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    """Escape the message of a command, as actions/toolkit does."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape a property of a command, such as its title, which a colon or a comma would end."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
