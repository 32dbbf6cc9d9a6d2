"""How is a gate's report printed: as a table, and in the forms that platforms read?

The table's rows are worst first, each regression with its cause under it. What is the same in all
cases is left out of their names, and of hundreds of unchanged cases the first few stand for all.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from enum import StrEnum

from rich.cells import cell_len

from gpuperf.gate.annotations import render_annotations
from gpuperf.gate.junit import render_junit
from gpuperf.gate.markdown import render_comment, render_summary
from gpuperf.gate.verdict import CaseVerdict, GateReport
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
from gpuperf.model.codec import encode
from gpuperf.model.text import clean, shorten
from gpuperf.show.axes import Names

WIDTH = 120  # characters of a line of words
NAME = 48  # and of a case
MOST = 40  # rows
OWNER = 60


class GateFormat(StrEnum):
    """How a gate is printed: `md` for a job's summary, `comment` for a pull request."""

    TABLE = "table"
    JSON = "json"
    MD = "md"
    COMMENT = "comment"
    JUNIT = "junit"
    GITHUB = "github"


def render_gate(report: GateReport, format: GateFormat) -> str:
    """*report* as text that ends with a newline."""
    match format:
        case GateFormat.JSON:
            return _visible(encode(report).decode()) + "\n"
        case GateFormat.MD:
            return render_summary(report)
        case GateFormat.COMMENT:
            return render_comment(report)
        case GateFormat.JUNIT:
            return render_junit(report)
        case GateFormat.GITHUB:
            return render_annotations(report)
    return _table(report)


def _visible(json: str) -> str:
    """*json* with what is invisible in its strings as escapes: the same value, and nothing that
    steers a terminal or GitHub's log."""
    if not json.isprintable():
        json = "".join(c if c.isprintable() else _escape(c) for c in json)
    return json.replace("##[", "#\\u0023[")


def _escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def _table(report: GateReport) -> str:
    every = worst_first(report)
    names = names_of(report, NAME)
    shown = every[:MOST]
    left = every[MOST:]
    lines = [*_wrapped(headline(report, names)), "", *_rows(shown, names, report)]
    words = words_of(report)
    if left:
        lines.append(f"and {len(left):,} more: {counts(left, words)}; --format json has all")
    lines += ["", f"{_cases(report)}: {counts(every, words)}"]
    for remark in (*remarks(report, names), *conditions(report, names)):
        lines += _wrapped(remark)
    return "\n".join(_inert(line) for line in lines) + "\n"


def _cases(report: GateReport) -> str:
    return f"{len(report.cases):,} case{'' if len(report.cases) == 1 else 's'}"


def _rows(shown: Sequence[CaseVerdict], names: Names, report: GateReport) -> Iterator[str]:
    """The table, and under a row what there is to say of it."""
    table = [["verdict", "case", *HEADS]]
    table += [[_word(case, report), names.of(case.case), *cells(case)] for case in shown]
    widths = [max(cell_len(row[i]) for row in table) for i in range(len(table[0]))]
    for i, row in enumerate(table):
        padded = (
            _padded(cell, width, left=column < 2)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(padded).rstrip()
        if i:
            yield from _details(shown[i - 1], report)


def _word(case: CaseVerdict, report: GateReport) -> str:
    """Loud where something must be done."""
    word = words_of(report)[case.judged.verdict]
    loud = case.judged.verdict == "REGRESSED" and not suspected(report)
    return word.upper() if loud else word


def _details(case: CaseVerdict, report: GateReport) -> Iterator[str]:
    told = reason_of(case, report)
    if case.owner and case.judged.verdict in ("REGRESSED", "NOT_COMPARABLE"):
        told.append(f"owner {shorten(clean(case.owner), OWNER)}")
    for sentence in told:
        yield from _wrapped(sentence, "    ")


def _padded(text: str, width: int, left: bool) -> str:
    room = " " * (width - cell_len(text))
    return text + room if left else room + text


def _wrapped(text: str, indent: str = "") -> list[str]:
    """*text* in lines that fit; those after the first stand two further in."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
    ) or [indent]


def _inert(line: str) -> str:
    """*line* without what GitHub's runner takes for a command in a log: `::` at its beginning, and
    `##[` anywhere (actions/runner, ActionCommand.cs)."""
    line = line.replace("##[", "## [")
    return re.sub(r"^(\s*)::", r"\1: :", line)
