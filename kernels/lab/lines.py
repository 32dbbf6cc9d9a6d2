"""Find the pieces in which L1 and the L2 fetch, with chains whose nodes are near each other.

A hop of `step` bytes hits L1 if an earlier hop fetched its sector, and hits the L2 if an earlier
hop fetched its piece of DRAM. Hops in random order reuse neither, however near the nodes are.
"""

from __future__ import annotations

from gpuperf.lab_experiments._pointers import CHASE, cache, level

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point
from gpuperf.theory.latency import GRANULE, SECTOR, sequential_hop

WITHIN, QUICKER = 0.3, 0.5  # hops along DRAM's open row, on one page, are up to this much quicker


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the mean of the levels, each weighted with the share of hops that reach it."""
    l1, l2, dram = (level(numbers, name) for name in ("l1", "l2", "dram"))
    value = sequential_hop(at.step, l1, l2, dram)
    sectors, pieces = SECTOR / min(at.step, SECTOR), GRANULE / min(at.step, GRANULE)
    because = f"one hop in {sectors:g} leaves L1, and one in {pieces:g} the L2"
    low = value * (1 - (QUICKER if at.step >= GRANULE else WITHIN))
    return Expected(value, low, value * (1 + WITHIN), "cycles", "model", because)


def scattered(at: Point, numbers: Numbers) -> Expected:
    """Predict hops in random order, all of which reach DRAM."""
    dram = level(numbers, "dram")
    because = "a random hop is to another piece of DRAM"
    return Expected(dram, dram * (1 - WITHIN), dram * (1 + WITHIN), "cycles", "model", because)


LINES = Experiment(
    name="lines",
    question="In which pieces do L1 and the L2 fetch: 32, 64 or 128 bytes?",
    workload=CHASE,
    axes={
        "step": (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
        "order": ("sequential",),
        "footprint": (2**28,),
    },
    x="step",
    y="cycles_per_step",
    steps=lambda at: at.hops,
    cache=cache,
    expect=expect,
    implementations=("ca",),
    controls=(
        Control(
            "random order",
            {"order": "random", "step": (32, 128, 4096)},
            "nodes that are visited in random order share no line, whatever the step",
            scattered,
        ),
    ),
    law=Law("plateaus", band=QUICKER, names=("latency_stream",)),
    gives=("latency_stream",),
    after=("latency",),
    notes=(
        "the level is the latency of DRAM without misses of the TLB, which `little` uses",
        "at a step of 32 bytes, a mean of L2 and DRAM says that DRAM delivers 64 bytes, "
        "DRAM alone that it delivers 32, and less than the mean that it delivers 128",
    ),
)
