"""How is a gate shown in a pull request, and in the summary of a job?

Worst first, cut at whole rows with a sentence that says how many are not shown: a platform would
cut anywhere, or refuse the whole. Lengths are counted in bytes, of which there are never fewer than
characters. Names are code, so that nobody is notified; only owners of what regressed are mentioned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpuperf.gate.verdict import CaseVerdict, GateReport, hides
from gpuperf.gate.wording import (
    HEADS,
    cells,
    conditions,
    counts,
    headline,
    names_of,
    reason_of,
    remarks,
    suspected,
    words_of,
    worst_first,
)
from gpuperf.model.text import clean, shorten
from gpuperf.show.axes import Names
from gpuperf.show.text import escape_line

# GitHub: "Job summaries are isolated between steps and each step is restricted to a maximum size of
# 1 MiB"; a comment of more characters is refused ("body is too long").
SUMMARY_LIMIT, COMMENT_LIMIT = 1_048_576, 65_536
SLACK = 1024  # bytes for the sentences on what is left out
MARKER = "<!-- gpuperf gate -->"  # by which a later gate finds the comment to put its own in place
SIGNS = {"passed": "✅", "regressed": "❌"}
NAME = 100  # characters of a case
# Rows, and cases of which the reasons are told: of a comment no more than somebody reads.
MOST_SUMMARY, MOST_COMMENT = (10_000, 200), (100, 30)
MOST_OWNERS = 20  # to mention more is to shout
ALNUM = "[A-Za-z0-9]"
OWNER = re.compile(f"@{ALNUM}(?:-?{ALNUM}){{0,38}}(?:/{ALNUM}(?:[._-]?{ALNUM}){{0,99}})?")


def render_summary(report: GateReport) -> str:
    """All cases, for `$GITHUB_STEP_SUMMARY`: at most `SUMMARY_LIMIT` bytes."""
    return _render(report, worst_first(report), SUMMARY_LIMIT, MOST_SUMMARY)


def render_comment(report: GateReport) -> str:
    """What somebody must look at, for a pull request: at most `COMMENT_LIMIT` bytes."""
    every = worst_first(report)
    matter = [
        case
        for case in every
        if case.judged.verdict in ("REGRESSED", "NOT_COMPARABLE", "IMPROVED")
        or hides(case, report.target)
    ]
    return f"{MARKER}\n{_render(report, matter, COMMENT_LIMIT - len(MARKER) - 1, MOST_COMMENT)}"


def _render(
    report: GateReport, shown: Sequence[CaseVerdict], limit: int, most: tuple[int, int]
) -> str:
    names = names_of(report, NAME)
    head = _head(report, names)
    notes = _listed(remarks(report, names), limit // 6)
    how = _listed(conditions(report, names), limit // 6)
    room = limit - _size([*head, *notes, *how, *TABLE]) - SLACK
    told = [(case, sentences) for case in shown if (sentences := reason_of(case, report))]
    why = _fitting([_why(case, text, names) for case, text in told[: most[1]]], room // 2)
    table = _fitting([_row(case, names, report) for case in shown[: most[0]]], room - _size(why))
    parts = [head]
    if table:
        parts.append([*TABLE, *table])
    if shown and len(table) < len(report.cases):
        left = [*shown[len(table) :], *_others(report, shown)]
        counted = counts(left, words_of(report))
        parts.append([f"{len(left):,} more are not shown: {counted}; `verdict.json` has all."])
    if why:
        more = len(told) - len(why)
        tail = [f"- and {more:,} more, which `verdict.json` tells"] if more else []
        parts.append(["Why:", "", *why, *tail])
    parts.append(["Notes:", "", *notes])
    parts.append(["<details><summary>How it was measured</summary>", "", *how, "", "</details>"])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _others(report: GateReport, shown: Sequence[CaseVerdict]) -> list[CaseVerdict]:
    there = {id(case) for case in shown}
    return [case for case in report.cases if id(case) not in there]


def _head(report: GateReport, names: Names) -> list[str]:
    """The outcome, why, how many of what, and who is asked to look."""
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
    """Those of regressed cases, each once; one that is no GitHub name is text."""
    found = dict.fromkeys(c.owner for c in cases if c.judged.verdict == "REGRESSED" and c.owner)
    told = [o if OWNER.fullmatch(o) else _safe(shorten(clean(o), NAME)) for o in found]
    more = [f"and {len(told) - MOST_OWNERS:,} more"] if len(told) > MOST_OWNERS else []
    return [*told[:MOST_OWNERS], *more]


TABLE = (
    f"| verdict | case | {' | '.join(HEADS)} |",
    "| :-- | :-- | --: | --: | --: | --: | --: | --: |",
)


def _row(case: CaseVerdict, names: Names, report: GateReport) -> str:
    word = words_of(report)[case.judged.verdict]
    loud = case.judged.verdict == "REGRESSED" and not suspected(report)
    told = f"**{word.upper()}**" if loud else word
    return f"| {told} | {_code(names.of(case.case))} | {' | '.join(cells(case))} |"


def _why(case: CaseVerdict, sentences: Sequence[str], names: Names) -> str:
    """One line: the case, its cause in bold, the figures."""
    told = [_safe(sentence) for sentence in sentences]
    kind = f"{clean(case.cause.kind)}: " if case.cause is not None else ""
    if kind and sentences[0].startswith(kind):
        told[0] = f"**{_safe(kind[:-2])}**: {_safe(sentences[0][len(kind) :])}"
    return f"- {_code(names.of(case.case))}: {'; '.join(told)}"


def _listed(sentences: Sequence[str], room: int) -> list[str]:
    """A list of them, and how many found no room."""
    kept = _fitting([f"- {_safe(sentence)}" for sentence in sentences], room)
    left = len(sentences) - len(kept)
    return [*kept, f"- and {left:,} more, which `verdict.json` tells"] if left else kept


def _code(name: str) -> str:
    """*name* as code: GitHub looks for no names, numbers and links in it."""
    return f"<code>{_safe(name)}</code>"


def _safe(text: str) -> str:
    """*text* as it stands, on one line."""
    return escape_line(clean(text).strip())


def _fitting(lines: Sequence[str], room: int) -> list[str]:
    """As many of *lines*, from the first on, as have *room* bytes together."""
    kept: list[str] = []
    for line in lines:
        room -= _size([line])
        if room < 0:
            break
        kept.append(line)
    return kept


def _size(lines: Iterable[str]) -> int:
    """Bytes, with an end for each line."""
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
