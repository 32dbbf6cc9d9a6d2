"""Measure the cycles of an mma.sync against the chains that are independent of each other.

A chain waits for each product before the next one adds to its sums. With enough chains, the tensor
core of a scheduler is busy: 2,048 multiply-adds at its rate, of which mma.sync reaches about 63 %
on Hopper, where only wgmma has it all. `_mma.py` has the kernel.
"""

from __future__ import annotations

import math

from gpuperf.lab_experiments._mma import MMA_CHAINS, SCHEDULERS, K, M, N

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point
from gpuperf.theory.latency import cycles_per_instruction, published

WITHIN, LONGEST = 0.15, 33.0  # published latencies: 24.7 to 33 cycles, by source


def issue(numbers: Numbers) -> float:
    """Return the cycles of a tensor core for one product, at the share that mma.sync reaches."""
    clock = numbers.get("tensor_clock", numbers["clock"])
    rate = numbers["tensor_bf16"] / numbers["sms"] / clock / SCHEDULERS / 2
    whole = 2.0 ** round(math.log2(rate))  # multiply-adds a cycle; a measured rate is a little less
    return M * N * K / whole / published(numbers.figures).mma_share


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict max(latency / (chains · warps), issue) cycles."""
    parallel, least = at.chains * at.warps, issue(numbers)
    waits = published(numbers.figures).mma
    value = cycles_per_instruction(waits, parallel, least)
    because = f"{parallel} chains of {waits:g} cycles, and {least:.3g} cycles of a tensor core"
    most = cycles_per_instruction(LONGEST, parallel, least) * (1 + WITHIN)
    return Expected(value, value * (1 - WITHIN), most, "cycles", "model", because)


ILP_MMA = Experiment(
    name="ilp_mma",
    question="How many independent products of mma.sync keep a tensor core busy?",
    workload=MMA_CHAINS,
    axes={"chains": (1, 2, 3, 4, 6, 8), "warps": (1, 2, 4)},
    x="chains of a scheduler",
    along=lambda at, numbers: at.chains * at.warps,
    y="cycles_per_step",
    steps=lambda at: at.links * at.chains * at.warps,
    expect=expect,
    controls=(
        Control("16 chains in a warp", {"chains": 16, "warps": 1}, "as 16 warps of one chain"),
        Control("16 warps of a chain", {"chains": 1, "warps": 16}, "as 16 chains in one warp"),
    ),
    law=Law("inverse", band=0.35),  # as the published latencies differ
    notes=(
        "published: 24.7 to 33 cycles on A100, about 32 on RTX 4090",
        "62 to 65 % of the peak is what mma.sync was found to reach on Hopper (arXiv 2402.13499)",
    ),
)
