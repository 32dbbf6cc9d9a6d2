"""Render a gate's report as markdown, for a pull request and for the summary of a job.

The cases are worst first, as many rows as fit, with a sentence on the number of further cases: a
platform would cut anywhere, or refuse the whole text. Lengths are counted in bytes, which are never
fewer than characters. Names are written as code, so `@name` in them notifies no user; only the
owners of regressions are mentioned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpuperf.gate.table import columns
from gpuperf.gate.verdict import CaseVerdict, GateReport
from gpuperf.gate.wording import (
    conditions,
    counts,
    headline,
    names_of,
    notable,
    reasons_of,
    remarks,
    suspected,
    words_of,
    worst_first,
)
from gpuperf.model.text import clean, shorten
from gpuperf.show.axes import Names
from gpuperf.show.markdown import table_lines
from gpuperf.show.table import Table
from gpuperf.show.text import escape_line

# GitHub: "Job summaries are isolated between steps and each step is restricted to a maximum size of
# 1 MiB"; a comment of more characters is refused ("body is too long").
SUMMARY_LIMIT, COMMENT_LIMIT = 1_048_576, 65_536
SLACK = 1024  # bytes for the sentences on cases that are left out
MARKER = "<!-- gpuperf gate -->"  # a later gate finds its earlier comment by this, and replaces it
SIGNS = {"passed": "✅", "regressed": "❌"}
NAME = 100  # characters of a case
# The most rows, and cases whose reasons are shown: a comment has no more than somebody reads.
MOST_SUMMARY, MOST_COMMENT = (10_000, 200), (100, 30)
MOST_OWNERS = 20  # owners that are mentioned
ALNUM = "[A-Za-z0-9]"
OWNER = re.compile(f"@{ALNUM}(?:-?{ALNUM}){{0,38}}(?:/{ALNUM}(?:[._-]?{ALNUM}){{0,99}})?")


def render_summary(report: GateReport) -> str:
    """Return all cases for `$GITHUB_STEP_SUMMARY`, in at most `SUMMARY_LIMIT` bytes."""
    return _render(report, worst_first(report), SUMMARY_LIMIT, MOST_SUMMARY)


def render_comment(report: GateReport) -> str:
    """Return the notable cases for a pull request, in at most `COMMENT_LIMIT` bytes."""
    limit = COMMENT_LIMIT - len(MARKER) - 1
    return f"{MARKER}\n{_render(report, notable(report), limit, MOST_COMMENT)}"


def _render(
    report: GateReport, cases: Sequence[CaseVerdict], limit: int, most: tuple[int, int]
) -> str:
    names = names_of(report, NAME)
    title = _title(report, names)
    notes = _listed(remarks(report, names), limit // 6)
    how = _listed(conditions(report, names), limit // 6)
    head, *rows = _table(cases[: most[0]], names, report)
    room = limit - _size([*title, *notes, *how, head]) - SLACK
    reasoned = [case for case in cases if next(reasons_of(case, report), "")]
    why = _fitting([_why(case, report, names) for case in reasoned[: most[1]]], room // 2)
    rows = _fitting(rows, room - _size(why))
    parts = [title]
    if rows:
        parts.append([head, *rows])
    if cases and len(rows) < len(report.cases):
        shown = {id(case) for case in cases[: len(rows)]}
        left = [case for case in report.cases if id(case) not in shown]
        counted = counts(left, words_of(report))
        parts.append([f"{len(left):,} more are not shown: {counted}; `verdict.json` has all."])
    if why:
        more = len(reasoned) - len(why)
        tail = [f"- and {more:,} more, which are in `verdict.json`"] if more else []
        parts.append(["Why:", "", *why, *tail])
    parts.append(["Notes:", "", *notes])
    parts.append(["<details><summary>How it was measured</summary>", "", *how, "", "</details>"])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _table(cases: Sequence[CaseVerdict], names: Names, report: GateReport) -> list[str]:
    """Return the head of a table (two lines) as one text, and a line for each case."""
    lines = table_lines(Table(columns(cases, names, report)))
    return ["\n".join(lines[:2]), *lines[2:]]


def _title(report: GateReport, names: Names) -> list[str]:
    """Return the outcome, its reason, the number of cases by verdict, and owners to notify."""
    outcome, _, why = headline(report, names).partition(": ")
    title = f"### {SIGNS.get(report.outcome, '⚠️')} gpuperf gate: {outcome.lower()}"
    lines = [title, "", *([_safe(why), ""] if why else [])]
    device = _safe(shorten(clean(report.device), NAME))
    counted = counts(report.cases, words_of(report))
    lines.append(f"{len(report.cases):,} cases on {device}: {counted}.")
    if not suspected(report) and (owners := _owners(report.cases)):
        lines += ["", f"Owners of what regressed: {', '.join(owners)}"]
    return lines


def _owners(cases: Iterable[CaseVerdict]) -> list[str]:
    """Return the owners of regressed cases, each once; what is not a GitHub name is escaped."""
    owners = dict.fromkeys(c.owner for c in cases if c.judged.verdict == "REGRESSED" and c.owner)
    texts = [o if OWNER.fullmatch(o) else _safe(shorten(clean(o), NAME)) for o in owners]
    more = [f"and {len(texts) - MOST_OWNERS:,} more"] if len(texts) > MOST_OWNERS else []
    return [*texts[:MOST_OWNERS], *more]


def _why(case: CaseVerdict, report: GateReport, names: Names) -> str:
    """Return a list entry on *case*: its name, its cause in bold, its figures and doubts."""
    first, *others = reasons_of(case, report)
    kind, colon, figures = first.partition(": ")
    if case.cause is not None and colon:
        first = f"**{_safe(kind)}**: {_safe(figures)}"
    else:
        first = _safe(first)
    return f"- <code>{_safe(names.of(case.case))}</code>: {'; '.join([first, *map(_safe, others)])}"


def _listed(sentences: Sequence[str], room: int) -> list[str]:
    """Return a list of the *sentences* that fit in *room* bytes, and the number of others."""
    lines = _fitting([f"- {_safe(sentence)}" for sentence in sentences], room)
    left = len(sentences) - len(lines)
    return [*lines, f"- and {left:,} more, which are in `verdict.json`"] if left else lines


def _safe(text: str) -> str:
    """Return *text* on one line, with the characters escaped that markdown would interpret."""
    return escape_line(clean(text).strip())


def _fitting(lines: Sequence[str], room: int) -> list[str]:
    """Return the first of *lines* that together fit in *room* bytes."""
    fitting: list[str] = []
    for line in lines:
        room -= _size([line])
        if room < 0:
            break
        fitting.append(line)
    return fitting


def _size(lines: Iterable[str]) -> int:
    """Return the bytes of *lines*, with an end for each."""
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
