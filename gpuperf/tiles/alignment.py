"""Compute the alignment of rows, and better sizes near one that is not aligned."""

from __future__ import annotations

from gpuperf.units import itemsize

HARD, GOOD = 16, 128  # bytes
# Elements whose multiples are tried for a better size nearby: 16 bytes of the widest dtype and up,
# to tiles of 256.
STEPS = (4, 8, 16, 32, 64, 128, 256)


def alignment_of(elements: int, dtype: str) -> int:
    """The largest power of two that divides a row of *elements* in bytes, `GOOD` at most."""
    row = elements * itemsize(dtype)
    return min(GOOD, row & -row)


def nearby(elements: int) -> tuple[int, ...]:
    """*elements*, and the next sizes that are multiples of each of `STEPS`, rising; at least one
    beyond it."""
    beyond = (elements // STEPS[-1] + 1) * STEPS[-1]
    return tuple(sorted({elements, beyond, *(-(-elements // step) * step for step in STEPS)}))
