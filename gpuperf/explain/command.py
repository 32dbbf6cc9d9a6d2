"""`gpuperf explain`: split the time of a case into its losses."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuperf.errors import UsageError
from gpuperf.run.store import read_runs, read_text
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb.options import ChartFile, Format, FormatOption, HtmlFile, RunFile
from gpuperf.verb.page import say_page, write_html
from gpuperf.verb.printing import refuse_empty
from gpuperf.verb.progress import say

MOST_REASONS = 8  # on stderr, why cases have no budget


def explain(
    run: RunFile,
    case: Annotated[str, typer.Argument(help="Part of the cases' ids: 8191, or triton.")] = "",
    chart: ChartFile = None,
    html: HtmlFile = None,
    format: FormatOption = Format.TABLE,
) -> int:
    """Show the losses between a case's peak and measured rate.

    RUN is a run file; nothing is measured. Each loss is measured where the run was taken with
    --counters kernels; otherwise it is estimated from tiles and waves, and labelled as modelled.
    """
    from gpuperf.explain.chart import draw_explained, refuse_unfit
    from gpuperf.explain.page import explained_page
    from gpuperf.explain.table import budgets_of, render_explained

    if html is not None and chart is not None:
        raise UsageError("--html and --chart exclude each other", "the page has the charts")
    runs = read_runs(run)
    for problem in runs[0].problems:
        say(f"{run}: {problem}; its other lines were read")
    if len(runs) > 1:
        raise UsageError(f"{run} holds {len(runs)} runs; explain takes one", "split the file")
    if runs[0].header.study == "profile":
        raise UsageError(
            f"{run} is a profile, and explain takes cases",
            f"`gpuperf show -v {run}` has the largest loss of each operator",
        )
    refuse_empty(run, runs)
    budgets, reasons = budgets_of(runs[0], case)
    for reason in reasons[:MOST_REASONS]:
        say(f"not explained: {reason}")
    if len(reasons) > MOST_REASONS:
        say(f"not explained: {len(reasons) - MOST_REASONS} more")
    if html is not None:
        content = explained_page(runs[0], budgets, read_text(run))
        say_page(html, write_html(content, html))
        return 0
    if chart is not None:
        refuse_unfit(budgets, [chart])
    put(render_explained(budgets, format.value, stdout_screen()))
    if chart is not None:
        draw_explained(runs[0], budgets, [chart])
        say(f"chart: {chart}")
    return 0
