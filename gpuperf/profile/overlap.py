"""Detect tensors that share elements in memory, so that bytes of views are not counted twice.

A view shares all of its elements with its base. Tensors q, k and v that are cut out of one
projection share its storage, and no elements with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuperf.model.aten import WIDTHS, Tensor
from gpuperf.units import itemsize

Axes = tuple[tuple[int, int], ...]  # stride and size, by stride


def overlap(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors share elements; if a place is unknown, whether they share storage.

    Tensors of equal sizes and strides at different offsets (as made by `chunk`) count as apart.
    """
    if one.storage != other.storage:
        return False
    a, b = one.place, other.place
    if a is None or b is None or a == b:
        return True
    if a[2:] == b[2:] or not one.size or not other.size:
        return False
    if a[2] != b[2]:
        return _crossing(_span(one, a), _span(other, b))
    # Tensors that consist of parts of rows share no elements if those parts are apart in a row.
    for stride in {at for at, _ in a[3]} & {at for at, _ in b[3]} | {0}:
        rows = [_within(a[1], a[3], stride), _within(b[1], b[3], stride)]
        if None not in rows and not _crossing(*rows):  # type: ignore[arg-type]
            return False
    return True


def _within(offset: int, axes: Axes, row: int) -> tuple[int, int] | None:
    """Return the first and last element of a tensor within each row of *row* elements.

    With *row* 0 they are those within the storage. None if the tensor crosses the end of a row, or
    lies at different places in different rows.
    """
    inner = [(at, n) for at, n in axes if at < row or not row]
    first = offset % row if row else offset
    last = first + sum((n - 1) * at for at, n in inner)
    outer = [at for at, _ in axes if row and at >= row]
    return (first, last) if not row or (last < row and not any(at % row for at in outer)) else None


def _span(tensor: Tensor, place: tuple[int, int, str, Axes]) -> tuple[int, int]:
    width = WIDTHS.get(tensor.dtype) or _itemsize(tensor.dtype)
    extent = sum((n - 1) * at for at, n in place[3])
    return place[1] * width, (place[1] + extent + 1) * width - 1


def _itemsize(dtype: str) -> int:
    try:
        return itemsize(dtype)
    except ValueError:
        return 1


def _crossing(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


class TensorSet:
    """A set of tensors, from which those that lie within another one are left out."""

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        self._by_storage: dict[int, list[Tensor]] = {}
        for tensor in tensors:
            self.add(tensor)

    def add(self, tensor: Tensor) -> None:
        """Add *tensor* in place of tensors that lie within it, unless it lies within another."""
        if self.covers(tensor):
            return
        own = self._by_storage.get(tensor.storage, ())
        left = [t for t in own if size_of(t) > size_of(tensor) or not overlap(t, tensor)]
        self._by_storage[tensor.storage] = [*left, tensor]

    def overlaps(self, tensor: Tensor) -> bool:
        """Return whether any tensor of the set shares elements with *tensor*."""
        return any(overlap(tensor, own) for own in self._by_storage.get(tensor.storage, ()))

    def covers(self, tensor: Tensor) -> bool:
        """Return whether *tensor* is in the set, or lies within a tensor of the set."""
        size = size_of(tensor)
        own = self._by_storage.get(tensor.storage, ())
        return any(size_of(t) >= size and overlap(tensor, t) for t in own)

    def without(self, other: TensorSet) -> TensorSet:
        """Return the tensors that *other* does not cover."""
        return TensorSet(tensor for tensor in self if not other.covers(tensor))

    @property
    def bytes(self) -> int:
        """Return the bytes of all tensors together."""
        return sum(map(size_of, self))

    def __or__(self, other: TensorSet) -> TensorSet:
        return TensorSet((*self, *other))

    def __iter__(self) -> Iterator[Tensor]:
        return (tensor for own in self._by_storage.values() for tensor in own)

    def __bool__(self) -> bool:
        return bool(self._by_storage)


def size_of(tensor: Tensor) -> int:
    """Return the bytes of *tensor*; 0 for an unknown dtype."""
    try:
        return tensor.bytes
    except ValueError:
        return 0
