"""Determine which resource of the device is busiest while a record runs.

The share of a resource is the least time that it needs for the work, over the time measured. The
work is what the hardware counted; if nothing was counted, the work by the implementation's model,
and without a model, the cost of the algorithm. Where no resource is half busy, the limit is
latency, or too little work in flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from gpuperf.model.cost import Cost
from gpuperf.model.metrics import moved_bytes
from gpuperf.model.peaks import Peaks
from gpuperf.model.record import Record

Limiter = Literal[
    "compute",
    "memory",
    "special function",
    "L2",
    "L1",
    "latency",
    "latency or occupancy",
    "unknown",
]

BUSY = 0.5  # share of a roof: a resource that is less busy is no limit
# A time may be this much shorter than a measured roof allows; a shorter one excludes that roof.
ABOVE_ROOF = 1.05
CYCLES = {"tensor": "tensor_cycles", "vector": "fma_cycles"}
CACHES: tuple[tuple[Limiter, str, str], ...] = (
    ("L2", "l2_bytes", "l2_bandwidth"),
    ("L1", "l1_bytes", "l1_bandwidth"),
)


class Share(NamedTuple):
    """How busy a resource is, as a fraction; `pipe` names the one that computes."""

    busy: float
    limiter: Limiter
    pipe: str = ""


def busiest(record: Record, peaks: Peaks | None, ceilings: Peaks | None) -> Share:
    """Return the busiest resource of *record*, or `latency or occupancy` where none is half busy.

    Shares are under the measured *ceilings* where these are known, else under the data sheet's
    *peaks*.
    """
    samples = record.samples
    if samples is None or record.cost is None or not samples.median_s > 0:
        return Share(0.0, "unknown")
    shares = [
        *_memory(record, peaks, ceilings, samples.median_s),
        *_caches(record, ceilings, samples.median_s),
        *_pipes(record, peaks, ceilings, samples.median_s),
    ]
    most = max(shares, default=Share(0.0, "unknown"))
    return most if most.busy >= BUSY or not shares else Share(most.busy, "latency or occupancy")


def read_share(cost: Cost) -> float:
    """Return the share of the DRAM bytes of *cost* that is read."""
    read = sum(moved.read for moved in cost.bytes if moved.channel == "dram")
    return read / cost.dram_bytes if cost.dram_bytes else 1.0


def _memory(
    record: Record, peaks: Peaks | None, ceilings: Peaks | None, time_s: float
) -> Iterator[Share]:
    assert record.cost is not None  # `busiest` checked it
    best = ceilings.bandwidth_at(read_share(record.cost)) if ceilings else None
    if best is None:
        best = peaks.bandwidth.value if peaks and peaks.bandwidth else None
    if best is None:
        return
    least = float(record.cost.dram_bytes)
    moved = moved_bytes(record.counters)
    if moved is None:
        modelled = record.work.dram_bytes if record.work else 0.0
        # A model ignores caches: bytes that memory could not move in the time came from a cache.
        moved = max(least, modelled) if modelled <= ABOVE_ROOF * best * time_s else least
    yield Share(moved / best / time_s, "memory")


def _caches(record: Record, ceilings: Peaks | None, time_s: float) -> Iterator[Share]:
    for limiter, counter, roof in CACHES:
        moved, best = record.counters.get(counter), ceilings and ceilings.figures.get(roof)
        if moved is not None and best and best.value > 0:
            yield Share(moved / best.value / time_s, limiter)


def _pipes(
    record: Record, peaks: Peaks | None, ceilings: Peaks | None, time_s: float
) -> Iterator[Share]:
    counted = _counted_pipes(record.counters)
    yield from counted.values()
    cost = record.work if record.work is not None and record.work.flops else record.cost
    assert cost is not None  # `busiest` checked it
    for pipe, seconds in _least_by_pipe(cost, peaks, ceilings, time_s).items():
        if pipe not in counted:
            limiter: Limiter = "special function" if pipe == "special" else "compute"
            yield Share(seconds / time_s, limiter, pipe)


def _counted_pipes(counters: Mapping[str, float]) -> dict[str, Share]:
    """Return, by pipe, the share of the call's cycles in which the pipe was busy."""
    elapsed = counters.get("elapsed_cycles", 0.0)
    if not elapsed > 0:
        return {}
    shares = {
        pipe: Share(counters[name] / elapsed, "compute", pipe)
        for pipe, name in CYCLES.items()
        if name in counters
    }
    double = counters.get("fp64_cycles", 0.0) / elapsed
    if "vector" in shares and double > shares["vector"].busy:
        shares["vector"] = Share(double, "compute", "vector")
    return shares


def _least_by_pipe(
    cost: Cost, peaks: Peaks | None, ceilings: Peaks | None, time_s: float
) -> dict[str, float]:
    """Return the least seconds of each pipe.

    The accurate special functions of a library take longer than the hardware's approximations;
    their time counts unless the record was faster.
    """
    seconds: dict[str, float] = {}
    accurate_s = 0.0
    for flops in cost.flops:
        ceiling = (ceilings.ceiling(flops) if ceilings else None) or (
            peaks.ceiling(flops) if peaks else None
        )
        if ceiling is None:
            continue
        least_s = flops.count / ceiling.rate.value
        seconds[ceiling.pipe] = seconds.get(ceiling.pipe, 0.0) + least_s
        slow = ceilings.accurate(flops) if ceilings else None
        accurate_s += flops.count / slow.rate.value if slow else 0.0
    if seconds.get("special", 0.0) < accurate_s <= ABOVE_ROOF * time_s:
        seconds["special"] = accurate_s
    return seconds
