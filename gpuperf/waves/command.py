"""`gpuperf waves`: compare matmul throughput over size with what tiles and waves predict."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.workload import Case
from gpuperf.verb import options as opt
from gpuperf.verb.measuring import Request, measure_new, refuse_one_size, report


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
            help="Fail unless m and n both vary by themselves, which the heatmap needs.",
        ),
    ] = False,
) -> int:
    """Compare matmul throughput with what tiles and waves predict.

    Vary all axes together with --sizes 1024:8192:+128, or one: --n 1024:8192:+128 --m 3072
    --k 4096. --impl triton --tile 128x128x64 fixes the tile, which a library would choose itself.
    A grid such as --m 512:8192:+512 --n 512:8192:+512 --k 4096 is drawn as a heatmap of the
    prediction with the measured sizes as dots.
    """
    refuse = partial(_refuse, heatmap)
    request = Request("waves", options, options.conditions, study="waves", refuse=refuse)
    with options.supervisor() as supervisor:
        outcome = measure_new(supervisor, request)
    return report(outcome, options)


def _refuse(heatmap: bool, cases: Sequence[Case], device: DeviceFacts) -> None:
    from gpuperf.waves.plane import varies_both  # imported here, so that `--help` starts fast

    if any(not {"m", "n", "k"} <= case.point.keys() for case in cases):
        raise UsageError(
            f"waves need the axes m, n and k of a matmul, which {cases[0].op} lacks",
            "gpuperf waves matmul --n 1024:8192:+128 --m 3072 --k 4096",
        )
    refuse_one_size(cases, "--sizes 1024:8192:+128")
    if heatmap and not varies_both(cases):
        raise UsageError(
            "a heatmap needs m and n to vary by themselves, and they do not",
            "--m 512:8192:+512 --n 512:8192:+512 --k 4096",
        )
    if device.kind != "cuda":
        raise CannotMeasure(
            f"waves need the SM cycles of an NVIDIA GPU, and the device is {device.name}",
            "run it on an NVIDIA GPU",
        )
