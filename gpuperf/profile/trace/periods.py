"""Detect where a sequence of kernels begins to repeat itself, and after how many.

A training loop without marks launches the same kernels in the same order, step by step, after
warm-up steps that differ. An interval that covers at least half of a sequence holds the middle; and
a repetition that holds a given place follows from two linear arrays: how far the names after that
place agree with the names after each other place, and how far the names before it do (M. G. Main
and R. J. Lorentz, J. Algorithms 5, 1984, and D. Gusfield's Z algorithm, 1997). The work is linear.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Column = NDArray[numpy.integer]


MOST = 1 / 2  # of the sequence that a repetition covers
LEAST = 1 / 4  # … where it repeats `MANY` times at least: one odd step in the middle halves it
MANY = 3
SHORTEST = 4  # names that a sequence must have


def periods(names: Sequence[int]) -> tuple[int, int] | None:
    """Return the first index of the steady part of *names*, and how many names repeat there.

    Returns None if no repetition covers enough of the sequence. The outermost of nested loops that
    runs twice or more covers most, and is taken. The first index need not be the first line of the
    loop's body.
    """
    import numpy

    ids = numpy.unique(numpy.asarray(names), return_inverse=True)[1].reshape(-1)
    count = len(ids)
    if count < SHORTEST:
        return None
    best = _covering(ids, count // 2, MOST * count, 2)
    if best is None:
        quarters = (count // 4, count // 2, 3 * count // 4)
        candidates = (_covering(ids, place, LEAST * count, MANY) for place in quarters)
        best = max(filter(None, candidates), default=None)
    return best and (best[2], -best[1])


def repeats(names: Sequence[int], first: int, length: int) -> int:
    """Count how often the *length* names from *first* on follow each other."""
    end = first + length
    while end < len(names) and names[end] == names[end - length]:
        end += 1
    return (end - first) // length


def _covering(ids: Column, place: int, least: float, many: int) -> tuple[int, int, int] | None:
    """Return the repetition that holds *place* and covers most: (names covered, −period, first).

    It covers at least *least* names in *many* rounds; of equals the shortest period is taken.
    """
    import numpy

    count = len(ids)
    ahead = _agreement(ids[place:], ids)
    back = _agreement(ids[:place][::-1], ids[::-1])[::-1]
    others = numpy.delete(numpy.arange(count + 1), place)
    period = numpy.abs(others - place)
    run = ahead[others] + back[others]
    rows = numpy.flatnonzero((run >= (many - 1) * period) & (run + period >= least))
    if not len(rows):
        return None
    best = rows[numpy.lexsort((period[rows], -(run + period)[rows]))[0]]
    first = min(place, int(others[best])) - int(back[others[best]])
    return int(run[best] + period[best]), -int(period[best]), first


def _agreement(start: Column, text: Column) -> Column:
    """Return how many names from each place of *text*, and its end, agree with *start*."""
    import numpy

    both = array("q", numpy.concatenate((start, [-1], text)).astype(numpy.int64).tobytes())
    return numpy.append(numpy.asarray(_z(both))[len(start) + 1 :], 0)


def _z(text: array[int]) -> array[int]:
    """Return for each place how many names from there agree with the start of *text*.

    This is the Z algorithm, which is linear.
    """
    count = len(text)
    agreeing = array("q", [0]) * count
    left = right = 0
    for i in range(1, count):
        n = min(right - i, agreeing[i - left]) if i < right else 0
        if i + n >= right:
            while i + n < count and text[n] == text[i + n]:
                n += 1
            left, right = i, i + n
        agreeing[i] = n
    return agreeing
