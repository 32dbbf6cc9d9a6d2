"""Hold the samples of one measurement in order, and compute their median and its interval.

The samples of one process are autocorrelated (a power-capped matmul has a lag-1 correlation of
0.98), and the clock that takes them ticks. The interval considers both: it uses the effective
number of samples, with Student's t for small numbers, and adds the uncertainty of the tick and of
the subtracted floor. It holds for *this process* only; the spread between processes is separate.

A time is the difference of two readings of a clock that ticks, at a random phase: a kernel of 2.3
ticks reads 2 in seven samples of ten, and 3 in the others. So the samples resolve fractions of a
tick, and equal values are spread evenly over their tick before they are ranked.
"""

from __future__ import annotations

import itertools
import math
import operator
import statistics
from dataclasses import dataclass
from functools import cached_property

CONFIDENCE = 0.975  # one-sided level of a two-sided 95 % interval
Z95 = statistics.NormalDist().inv_cdf(CONFIDENCE)
LEAST_FREEDOM = 2.0  # for fewer degrees, t is uselessly large; simulations show that 2 suffices
LEAST_SEEN = 0.25  # least share of the process's variance that the samples are assumed to show
MODES_APART = 0.02  # least gap between two modes, as a share of the median
SMALLER_MODE = 0.05  # least share of the samples in a mode; fewer are outliers
ENOUGH = 15  # gaps between samples from which on the quartiles give the spread
MOST_BLOCKS = 100  # blocks whose means give the interval of the mean of many times
SAME_TICK = 8  # rounding to nanoseconds separates times of one tick by less than 1/8 of it
SHORTEST_S, LONGEST_S = 1e-12, 1e9  # limits of a plausible time of a call, in seconds
TICK_ERROR = 0.1  # error of a median between two ticks, as a share of the tick


@dataclass(frozen=True)
class Samples:
    """Times of single calls in seconds, in the order taken. Each value is the mean over `windows`
    windows, and a window holds `calls_per_window` calls.

    `sm_clock_hz` has the SM clock during each sample, `None` if it could not be read. `tick_s` is
    the resolution of the clock. `offset_uncertainty_s` is the half-width of the interval of the
    floor that was subtracted from each sample.
    """

    values_s: tuple[float, ...]
    sm_clock_hz: tuple[float | None, ...] = ()
    tick_s: float = 0.0
    offset_uncertainty_s: float = 0.0
    calls_per_window: int = 1
    windows: int = 1

    def __post_init__(self) -> None:
        if not self.values_s or not all(map(math.isfinite, self.values_s)):
            raise ValueError("there are no samples, or one is not a finite number")
        if not (self.tick_s >= 0 and self.offset_uncertainty_s >= 0):
            raise ValueError("an uncertainty of a time is negative")

    @property
    def size(self) -> int:
        return len(self.values_s)

    @cached_property
    def _ordered(self) -> list[float]:
        return _spread_ties(sorted(self.values_s), self.tick_s)

    @cached_property
    def median_s(self) -> float:
        """Median in seconds, to a fraction of the tick."""
        return float(statistics.median(self._ordered))

    @cached_property
    def trimmed_mean_s(self) -> float:
        """Mean without the lowest and the highest tenth. If a kernel has two usual times, the
        median may jump between them, while this mean does not."""
        tenth = self.size // 10
        return statistics.fmean(self._ordered[tenth : self.size - tenth])

    def quantile_s(self, share: float) -> float:
        """Return the time below which the fraction *share* of the samples lies."""
        return _quantile(self._ordered, share)

    @cached_property
    def effective_size(self) -> float:
        """Number of independent samples that would determine the median equally well."""
        return effective_size(self.values_s)

    @cached_property
    def interval_s(self) -> tuple[float, float]:
        """95 % interval of the median within this process, (low, high)."""
        # The order-statistic interval of a median, ranks 0.5 ± t/(2√n) of the sample, with the
        # effective size for n. It assumes no shape of the distribution, but for few samples it
        # extends beyond them. The samples spread less than their process by √(1 − 1/n).
        low, high = self._between(1.0)
        return low - self.offset_uncertainty_s, high + self.offset_uncertainty_s

    def _between(self, widened: float) -> tuple[float, float]:
        """Return the interval from the samples and the tick, with the ranks *widened* times as far
        apart."""
        n = self.effective_size
        reach = widened * _student(n - 1) / (2 * math.sqrt(n))
        reach /= math.sqrt(max(1 - 1 / n, LEAST_SEEN))
        low, high = _quantile(self._ordered, 0.5 - reach), _quantile(self._ordered, 0.5 + reach)
        return low - self._tick_uncertainty, high + self._tick_uncertainty

    @property
    def sampling_precision(self) -> float:
        """`precision` without the uncertainty of the floor: the part that more samples reduce."""
        return self.widened_precision(1.0)

    def widened_precision(self, widened: float) -> float:
        """Return `sampling_precision` with the ranks of the interval *widened* times as far
        apart."""
        low, high = self._between(widened)
        return (high - low) / 2 / self.median_s if self.median_s > 0 else math.inf

    @cached_property
    def has_two_modes(self) -> bool:
        """Whether a gap of more than 2 % of the median separates the times, with at least 5 % of
        them (and one) on each side."""
        ordered, least = self._ordered, max(1, int(SMALLER_MODE * self.size))
        gaps = (b - a for a, b in zip(ordered[least - 1 :], ordered[least:], strict=False))
        inner = itertools.islice(gaps, max(0, self.size - 2 * least + 1))
        return max(inner, default=0.0) > MODES_APART * self.median_s

    @cached_property
    def _tick_uncertainty(self) -> float:
        """Error in seconds of spreading equal values over a tick. If all samples fell on one tick,
        it is the part of the next tick that this many samples miss with 2.5 % probability."""
        values = self.values_s
        if max(values) - min(values) > self.tick_s / 2:
            return TICK_ERROR * self.tick_s
        return self.tick_s * (1 - math.pow(1 - CONFIDENCE, 1 / len(values)))

    @property
    def precision(self) -> float:
        """Half the interval over the median, a fraction; infinite unless the median is > 0."""
        low, high = self.interval_s
        return (high - low) / 2 / self.median_s if self.median_s > 0 else math.inf

    @property
    def spread(self) -> float:
        """Interquartile range over the median, which is the noise of single samples."""
        width = _quantile(self._ordered, 0.75) - _quantile(self._ordered, 0.25)
        return width / self.median_s if self.median_s > 0 else math.inf

    @cached_property
    def clock_hz(self) -> float | None:
        """Median SM clock during the samples, if it was read."""
        known = [c for c in self.sm_clock_hz if c is not None]
        return statistics.median(known) if known else None


def _spread_ties(ordered: list[float], tick: float) -> list[float]:
    """Return the values with those on one tick spread evenly over it."""
    reach = tick / SAME_TICK
    spread: list[float] = []
    alike: list[float] = []
    for value in ordered:
        if alike and value - alike[0] >= reach:
            spread += _over_a_tick(alike, tick) if len(alike) > 1 else alike
            alike = []
        alike.append(value)
    spread += _over_a_tick(alike, tick) if len(alike) > 1 else alike
    return sorted(spread)


def _over_a_tick(alike: list[float], tick: float) -> list[float]:
    centre, count = statistics.fmean(alike), len(alike)
    return [centre + tick * ((i + 0.5) / count - 0.5) for i in range(count)]


def _quantile(ordered: list[float], q: float) -> float:
    """Interpolate linearly between order statistics. Outside of 0…1, extrapolate by their mean gap
    or, for enough values, by that of the middle half, which outliers do not stretch."""
    last = len(ordered) - 1
    place = q * last
    beyond = min(place, 0.0) + max(place - last, 0.0)
    if beyond:
        width = ordered[-1] - ordered[0]
        if last >= ENOUGH:
            width = min(width, 2 * (_quantile(ordered, 0.75) - _quantile(ordered, 0.25)))
        step = width / last if last else 0.0
        return (ordered[0] if beyond < 0 else ordered[-1]) + beyond * step
    below = min(math.floor(place), last)
    above = min(below + 1, last)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def student(freedom: int) -> float:
    """Return the two-sided 95 % point of Student's t with *freedom* ≥ 1 degrees of freedom: exact
    for 1 and 2, within 0.2 % above."""
    if freedom < 1:
        raise ValueError(f"{freedom} degrees of freedom determine no scatter")
    both = 2 * CONFIDENCE - 1
    if freedom == 1:
        return math.tan(math.pi * both / 2)
    return both * math.sqrt(2 / (1 - both**2)) if freedom == 2 else _student(freedom)


def _student(freedom: float) -> float:
    """Return the two-sided 95 % point of Student's t within 1 %, by its expansion about that of the
    normal distribution (Abramowitz and Stegun, 26.7.5)."""
    z, n = Z95, max(freedom, LEAST_FREEDOM)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / n ** (power + 1) for power, term in enumerate(terms))


def effective_size(values: tuple[float, ...]) -> float:
    """Return n / τ, at least 1: the number of independent samples with as sure a median.

    τ = 1 + 2·Σρ is the larger of two estimates: the sum of pairs of autocorrelations while they are
    positive (Geyer, Statistical Science 7 (1992) 473), and (1 + ρ)/(1 − ρ) of an AR(1) process,
    with the lag-1 correlation corrected for its bias in short series (Kendall, Biometrika 41 (1954)
    403). Ranks are correlated instead of values, since outliers hide the correlation of values.
    """
    n = len(values)
    if n < 4:
        return float(max(n, 1))
    centred = _centred_ranks(values)
    variance = _product(centred, 0)
    total = 0.0
    first = _lagged(centred, 1, variance)
    for lag in range(1, min(n // 2, 200), 2):
        pair = _lagged(centred, lag, variance) + _lagged(centred, lag + 1, variance)
        if pair <= 0:
            break
        total += pair
    unbiased = min(max(first + (1 + 4 * first) / n, 0.0) if first > 0 else 0.0, 1 - 1 / n)
    longest = max(1 + 2 * total, (1 + unbiased) / (1 - unbiased))
    return min(float(n), max(1.0, n / longest))


def mean_precision(values: tuple[float, ...]) -> float:
    """Return half the 95 % interval of the mean of *values* over the mean, a fraction; infinite for
    fewer than two. Many values are averaged in blocks, whose means depend less on each other."""
    size = -(-len(values) // MOST_BLOCKS) or 1
    whole = len(values) // size * size
    blocks = tuple(statistics.fmean(values[i : i + size]) for i in range(0, whole, size))
    if len(blocks) < 2 or statistics.fmean(values) <= 0:
        return math.inf
    count = effective_size(blocks)
    reach_s = _student(count - 1) * statistics.stdev(blocks) / math.sqrt(count)
    return reach_s / statistics.fmean(values)


def correlation(values: tuple[float, ...]) -> float:
    """Return the rank correlation (−1 to 1) of each value with the next; 0 if all are equal."""
    centred = _centred_ranks(values)
    return _lagged(centred, 1, _product(centred, 0))


def _lagged(centred: list[float], lag: int, variance: float) -> float:
    return _product(centred, lag) / variance if variance else 0.0


def _product(centred: list[float], lag: int) -> float:
    # Sampling asks after every few samples: a generator would take twice as long.
    total: float = sum(map(operator.mul, centred, centred[lag:]))
    return total


def _centred_ranks(values: tuple[float, ...]) -> list[float]:
    mean = (len(values) - 1) / 2
    return [rank - mean for rank in _ranks(values)]


def _ranks(values: tuple[float, ...]) -> list[float]:
    """Return ranks from 0; equal values share their mean rank."""
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
