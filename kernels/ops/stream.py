"""Copying a vector: y ← x with x, y (n,).

No FLOP; one tensor read and one written. What it reaches is the DRAM bandwidth that a program can
have, which is a tenth below the data sheet's.

- `torch`: `Tensor.copy_`, a device-to-device copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from gpuperf import Axis, Bytes, Cost, Implementation, Point, Workload
from gpuperf.units import itemsize

Make = Callable[[tuple[int, ...], str], torch.Tensor]
Inputs = Mapping[str, torch.Tensor]


def copy_torch(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
    """The copy by torch, into an output made once."""
    x = inputs["x"]
    y = torch.empty_like(x)
    return lambda: y.copy_(x)


def reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """The input itself."""
    return inputs["x"].double()


def make_inputs(point: Point, make: Make) -> Inputs:
    """x (n,)."""
    return {"x": make((point.n,), point.dtype)}


def cost(point: Point) -> Cost:
    """n elements read and n written."""
    count = point.n * itemsize(point.dtype)
    return Cost(bytes=(Bytes(read=count, written=count),))


COPY = Workload(
    name="copy",
    summary="vector copy y ← x",
    formula="0 FLOP; 2·n·s bytes",
    axes=(
        Axis("n", 2**26, "elements", main=True),
        Axis("dtype", "auto", "of x and y", choices=("fp32", "bf16", "fp16", "fp64", "int8")),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(Implementation("torch", copy_torch, "device-to-device copy by torch"),),
    narrow=lambda inputs, rows: {"x": inputs["x"][rows]},
)
