"""Find the points at which a series of times changes to another level, other than by chance.

A change point is a step that chance, a straight drift and the correlation of neighbours do not
explain. In windows of the whole length, half of it, a quarter and so on, a straight line and a step
are fitted to the log times, with the step at every place that leaves `SIDE` points on either side.
The statistic of a window is the F of its greatest step, given the line, times (1 − φ) / (1 + φ),
where φ is the lag-1 correlation of the residuals; the statistic of a series is the rarest of all
windows. Its distribution without a step comes from permutations of the residuals of a straight line
through the whole series. Each permutation repeats the search through all windows and places, so p
includes the choice of the place. (A single step is clearest in the whole series; several steps, or
a short bump, are clearest in a window with one edge only.)

Assumptions. Without a step the points are a straight line and noise whose order is random.
Autocorrelated noise breaks this. The factor above, by which an AR(1) process increases the variance
of a mean, corrects most of it (permutations of a dependent series need a studentized statistic:
Romano and Tirlea, arXiv:2009.03170, 2020). With a lag-1 correlation of 0.3 a step is reported in 2
of 100 unchanged series, with 0.5 in 2 to 4, with 0.7 in 3 to 9; without any in 0.5. A bent drift
may look like a step too. Far outliers are pulled in first, so that one disturbed run hides nothing.
tests/model/test_changepoints.py measures these rates, and the rates of detection.

Multiplicity. A series is cut in two at its greatest step, and each part is tested again, only if
the whole has a change point. The first round takes half of `ALPHA`, and each further round half of
the rest, with the control of Benjamini and Hochberg over all parts of all series in a round. So if
nothing changed, any step is reported with probability ALPHA / 2 at most, and a share of ALPHA of
the reported ones is expected to be false. A part begins and ends where its neighbours' steps were
*estimated*, so its own test is approximate. The control assumes that cases of the same runs, which
vary together, are positively dependent.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ALPHA = 0.01
SIDE = 4  # least points of a level
LEAST = 12  # least points of a series; fewer have too few permutations for a small p
NARROWEST = 20  # points of the shortest window, unless the series has fewer
MOST_POINTS = 2000  # most points of a series that are searched, the last ones
OVERLAP = 4  # windows of one length that cover a point
MOST_PLACES = 100  # places of a step that are tried in a window; the best is refined
FIRST, MOST = 19, 199_999  # fewest and most permutations of a series
CLEAR = 4  # permutations beyond the statistic that end the search for a smaller p
BATCH = 30_000  # numbers permuted at a time
OUTER = 3.0  # interquartile ranges beyond the quartiles: Tukey's outer fence
SAME = 1e-9  # log times are equal within this rounding


@dataclass(frozen=True)
class ChangePoint:
    """A change of level from point *at* on: by the fraction *change* (above 0 is slower), with its
    95 % interval for a known place. `q` is `p` corrected for multiplicity."""

    at: int
    change: float
    low: float
    high: float
    p: float
    q: float


def find_change_points(
    series: Sequence[Sequence[float]], seed: int = 0
) -> list[tuple[ChangePoint, ...]]:
    """Return the change points of each of *series*, which are times > 0 in order. Multiplicity is
    controlled over all series together. Only the last `MOST_POINTS` of a series are searched."""
    if not any(len(times) >= LEAST for times in series):
        return [() for _ in series]
    import numpy
    from scipy.stats import false_discovery_control

    logs = [numpy.round(numpy.log(numpy.asarray(times, float)), 9) for times in series]
    cuts: list[dict[int, tuple[float, float]]] = [{} for _ in series]
    parts = [(i, max(0, len(log) - MOST_POINTS), len(log)) for i, log in enumerate(logs)]
    parts = [part for part in parts if part[2] >= LEAST]
    level = ALPHA / 2
    while parts:
        chosen = [logs[i][start:end] for i, start, end in parts]
        p_values = greatest_p(chosen, level, seed)
        q_values = false_discovery_control(p_values) * (ALPHA / level)
        halves: list[tuple[int, int, int]] = []
        for (i, start, end), values, p, q in zip(parts, chosen, p_values, q_values, strict=True):
            if q <= ALPHA:
                at = start + _place(values)
                cuts[i][at] = (p, float(q))
                halves += [(i, start, at), (i, at, end)]
        parts = [(i, start, end) for i, start, end in halves if end - start >= LEAST]
        level /= 2
    return [_change_points(values, places) for values, places in zip(logs, cuts, strict=True)]


def _change_points(values: Any, cuts: dict[int, tuple[float, float]]) -> tuple[ChangePoint, ...]:
    """Return the change points at *cuts*, each from the level before it to the one after it."""
    bounds = [0, *sorted(cuts), len(values)]
    points = []
    for before, at, after in zip(bounds, bounds[1:], bounds[2:], strict=False):
        change, low, high = _change(values[before:at], values[at:after])
        p, q = cuts[at]
        points.append(ChangePoint(at, math.expm1(change), math.expm1(low), math.expm1(high), p, q))
    return tuple(points)


def _change(before: Any, after: Any) -> tuple[float, float, float]:
    """Return by how much *after* is greater, with its 95 % interval: by Yuen's test, which trims a
    fifth on either side, or as a difference of medians if the remaining values are all equal."""
    import numpy
    from scipy.stats import ttest_ind

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # for values that are all equal
        test = ttest_ind(after, before, equal_var=False, trim=0.2)
        low, high = (float(end) for end in test.confidence_interval(0.95))
    if not math.isfinite(low + high):
        low = high = float(numpy.median(after) - numpy.median(before))
    return (low + high) / 2, low, high


def greatest_p(logs: Sequence[Any], level: float, seed: int = 0) -> list[float]:
    """Return p of the greatest step of each series of log times.

    Series whose statistic few permutations exceed get more permutations, until the least possible p
    suffices at *level* for all of these series together.
    """
    p_values = [1.0] * len(logs)
    left = list(range(len(logs)))
    resamples = FIRST
    while left:
        for length in sorted({len(logs[i]) for i in left}):
            alike = [i for i in left if len(logs[i]) == length]
            for i, p in zip(
                alike, _permuted([logs[i] for i in alike], resamples, seed), strict=True
            ):
                p_values[i] = float(p)
        left = [i for i in left if p_values[i] <= CLEAR / (resamples + 1)]
        enough = 2 * len(logs) / (level * len(left)) - 1 if left else 0
        if resamples >= min(enough, MOST):
            break
        resamples = min(10 * (resamples + 1) - 1, math.ceil(enough), MOST)
        seed += 1
    return p_values


def _permuted(alike: Sequence[Any], resamples: int, seed: int) -> Any:
    """Return p of each series of one length, by the same permutations of all."""
    import numpy
    from scipy.stats import permutation_test

    def rarest(values: Any, axis: int) -> Any:
        return _figures(values)[0].max(axis=-1)

    rest = _fenced(_straightened(numpy.array(alike)))
    return permutation_test(
        (rest,),
        rarest,
        permutation_type="pairings",
        vectorized=True,
        axis=-1,
        n_resamples=resamples,
        alternative="greater",
        random_state=seed,
        batch=max(1, BATCH // rest.size),
    ).pvalue


def _fenced(rest: Any) -> Any:
    """Return the residuals with outliers pulled in. The differences of neighbours give the size of
    the noise, since a step is in one of them only. If most are 0, nothing is pulled in."""
    import numpy

    low, high = numpy.quantile(rest, (0.25, 0.75), axis=-1, keepdims=True)
    first, third = numpy.quantile(numpy.diff(rest), (0.25, 0.75), axis=-1, keepdims=True)
    reach = numpy.where(third - first > SAME, OUTER * (third - first) / math.sqrt(2), numpy.inf)
    return numpy.clip(rest, low - reach, high + reach)


@functools.lru_cache(maxsize=64)
def _windows(count: int) -> tuple[tuple[int, Any], ...]:
    """Return each length of windows, with their starts."""
    import numpy

    windows = []
    length = count
    while length == count or length >= NARROWEST:
        last = count - length
        starts = numpy.unique([*range(0, last, max(1, length // OVERLAP)), last])
        windows.append((length, starts))
        length //= 2
    return tuple(windows)


def _figures(values: Any) -> tuple[Any, ...]:
    """Return, for series along the last axis and windows of each length, how rare the greatest step
    is (−ln p of Student's t, times the number of windows), and the start and end of its window;
    each (…, lengths). This only compares lengths; the permutations turn it into a p."""
    import numpy
    from scipy.special import stdtr

    sums = _running(values)
    figures, begins, ends = [], [], []
    for length, starts in _windows(values.shape[-1]):
        share, tried = _shares(sums, length, starts)
        window = share.argmax(axis=-1)[..., None]
        share, tried = (numpy.take_along_axis(v, window, -1) for v in (share, tried))
        begin = starts[window]
        part = values
        if len(starts) > 1:
            part = numpy.take_along_axis(values, begin + numpy.arange(length), -1)
        figure = share / (1 - share + SAME) * (length - 3) * _unlikeness(part, tried[..., 0])
        rare = stdtr(length - 3, -numpy.sqrt(figure)) * len(starts)
        figures.append(numpy.round(-numpy.log(numpy.maximum(rare, 1e-300)), 6))
        begins.append(begin)
        ends.append(begin + length)
    return tuple(numpy.concatenate(v, axis=-1) for v in (figures, begins, ends))


def _running(values: Any) -> tuple[Any, ...]:
    """Return the running sums of *values*, of values times index, and of squares, from 0 on."""
    import numpy

    index = numpy.arange(values.shape[-1])
    nothing = numpy.zeros((*values.shape[:-1], 1))
    each = (values, values * index, values**2)
    return tuple(numpy.concatenate((nothing, v.cumsum(axis=-1)), axis=-1) for v in each)


def _shares(
    running: tuple[Any, ...], length: int, starts: Any, most: int = MOST_PLACES
) -> tuple[Any, Any]:
    """Return the share of the residual sum of squares that the greatest step of each window
    explains, and which of the `_places` it has in the window; both (…, windows)."""
    import numpy

    whole, leaning, squared = (r[..., starts + length] - r[..., starts] for r in running)
    line = _slope(length)
    slope = (leaning - (starts + (length - 1) / 2) * whole) * (line[1] - line[0])
    total = squared - whole**2 / length - slope**2
    places = _places(length, most)
    expected, scale = _without_step(length, most)
    gains = running[0][..., starts[:, None] + places]
    gains -= numpy.stack((running[0][..., starts], whole, slope), axis=-1) @ expected
    gains *= gains
    gains *= scale
    best = gains.argmax(axis=-1)
    gain = numpy.take_along_axis(gains, best[..., None], -1)[..., 0]
    return numpy.clip(gain / (numpy.maximum(total, 0) + SAME**2), 0, 1), best


@functools.lru_cache(maxsize=64)
def _places(length: int, most: int) -> Any:
    """Return the places of a window at which steps are tried: all, or *most* even ones."""
    import numpy

    count = min(length - 2 * SIDE + 1, most)
    return numpy.unique(numpy.linspace(SIDE, length - SIDE, count).round().astype(int))


@functools.lru_cache(maxsize=64)
def _without_step(length: int, most: int) -> tuple[Any, Any]:
    """Return what the running sum before the window, the sum of the window and its slope each add
    to the running sum at each of the `_places` (3, places), and 1 / the sum of squares of a step
    there, after a line."""
    import numpy

    places = _places(length, most)
    along = numpy.cumsum(_slope(length))[places - 1]
    expected = numpy.stack((numpy.ones(len(places)), places / length, along))
    return expected, 1 / (places * (length - places) / length - along**2)


@functools.lru_cache(maxsize=16)
def _steps(length: int) -> Any:
    """Return a step at each of the `_places`, after a line, of norm 1: (places, length)."""
    import numpy

    steps = _straightened((numpy.arange(length) >= _places(length, MOST_PLACES)[:, None]) * 1.0)
    return steps / numpy.sqrt((steps**2).sum(axis=-1, keepdims=True))


def _unlikeness(part: Any, tried: Any) -> Any:
    """Return (1 − φ) / (1 + φ) of the residuals of *part* (…, n) after a line and a step at the
    place of number *tried* (…)."""
    import numpy

    rest = _straightened(part)
    step = _steps(part.shape[-1])[tried]
    step *= numpy.einsum("...i,...i", rest, step)[..., None]
    tiny = SAME * numpy.einsum("...i,...i", rest, rest) + SAME**2
    rest -= step
    likeness = numpy.einsum("...i,...i", rest[..., 1:], rest[..., :-1]) / (
        numpy.einsum("...i,...i", rest, rest) + tiny
    )
    return ((1 - likeness) / (1 + likeness))[..., None]


def _place(values: Any) -> int:
    """Return the place of the greatest step of one series, in the window where it is rarest."""
    import numpy

    rest = _fenced(_straightened(values))
    figures, begins, ends = _figures(rest)
    best = int(figures.argmax())
    begin, end = int(begins[best]), int(ends[best])
    whole = numpy.zeros(1, int)
    count = end - begin
    _, best = _shares(_running(rest[begin:end]), count, whole, count)
    return begin + int(_places(count, count)[best[0]])


def _straightened(values: Any) -> Any:
    """Return *values* (…, n) without their mean and their slope."""
    import numpy

    slope = _slope(values.shape[-1])
    straight = values - values.mean(axis=-1, keepdims=True)
    straight -= numpy.einsum("...i,i", straight, slope)[..., None] * slope
    return straight


@functools.lru_cache(maxsize=64)
def _slope(count: int) -> Any:
    """Return a straight line of *count* points with mean 0 and norm 1."""
    import numpy

    line = numpy.arange(count) - (count - 1) / 2
    return line / math.sqrt(float(line @ line))
