"""Compute the latency of chains of loads and of operations, in cycles.

Published latencies of a single chain, one load at a time: gpu-benches `gpu-latency`, AI_kernels,
and "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture" (arXiv 2402.13499). Sources
differ by up to 15 % for the L2 and 20 % for DRAM, whose value depends on misses of the TLB. Shared
memory has 23 cycles where a load gives the next address (arXiv 2208.11174, A100), and 29 where an
index is turned into one; an mma.sync has 24.7 to 33 on A100, by source (arXiv 2206.02874 and
others).
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass

SECTOR, GRANULE = (
    32,
    64,
)  # bytes that a miss of L1 takes from the L2, and a miss of the L2 from DRAM
FMA = 4.0  # cycles from a fused multiply-add to one that needs its result


@dataclass(frozen=True)
class Latencies:
    """Cycles of a load from shared memory, L1, the near and far half of the L2, and DRAM; `mma` is
    that of an mma.sync m16n8k16 to one that adds to its result, and `mma_share` the share of the
    tensor cores' rate that mma.sync reaches."""

    shared: float
    l1: float
    l2: float
    l2_far: float
    dram: float
    mma: float
    mma_share: float


PUBLISHED: Mapping[str, Latencies] = {
    "ampere": Latencies(23, 36, 208, 410, 555, 25, 1.0),
    "hopper": Latencies(23, 37, 275, 475, 690, 25, 0.63),
    "blackwell": Latencies(23, 40, 295, 500, 855, 25, 0.63),  # all but l1, l2, dram: of Hopper
}


def published(rates: Container[str]) -> Latencies:
    """Return the published latencies of the generation that has these *rates*: tensor cores take
    fp8 since Hopper, and fp4 since Blackwell."""
    newest = "blackwell" if "tensor_fp4" in rates else "hopper"
    return PUBLISHED[newest if "tensor_fp8" in rates else "ampere"]


def sequential_hop(step: int, l1: float, l2: float, dram: float, granule: int = GRANULE) -> float:
    """Return the mean cycles of a hop along nodes *step* bytes apart, none of which is cached.

    A hop of *step* bytes reaches a new sector with probability step / 32, and a new piece of DRAM
    with step / *granule*; other hops hit what an earlier one fetched.
    """
    sectors, pieces = min(1.0, step / SECTOR), min(1.0, step / granule)
    return l1 * (1 - sectors) + l2 * (sectors - pieces) + dram * pieces


def mixed(size: float, sizes: tuple[float, float], levels: tuple[float, float]) -> float:
    """Return the value at *size* between two plateaus: up to the first of *sizes* it has the first
    of *levels*, from the second on the second, and between them a power of the size."""
    share = math.log(size / sizes[0]) / math.log(sizes[1] / sizes[0])
    first, last = levels
    return first * float((last / first) ** min(1.0, max(0.0, share)))


def cycles_per_instruction(latency: float, parallel: float, issue: float) -> float:
    """Return the cycles that a scheduler takes for an instruction, with *parallel* independent
    chains in its warps: max(latency / parallel, issue)."""
    return max(latency / parallel, issue)
