"""Compute the least time that the FLOPs of a cost take on the pipes of a device."""

from __future__ import annotations

from dataclasses import dataclass

from gpuperf.model.cost import Cost
from gpuperf.model.peaks import Ceiling, Peaks


@dataclass(frozen=True)
class Bound:
    """The least time of the FLOPs, which is that of the busiest pipe, and the ceiling of the FLOPs
    that take longest on it."""

    seconds: float
    ceiling: Ceiling


def compute_bound(cost: Cost, peaks: Peaks | None) -> Bound | None:
    """Return the least time for the FLOPs of *cost*; `None` if a ceiling is unknown."""
    if peaks is None or not cost.flops:
        return None
    seconds: dict[str, float] = {}
    longest: dict[str, tuple[float, Ceiling]] = {}
    for flops in cost.flops:
        ceiling = peaks.ceiling(flops)
        if ceiling is None:
            return None
        time_s = flops.count / ceiling.rate.value
        seconds[ceiling.pipe] = seconds.get(ceiling.pipe, 0.0) + time_s
        if time_s >= longest.get(ceiling.pipe, (0.0, ceiling))[0]:
            longest[ceiling.pipe] = (time_s, ceiling)
    pipe = max(seconds, key=seconds.__getitem__)
    return Bound(seconds[pipe], longest[pipe][1])


def seconds_at_clock(cost: Cost, peaks: Peaks | None, clock_hz: float | None) -> float | None:
    """Return the least time for the FLOPs with all SMs at *clock_hz*; `None` if it is unknown."""
    if peaks is None or not clock_hz or not cost.flops:
        return None
    seconds: dict[str, float] = {}
    for flops in cost.flops:
        ceiling = peaks.ceiling(flops)
        if ceiling is None or not ceiling.flop_per_clock_per_sm:
            return None
        rate = peaks.sm_count * ceiling.flop_per_clock_per_sm * clock_hz
        seconds[ceiling.pipe] = seconds.get(ceiling.pipe, 0.0) + flops.count / rate
    return max(seconds.values())
