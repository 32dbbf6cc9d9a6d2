"""Measure the latency of L1, L2, DRAM and shared memory with a chain of pointers.

The time of a hop is the latency of the level that holds the nodes, so that over the footprint it
has a plateau for each level. `_chase.py` has the kernels. The nodes are read once before the chase
where they may fit a cache, and the L2 has none of them where the footprint is over twice its size.
"""

from __future__ import annotations

from gpuperf.lab_experiments._chase import LAPPED_L2_SIZES
from gpuperf.lab_experiments._pointers import CHASE, cache

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about
from gpuperf.theory.latency import mixed, published, sequential_hop

KIB, MIB = 2**10, 2**20
L1_HOLDS, L1_LACKS = 128 * KIB, 600 * KIB  # between them, L1 keeps some of the nodes
OF_L1, OF_L2, OF_DRAM = 0.15, 0.2, 0.25  # relative differences between published values


def between(
    at: Point, sizes: tuple[float, float], levels: tuple[float, float], because: str
) -> Expected:
    """Predict a mixture of two levels: no point of it belongs to a plateau."""
    low, high = levels[0] * (1 - OF_L2), levels[1] * (1 + OF_DRAM)
    return Expected(mixed(at.footprint, sizes, levels), low, high, "cycles", "model", because)


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the plateau of the level that holds the footprint, from published latencies."""
    levels, l2 = published(numbers.figures), numbers["l2"]
    if at.footprint <= L1_HOLDS:
        return about(levels.l1, "cycles", "L1 holds the nodes", OF_L1)
    if at.footprint < L1_LACKS:
        edge: tuple[float, float] = (L1_HOLDS, L1_LACKS)
        return between(at, edge, (levels.l1, levels.l2), "L1 holds some of the nodes")
    if at.footprint <= l2 / 2:
        return about(levels.l2, "cycles", "one half of the L2 holds the nodes", OF_L2)
    if at.footprint <= LAPPED_L2_SIZES * l2:
        because = f"far half of the L2 ({levels.l2_far:g} cycles) or DRAM"
        edge = (l2 / 2, LAPPED_L2_SIZES * l2)
        return between(at, edge, (levels.l2, levels.dram), because)
    return about(levels.dram, "cycles", "DRAM, with some misses of the TLB", OF_DRAM)


def in_l2(at: Point, numbers: Numbers) -> Expected:
    """Predict the plateau of the L2 for loads that bypass L1."""
    return about(published(numbers.figures).l2, "cycles", "the L2, as L1 is bypassed", OF_L2)


def in_shared(at: Point, numbers: Numbers) -> Expected:
    """Predict the latency of shared memory."""
    return about(published(numbers.figures).shared, "cycles", "a bare address", 0.1)


def sequential(at: Point, numbers: Numbers) -> Expected:
    """Predict hops along sectors of 32 bytes, which must be quicker than random ones."""
    levels = published(numbers.figures)
    value = sequential_hop(at.step, levels.l1, levels.l2, levels.dram)
    because = "DRAM delivers two sectors or more, so that the next hop hits the L2"
    return Expected(value, 0.7 * levels.l2, 0.85 * levels.dram, "cycles", "model", because)


LATENCY = Experiment(
    name="latency",
    question="How many cycles does a load take from each level of memory?",
    workload=CHASE,
    axes={"footprint": tuple(4 * KIB * 2**i for i in range(20))},
    x="footprint",
    y="cycles_per_step",
    steps=lambda at: at.hops,
    cache=cache,
    expect=expect,
    implementations=("ca",),
    controls=(
        Control(
            "L1 bypassed",
            {"footprint": 4 * KIB},
            "ld.cg takes 4 KiB from the L2, which has nothing to do with the footprint",
            in_l2,
            ("cg",),
        ),
        Control(
            "shared memory",
            {"footprint": (4 * KIB, 32 * KIB)},
            "shared memory has one latency, whatever the footprint",
            in_shared,
            ("shared",),
        ),
        Control(
            "sequential sectors",
            {"footprint": 512 * MIB, "order": "sequential", "step": 32},
            "hops to the next sector share what DRAM delivers; random ones do not",
            sequential,
        ),
    ),
    law=Law("plateaus", band=0.5, names=("latency_l1", "latency_l2", "latency_dram")),
    gives=("latency_l1", "latency_l2", "latency_dram"),
    notes=(
        "the reading `cycles` of a record is the SM's own count, which must agree within 1 %",
        "published values differ by 46 % for DRAM on H100, as sources differ in misses of the TLB",
        "a footprint between half the L2 and twice the L2 has hops to its far half and to DRAM",
    ),
)
