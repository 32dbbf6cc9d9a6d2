"""Measure the cycles of a fused multiply-add against the chains that are independent of each other.

A chain waits 4 cycles for each result, so that a scheduler needs 4 chains, of one warp or of
several, to start an instruction in every cycle; on A100, whose schedulers have 16 lanes for the 32
of a warp, 2 chains for one in every second cycle. `_fma.py` has the kernel.
"""

from __future__ import annotations

from gpuperf.lab_experiments._fma import FMA_CHAINS, SCHEDULERS, WARP

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about
from gpuperf.theory.latency import FMA, cycles_per_instruction

WITHIN = 0.08  # an instruction of 14 finds its registers' bank taken


def issue(numbers: Numbers) -> int:
    """Return the cycles in which a scheduler starts the 32 lanes of one multiply-add."""
    lanes = numbers["vector_fp32"] / numbers["sms"] / numbers["clock"] / SCHEDULERS / 2
    return max(1, round(WARP / lanes))


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict max(4 / (chains · warps), issue) cycles."""
    parallel, least = at.chains * at.warps, issue(numbers)
    because = f"{parallel} chains of {FMA:g} cycles on a scheduler that starts one in {least}"
    value = cycles_per_instruction(FMA, parallel, least)
    return about(value, "cycles", because, WITHIN)


ILP = Experiment(
    name="ilp",
    question="How many independent multiply-adds hide the latency of one?",
    workload=FMA_CHAINS,
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
    law=Law("inverse", band=0.1),
    notes=("published: 4.0 to 4.05 cycles for one chain, and 1.07 for four, on H100",),
)
