"""Refuse results of which a part was not computed.

An error is compared with the size of all values of its row at least, as roundings of sums are. So
rows or columns of a thousandth of that size could be left out, where the task has such: against
their own size they are off by all of it, while the reference is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.pieces import as_rows, pieces

LOST = 0.5  # of a part's root mean square: the error with which it says nothing
KNOWN = 0.05  # the most that the reference is off there
LEAST = 16  # elements of a part
# Parts are not judged whose size is under this share of the tolerance of all: other algorithms,
# such as convolutions by FFT, have errors there.
FINEST = 1 / 16


def refuse_lost_parts(
    got: torch.Tensor, want: torch.Tensor, known: tuple[torch.Tensor, ...], allowed: float
) -> None:
    """Compare each row, column and other slice of *got* with *want* by its own size.

    All have one shape. *known* are results whose errors are granted: the reference's own, and that
    of inputs that are off by some roundings. *allowed* is the tolerance, relative to the size of
    all values. Raises: WrongResult.
    """
    if got.dim() < 2 or not got.numel() or any(torch.equal(got, each) for each in known):
        return
    got, known = got.to(want.device), tuple(each.to(want.device) for each in known)
    errors, sizes = _squares(got, want), _squares(want, None)
    granted = [_squares(each, want) for each in known]
    mean = float(sizes[0].sum()) / want.numel()
    every = zip(_slices(want.shape, *errors), _slices(want.shape, *sizes), strict=True)
    others = [[part for _, part in _slices(want.shape, *each)] for each in granted]
    for number, ((name, error), (_, size)) in enumerate(every):
        lost = error > LOST**2 * size
        lost &= size > (FINEST * allowed) ** 2 * mean * (want.numel() / len(size))
        for other in others:
            lost &= other[number] < KNOWN**2 * size
        if lost.any():
            index = int(lost.nonzero()[0].item())
            off = math.sqrt(float(error[index]) / float(size[index]))
            raise WrongResult(f"is off by {off:.3g} of the size of {name} {index} alone")


def _squares(one: torch.Tensor, other: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums of the squared differences of each row, and of each column; those that are
    infinite or NaN count as zeros."""
    first, second = as_rows(one), None if other is None else as_rows(other)
    rows, columns = (
        torch.zeros(size, dtype=torch.float64, device=one.device) for size in first.shape
    )
    for place in pieces(*first.shape):
        off = first[place].double()
        if second is not None:
            off = off - second[place].double()
        off = off.nan_to_num(0.0, 0.0, 0.0).square_()
        rows[place[0]] += off.sum(-1)
        columns[place[1]] += off.sum(0)
    return rows, columns


def _slices(
    shape: torch.Size, rows: torch.Tensor, columns: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the sums of each kind of slices of a tensor of *shape*, by its name, from those of its
    *rows* and *columns*."""
    if shape[-1] >= LEAST:
        yield "row", rows
    if len(rows) >= LEAST:
        yield "column", columns
    leading = rows.reshape(shape[:-1])
    for axis, length in enumerate(shape[:-1] if len(shape) > 2 else ()):
        if math.prod(shape) // max(1, length) >= LEAST:
            others = [other for other in range(leading.dim()) if other != axis]
            yield f"index of axis {axis}", leading.sum(others)
