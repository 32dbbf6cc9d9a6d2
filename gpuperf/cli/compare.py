"""`gpuperf compare`: every implementation of a workload beside a baseline."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.cli import options as opt
from gpuperf.cli.measuring import Request, exit_code, measure_new
from gpuperf.cli.printing import print_run, write_charts
from gpuperf.runner.plan import Conditions

__all__ = ["compare"]


def compare(
    ctx: typer.Context,
    op: opt.Op = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The implementation that the others are held against; the first, unless given.",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            min=1, max=200,
            help="Measure all in this many fresh processes in turn; the interval of a speed-up is "
            "over them.",
        ),
    ] = 3,
    sizes: opt.Sizes = None,
    dtype: opt.Dtype = None,
    impl: opt.Impl = None,
    device: opt.DeviceName = "auto",
    threads: opt.Threads = None,
    timer: opt.TimerOption = None,
    precision: opt.Precision = 0.01,
    budget: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=3600.0, show_default="2, or 1 in each of several processes",
            help="Seconds of sampling a case in one process, at most.",
        ),
    ] = None,
    cache: opt.CacheOption = None,
    regime: opt.RegimeOption = None,
    data: opt.DataOption = None,
    gap: opt.Gap = None,
    settle: opt.Settle = None,
    counters: opt.CountersOption = "auto",
    deadline: opt.Deadline = opt.DEFAULT_DEADLINE_S,
    peaks: opt.PeaksFile = None,
    out: opt.Out = Path("gpuperf-runs"),
    format: opt.FormatOption = opt.Format.TABLE,
    seed: opt.Seed = 0,
) -> int:
    """Measure every implementation of OP: speed-up over a baseline, bytes, memory, error, kernels.

    OP may stand first, without --op. Any axis of the workload is an option too: --seq 512,4096
    --causal both --mode fwd,bwd.
    """
    budget_s = budget if budget is not None else 2.0 if processes == 1 else 1.0
    asked = opt.conditions(timer, precision, budget_s, cache, regime, data, gap, settle, counters)
    request = Request(
        "compare", op, ctx.args, sizes, dtype, impl, _each(asked, processes),
        peaks, out, seed, baseline=baseline, processes=processes,
    )  # fmt: skip
    with opt.make_supervisor(device, deadline, threads) as supervisor:
        outcome = measure_new(supervisor, request)
    if outcome.run.records:
        print_run(outcome.run, format)
        write_charts(outcome.run, outcome.path)
    return exit_code(outcome)


def _each(asked: Conditions, processes: int) -> Conditions:
    """What each of *processes* is asked for, so that together they are as precise as *asked*: the
    center of n medians scatters by √n less than one."""
    each = asked.precision * math.sqrt(processes)
    return replace(asked, precision=min(float(f"{each:.2g}"), opt.LEAST_PRECISE))
