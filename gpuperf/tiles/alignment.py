"""Compute the alignment of rows, and better sizes near one that is not aligned."""

from __future__ import annotations

from gpuperf.units import itemsize

HARD, GOOD = 16, 128  # bytes: the alignment that TMA and the widest loads need; a cache line
# Numbers of elements whose multiples are tried as better sizes: from 16 bytes of the widest dtype
# up to tiles of 256.
STEPS = (4, 8, 16, 32, 64, 128, 256)


def alignment_of(elements: int, dtype: str) -> int:
    """Return the largest power of two that divides the bytes of a row of *elements*, at most
    `GOOD`."""
    row = elements * itemsize(dtype)
    return min(GOOD, row & -row)


def nearby(elements: int) -> tuple[int, ...]:
    """Return *elements* and the next multiples of each of `STEPS`, in rising order, at least one of
    them above *elements*."""
    beyond = (elements // STEPS[-1] + 1) * STEPS[-1]
    return tuple(sorted({elements, beyond, *(-(-elements // step) * step for step in STEPS)}))
