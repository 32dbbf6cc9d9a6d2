"""Compute the speed-up of one implementation over another, with its interval.

A comparison measures all implementations in each of several fresh processes, and turns their order
from one process to the next (ABBA). Processes differ by more than the samples inside one (clock
state, allocator, code placement), so the speed-up's interval comes from the scatter of its
logarithm over the processes: one ratio a process, Student's t over the processes. The ratio inside
one process drops what the process does to both sides, and its scatter holds whatever each side
scatters by, so it needs no assumption about either. The variance is not pooled over the
implementations of a comparison: a call of five kernels scatters by 2.6 % between processes where a
matmul beside it scatters by 0.1 %, and a pooled variance would be too small for the first.
`docs/measured/coverage.py` recomputes how often such intervals hold the truth.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuperf.model.record import Record
from gpuperf.model.samples import Samples, student

HUGE = 700.0  # largest logarithm of a ratio whose exp does not overflow
MOST = 1e15  # largest speed-up: the times in a run file may have any ratio

# Key that identifies a case, with or without its implementation.
Key = tuple[object, ...]


@dataclass(frozen=True)
class Speedup:
    """The baseline's time over this one's, with a 95 % interval where one is known.

    `processes` counts the fresh processes that measured both. The interval is that over processes
    where there are several, and that of the two medians within their one process otherwise.
    """

    value: float
    low: float | None = None
    high: float | None = None
    processes: int = 1


def same_case(record: Record) -> Key:
    """Return operation, point, contract and rank: the key of a case in any implementation."""
    point = tuple(sorted((k, str(v)) for k, v in record.case.point.items()))
    return (record.case.op, point, record.contract, record.rank)


def key_of(record: Record) -> Key:
    """Return the key of a case in one implementation, which its processes share."""
    return (*same_case(record), record.case.id)


def speedups(records: Iterable[Record], baseline: str) -> Mapping[Key, Speedup]:
    """Return the speed-up of each case over the implementation *baseline*, by `key_of`.

    A case has none where it or its baseline failed in any process, or no process timed both.
    """
    cases: dict[Key, list[Record]] = {}
    for record in records:
        cases.setdefault(key_of(record), []).append(record)
    timed = {key: times for key, own in cases.items() if (times := _times(own))}
    base = {
        same_case(cases[key][0]): times
        for key, times in timed.items()
        if cases[key][0].case.implementation == baseline
    }
    ratios = {
        key: _speedup(base.get(same_case(cases[key][0]), {}), times) for key, times in timed.items()
    }
    return {key: speedup for key, speedup in ratios.items() if speedup is not None}


def _times(records: Sequence[Record]) -> Mapping[int, Samples]:
    """Return the times of one case by process; none where one of *records* failed."""
    times: dict[int, Samples] = {}
    for record in records:
        samples = record.samples
        if record.status != "ok" or samples is None or samples.median_s <= 0:
            return {}
        times[record.pass_index] = samples
    return times


def _speedup(base: Mapping[int, Samples], own: Mapping[int, Samples]) -> Speedup | None:
    common = sorted(base.keys() & own.keys())
    ratios = [base[process].median_s / own[process].median_s for process in common]
    if not ratios or not all(1 / MOST < value < MOST for value in ratios):
        return None
    if base is own:
        return Speedup(1.0, processes=len(common))
    if len(common) == 1:
        return ratio(base[common[0]], own[common[0]])
    value, low, high = center(ratios)
    return Speedup(value, low, high, len(common))


def center(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of *values* > 0, one a process and at least two, and the 95 % interval of
    their center: mean ± t·s/√n of the logarithms, with n − 1 degrees of freedom.

    Where many skewed values put the median outside the interval, the interval is widened to it.
    """
    logs = [math.log(value) for value in values]
    mean, n = statistics.fmean(logs), len(logs)
    half = student(n - 1) * statistics.stdev(logs) / math.sqrt(n)
    low, high = (math.exp(max(-HUGE, min(HUGE, log))) for log in (mean - half, mean + half))
    value = statistics.median(values)
    return value, min(value, low), max(value, high)


def ratio(base: Samples, own: Samples) -> Speedup:
    """Return the speed-up of two medians in one process.

    On the logarithm a ratio is a difference: the halves of the two intervals are added as squares
    (MOVER; Zou and Donner, Statistics in Medicine 27, 2008). How processes differ is left out.
    """
    value = base.median_s / own.median_s
    if base is own:
        return Speedup(1.0)
    (base_low, base_high), (own_low, own_high) = base.interval_s, own.interval_s
    if base.size < 2 or own.size < 2 or min(base_low, own_low) <= 0:
        return Speedup(value)
    down = math.hypot(math.log(base.median_s / base_low), math.log(own_high / own.median_s))
    up = math.hypot(math.log(base_high / base.median_s), math.log(own.median_s / own_low))
    if up > math.log(MOST):
        return Speedup(value)
    return Speedup(value, value * math.exp(-down), value * math.exp(up))
