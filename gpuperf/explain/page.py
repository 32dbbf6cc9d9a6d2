"""Make the HTML page of explained cases: the chart of their losses, and a table for each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gpuperf.errors import UsageError
from gpuperf.explain.chart import draw_explained
from gpuperf.explain.study import LossBudget
from gpuperf.explain.table import render_explained
from gpuperf.model.record import Run
from gpuperf.run.embedded import embed
from gpuperf.show.html import paragraph
from gpuperf.show.page import Section, image, page


def explained_page(run: Run, budgets: Sequence[LossBudget], text: bytes) -> str:
    """Return the page of *budgets*; it contains the *text* of the run file of *run*."""
    try:
        drawn = image(partial(draw_explained, run, budgets))
        chart = Section("", f"<figure class=chart>{drawn}</figure>")
    except UsageError as error:
        chart = Section("", paragraph(f"No chart is drawn: {error}."))
    tables = Section("", render_explained(budgets, "html"))
    title = f"explain: {len(budgets)} cases on {run.header.device.name}"
    lead = " · ".join(filter(None, (run.header.run, run.header.created)))
    return page(title, [lead], [chart, tables], embed(text))
