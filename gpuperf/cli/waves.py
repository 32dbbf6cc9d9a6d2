"""`gpuperf waves`: throughput over size, and the waves of tiles that explain it."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuperf.cli import options as opt
from gpuperf.cli.measuring import Request, measure_new, report

__all__ = ["waves"]


@opt.takes(
    *opt.CASES,
    "device",
    *opt.TIMING,
    "counters",
    *opt.FILES,
    "seed",
    precision=0.005,
    budget=0.5,
    counters="off",
)
def waves(
    options: opt.Options,
    heatmap: Annotated[
        bool,
        typer.Option(
            "--heatmap",
            help="Demand the chart of m × n, which is drawn wherever both vary by themselves.",
        ),
    ] = False,
) -> int:
    """Matmul throughput over size, with what tiles and waves predict of it, kernel by kernel.

    --sizes 1024:8192:+128, or one axis: --n 1024:8192:+128 --m 3072 --k 4096. --impl triton --tile
    128x128x64 pins our own kernel's tile, so that no choice of a library's comes in between; with
    --m 512:8192:+512 --n 512:8192:+512 --k 4096 its prediction is a picture, its sizes dots in it.
    """
    request = Request("waves", options, options.conditions, study="waves", heatmap=heatmap)
    with options.supervisor() as supervisor:
        outcome = measure_new(supervisor, request)
    return report(outcome, options)
