"""What was measured, unreduced and in order, and what may be said of its median?

The samples of one process are autocorrelated (a power-capped matmul has a lag-1 correlation of
0.98), and the clock that took them ticks. The interval counts both: it uses the effective number of
samples, with Student's t for few of them, and adds what the tick and the subtracted floor leave
uncertain. It speaks of *this process* only; the spread between processes is another figure.

A time is the difference of two readings of a clock that ticks, at a phase that nothing holds: a
kernel of 2.3 ticks reads 2 in seven samples of ten, and 3 in the others. So between ticks the
samples still tell, and values on one tick are spread evenly over it before they are ranked.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from functools import cached_property

CONFIDENCE = 0.975  # one-sided, of a two-sided 95 %
Z95 = statistics.NormalDist().inv_cdf(CONFIDENCE)
LEAST_FREEDOM = 2.0  # below, t grows beyond any use; found to suffice in simulation
LEAST_SEEN = 0.25
MODES_APART = 0.02  # of the median: a wider gap between times is between two modes
SMALLER_MODE = 0.05  # of the samples: fewer beyond a gap are outliers
ENOUGH = 15  # steps between samples, for their quartiles to tell the spread
MOST_BLOCKS = 100  # whose means give the interval of the mean of many times
SAME_TICK = 8  # of a tick: what rounding to nanoseconds may part
TICK_ERROR = 0.1  # of a tick, by which a median between two ticks may be off


@dataclass(frozen=True)
class Samples:
    """Times of single calls in seconds, in the order taken. Each value is the mean over `windows`
    windows, and a window holds `calls_per_window` calls.

    `sm_clock_hz` holds the SM clock inside each sample, `None` where it could not be read;
    `tick_s` is the resolution of the clock that took them; `offset_uncertainty_s` the half-width
    of what was subtracted from each (the floor of the timer).
    """

    values_s: tuple[float, ...]
    sm_clock_hz: tuple[float | None, ...] = ()
    tick_s: float = 0.0
    offset_uncertainty_s: float = 0.0
    calls_per_window: int = 1
    windows: int = 1

    def __post_init__(self) -> None:
        if not self.values_s or not all(map(math.isfinite, self.values_s)):
            raise ValueError("there is no sample, or one is not a finite number")
        if not (self.tick_s >= 0 and self.offset_uncertainty_s >= 0):
            raise ValueError("an uncertainty of a time is negative")

    @property
    def size(self) -> int:
        """How many samples there are."""
        return len(self.values_s)

    @cached_property
    def _ordered(self) -> list[float]:
        return _spread_ties(sorted(self.values_s), self.tick_s)

    @cached_property
    def median_s(self) -> float:
        """The median, to a fraction of the tick."""
        return float(statistics.median(self._ordered))

    @cached_property
    def trimmed_mean_s(self) -> float:
        """The mean without the outermost tenths. Where a kernel has two usual times, the median
        may jump from one to the other, and this does not."""
        tenth = self.size // 10
        return statistics.fmean(self._ordered[tenth : self.size - tenth])

    def quantile_s(self, share: float) -> float:
        """The time that *share* of the samples stay under."""
        return _quantile(self._ordered, share)

    @cached_property
    def effective_size(self) -> float:
        """How many independent samples these are worth."""
        return effective_size(self.values_s)

    @cached_property
    def interval_s(self) -> tuple[float, float]:
        """The 95 % interval of the median within this process, (low, high)."""
        # The order-statistic interval of a median, ranks 0.5 ± t/(2√n) of the sample, with the
        # effective for the actual size; no shape of the distribution is assumed, but for few
        # samples it reaches beyond them. The samples spread less than their process, of which they
        # have seen a part: by √(1 − 1/n).
        low, high = self._between(1.0)
        return low - self.offset_uncertainty_s, high + self.offset_uncertainty_s

    def _between(self, widened: float) -> tuple[float, float]:
        """The interval by the samples and their tick, its ranks *widened* times as far apart."""
        n = self.effective_size
        reach = widened * _student(n - 1) / (2 * math.sqrt(n))
        reach /= math.sqrt(max(1 - 1 / n, LEAST_SEEN))
        low, high = _quantile(self._ordered, 0.5 - reach), _quantile(self._ordered, 0.5 + reach)
        return low - self._tick_uncertainty, high + self._tick_uncertainty

    @property
    def sampling_precision(self) -> float:
        """`precision` without what was subtracted: the part that more samples would narrow."""
        return self.widened_precision(1.0)

    def widened_precision(self, widened: float) -> float:
        """`sampling_precision` with the ranks of the interval so many times as far apart."""
        low, high = self._between(widened)
        return (high - low) / 2 / self.median_s if self.median_s > 0 else math.inf

    @cached_property
    def has_two_modes(self) -> bool:
        """Whether times lie on both sides of an empty gap of more than 2 % of the median, at least
        a twentieth of them (and one) on each."""
        ordered, least = self._ordered, max(1, int(SMALLER_MODE * self.size))
        gaps = (b - a for a, b in zip(ordered[least - 1 :], ordered[least:], strict=False))
        inner = itertools.islice(gaps, max(0, self.size - 2 * least + 1))
        return max(inner, default=0.0) > MODES_APART * self.median_s

    @cached_property
    def _tick_uncertainty(self) -> float:
        """What the even spread over a tick may be off; and if all fell on one tick, how much of
        the next would not have been seen in so many samples, 39 times of 40."""
        values = self.values_s
        if max(values) - min(values) > self.tick_s / 2:
            return TICK_ERROR * self.tick_s
        return self.tick_s * (1 - math.pow(1 - CONFIDENCE, 1 / len(values)))

    @property
    def precision(self) -> float:
        """Half the interval over the median, a fraction; infinite where the median is not > 0."""
        low, high = self.interval_s
        return (high - low) / 2 / self.median_s if self.median_s > 0 else math.inf

    @property
    def spread(self) -> float:
        """Interquartile range over the median: how noisy single samples are."""
        width = _quantile(self._ordered, 0.75) - _quantile(self._ordered, 0.25)
        return width / self.median_s if self.median_s > 0 else math.inf

    @cached_property
    def clock_hz(self) -> float | None:
        """The median SM clock inside the samples, if it was read."""
        known = [c for c in self.sm_clock_hz if c is not None]
        return statistics.median(known) if known else None


def _spread_ties(ordered: list[float], tick: float) -> list[float]:
    """Values that share a tick, evenly over it."""
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
    """Linear interpolation between order statistics; outside of 0…1 on with their mean step, or
    with that of the middle half where there are enough of them: outliers do not stretch it."""
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
    """The two-sided 95 % point of Student's t with *freedom* degrees of freedom, at least 1: exact
    for 1 and 2, within 0.2 % above."""
    if freedom < 1:
        raise ValueError(f"{freedom} degrees of freedom tell nothing of a scatter")
    both = 2 * CONFIDENCE - 1
    if freedom == 1:
        return math.tan(math.pi * both / 2)
    return both * math.sqrt(2 / (1 - both**2)) if freedom == 2 else _student(freedom)


def _student(freedom: float) -> float:
    """The two-sided 95 % point of Student's t, within 1 %: its expansion about the normal's
    (Abramowitz and Stegun, 26.7.5)."""
    z, n = Z95, max(freedom, LEAST_FREEDOM)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / n ** (power + 1) for power, term in enumerate(terms))


def effective_size(values: tuple[float, ...]) -> float:
    """n / τ, at least 1: how many independent samples tell as much of the centre.

    τ = 1 + 2·Σρ is the larger of two estimates: the sum while pairs of autocorrelations stay
    positive (Geyer, Statistical Science 7 (1992) 473), and (1 + ρ)/(1 − ρ) of an AR(1) process
    whose lag-1 correlation is freed of its bias in short series (Kendall, Biometrika 41 (1954)
    403). Outliers would hide the correlation of the rest, so ranks are correlated, not values.
    """
    n = len(values)
    if n < 4:
        return float(max(n, 1))
    centred = _centred_ranks(values)
    total = 0.0
    first = _lagged(centred, 1)
    for lag in range(1, min(n // 2, 200), 2):
        pair = _lagged(centred, lag) + _lagged(centred, lag + 1)
        if pair <= 0:
            break
        total += pair
    unbiased = min(max(first + (1 + 4 * first) / n, 0.0) if first > 0 else 0.0, 1 - 1 / n)
    longest = max(1 + 2 * total, (1 + unbiased) / (1 - unbiased))
    return min(float(n), max(1.0, n / longest))


def mean_precision(values: tuple[float, ...]) -> float:
    """Half the 95 % interval of the mean of *values* over the mean, a fraction; infinite for fewer
    than two. Many values are taken by blocks, whose means depend less on each other."""
    size = -(-len(values) // MOST_BLOCKS) or 1
    whole = len(values) // size * size
    blocks = tuple(statistics.fmean(values[i : i + size]) for i in range(0, whole, size))
    if len(blocks) < 2 or statistics.fmean(values) <= 0:
        return math.inf
    count = effective_size(blocks)
    reach_s = _student(count - 1) * statistics.stdev(blocks) / math.sqrt(count)
    return reach_s / statistics.fmean(values)


def correlation(values: tuple[float, ...]) -> float:
    """The rank correlation, -1 to 1, of each value with the next one; 0 where all are equal."""
    return _lagged(_centred_ranks(values), 1)


def _lagged(centred: list[float], lag: int) -> float:
    variance = sum(c * c for c in centred)
    if variance == 0:
        return 0.0
    return sum(a * b for a, b in zip(centred, centred[lag:], strict=False)) / variance


def _centred_ranks(values: tuple[float, ...]) -> list[float]:
    mean = (len(values) - 1) / 2
    return [rank - mean for rank in _ranks(values)]


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
