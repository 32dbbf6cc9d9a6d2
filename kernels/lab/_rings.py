"""Compute the time of collectives between GPUs on one NVLink fabric, by NCCL's own model.

NCCL 2.30 takes 6.6 µs for the protocol LL, and 0.6 µs for each step on NVLink; a link carries 20.6
of its 25 GB/s (tuning.cc: base and hardware latencies, `SM90_NVLINK_BW`).
"""

from __future__ import annotations

from gpuperf import Numbers, Point
from gpuperf.theory.links import all_reduce_bytes

BASE_S, HOP_S = 6.6e-6, 0.6e-6
USABLE = 20.6 / 25


def link(numbers: Numbers) -> float:
    """Return the usable byte/s of one direction; the sheet's figure is for both together."""
    return USABLE * numbers["link_bandwidth"] / 2


def all_reduce_s(at: Point, numbers: Numbers) -> float:
    """Return the seconds of a ring all-reduce: α of 2·(n − 1) steps, and the bytes over a link."""
    steps = 2 * (at.world - 1)
    return BASE_S + steps * HOP_S + all_reduce_bytes(at.bytes, at.world) / link(numbers)
