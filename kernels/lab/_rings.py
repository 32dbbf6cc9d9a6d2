"""Compute the time of collectives between GPUs on one NVLink fabric, by NCCL's own model.

NCCL logs its latency and bandwidth of each algorithm and protocol, which are those of the machine.
Where the log has none, the figures are those of NCCL 2.30's source: 6.6 µs for the protocol LL, and
0.6 µs for each step on NVLink; a link carries 20.6 of its 25 GB/s (tuning.cc: base and hardware
latencies, `SM90_NVLINK_BW`).
"""

from __future__ import annotations

import math

from gpuperf import Numbers, Point
from gpuperf.theory.links import all_reduce_bytes

BASE_S, HOP_S = 6.6e-6, 0.6e-6
USABLE = 20.6 / 25
PROTOCOLS = ("ll", "ll128", "simple")


def link(numbers: Numbers) -> float:
    """Return the usable byte/s of one direction; the sheet's figure is for both together."""
    return USABLE * numbers["link_bandwidth"] / 2


def tuned(numbers: Numbers, size: float) -> tuple[float, str]:
    """Return the seconds of an all-reduce of *size* bytes by the fastest protocol of a ring in
    NCCL's own table, and its name; infinite without a table.

    Rows of trees are not used: NCCL corrects their bandwidth by the size.
    """
    name = "nccl_allreduce_ring_{}_{}".format
    known = [p for p in PROTOCOLS if name(p, "bandwidth") in numbers]
    times = [
        (numbers[name(p, "latency")] + size / numbers[name(p, "bandwidth")], p.upper())
        for p in known
    ]
    return min(times, default=(math.inf, ""))


def all_reduce_s(at: Point, numbers: Numbers) -> float:
    """Return the seconds of a ring all-reduce: by NCCL's table, or else α of 2·(n − 1) steps and
    the bytes over a link."""
    seconds, _ = tuned(numbers, at.bytes)
    if math.isfinite(seconds):
        return seconds
    steps = 2 * (at.world - 1)
    return BASE_S + steps * HOP_S + all_reduce_bytes(at.bytes, at.world) / link(numbers)
