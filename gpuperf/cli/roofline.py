"""`gpuperf roofline`: measure a workload over its sizes, and place it under the roofline."""

from __future__ import annotations

from pathlib import Path

import typer

from gpuperf.cli import options as opt
from gpuperf.cli.measuring import Request, exit_code, measure_new, measure_rest
from gpuperf.cli.printing import print_run, write_charts
from gpuperf.errors import UsageError

__all__ = ["roofline"]

# What a run that is resumed brings with it; the rest (device, deadline, format) may be given anew.
SETTLED = (
    "op", "sizes", "dtype", "impl", "timer", "precision", "budget", "peaks", "out", "seed", "cache",
    "regime", "data", "gap", "settle", "counters",
)  # fmt: skip
TYPED = "COMMANDLINE"


def roofline(
    ctx: typer.Context,
    op: opt.Op = None,
    sizes: opt.Sizes = None,
    dtype: opt.Dtype = None,
    impl: opt.Impl = None,
    device: opt.DeviceName = "auto",
    threads: opt.Threads = None,
    timer: opt.TimerOption = None,
    precision: opt.Precision = 0.01,
    budget: opt.Budget = 2.0,
    cache: opt.CacheOption = None,
    regime: opt.RegimeOption = None,
    data: opt.DataOption = None,
    gap: opt.Gap = None,
    settle: opt.Settle = None,
    counters: opt.CountersOption = "auto",
    intensity: opt.IntensityOption = "compulsory",
    deadline: opt.Deadline = opt.DEFAULT_DEADLINE_S,
    peaks: opt.PeaksFile = None,
    out: opt.Out = Path("gpuperf-runs"),
    format: opt.FormatOption = opt.Format.TABLE,
    resume: opt.Resume = None,
    seed: opt.Seed = 0,
) -> int:
    """Measure OP over its sizes, and show where each lies under the roofline.

    OP may stand first, without --op. Any axis of the workload is an option too: --m 4096
    --k 512,1024.
    """
    view = opt.view(intensity)
    request = Request(
        "roofline", op, ctx.args, sizes, dtype, impl,
        opt.conditions(timer, precision, budget, cache, regime, data, gap, settle, counters),
        peaks, out, seed, view,
    )  # fmt: skip
    with opt.make_supervisor(device, deadline, threads) as supervisor:
        if resume is None:
            outcome = measure_new(supervisor, request)
        else:
            _refuse_beside_resume(ctx)
            outcome = measure_rest(supervisor, resume)
    top = outcome.run.header
    # What was another verb's run stays one.
    shown = None if resume is not None and (top.study or top.baseline) else view
    if outcome.run.records:
        print_run(outcome.run, format, shown)
        write_charts(outcome.run, outcome.path, shown)
    return exit_code(outcome)


def _refuse_beside_resume(ctx: typer.Context) -> None:
    """The plan and the contract are the run's own. Raises: UsageError."""
    sources = {name: ctx.get_parameter_source(name) for name in SETTLED}
    given = [f"--{name}" for name, source in sources.items() if source and source.name == TYPED]
    given += ctx.args
    if given:
        raise UsageError(
            f"--resume takes its plan from the run, so {given[0]} has no place beside it",
            "leave it out, or begin a new run",
        )
