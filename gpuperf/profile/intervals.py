"""Compute unions, intersections and differences of sets of time intervals.

A set consists of disjoint half-open intervals of whole nanoseconds, in order, none of them empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Column = NDArray[numpy.integer]


@dataclass(frozen=True, eq=False)
class IntervalSet:
    """A set of disjoint intervals [start, end), as two columns of nanoseconds."""

    start: Column
    end: Column

    @classmethod
    def of(cls, start: Column, end: Column) -> IntervalSet:
        """Return the union of the intervals [start, end), which may overlap, in any order."""
        import numpy

        real = end > start
        order = numpy.argsort(start[real], kind="stable")
        start, end = start[real][order], numpy.maximum.accumulate(end[real][order])
        # A new interval begins where one starts after all before it have ended.
        new = numpy.ones(len(start), bool)
        new[1:] = start[1:] > end[:-1]
        last = numpy.ones(len(start), bool)
        last[:-1] = new[1:]
        return cls(start[new], end[last])

    @classmethod
    def of_windows(cls, windows: Iterable[tuple[int, int]]) -> IntervalSet:
        """Return the union of *windows*, pairs of start and end."""
        import numpy

        pairs = numpy.array(list(windows), numpy.int64).reshape(-1, 2)
        return cls.of(pairs[:, 0], pairs[:, 1])

    @property
    def length(self) -> int:
        """Return the nanoseconds of all intervals together."""
        return int((self.end - self.start).sum())

    def contains(self, moments: Column) -> NDArray[numpy.bool_]:
        """Return which of *moments* lie in an interval of the set."""
        import numpy

        if not len(self.start):
            return numpy.zeros(len(moments), bool)
        place = numpy.searchsorted(self.start, moments, "right") - 1
        return (place >= 0) & (moments < self.end[place])

    def __and__(self, other: IntervalSet) -> IntervalSet:
        return self._where(other, True)

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        return self._where(other, False)

    def __or__(self, other: IntervalSet) -> IntervalSet:
        import numpy

        return IntervalSet.of(
            numpy.concatenate((self.start, other.start)), numpy.concatenate((self.end, other.end))
        )

    def _where(self, other: IntervalSet, inside: bool) -> IntervalSet:
        import numpy

        # Between two neighbouring edges a set contains either every moment or none.
        edges = numpy.unique(numpy.concatenate((self.start, self.end, other.start, other.end)))
        left, right = edges[:-1], edges[1:]
        kept = self.contains(left) & (other.contains(left) == inside)
        return IntervalSet.of(left[kept], right[kept])
