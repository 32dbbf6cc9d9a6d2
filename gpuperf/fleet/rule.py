"""Judge which devices of a fleet are slow in which test, from the times of all of them.

- Reduce: a case on a device is the mean of the fastest third of its processes, as a logarithm: a
  bad device is slow in all of them, while a slow mode of healthy devices may last for several. Less
  the median over all devices it is the slowness of the case; the slowness of a test is the median
  over its cases, and that of a device as a whole the median over all tests.
- Scatter: the noise between devices of a test is the larger one of two robust estimates, the median
  absolute deviation and the distance of the 80 % quantile from the median. A fifth of the devices
  may be bad before they hide each other. It is at least the median over all tests.
- Floor: nine tenths of all processes are slower than the fastest one of their device by less than
  this. A slowdown that single processes often show is no evidence, and with fewer than
  `LEAST_PROCESSES` processes there is none.
- Judge: a device is slow in a test if its slowness exceeds `margin` and the floor, and is not
  probable as noise. The p value is of Student's t, whose few degrees of freedom (`HEAVY` at most,
  and fewer for few devices) cover tails that are heavier than normal. Bonferroni's correction over
  all devices and tests bounds the probability that a healthy fleet accuses any device by `alpha`.

docs/measured/fleet.txt has the error rates, simulated by docs/measured/fleet.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

NORMAL_MAD = 1.4826  # standard deviation of a normal distribution over its MAD
NORMAL_Q80 = 0.8416  # its 80 % quantile, in standard deviations
EFFICIENCY = 0.37  # of the MAD against the standard deviation (Huber, Robust Statistics, 1981)
HEAVY = 20.0  # degrees of freedom that t has at most
LEAST_QUANTILE = 10  # devices from which on a single bad one leaves the 80 % quantile alone
LEAST_PROCESSES = 5  # fewer may all meet a slow mode that lasts; simulated
COMMON = 0.9  # share of the processes below the floor
LEAST_UNITS = 3  # of two devices neither is the odd one
ALL = "all tests"  # the name of the slowness of a device as a whole


@dataclass(frozen=True)
class FleetRule:
    """The numbers of the rule: the error rate of a healthy fleet (`alpha`), the slowdown that must
    be detected (`slow`) with the probability `power`, and the slowdown that is tolerated
    (`margin`), as fractions."""

    alpha: float = 0.01
    slow: float = 0.05
    margin: float = 0.02
    power: float = 0.95


@dataclass(frozen=True)
class Scores:
    """The slowness of each unit (a device of a host) in each test, as log ratios to the peers.

    `slowness` and `p` (after Bonferroni's correction) have the shape (units, tests + 1); the last
    column is for all tests. `scatter`, `floor` and `detectable` (the least log ratio that is
    detected) have one value a column.
    """

    slowness: NDArray[Any]
    p: NDArray[Any]
    scatter: NDArray[Any]
    floor: NDArray[Any]
    detectable: NDArray[Any]

    def slow(self, rule: FleetRule) -> NDArray[Any]:
        """Return whether each unit is slow in each test."""
        import numpy

        least = numpy.maximum(self.floor, math.log1p(rule.margin))
        known = numpy.nan_to_num(self.slowness, nan=-math.inf)
        verdict: NDArray[Any] = (self.p <= rule.alpha) & (known >= least)
        return verdict


def judge_processes(
    cube: NDArray[Any], test_of_case: NDArray[Any], tests: int, rule: FleetRule
) -> Scores:
    """Judge the log times *cube* (units, cases, processes), whose cases belong to *tests* tests."""
    logs = fastest(cube)
    floor = process_floor(cube, logs, test_of_case, tests)
    return score(slowness_of(logs, test_of_case, tests), floor, rule)


def fastest(logs: NDArray[Any]) -> NDArray[Any]:
    """Return the mean of the fastest third of the values along the last axis, at least of one.

    NaN do not count, and all NaN give NaN.
    """
    import numpy

    ordered = numpy.sort(logs, axis=-1)  # NaN come last
    counts = numpy.isfinite(ordered).sum(axis=-1)
    taken = numpy.maximum(counts // 3, 1)
    inside = numpy.arange(logs.shape[-1]) < taken[..., None]
    sums = numpy.where(inside & (counts > 0)[..., None], ordered, 0.0).sum(axis=-1)
    return numpy.where(counts > 0, sums / taken, math.nan)


def process_floor(
    cube: NDArray[Any], logs: NDArray[Any], test_of_case: NDArray[Any], tests: int
) -> NDArray[Any]:
    """Return for each test, and for all, how much slower than the fastest process of their device
    nine tenths of the processes are at most; infinity for too few processes.

    *logs* (units, cases) are the reduced times of *cube* (units, cases, processes).
    """
    import numpy

    units, _, processes = cube.shape
    if processes < LEAST_PROCESSES:
        return numpy.full(tests + 1, math.inf)
    rows = numpy.moveaxis(cube - median(logs, 0)[None, :, None], 1, 2).reshape(-1, cube.shape[1])
    columns = [median(rows[:, test_of_case == test], 1) for test in range(tests)]
    by_test = numpy.column_stack(columns)
    whole = numpy.column_stack([by_test, median(by_test, 1)])
    by_unit = whole.reshape(units, processes, tests + 1)
    least = numpy.where(numpy.isnan(by_unit), math.inf, by_unit).min(axis=1, keepdims=True)
    excess = (by_unit - least).reshape(-1, tests + 1)
    return numpy.array([_quantile(column, COMMON) for column in excess.T])


def slowness_of(logs: NDArray[Any], test_of_case: NDArray[Any], tests: int) -> NDArray[Any]:
    """Return the slowness of each unit in each of *tests*, and in all, from *logs* (units, cases).

    The result has the shape (units, tests + 1); NaN marks a test without a time.
    """
    import numpy

    relative = logs - median(logs, 0)[None, :]
    columns = [median(relative[:, test_of_case == test], 1) for test in range(tests)]
    by_test = numpy.column_stack(columns)
    return numpy.column_stack([by_test, median(by_test, 1)])


def score(slowness: NDArray[Any], floor: NDArray[Any], rule: FleetRule) -> Scores:
    """Judge *slowness* (units, tests + 1) by *rule*, with a *floor* for each column."""
    import numpy
    from scipy.special import stdtr, stdtrit

    units, columns = slowness.shape
    centred = slowness - median(slowness, 0)[None, :]
    own = scatter_of(centred)
    common = median(own[None, :-1], 1)[0] if columns > 1 else own[0]
    scatter = numpy.maximum(own, common)
    scatter = numpy.maximum(scatter, 1e-9)
    freedom = _freedom(units, columns - 1)
    compared = max(1, int(numpy.isfinite(slowness).sum()))
    with numpy.errstate(invalid="ignore"):
        p = stdtr(freedom, -centred / scatter) * compared
    p = numpy.where(numpy.isfinite(slowness), numpy.minimum(p, 1.0), 1.0)
    critical = -float(stdtrit(freedom, rule.alpha / compared))
    least = numpy.maximum(numpy.maximum(critical * scatter, floor), math.log1p(rule.margin))
    # Beyond the threshold by this much, noise hides a slowdown in 1 - power of the cases.
    missed = float(stdtrit(HEAVY, rule.power)) * scatter
    return Scores(centred, p, scatter, floor, least + missed)


def _freedom(units: int, tests: int) -> float:
    """Return the degrees of freedom of t for *units*, whose scatter *tests* estimate together."""
    return max(1.0, min(HEAVY, EFFICIENCY * (units - 1) * max(1.0, math.sqrt(tests))))


def scatter_of(centred: NDArray[Any]) -> NDArray[Any]:
    """Return a robust standard deviation of each column, whose median is 0."""
    import numpy

    units = max(2, centred.shape[0])
    small = units / max(0.5, units - 0.9)  # correction of the MAD of few values (Croux, 1992)
    middle: NDArray[Any] = median(abs(centred), 0) * NORMAL_MAD * small
    if units < LEAST_QUANTILE:
        return middle
    with numpy.errstate(all="ignore"):
        upper = numpy.array([_quantile(column, 0.8) for column in centred.T]) / NORMAL_Q80
    larger: NDArray[Any] = numpy.maximum(middle, numpy.nan_to_num(upper))
    return larger


def _quantile(column: NDArray[Any], fraction: float) -> float:
    import numpy

    finite = column[numpy.isfinite(column)]
    return float(numpy.quantile(finite, fraction)) if len(finite) else 0.0


def median(values: NDArray[Any], axis: int) -> NDArray[Any]:
    """Return the median along *axis* without NaN; NaN where there is no value."""
    import numpy

    if not numpy.isnan(values).any() and values.shape[axis]:
        return numpy.asarray(numpy.median(values, axis=axis))
    shape = values.shape[1 - axis]
    columns = values.T if axis == 0 else values
    medians = numpy.full(shape, math.nan)
    for i in range(shape):
        finite = columns[i][numpy.isfinite(columns[i])]
        if len(finite):
            medians[i] = numpy.median(finite)
    return medians
