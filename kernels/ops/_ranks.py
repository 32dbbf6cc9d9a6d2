"""Draw the arrays of the ranks of a collective, and compute what each rank gets, by a formula.

Rank r holds r + 1 plus a pseudo-random number from 0 to 7, drawn from one seed for all ranks. The
sums of up to 16 ranks are below 256, and so exact in bf16, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from gpuperf import Point
from gpuperf.units import itemsize

Inputs = Mapping[str, torch.Tensor]

MIX, VALUES = 40503, 8  # a multiplier that mixes neighbouring indexes (Knuth), and numbers drawn
PIECE = 2**24  # elements drawn at once


def elements(point: Point) -> int:
    """Return the number of elements of the whole array."""
    return int(point.bytes // itemsize(point.dtype))


def part(point: Point) -> int:
    """Return the number of elements of one rank's part."""
    return elements(point) // int(point.world)


def drawn(shift: torch.Tensor, begin: int, count: int) -> torch.Tensor:
    """Return *count* pseudo-random numbers from 0 to 7 (float64), from index *begin* on; all ranks
    draw the same from one *shift* (1,)."""
    index = torch.arange(begin, begin + count, device=shift.device)
    return (((index + shift) * MIX >> 9) % VALUES).double()


def inputs_of(length: Callable[[Point], int]) -> Callable[[Point, Any], Inputs]:
    """Return the `inputs` of a workload whose ranks hold *length* elements each."""

    def inputs(point: Point, make: Any) -> Inputs:
        shift, count = make((1,), "int64", high=2**31), length(point)
        x = torch.empty_like(make((count,), point.dtype))
        for begin in range(0, count, PIECE):
            piece = x[begin : begin + PIECE]
            piece.copy_(own(shift, dist.get_rank(), begin, len(piece)))
        return {"x": x, "shift": shift}

    return inputs


def gathered_inputs(point: Point, make: Any) -> Inputs:
    """Return the part of this rank; in place, it is a part of the whole array."""
    if point.in_place == "no":
        return inputs_of(part)(point, make)
    rank, count = dist.get_rank(), part(point)
    whole = inputs_of(elements)(point, make)
    place = whole["x"][rank * count : (rank + 1) * count]
    place.copy_(own(whole["shift"], rank, 0, count))
    return whole


def own(shift: torch.Tensor, rank: int, begin: int, count: int) -> torch.Tensor:
    """Return the elements of *rank* from index *begin* on, in float64."""
    return drawn(shift, begin, count) + (rank + 1)


def combined(values: torch.Tensor, point: Point) -> torch.Tensor:
    """Return the reduction over all ranks of the numbers *values* plus each rank's own."""
    world = int(point.world)
    if point.operation == "sum":
        return values * world + world * (world + 1) // 2
    if point.operation == "avg":
        return values + (world + 1) / 2
    return values + (world if point.operation == "max" else 1)


def all_reduced(inputs: Inputs, point: Point) -> torch.Tensor:
    """Return the reduction of all arrays."""
    return combined(drawn(inputs["shift"], 0, elements(point)), point)


def scattered(inputs: Inputs, point: Point) -> torch.Tensor:
    """Return this rank's part of the reduction."""
    count = part(point)
    return combined(drawn(inputs["shift"], dist.get_rank() * count, count), point)


def gathered(inputs: Inputs, point: Point) -> torch.Tensor:
    """Return the parts of all ranks in their order."""
    count = part(point)
    return torch.cat([own(inputs["shift"], r, 0, count) for r in range(point.world)])


def exchanged(inputs: Inputs, point: Point) -> torch.Tensor:
    """Return the part of every rank's array that is for this rank."""
    count, rank = part(point), dist.get_rank()
    parts = [own(inputs["shift"], r, rank * count, count) for r in range(point.world)]
    return torch.cat(parts)


def from_root(inputs: Inputs, point: Point) -> torch.Tensor:
    """Return the root's array."""
    return own(inputs["shift"], int(point.root), 0, elements(point))


def reduced(inputs: Inputs, point: Point) -> torch.Tensor:
    """Return the reduction on the root; the others get nothing."""
    whole = all_reduced(inputs, point)
    return whole if dist.get_rank() == point.root else whole[:0]


def received(inputs: Inputs, point: Point) -> torch.Tensor:
    """Return the array of the rank before."""
    return own(inputs["shift"], (dist.get_rank() - 1) % int(point.world), 0, elements(point))
