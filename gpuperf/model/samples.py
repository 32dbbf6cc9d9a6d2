"""What was measured, unreduced and in order, and what may be said of its median?

The samples of one process are autocorrelated (a power-capped matmul has a lag-1 correlation of
0.98), and the clock that took them ticks. The interval counts both: it uses the effective number of
samples, and adds what the tick and the subtracted floor leave uncertain. It speaks of *this
process* only; the spread between processes is another figure.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Samples", "effective_size"]

Z95 = statistics.NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Samples:
    """Times of single calls in seconds, in the order taken.

    `sm_clock_hz` holds the SM clock inside each sample, `None` where it could not be read;
    `tick_s` is the resolution of the clock that took them; `offset_uncertainty_s` the half-width
    of what was subtracted from each (the floor of the timer).
    """

    values_s: tuple[float, ...]
    sm_clock_hz: tuple[float | None, ...] = ()
    tick_s: float = 0.0
    offset_uncertainty_s: float = 0.0
    calls_per_window: int = 1

    def __post_init__(self) -> None:
        if not self.values_s or not all(math.isfinite(v) for v in self.values_s):
            raise ValueError("there is no sample, or one is not a finite number")
        if not (self.tick_s >= 0 and self.offset_uncertainty_s >= 0):
            raise ValueError("an uncertainty of a time is negative")

    @property
    def size(self) -> int:
        """How many samples there are."""
        return len(self.values_s)

    @cached_property
    def median_s(self) -> float:
        """The median. Raises: statistics.StatisticsError without samples."""
        return statistics.median(self.values_s)

    @cached_property
    def effective_size(self) -> float:
        """How many independent samples these are worth."""
        return effective_size(self.values_s)

    @cached_property
    def interval_s(self) -> tuple[float, float]:
        """The 95 % interval of the median within this process, (low, high)."""
        ordered = sorted(self.values_s)
        # The order-statistic interval of a median, with the effective for the actual size:
        # ranks 0.5 ± z/(2√n) of the sample. No shape of the distribution is assumed.
        reach = Z95 / (2 * math.sqrt(self.effective_size))
        low, high = _quantile(ordered, 0.5 - reach), _quantile(ordered, 0.5 + reach)
        blur = self.offset_uncertainty_s + self._tick_uncertainty(high - low)
        return low - blur, high + blur

    @property
    def sampling_precision(self) -> float:
        """`precision` without what was subtracted: the part that more samples would narrow."""
        low, high = self.interval_s
        half = (high - low) / 2 - self.offset_uncertainty_s
        return half / self.median_s if self.median_s > 0 else math.inf

    def _tick_uncertainty(self, width_s: float) -> float:
        """Half a tick where the interval lies within one; less where noise dithers it."""
        if width_s < self.tick_s:
            return self.tick_s / 2
        return Z95 * self.tick_s / math.sqrt(12 * self.effective_size)

    @property
    def precision(self) -> float:
        """Half the interval over the median, a fraction; infinite where the median is not > 0."""
        low, high = self.interval_s
        return (high - low) / 2 / self.median_s if self.median_s > 0 else math.inf

    @property
    def spread(self) -> float:
        """Interquartile range over the median: how noisy single samples are."""
        ordered = sorted(self.values_s)
        width = _quantile(ordered, 0.75) - _quantile(ordered, 0.25)
        return width / self.median_s if self.median_s > 0 else math.inf

    @cached_property
    def clock_hz(self) -> float | None:
        """The median SM clock inside the samples, if it was read."""
        known = [c for c in self.sm_clock_hz if c is not None]
        return statistics.median(known) if known else None


def _quantile(ordered: list[float], q: float) -> float:
    """Linear interpolation between order statistics; *q* is clipped to 0…1."""
    place = min(max(q, 0.0), 1.0) * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def effective_size(values: tuple[float, ...]) -> float:
    """n / (1 + 2·Σρ), summed while pairs of autocorrelations stay positive (Geyer, Statistical
    Science 7 (1992) 473, initial positive sequence), between 1 and n.

    Outliers would hide the correlation of the rest, so ranks are correlated, not values.
    """
    n = len(values)
    if n < 4:
        return float(max(n, 1))
    ranks = _ranks(values)
    mean = (n - 1) / 2
    centred = [r - mean for r in ranks]
    variance = sum(c * c for c in centred)
    if variance == 0:
        return float(n)

    def correlation(lag: int) -> float:
        return sum(a * b for a, b in zip(centred, centred[lag:], strict=False)) / variance

    total = 0.0
    for lag in range(1, min(n // 2, 200), 2):
        pair = correlation(lag) + correlation(lag + 1)
        if pair <= 0:
            break
        total += pair
    return min(float(n), max(1.0, n / (1 + 2 * total)))


def _ranks(values: tuple[float, ...]) -> list[float]:
    """Ranks from 0, ties sharing their mean rank."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in order[start : end + 1]:
            ranks[place] = (start + end) / 2
        start = end + 1
    return ranks
