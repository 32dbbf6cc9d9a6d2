"""Where does a sequence of kernels begin to repeat itself, and after how many?

A training loop without marks launches the same kernels in the same order, step by step, after
warm-up steps that differ. An interval that covers at least half of a sequence holds the middle; and
for a repetition that holds a place, two linear arrays tell everything: how far the text from the
place on agrees with the text from each other place on, and how far back (the step of M. G. Main and
R. J. Lorentz, J. Algorithms 5, 1984, and D. Gusfield's Z algorithm, 1997). So the work is linear.
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
SHORTEST = 4  # names: of fewer nothing can be said


def periods(names: Sequence[int]) -> tuple[int, int] | None:
    """The first index of the steady part of *names*, and how many names repeat there; None where
    nothing repeats over enough of it.

    Of nested loops it is the outermost one that runs twice or more: it covers most. The first index
    need not be where the loop's body begins in its source.
    """
    import numpy

    ids = numpy.unique(numpy.asarray(names), return_inverse=True)[1].reshape(-1)
    count = len(ids)
    if count < SHORTEST:
        return None
    found = _covering(ids, count // 2, MOST * count, 2)
    if found is None:
        quarters = (count // 4, count // 2, 3 * count // 4)
        tried = [_covering(ids, place, LEAST * count, MANY) for place in quarters]
        found = max((one for one in tried if one is not None), default=None)
    return found and (found[2], -found[1])


def repeats(names: Sequence[int], first: int, length: int) -> int:
    """How often the *length* names from *first* on stand there one after another."""
    end = first + length
    while end < len(names) and names[end] == names[end - length]:
        end += 1
    return (end - first) // length


def _covering(ids: Column, place: int, least: float, many: int) -> tuple[int, int, int] | None:
    """Of the repetitions that hold *place* and cover *least* names in *many* rounds, the one that
    covers most, of equals that of the shortest period: what it covers, −period, where it begins."""
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
    """For each place of *text*, its end too, how many names from there on are those of *start*."""
    import numpy

    both = array("q", numpy.concatenate((start, [-1], text)).astype(numpy.int64).tobytes())
    return numpy.append(numpy.asarray(_z(both))[len(start) + 1 :], 0)


def _z(text: array[int]) -> array[int]:
    """At each place, how many names from there on are those that *text* begins with: the Z
    algorithm, which never looks at a name twice where it knows the answer."""
    count = len(text)
    found = array("q", [0]) * count
    left = right = 0
    for i in range(1, count):
        n = min(right - i, found[i - left]) if i < right else 0
        if i + n >= right:
            while i + n < count and text[n] == text[i + n]:
                n += 1
            left, right = i, i + n
        found[i] = n
    return found
