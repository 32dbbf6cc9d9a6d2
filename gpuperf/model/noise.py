"""Estimate how much the time of a case varies between processes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from gpuperf.model.record import Noise, Record
from gpuperf.model.samples import Samples, student

LARGEST_LOG = 30.0  # an interval of more than exp(30) times the median is useless
NORMAL_IQR = 1.349  # interquartile range of a normal distribution, in standard deviations


def noise_of(group: Sequence[Record]) -> Noise | None:
    """Return the scatter of one case; None for fewer than three processes."""
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
    """Return the 95 % interval for the median of another process; None if it is unknown.

    The difference of two processes scatters by √2 times the deviation of one. *noise* estimates
    that deviation from few processes, hence Student's t. The interval of the median within this
    process is added in quadrature.
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
    return samples.spread / NORMAL_IQR if math.isfinite(samples.spread) else 0.0
