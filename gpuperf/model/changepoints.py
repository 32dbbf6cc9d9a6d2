"""Where did a series of times step to another level, and not by chance?

A step is what neither chance, nor a straight drift, nor the likeness of neighbours explains. In
windows of the whole length, half of it, a quarter, … a straight line and a step are fitted to the
log times, the step at every place that leaves `SIDE` points on either side. A window's figure is
the F of its greatest step, given the line, times (1 − φ) / (1 + φ), φ being the lag-1 correlation
of what is left over; the statistic is the rarest figure of all windows. Its distribution without a
step is found by permuting what a straight line leaves over of the whole, with the search through
all windows and places made anew for each permutation: so p is that of the search, not of the place
that it chose. (Of one step the whole series tells most; of several, or of a short bump, a window in
which there is one edge only.)

What that assumes. Without a step the points are a straight line and noise whose order tells
nothing. Noise that remembers breaks that; the factor above, which is what an AR(1) process adds to
the variance of a mean, mends most of it (that permutations of a dependent series need a
studentized statistic: Romano and Tirlea, arXiv:2009.03170, 2020). With a lag-1 correlation
of 0.3 a step is found in 2 of 100 unchanged series, with 0.5 in 2 to 4, with 0.7 in 3 to 9; without
any in 0.5. A drift that bends may look like a step too. Far outliers are drawn in first, so that
one disturbed run hides nothing. tests/model/test_changepoints.py has the rates, and what is found.

Multiplicity. A series is cut in two at its greatest step, and each part is tested again, only where
the whole was found to have a step. The first round takes half of `ALPHA`, each further one half of
what is left, with Benjamini and Hochberg's control over all parts of all series within a round: so
where nothing changed, any step at all is found with probability ALPHA / 2 at most, and of what is
found a share of ALPHA is expected to be false. A part begins and ends where its neighbours' steps
were *estimated*; that much its own test is approximate. BH takes cases of the same runs, which move
together, to be positively dependent.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

ALPHA = 0.01
SIDE = 4  # points that a level has at least
LEAST = 12  # points: of fewer, too few orders differ for any to be rare
NARROWEST = 20  # points of a window, unless the series has fewer
MOST_POINTS = 2000  # of a series, the last ones
OVERLAP = 4  # windows of one length that cover a point
MOST_PLACES = 100  # of a step in a window that are tried; the best one is refined
FIRST, MOST = 19, 199_999  # resamples
CLEAR = 4  # resamples beyond the statistic that end the search for a smaller p
BATCH = 30_000  # numbers permuted at a time
OUTER = 3.0  # quartile distances beyond the quartiles: Tukey's outer fence
SAME = 1e-9  # of a log time: rounding


@dataclass(frozen=True)
class ChangePoint:
    """From point *at* on the level is another: by *change* (a fraction; above 0 is slower), with a
    95 % interval as if the place had been known. `q` is `p` after multiplicity."""

    at: int
    change: float
    low: float
    high: float
    p: float
    q: float


def find_change_points(
    series: Sequence[Sequence[float]], seed: int = 0
) -> list[tuple[ChangePoint, ...]]:
    """The steps in each of *series*, which are times > 0 in order; all are judged together. Of a
    long one the last `MOST_POINTS` are searched."""
    if not any(len(times) >= LEAST for times in series):
        return [() for _ in series]
    import numpy
    from scipy.stats import false_discovery_control

    logs = [numpy.round(numpy.log(numpy.asarray(times, float)), 9) for times in series]
    cuts: list[dict[int, tuple[float, float]]] = [{} for _ in series]
    parts = [(i, max(0, len(own) - MOST_POINTS), len(own)) for i, own in enumerate(logs)]
    parts = [part for part in parts if part[2] >= LEAST]
    level = ALPHA / 2
    while parts:
        chosen = [logs[i][start:end] for i, start, end in parts]
        found = greatest_p(chosen, level, seed)
        judged = false_discovery_control(found) * (ALPHA / level)
        halves: list[tuple[int, int, int]] = []
        for (i, start, end), values, p, q in zip(parts, chosen, found, judged, strict=True):
            if q <= ALPHA:
                at = start + _place(values)
                cuts[i][at] = (p, float(q))
                halves += [(i, start, at), (i, at, end)]
        parts = [(i, start, end) for i, start, end in halves if end - start >= LEAST]
        level /= 2
    return [_measured(values, found) for values, found in zip(logs, cuts, strict=True)]


def _measured(values: Any, cuts: dict[int, tuple[float, float]]) -> tuple[ChangePoint, ...]:
    """The steps at *cuts*, each from the level before it to the one after."""
    bounds = [0, *sorted(cuts), len(values)]
    found = []
    for before, at, after in zip(bounds, bounds[1:], bounds[2:], strict=False):
        change, low, high = _change(values[before:at], values[at:after])
        p, q = cuts[at]
        found.append(ChangePoint(at, math.expm1(change), math.expm1(low), math.expm1(high), p, q))
    return tuple(found)


def _change(before: Any, after: Any) -> tuple[float, float, float]:
    """How much greater *after* is, and its 95 % interval: by Yuen's test, which leaves out the
    outermost fifths; a difference of medians where the rest does not scatter."""
    import numpy
    from scipy.stats import ttest_ind

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # values that agree to the digit
        told = ttest_ind(after, before, equal_var=False, trim=0.2)
        low, high = (float(end) for end in told.confidence_interval(0.95))
    if not math.isfinite(low + high):
        low = high = float(numpy.median(after) - numpy.median(before))
    return (low + high) / 2, low, high


def greatest_p(logs: Sequence[Any], level: float, seed: int = 0) -> list[float]:
    """Of each series of log times, p of its greatest step.

    Where few permutations came near it there are more of them, until the least p that there can be
    would be enough at *level* for all that are left together.
    """
    found = [1.0] * len(logs)
    left = list(range(len(logs)))
    resamples = FIRST
    while left:
        for length in sorted({len(logs[i]) for i in left}):
            alike = [i for i in left if len(logs[i]) == length]
            told = _permuted([logs[i] for i in alike], resamples, seed)
            for i, p in zip(alike, told, strict=True):
                found[i] = float(p)
        left = [i for i in left if found[i] <= CLEAR / (resamples + 1)]
        enough = 2 * len(logs) / (level * len(left)) - 1 if left else 0
        if resamples >= min(enough, MOST):
            break
        resamples = min(10 * (resamples + 1) - 1, math.ceil(enough), MOST)
        seed += 1
    return found


def _permuted(alike: Sequence[Any], resamples: int, seed: int) -> Any:
    """p of series of one length, by the same permutations of each."""
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
    """What a straight line leaves over, outliers drawn in. How far noise reaches, neighbours tell
    by their differences: a step is in one of these only. Where most agree, nothing is drawn in."""
    import numpy

    low, high = numpy.quantile(rest, (0.25, 0.75), axis=-1, keepdims=True)
    first, third = numpy.quantile(numpy.diff(rest), (0.25, 0.75), axis=-1, keepdims=True)
    reach = numpy.where(third - first > SAME, OUTER * (third - first) / math.sqrt(2), numpy.inf)
    return numpy.clip(rest, low - reach, high + reach)


def _windows(count: int) -> Iterator[tuple[int, Any]]:
    """Lengths, and where windows of each begin."""
    import numpy

    length = count
    while length == count or length >= NARROWEST:
        last = count - length
        yield length, numpy.unique([*range(0, last, max(1, length // OVERLAP)), last])
        length //= 2


def _figures(values: Any) -> tuple[Any, ...]:
    """Of series along the last axis, for windows of each length how rare the greatest step in any
    is (−ln p of Student's t, times the number of windows), and where that one begins and ends; each
    (…, lengths). The permutation makes a p of it: this is only what lengths are compared by."""
    import numpy
    from scipy.special import stdtr

    sums = _running(values)
    figures, begins, ends = [], [], []
    for length, starts in _windows(values.shape[-1]):
        share, at = _shares(sums, length, starts)
        window = share.argmax(axis=-1)[..., None]
        share, at = (numpy.take_along_axis(v, window, -1) for v in (share, at))
        begin = starts[window]
        part = numpy.take_along_axis(values, begin + numpy.arange(length), -1)
        figure = share / (1 - share + SAME) * (length - 3) * _unlikeness(part, at)
        rare = stdtr(length - 3, -numpy.sqrt(figure)) * len(starts)
        figures.append(numpy.round(-numpy.log(numpy.maximum(rare, 1e-300)), 6))
        begins.append(begin)
        ends.append(begin + length)
    return tuple(numpy.concatenate(v, axis=-1) for v in (figures, begins, ends))


def _running(values: Any) -> tuple[Any, ...]:
    """Sums of *values*, of them times their index, and of their squares, before each of them and
    after the last."""
    import numpy

    index = numpy.arange(values.shape[-1])
    nothing = numpy.zeros((*values.shape[:-1], 1))
    each = (values, values * index, values**2)
    return tuple(numpy.concatenate((nothing, v.cumsum(axis=-1)), axis=-1) for v in each)


def _shares(
    running: tuple[Any, ...], length: int, starts: Any, most: int = MOST_PLACES
) -> tuple[Any, Any]:
    """Of each window, how much of what a straight line leaves over, as a fraction of its sum of
    squares, the greatest step takes; and its place in the window; both (…, windows)."""
    import numpy

    whole, leaning, squared = (r[..., starts + length] - r[..., starts] for r in running)
    line = _slope(length)
    slope = (leaning - (starts + (length - 1) / 2) * whole) * (line[1] - line[0])
    total = squared - whole**2 / length - slope**2
    places = _places(length, most)
    gains = running[0][..., starts[:, None] + places]
    gains -= running[0][..., starts, None]
    gains -= (whole / length)[..., None] * places
    along = numpy.cumsum(line)[places - 1]
    gains -= slope[..., None] * along
    gains *= gains
    gains /= places * (length - places) / length - along**2  # the step's own, after a line
    best = gains.argmax(axis=-1)
    gain = numpy.take_along_axis(gains, best[..., None], -1)[..., 0]
    return numpy.clip(gain / (numpy.maximum(total, 0) + SAME**2), 0, 1), places[best]


def _places(length: int, most: int) -> Any:
    """Where steps are sought in a window: everywhere, or evenly."""
    import numpy

    count = min(length - 2 * SIDE + 1, most)
    return numpy.unique(numpy.linspace(SIDE, length - SIDE, count).round().astype(int))


def _unlikeness(part: Any, at: Any) -> Any:
    """(1 − φ) / (1 + φ) of what a straight line and a step at *at* leave over of *part* (…, n)."""
    import numpy

    rest = _straightened(part)
    step = _straightened((numpy.arange(part.shape[-1]) >= at) * 1.0)
    height = (rest * step).sum(axis=-1) / (step**2).sum(axis=-1)
    over = rest - height[..., None] * step
    tiny = SAME * (rest**2).sum(axis=-1) + SAME**2
    likeness = (over[..., 1:] * over[..., :-1]).sum(axis=-1) / ((over**2).sum(axis=-1) + tiny)
    return ((1 - likeness) / (1 + likeness))[..., None]


def _place(values: Any) -> int:
    """Where the greatest step of one series is: in the window that tells most, the best place."""
    import numpy

    rest = _fenced(_straightened(values))
    figures, begins, ends = _figures(rest)
    best = int(figures.argmax())
    begin, end = int(begins[best]), int(ends[best])
    whole = numpy.zeros(1, int)
    _, at = _shares(_running(rest[begin:end]), end - begin, whole, end - begin)
    return begin + int(at[0])


def _straightened(values: Any) -> Any:
    """*values* (…, n) without their mean and their slope."""
    import numpy

    slope = _slope(values.shape[-1])
    centred = values - values.mean(axis=-1, keepdims=True)
    return centred - numpy.einsum("...i,i", centred, slope)[..., None] * slope


@functools.lru_cache(maxsize=64)
def _slope(count: int) -> Any:
    """A straight line of *count* points without a mean, of length 1."""
    import numpy

    line = numpy.arange(count) - (count - 1) / 2
    return line / math.sqrt(float(line @ line))
