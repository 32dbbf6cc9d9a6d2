"""How far do timers differ from the kernels' own time, and how far does each case scatter?

From records of the same cases in several fresh processes, which `pass_index` tells apart.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuperf.model.record import Noise, Record
from gpuperf.model.samples import Samples, student
from gpuperf.model.timers import TIMERS

__all__ = ["CaseTiming", "compared_timers", "next_interval", "noise_of", "timings"]

LARGEST_LOG = 30.0  # of a scatter: exp of more is no interval of any use
NORMAL_IQR = 1.349  # of a normal distribution's standard deviation


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
    bias = {name: samples.median_s / mean_s - 1 for name, samples in times.items()}
    for timer, against in compared_timers().items():
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


def noise_of(group: Sequence[Record]) -> Noise | None:
    """The scatter of one case; None from fewer than three processes."""
    samples = [r.samples for r in group if r.status == "ok" and r.samples is not None]
    processes = {record.pass_index for record in group}
    if len(samples) < 3 or len(processes) < 3:
        return None
    medians = [s.median_s for s in samples]
    if min(medians) <= 0:
        return None
    return Noise(
        within=statistics.median(_deviation(s) for s in samples),
        between=statistics.stdev(medians) / statistics.fmean(medians),
        processes=len(processes),
    )


def next_interval(samples: Samples, noise: Noise) -> tuple[float, float] | None:
    """Where the median of another process lies with 95 %; None where that is unknown.

    Two processes differ by √2 times the deviation of one, which *noise* estimates from so many
    processes (Student's t); the median's own interval in this process is added as a square.
    """
    if samples.size < 2 or samples.median_s <= 0 or noise.processes < 2 or noise.between < 0:
        return None
    scatter = student(noise.processes - 1) * math.sqrt(2) * noise.between
    low, high = samples.interval_s
    down, up = (abs(end - samples.median_s) / samples.median_s for end in (low, high))
    return (
        samples.median_s * math.exp(-math.hypot(down, scatter)),
        samples.median_s * math.exp(min(math.hypot(up, scatter), LARGEST_LOG)),
    )


def _deviation(samples: Samples) -> float:
    """The relative standard deviation, by the quartiles: outliers do not count."""
    return samples.spread / NORMAL_IQR if math.isfinite(samples.spread) else 0.0
