"""Keep millions of events in little memory, as sorted columns of numbers."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Column = NDArray[numpy.integer]


LONGEST_NAME = 2000  # characters; CUTLASS's kernels have over a thousand
MOST_NAMES = 500_000


class EventColumns:
    """Events as rows of integers, 8 bytes a column; the first two columns are start and end."""

    def __init__(self, columns: str) -> None:
        self._columns = tuple(array("q") for _ in columns.split())

    def add(self, *row: int) -> None:
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    @property
    def starts(self) -> array[int]:
        return self._columns[0]

    def columns(self, origin: int) -> list[Column]:
        """Return the columns sorted by start (of equals, the longest event first), with times in
        nanoseconds since *origin*.

        Each column is released before the next one is sorted, to halve the peak of memory.
        """
        import numpy

        start, end = (numpy.asarray(column) for column in self._columns[:2])
        order = numpy.lexsort((-end, start))
        columns: list[Column] = [start[order] - origin, end[order] - origin]
        del start, end
        rest = list(self._columns[2:])
        self._columns = ()
        while rest:
            columns.append(numpy.asarray(rest.pop(0))[order])
        return columns


class Names:
    """A list of different texts, each printable and at most `LONGEST_NAME` long."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def index(self, name: str) -> int:
        """Return the index of *name*, added if new. Raises: ValueError for too many names."""
        place = self._index.get(name)
        if place is None:
            place = self._index.setdefault(legible(name), len(self._index))
            if len(self._index) > MOST_NAMES:
                raise ValueError(f"it has the last of over {MOST_NAMES:,} different names")
        return place

    def texts(self) -> tuple[str, ...]:
        return tuple(self._index)


def legible(name: str) -> str:
    """Return *name* without unprintable characters, and without the middle if it is too long."""
    if len(name) > LONGEST_NAME:
        half = LONGEST_NAME // 2
        name = f"{name[:half]}…{name[1 - half :]}"
    return name if name.isprintable() else "".join(c for c in name if c.isprintable())


def launchers(activities: Column, runtime: Column) -> Column:
    """Return the index in *runtime* of the call that launched each activity; −1 if unknown.

    Both are columns of correlations. A call of the runtime and the driver's call inside it may
    share one: the first, which is the outer, is taken.
    """
    import numpy

    rows = numpy.flatnonzero(runtime > 0)
    rows = rows[numpy.argsort(runtime[rows], kind="stable")]
    if not len(rows):
        return numpy.full(len(activities), -1)
    place = numpy.searchsorted(runtime[rows], activities)
    matches = rows[numpy.minimum(place, len(rows) - 1)]
    return numpy.where(runtime[matches] == activities, matches, -1)
