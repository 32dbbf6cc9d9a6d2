"""How are millions of events kept in little memory, and sorted?"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Column = NDArray[numpy.integer]


LONGEST_NAME = 2000  # characters; CUTLASS's kernels have over a thousand
MOST_NAMES = 500_000


class Table:
    """Rows of whole numbers, a column of 8 bytes each; the first two are start and end."""

    def __init__(self, columns: str) -> None:
        self._columns = tuple(array("q") for _ in columns.split())

    def add(self, *row: int) -> None:
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    @property
    def starts(self) -> array[int]:
        return self._columns[0]

    def columns(self, origin: int) -> list[Column]:
        """By start, the longer first; times are counted from *origin*. Each column is sorted and
        let go before the next, so that there are never two of all."""
        import numpy

        start, end = (numpy.asarray(column) for column in self._columns[:2])
        order = numpy.lexsort((-end, start))
        found: list[Column] = [start[order] - origin, end[order] - origin]
        del start, end
        rest = list(self._columns[2:])
        self._columns = ()
        while rest:
            found.append(numpy.asarray(rest.pop(0))[order])
        return found


class Names:
    """Texts, each kept once, legible and at most `LONGEST_NAME` long."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def index(self, name: str) -> int:
        found = self._index.get(name)
        if found is None:
            found = self._index.setdefault(legible(name), len(self._index))
            if len(self._index) > MOST_NAMES:
                raise ValueError(f"it has the last of over {MOST_NAMES:,} different names")
        return found

    def known(self) -> tuple[str, ...]:
        return tuple(self._index)


def legible(name: str) -> str:
    """*name* without what does not print, its middle left out where it is too long."""
    if len(name) > LONGEST_NAME:
        half = LONGEST_NAME // 2
        name = f"{name[:half]}…{name[1 - half :]}"
    return name if name.isprintable() else "".join(c for c in name if c.isprintable())


def launchers(activities: Column, runtime: Column) -> Column:
    """The index in *runtime* of what launched each activity, by the correlations of both; −1 where
    unknown. A call of the runtime and one of the driver below it may share a correlation: the
    first, which is the outer, is taken."""
    import numpy

    rows = numpy.flatnonzero(runtime > 0)
    rows = rows[numpy.argsort(runtime[rows], kind="stable")]
    if not len(rows):
        return numpy.full(len(activities), -1)
    place = numpy.searchsorted(runtime[rows], activities)
    found = rows[numpy.minimum(place, len(rows) - 1)]
    return numpy.where(runtime[found] == activities, found, -1)
