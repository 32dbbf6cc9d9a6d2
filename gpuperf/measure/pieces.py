"""Compare large tensors in float64 by pieces, as a result of gigabytes has no room for copies.

A tensor is taken as a matrix whose rows are along its last axis. A piece is some whole rows, or
part of one row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

PIECE = 2**25  # elements: 256 MB in float64, of which a comparison holds a handful at a time


def is_large(tensor: torch.Tensor) -> bool:
    """Return whether *tensor* has more elements than one piece."""
    return int(tensor.numel()) > PIECE


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return *tensor* as a matrix of rows along its last axis."""
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1)


def pieces(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Yield the pieces of a matrix of so many *rows* and *columns*."""
    height, width = max(1, PIECE // max(1, columns)), min(max(1, columns), PIECE)
    for top in range(0, rows, height):
        for left in range(0, columns, width):
            yield slice(top, min(rows, top + height)), slice(left, min(columns, left + width))


def parts(tensor: torch.Tensor) -> Iterator[slice]:
    """Yield slices along the first axis of *tensor*, of about a piece each; of a scalar none."""
    if tensor.dim() and tensor.numel():
        height = max(1, PIECE * len(tensor) // tensor.numel())
        for top in range(0, len(tensor), height):
            yield slice(top, top + height)


def pairs(
    first: torch.Tensor, second: torch.Tensor
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """Yield the rows of each piece of two tensors of one shape, and both pieces in float64."""
    if not first.numel():
        return
    one, other = as_rows(first), as_rows(second)
    for rows, columns in pieces(*one.shape):
        yield rows, one[rows, columns].double(), other[rows, columns].double()


def row_errors(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the largest difference of each row, in float64, in a shape that broadcasts to that of
    the tensors; where both are infinite or NaN it is 0."""
    if not first.dim() or not first.numel():
        return _off(first.double(), second.double()).nan_to_num_(0.0, posinf=0.0)
    count = first.numel() // first.shape[-1]
    largest = torch.zeros(count, dtype=torch.float64, device=first.device)
    for rows, one, other in pairs(first, second):
        off = _off(one, other).nan_to_num_(0.0, posinf=0.0)
        largest[rows] = largest[rows].maximum(off.amax(-1))
    return largest.reshape(*first.shape[:-1], 1)


def row_sizes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of each row, at least that of all rows, in float64, in a shape
    that broadcasts to that of *tensor*; elements that are infinite or NaN count as zeros."""
    count, width = math.prod(tensor.shape[:-1]), tensor.shape[-1] if tensor.dim() else 1
    squares = torch.zeros(count, dtype=torch.float64, device=tensor.device)
    for rows, values, _ in pairs(tensor, tensor):
        squares[rows] += values.nan_to_num(0.0, 0.0, 0.0).square_().sum(-1)
    least = squares.sum() / max(1, tensor.numel())
    sizes = (squares / max(1, width)).maximum(least).clamp_min_(1e-300).sqrt_()
    return sizes.reshape(*tensor.shape[:-1], 1) if tensor.dim() else sizes.reshape(())


def largest_error(first: torch.Tensor, second: torch.Tensor) -> float:
    """Return the largest difference of two tensors of one shape; where one is NaN it is 0."""
    return max(
        (float(_off(a, b).nan_to_num_().max()) for _, a, b in pairs(first, second)), default=0.0
    )


def mean_square(tensor: torch.Tensor) -> float:
    """Return the mean square of the elements that are no NaN; 0.0 if there is none."""
    parts = [
        (a[known := ~a.isnan()].square().sum(), known.sum()) for _, a, _ in pairs(tensor, tensor)
    ]
    count = float(sum(known for _, known in parts))
    return float(sum(total for total, _ in parts)) / count if count else 0.0


def _off(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one - other).abs_()
