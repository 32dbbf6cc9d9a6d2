"""How far do timers differ from the kernels' own time, and how far does each case scatter?

From records of the same cases in several fresh processes, which `pass_index` tells apart.
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
    """One case over all processes: seconds, and fractions of the busy time.

    `bias` is by timer, the median over the processes of (its trimmed mean / that of busy − 1);
    `over_span` the default's over CUPTI's span, of a call of several kernels: the profiler widens
    their gaps, so it should be 0 or less.
    """

    case: str
    kernels: int
    busy_s: float
    span_s: float | None
    bias: Mapping[str, float]
    noise: Noise | None
    over_span: float | None = None


def compared_timers() -> Mapping[str, str]:
    """Return the figures that timing-check compares, each with CUPTI's busy time of its cache."""
    return {timer.name: timer.reference for timer in TIMERS.values() if timer.reference}


def timings(records: Iterable[Record]) -> tuple[CaseTiming, ...]:
    """Each case that was measured, from the shortest to the longest."""
    groups: dict[str, list[Record]] = {}
    alone: dict[str, Record] = {}
    for record in records:
        if record.status == "ok" and "busy" in record.times:
            groups.setdefault(record.case.id, []).append(record)
        elif record.status == "ok":
            alone[record.case.id] = record
    found = [_timing(case, group, alone.get(case)) for case, group in groups.items()]
    return tuple(sorted(found, key=lambda timing: timing.busy_s))


def _timing(case: str, group: Sequence[Record], alone: Record | None) -> CaseTiming:
    """*alone* holds what a timer said in a process of its own."""
    spans = [r.times["span"].median_s for r in group if "span" in r.times]
    busy_s = statistics.median(r.times["busy"].median_s for r in group)
    mean_s = statistics.median(r.times["busy"].trimmed_mean_s for r in group)
    times = alone.times if alone is not None else {}
    bias: dict[str, float] = {
        name: samples.median_s / mean_s - 1 for name, samples in times.items()
    }
    for timer, against in cast("Mapping[TimeName, TimeName]", compared_timers()).items():
        ratios = [
            record.times[timer].trimmed_mean_s / record.times[against].trimmed_mean_s - 1
            for record in group
            if {"blocked", timer, against} <= record.times.keys()  # taken by every timer
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
