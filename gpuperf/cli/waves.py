"""`gpuperf waves`: throughput over size, and the waves of tiles that explain it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpuperf.cli import options as opt
from gpuperf.cli.measuring import Request, exit_code, measure_new
from gpuperf.cli.printing import print_run, write_charts

__all__ = ["waves"]


def waves(
    ctx: typer.Context,
    op: opt.Op = None,
    sizes: opt.Sizes = None,
    heatmap: Annotated[
        bool,
        typer.Option(
            "--heatmap",
            help="Demand the chart of m × n, which is drawn wherever both vary by themselves.",
        ),
    ] = False,
    dtype: opt.Dtype = None,
    impl: opt.Impl = None,
    device: opt.DeviceName = "auto",
    timer: opt.TimerOption = None,
    precision: opt.Precision = 0.005,
    budget: opt.Budget = 0.5,
    counters: opt.CountersOption = "off",
    deadline: opt.Deadline = opt.DEFAULT_DEADLINE_S,
    peaks: opt.PeaksFile = None,
    out: opt.Out = Path("gpuperf-runs"),
    format: opt.FormatOption = opt.Format.TABLE,
    seed: opt.Seed = 0,
) -> int:
    """Matmul throughput over size, with what tiles and waves predict of it, kernel by kernel.

    --sizes 1024:8192:+128, or one axis: --n 1024:8192:+128 --m 3072 --k 4096. --impl triton --tile
    128x128x64 pins our own kernel's tile, so that no choice of a library's comes in between; with
    --m 512:8192:+512 --n 512:8192:+512 --k 4096 its prediction is a picture, its sizes dots in it.
    """
    request = Request(
        "waves", op, ctx.args, sizes, dtype, impl,
        opt.conditions(timer, precision, budget, None, None, None, None, None, counters),
        peaks, out, seed, study="waves", heatmap=heatmap,
    )  # fmt: skip
    with opt.make_supervisor(device, deadline) as supervisor:
        outcome = measure_new(supervisor, request)
    if outcome.run.records:
        print_run(outcome.run, format)
        write_charts(outcome.run, outcome.path)
    return exit_code(outcome)
