"""Make the HTML page of a gate: its outcome, the chart of its pairs, and the table of all cases.

The page contains the verdict, which `gpuperf gate check PAGE` judges again from its times.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.gate.chart import draw_pairs
from gpuperf.gate.table import full_table
from gpuperf.gate.verdict import GateReport, read_report
from gpuperf.model.codec import encode
from gpuperf.show.html import paragraph, to_html
from gpuperf.show.page import Section, data_element, image, page

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
    sections = [_chart(report), Section("", to_html(full_table(report)))]
    data = data_element("gpuperf-verdict", encode(report).decode())
    return page(f"gate: {report.outcome}", [], sections, data)


def _chart(report: GateReport) -> Section:
    try:
        return Section("", f"<figure class=chart>{image(partial(draw_pairs, report))}</figure>")
    except UsageError as error:
        return Section("", paragraph(f"No chart is drawn: {error}."))
