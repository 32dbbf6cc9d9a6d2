"""Make the HTML page of a gate: its outcome, the chart of its pairs, and the table of all cases.

The page contains the verdict, which `gpuperf gate check PAGE` judges again from its times.
"""

from __future__ import annotations

from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.gate.svg import pairs_html
from gpuperf.gate.table import full_table
from gpuperf.gate.verdict import GateReport, read_report
from gpuperf.model.codec import encode
from gpuperf.show.html import paragraph, text, to_html
from gpuperf.show.page import Section, data_element, page

NAME = "verdict.json"


def page_of(path: Path) -> str | None:
    """Return the page of the verdict *path*, or in the folder *path*; None where it is neither.

    Raises: UsageError for a file that is no verdict.
    """
    verdict = path / NAME if path.is_dir() else path
    if verdict.suffix != ".json" or not verdict.exists():
        return None
    return gate_page(read_report(verdict))


def gate_page(report: GateReport) -> str:
    """Return the page of *report*."""
    table = to_html(full_table(report))
    try:
        chart = f"<figure class=chart>{pairs_html(report)}{_caption(report)}</figure>"
        body = f'<div class="linked pairs">{chart}\n{table}</div>'
    except UsageError as error:
        body = f"{paragraph(f'No chart is drawn: {error}.')}\n{table}"
    data = data_element("gpuperf-verdict", encode(report).decode())
    return page(f"gate: {report.outcome}", [], [Section("", body)], data)


def _caption(report: GateReport) -> str:
    hollow, filled = (
        ("a pair of the screen", "a pair that confirms")
        if report.kind == "ab"
        else ("a process of the base", "a process of the head")
    )
    return (
        f"<figcaption>Gate {text(report.outcome)}. Hollow: {hollow}; filled: {filled}; line: the "
        "mean with its 95 % interval; band: the margin.</figcaption>"
    )
