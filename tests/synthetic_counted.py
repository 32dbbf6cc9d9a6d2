"""Build a run with counted bytes and operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from synthetic import h200_run

from gpuperf.model.peaks import Figure
from gpuperf.model.record import Kernel, Run


def moved(total: float, **more: float) -> dict[str, float]:
    half = {"dram_read_bytes": 0.75 * total, "dram_written_bytes": 0.25 * total}
    return {**half, "dram_uncertainty_bytes": 1e4, "dram_factor": 1, **more}


def counted_run(excess: float = 2.0, l2: float = 8.0, of: Callable[[], Run] = h200_run) -> Run:
    """A run of the H200, with *excess* times the compulsory bytes through DRAM, *l2* through L2."""
    run = of()
    found = []
    for one in run.records:
        if one.cost is None or not one.times:
            found.append(one)
            continue
        least = one.cost.dram_bytes
        done = float(one.cost.flop_count)
        counters = moved(excess * least, l2_bytes=l2 * least, tensor_bf16=done)
        found.append(replace(one, counters=counters, kernels=(Kernel("k", 1, counters),)))
    ceilings = run.header.ceilings
    assert ceilings is not None
    figures = {**ceilings.figures, "l2_bandwidth": Figure(9e12, "byte/s", "measured", "calibrate")}
    header = replace(run.header, ceilings=replace(ceilings, figures=figures))
    return Run(header, tuple(found))
