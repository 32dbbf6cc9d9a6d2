"""`gpuperf explain`: where the time of a case went."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuperf.errors import UsageError
from gpuperf.run.store import read_runs
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb.options import ChartFile, Format, FormatOption, RunFile
from gpuperf.verb.printing import refuse_empty
from gpuperf.verb.progress import say

MOST_WORDS = 8  # on stderr, of cases that are left out


def explain(
    run: RunFile,
    case: Annotated[str, typer.Argument(help="Part of a case's id, as `8191` or `triton`.")] = "",
    chart: ChartFile = None,
    format: FormatOption = Format.TABLE,
) -> int:
    """Show the losses between a case's peak and measured rate.

    RUN is a run file; nothing is measured. Each loss is measured where the run was taken with
    --counters kernels; otherwise it is estimated from tiles and waves, and labelled as modelled.
    """
    from gpuperf.explain.chart import draw_explained, refuse_unfit
    from gpuperf.explain.table import chosen, render_explained

    runs = read_runs(run)
    for problem in runs[0].problems:
        say(f"{run}: {problem}; the rest was read")
    if len(runs) > 1:
        raise UsageError(f"{run} holds {len(runs)} runs; explain takes one", "split the file")
    if runs[0].header.study == "profile":
        raise UsageError(
            f"{run} is a profile, whose operators are of no measured case",
            f"`gpuperf show {run}` has what each of them loses; explain takes a run of roofline",
        )
    refuse_empty(run, runs)
    found, left_out = chosen(runs[0], case)
    for words in left_out[:MOST_WORDS]:
        say(f"not explained: {words}")
    if len(left_out) > MOST_WORDS:
        say(f"not explained: {len(left_out) - MOST_WORDS} more")
    if chart is not None:
        refuse_unfit(found, [chart])
    put(render_explained(found, format.value, stdout_screen()))
    if chart is not None:
        draw_explained(runs[0], found, [chart])
        say(f"chart: {chart}")
    return 0
