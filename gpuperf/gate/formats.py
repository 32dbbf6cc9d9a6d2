"""Render a gate's report as a table, JSON, Markdown, JUnit XML or GitHub annotations."""

from __future__ import annotations

import re
from enum import StrEnum

from gpuperf.gate.annotations import render_annotations
from gpuperf.gate.junit import render_junit
from gpuperf.gate.markdown import render_comment, render_summary
from gpuperf.gate.table import brief_table, full_table
from gpuperf.gate.verdict import GateReport
from gpuperf.model.codec import encode
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.terminal import to_terminal
from gpuperf.show.text import to_ascii


class GateFormat(StrEnum):
    """A format of a gate's report: `md` for the summary of a CI job, `comment` for a pull request,
    `github` for annotations of a job's steps."""

    TABLE = "table"
    JSON = "json"
    MD = "md"
    COMMENT = "comment"
    JUNIT = "junit"
    GITHUB = "github"


def render_gate(
    report: GateReport, format: GateFormat, verbose: bool = False, screen: Screen = WIDE
) -> str:
    """Return *report* as text that ends with a newline; the table has all cases if *verbose*."""
    if format is GateFormat.TABLE:
        text = to_terminal(full_table(report) if verbose else brief_table(report), screen)
        return "\n".join(map(_inert, text.split("\n")))
    if format is GateFormat.JSON:
        return _visible(encode(report).decode(), screen.ascii) + "\n"
    text = _RENDERERS[format](report)
    return to_ascii(text) if screen.ascii else text


_RENDERERS = {
    GateFormat.MD: render_summary,
    GateFormat.COMMENT: render_comment,
    GateFormat.JUNIT: render_junit,
    GateFormat.GITHUB: render_annotations,
}


def _visible(json: str, ascii: bool) -> str:
    """Escape characters in the strings of *json* that the screen cannot show, or that would steer a
    terminal or GitHub's log; the decoded values stay the same."""
    if not json.isprintable() or (ascii and not json.isascii()):
        json = "".join(
            c if c.isprintable() and (c.isascii() or not ascii) else _escape(c) for c in json
        )
    return json.replace("##[", "#\\u0023[")


def _escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def _inert(line: str) -> str:
    """Add blanks where GitHub's runner would execute a log line as a command: in `::` at the
    beginning of a line, and in `##[` anywhere (actions/runner, ActionCommand.cs)."""
    return re.sub(r"^(\s*)::", r"\1: :", line.replace("##[", "## ["))
