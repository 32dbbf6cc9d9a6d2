"""Fit the law of an experiment to points, in closed form, with the interval of each parameter.

Every fit is done on logarithms, since errors of times are fractions. The interval of a parameter
joins the scatter of the points about the law with the intervals of the points themselves.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gpuperf.model.experiment import Fitted, Law
from gpuperf.model.samples import student

LEAST = 3  # fewest points that a law is fitted to
SAME_LEVEL = 0.02  # difference of predictions that belong to one plateau, as a fraction
ROUND = 1.5  # points within this factor of the predicted knee are left out: real corners are round
FOLLOWED = 0.01  # largest deviation of predictions from their own law, as a fraction
HUGE, MOST = 50.0, 700.0  # half an unknown interval of a logarithm, and the largest logarithm


@dataclass(frozen=True)
class Datum:
    """A point (x, y) with the interval of y, and the y that was predicted."""

    x: float
    y: float
    low: float
    high: float
    predicted: float

    @property
    def half(self) -> float:
        """Half the interval of ln y."""
        return math.log(self.high / self.low) / 2 if self.low > 0 else HUGE


@dataclass(frozen=True)
class Parameter:
    """A fitted parameter and its 95 % interval; `grid` is the band that the spacing of x allows."""

    name: str
    value: float
    low: float
    high: float
    grid: float = 0.0


class NotFitted(Exception):
    """The points do not determine the law, in a sentence."""


def fit_law(
    law: Law, measured: Mapping[str, Sequence[Datum]], predicted: Mapping[str, Sequence[Datum]]
) -> tuple[Fitted, ...]:
    """Fit *law* to each series as measured and as predicted. Raises: NotFitted."""
    if law.form == "points":
        return ()
    if law.form == "crossover":
        own, theory = _crossover(law, measured), _crossover(law, predicted)
        return _paired(law, [own], [theory], "")
    fit = FITS[law.form]
    fitted: list[Fitted] = []
    for series, data in measured.items():
        if len(data) < LEAST:
            raise NotFitted(f"{series or 'the series'} has {len(data)} points, and a law needs 3")
        name = series if len(measured) > 1 else ""
        fitted += _paired(law, fit(data), fit(predicted[series]), name)
    return tuple(fitted)


def _paired(
    law: Law, own: Sequence[Parameter], theory: Sequence[Parameter], series: str
) -> tuple[Fitted, ...]:
    if len(own) != len(theory):
        raise NotFitted(f"{len(theory)} parameters are predicted, and {len(own)} were fitted")
    names = [*law.names, *(p.name for p in own[len(law.names) :])]
    return tuple(
        Fitted(name, o.value, o.low, o.high, t.value, max(law.band, o.grid, t.grid), series)
        for name, o, t in zip(names, own, theory, strict=False)
    )


def _mean(name: str, logs: Sequence[float], halves: Sequence[float], freedom: int) -> Parameter:
    """Return exp of the mean of *logs* with its interval."""
    middle, n = statistics.fmean(logs), len(logs)
    scatter = statistics.pstdev(logs, middle) * math.sqrt(n / freedom) if freedom > 0 else 0.0
    return _around(name, middle, scatter / math.sqrt(n), halves, freedom)


def _around(
    name: str, middle: float, error: float, halves: Sequence[float], freedom: int
) -> Parameter:
    """Return exp(*middle*) with the standard *error* of *freedom*, and the points' intervals."""
    own = math.sqrt(sum(h * h for h in halves)) / len(halves)
    half = math.hypot(student(freedom) * error, own) if freedom > 0 else HUGE
    half = min(half, HUGE)
    return Parameter(
        name, math.exp(middle), math.exp(middle - half), math.exp(min(middle + half, MOST))
    )


def _proportional(data: Sequence[Datum]) -> list[Parameter]:
    """Fit measured = slope × predicted."""
    logs = [math.log(d.y / d.predicted) for d in data]
    return [_mean("slope", logs, [d.half for d in data], len(data) - 1)]


def _plateaus(data: Sequence[Datum]) -> list[Parameter]:
    """Fit the height of each plateau of the prediction, then the edges between them."""
    groups: list[list[Datum]] = []
    for d in sorted(data, key=lambda d: d.x):
        same = groups and abs(d.predicted / groups[-1][0].predicted - 1) <= SAME_LEVEL
        groups[-1].append(d) if same else groups.append([d])
    flat = [group for group in groups if len(group) > 1]
    if not flat:
        raise NotFitted("no two neighbouring points have one predicted level")
    heights = [
        _mean(f"level {i + 1}", [math.log(d.y) for d in g], [d.half for d in g], len(g) - 1)
        for i, g in enumerate(flat)
    ]
    edges = []
    for i, (before, after) in enumerate(pairwise(flat)):
        level = math.sqrt(heights[i].value * heights[i + 1].value)
        inner = [d for d in data if before[0].x <= d.x <= after[-1].x]
        logs = [(d.x, math.log(d.y / level), d.half) for d in inner]
        edges.append(_crossing(f"edge {i + 1}", logs, stepped=True))
    return [*heights, *edges]


def _crossing(
    name: str, logs: Sequence[tuple[float, float, float]], stepped: bool = False
) -> Parameter:
    """Return the x at which the logarithm of (x, log, half interval) crosses 0.

    It is interpolated between two neighbours; a *stepped* curve may cross anywhere between them.
    """
    for (x0, y0, half0), (x1, y1, half1) in pairwise(sorted(logs)):
        if y0 * y1 <= 0 and y0 != y1 and x0 > 0:
            share, wide = y0 / (y0 - y1), math.log(x1 / x0)
            x = math.exp(math.log(x0) + share * wide)
            if stepped:
                return Parameter(name, x, x, x, math.sqrt(x1 / x0) - 1)
            half = min(HUGE, max(half0, half1) * wide / abs(y1 - y0))
            return Parameter(name, x, x * math.exp(-half), x * math.exp(half))
    raise NotFitted(f"the {name} is not within the points")


def _hinge(slope: float) -> Callable[[Sequence[Datum]], list[Parameter]]:
    """Return the fit of a level and a line of this *slope* on logarithms, which meet in a knee.

    With a slope of 1 the line is below the knee and rises to the level; −1 falls to it. The line of
    a floor (slope `inf`) is above the knee and rises from the level.
    """
    rises_after = slope == math.inf
    steep = 1.0 if rises_after else slope

    def fit(data: Sequence[Datum]) -> list[Parameter]:
        whole = sorted(data, key=lambda d: d.x)
        if whole[0].x <= 0:
            raise NotFitted("an x of 0 has no place on the law")
        predicted = [replace(d, y=d.predicted, low=d.predicted, high=d.predicted) for d in whole]
        knee = _best(predicted, steep, rises_after, FOLLOWED)[1].value
        clear = [d for d in whole if not knee / ROUND < d.x < knee * ROUND]
        try:
            return list(_best(clear, steep, rises_after))
        except NotFitted:
            return list(_best(whole, steep, rises_after))

    return fit


def _best(
    data: Sequence[Datum], slope: float, after: bool, most: float = HUGE
) -> tuple[Parameter, Parameter]:
    """Return level and knee of the split of *data* with the least squares.

    Raises: NotFitted where no split fits to *most*, the root mean square of the logarithms.
    """
    size = len(data)
    level_logs = [math.log(d.y) for d in data]
    xs = [math.log(d.x) for d in data]
    line_logs = [y - slope * x for x, y in zip(xs, level_logs, strict=True)]
    left, right = (level_logs, line_logs) if after else (line_logs, level_logs)
    best: tuple[float, float, float, int] | None = None
    for cut in range(2, size - 1):  # one point alone determines no part
        (low, low_error), (high, high_error) = _spread(left[:cut]), _spread(right[cut:])
        level, line = (low, high) if after else (high, low)
        knee, error = (level - line) / slope, low_error + high_error
        if (best is None or error < best[0]) and xs[cut - 2] <= knee <= xs[cut + 1]:
            best = (error, level, knee, cut if after else size - cut)
    if best is None or best[0] > most**2 * size:
        raise NotFitted("the knee is not within the points")
    error, level, knee, flat = best
    freedom, halves = size - 2, [d.half for d in data]
    sigma = math.sqrt(error / freedom) if freedom > 0 else 0.0
    both = sigma * math.sqrt(1 / flat + 1 / (size - flat))
    of_level = halves[:flat] if after else halves[-flat:]
    return (
        _around("level", level, sigma / math.sqrt(flat), of_level, freedom),
        _around("knee", knee, both, halves, freedom),
    )


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of *values* and the sum of their squared distances from it."""
    middle = sum(values) / len(values)
    return middle, sum((value - middle) ** 2 for value in values)


def _amortisation(data: Sequence[Datum]) -> list[Parameter]:
    """Fit x / y = cost + share · x, whose errors are fractions of x / y."""
    weights = [(d.y / d.x) ** 2 for d in data]
    total = sum(weights)
    x = sum(w * d.x for w, d in zip(weights, data, strict=True)) / total
    z = sum(w * d.x / d.y for w, d in zip(weights, data, strict=True)) / total
    spread = sum(w * (d.x - x) ** 2 for w, d in zip(weights, data, strict=True))
    if spread == 0:
        raise NotFitted("all points have one x")
    share = sum(w * (d.x - x) * d.x / d.y for w, d in zip(weights, data, strict=True)) / spread
    cost, freedom = z - share * x, len(data) - 2
    left = sum(
        w * (d.x / d.y - cost - share * d.x) ** 2 for w, d in zip(weights, data, strict=True)
    )
    own = math.sqrt(statistics.fmean(d.half**2 for d in data))
    sigma = math.hypot(student(freedom) * math.sqrt(left / freedom), own) if freedom else HUGE
    of_share = sigma / math.sqrt(spread)
    of_cost = sigma * math.sqrt(1 / total + x * x / spread)
    return [
        Parameter("cost", cost, cost - of_cost, cost + of_cost),
        Parameter("share", share, share - of_share, share + of_share),
    ]


def _crossover(law: Law, series: Mapping[str, Sequence[Datum]]) -> Parameter:
    """Return the x at which the two series `between` of the law are equal."""
    first, second = law.between if len(law.between) == 2 else (*list(series), "", "")[:2]
    if first not in series or second not in series:
        raise NotFitted(f"the series {first!r} and {second!r} were not both measured")
    others = {d.x: d for d in series[second]}
    logs = [
        (d.x, math.log(d.y / others[d.x].y), math.hypot(d.half, others[d.x].half))
        for d in series[first]
        if d.x in others
    ]
    return _crossing("crossover", logs)


FITS: Mapping[str, Callable[[Sequence[Datum]], list[Parameter]]] = {
    "proportional": _proportional,
    "plateaus": _plateaus,
    "saturation": _hinge(1.0),
    "floor": _hinge(math.inf),
    "inverse": _hinge(-1.0),
    "amortisation": _amortisation,
}
