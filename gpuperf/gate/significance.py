"""Test whether the mean of log ratios of times, or of permuted times, is above a value."""

from __future__ import annotations

import math
from typing import Any

ROUNDING = 1e-12  # log ratios that differ by less count as equal


def greater(ratios: Any, above: float) -> float:
    """Return the p of the one-sided t-test whose null hypothesis is a mean of at most *above*."""
    return float(each_greater(ratios, above))


def each_greater(ratios: Any, above: float) -> Any:
    """Return the p of `greater` for each row of *ratios*, along the last axis.
    (`scipy.stats.ttest_1samp` returns the same, but takes 0.5 s to import and 0.5 ms a call.)"""
    import numpy
    from scipy.special import stdtr

    count = ratios.shape[-1]
    mean, deviation = ratios.mean(axis=-1), ratios.std(axis=-1, ddof=1)
    same = deviation <= ROUNDING  # without scatter no test is possible, and none is needed
    t = (mean - above) / (numpy.where(same, 1.0, deviation) / math.sqrt(count))
    return numpy.where(same, mean <= above + ROUNDING, stdtr(count - 1, -t))


def permuted(head: Any, base: Any, kind: str, resamples: int, seed: int) -> float:
    """Return the p of the one-sided permutation test for a slower *head*.

    The statistic is the difference of the lower-half means of log times. Times are permuted by
    *kind*: within pairs (`samples`), or between both sides (`independent`).
    """
    from scipy.stats import permutation_test

    def difference(first: Any, second: Any, axis: int) -> Any:
        return _lower_half(first, axis) - _lower_half(second, axis)

    if difference(head, base, 0) <= 0:
        return 1.0
    result = permutation_test(
        (head, base),
        difference,
        permutation_type=kind,
        vectorized=True,
        n_resamples=resamples,
        alternative="greater",
        random_state=seed,
    )
    return float(result.pvalue)


def _lower_half(values: Any, axis: int) -> Any:
    """Return the mean of the smaller half of *values* along *axis*."""
    import numpy

    ordered = numpy.sort(values, axis=axis)
    half = range((ordered.shape[axis] + 1) // 2)
    return numpy.take(ordered, half, axis=axis).mean(axis=axis)


def interval(ratios: Any) -> tuple[float, float]:
    """Return the 95 % interval of the mean log ratio."""
    from scipy.special import stdtrit

    reach = float(stdtrit(len(ratios) - 1, 0.975)) * float(ratios.std(ddof=1))
    middle = float(ratios.mean())
    return middle - reach / math.sqrt(len(ratios)), middle + reach / math.sqrt(len(ratios))
