"""Measure the latency of a load from another GPU's memory with a chain of pointers over the link.

Small footprints stay in the L2 of the GPU that holds them, large ones come from its DRAM. The link
adds the same to both, so that the two plateaus are as far apart as on one GPU.
"""

from __future__ import annotations

from gpuperf.lab_experiments._pointers import level

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about

NEAR_S = 0.7e-6  # of a load that the other GPU's L2 answers, over one switch (an estimate)
WITHIN = 0.4  # relative uncertainty of the estimate
MIB = 2**20


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the plateau of the level of the other GPU that holds the nodes."""
    if at.bytes <= numbers["l2"] / 2:
        return about(NEAR_S, "s", "the link, and the L2 of the other GPU", WITHIN)
    further_s = (level(numbers, "dram") - level(numbers, "l2")) / numbers["clock"]
    because = f"the link, and {further_s * 1e9:.0f} ns from the L2 to DRAM"
    return about(NEAR_S + further_s, "s", because, WITHIN)


PEER_LATENCY = Experiment(
    name="peer_latency",
    question="How long does a load from another GPU's memory take?",
    workload="p2p_latency",
    axes={"bytes": (MIB, 2 * MIB, 4 * MIB, 8 * MIB, 256 * MIB, 512 * MIB)},
    x="bytes",
    y="time_per_step",
    steps=lambda at: int(at.hops),
    expect=expect,
    controls=(
        Control(
            "half of the hops",
            {"bytes": (2 * MIB, 256 * MIB), "hops": 2048},
            "the time of a hop does not depend on their number, so that no launch is part of it",
        ),
    ),
    law=Law("plateaus", band=WITHIN, names=("latency_peer_l2", "latency_peer")),
    gives=("latency_peer_l2", "latency_peer"),
    needs=("cuda", "peer"),
    notes=("the nodes are visited in random order, so that DRAM has some misses of the TLB",),
)
