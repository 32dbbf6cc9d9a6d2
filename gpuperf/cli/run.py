"""`gpuperf run`: a suite of cases, in one run file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpuperf.cli import options as opt
from gpuperf.cli.measuring import Request, exit_code, measure_again, measure_suite
from gpuperf.cli.printing import print_run, write_charts
from gpuperf.runner.suite import load_suite

__all__ = ["run"]


def run(
    suite: Annotated[
        str, typer.Option(help="ci, quick, full, or a file: ./mine.toml.", show_default=False)
    ],
    passes: Annotated[
        int, typer.Option(min=1, max=1000, help="Fresh processes; 6 and more tell their scatter.")
    ] = 1,
    device: opt.DeviceName = "auto",
    threads: opt.Threads = None,
    deadline: opt.Deadline = opt.DEFAULT_DEADLINE_S,
    peaks: opt.PeaksFile = None,
    out: opt.Out = Path("gpuperf-runs"),
    format: opt.FormatOption = opt.Format.TABLE,
    seed: opt.Seed = 0,
) -> int:
    """Measure the cases of a suite, under the conditions that it names."""
    found = load_suite(suite)
    request = Request("run", None, (), None, None, None, found.conditions, peaks, out, seed)
    with opt.make_supervisor(device, deadline, threads) as supervisor:
        outcome = measure_suite(supervisor, found, request)
        if passes > 1 and outcome.ended is None:
            outcome = measure_again(supervisor, outcome, passes - 1)
    if outcome.run.records:
        print_run(outcome.run, format)
        write_charts(outcome.run, outcome.path)
    return exit_code(outcome)
