"""Detect where a sequence of kernel names begins to repeat itself, and with what period.

A training loop without marks launches the same kernels in the same order, step by step, after
warm-up steps that differ. A repetition that covers at least half of a sequence covers its middle,
and one that covers a given place follows from two linear arrays: how far the names after that
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


MOST = 1 / 2  # share of the sequence that a repetition of two rounds or more has to cover
LEAST = 1 / 4  # the same for `MANY` rounds or more: one odd step in the middle halves a repetition
MANY = 3
SHORTEST = 4  # names that a sequence must have


def periods(names: Sequence[int]) -> tuple[int, int] | None:
    """Return the index in *names* at which a repetition begins, and its period in names.

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
    """Return how often the *length* names from index *first* on occur in a row."""
    end = first + length
    while end < len(names) and names[end] == names[end - length]:
        end += 1
    return (end - first) // length


def _covering(ids: Column, place: int, least: float, many: int) -> tuple[int, int, int] | None:
    """Return the repetition around *place* that covers most: (names covered, −period, first index).

    It covers at least *least* names and *many* rounds, else None is returned; of equally long ones
    that with the shortest period is taken.
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
    """Return for each index of *text*, and for its end, how many names from there on equal the
    first ones of *start*."""
    import numpy

    both = array("q", numpy.concatenate((start, [-1], text)).astype(numpy.int64).tobytes())
    return numpy.append(numpy.asarray(_z(both))[len(start) + 1 :], 0)


def _z(text: array[int]) -> array[int]:
    """Return for each index how many names from there on equal the first ones of *text*.

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
