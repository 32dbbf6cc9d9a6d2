"""Compute each timer's bias against the kernels' own time, and the scatter of each case.

The records are of the same cases in several processes, which `pass_index` numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from gpuperf.model.noise import noise_of
from gpuperf.model.record import Noise, Record
from gpuperf.model.timers import TIMERS
from gpuperf.model.times import TimeName


@dataclass(frozen=True)
class CaseTiming:
    """Times of one case over all processes, in seconds, and fractions of its busy time.

    `bias` is, for each timer, the median over the processes of (its trimmed mean / that of busy
    − 1). `over_span` compares the default timer with CUPTI's span for a call of several kernels:
    the profiler widens their gaps, so it should be 0 or less.
    """

    case: str
    kernels: int
    busy_s: float
    span_s: float | None
    bias: Mapping[str, float]
    noise: Noise | None
    over_span: float | None = None


def compared_timers() -> Mapping[str, str]:
    """Return the compared timers, each with the CUPTI busy time under the same cache."""
    return {timer.name: timer.reference for timer in TIMERS.values() if timer.reference}


def timings(records: Iterable[Record]) -> tuple[CaseTiming, ...]:
    """Return each measured case, from the shortest to the longest."""
    groups: dict[str, list[Record]] = {}
    alone: dict[str, Record] = {}
    for record in records:
        if record.status == "ok" and "busy" in record.times:
            groups.setdefault(record.case.id, []).append(record)
        elif record.status == "ok":
            alone[record.case.id] = record
    cases = [_timing(case, group, alone.get(case)) for case, group in groups.items()]
    return tuple(sorted(cases, key=lambda timing: timing.busy_s))


def _timing(case: str, group: Sequence[Record], alone: Record | None) -> CaseTiming:
    """Combine the records of a case; *alone* has the times of nvbench, which runs by itself."""
    spans = [r.times["span"].median_s for r in group if "span" in r.times]
    busy_s = statistics.median(r.times["busy"].median_s for r in group)
    mean_s = statistics.median(r.times["busy"].trimmed_mean_s for r in group)
    times = alone.times if alone is not None else {}
    bias: dict[str, float] = {
        name: samples.median_s / mean_s - 1 for name, samples in times.items()
    }
    for timer, reference in cast("Mapping[TimeName, TimeName]", compared_timers()).items():
        ratios = [
            record.times[timer].trimmed_mean_s / record.times[reference].trimmed_mean_s - 1
            for record in group
            if {"blocked", timer, reference} <= record.times.keys()  # measured by every timer
        ]
        if ratios:
            bias[timer] = statistics.median(ratios)
    kernels = sum(kernel.count for kernel in group[-1].kernels)
    over_span = [
        record.times["blocked"].trimmed_mean_s / record.times["span"].trimmed_mean_s - 1
        for record in group
        if {"blocked", "span"} <= record.times.keys()
    ]
    return CaseTiming(
        case=case,
        kernels=kernels,
        busy_s=busy_s,
        span_s=statistics.median(spans) if spans else None,
        bias=bias,
        noise=noise_of(group),
        over_span=statistics.median(over_span) if over_span and kernels > 1 else None,
    )
