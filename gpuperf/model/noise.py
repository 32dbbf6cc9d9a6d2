"""Estimate how far the time of a case moves between processes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from gpuperf.model.record import Noise, Record
from gpuperf.model.samples import Samples, student

LARGEST_LOG = 30.0  # of a scatter: exp of more is no interval of any use
NORMAL_IQR = 1.349  # of a normal distribution's standard deviation


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
