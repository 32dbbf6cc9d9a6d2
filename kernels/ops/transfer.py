"""Copy a vector between pinned memory of the host and the device: y (n,) ← x (n,).

- `h2d`, `d2h`: n·s bytes over the link, read on one side and written on the other.

The implementation `torch` is `Tensor.copy_` with `non_blocking=True`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from gpuperf import Axis, Bytes, Cost, Implementation, Point, Workload
from gpuperf.units import itemsize

Make = Callable[[tuple[int, ...], str], torch.Tensor]
Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]


def supports(point: Point, device: Any) -> str | None:
    """Return why there is no link to copy over, or None where there is one."""
    return "a CPU has no link to itself" if device.kind == "cpu" else None


def pinned(x: torch.Tensor) -> torch.Tensor:
    """Allocate pinned memory of the host, of the shape and dtype of *x*."""
    return torch.empty(x.shape, dtype=x.dtype, pin_memory=True)


def h2d_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the copy to the device of a host copy of x, which is renewed when x changes."""
    x = inputs["x"]
    host, y, version = pinned(x), torch.empty_like(x), -1

    def call() -> torch.Tensor:
        nonlocal version
        if x._version != version:
            host.copy_(x)
            version = x._version
        return y.copy_(host, non_blocking=True)

    return call


def d2h_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the copy to pinned memory that is allocated once."""
    x = inputs["x"]
    host = pinned(x)
    return lambda: host.copy_(x, non_blocking=True)


def h2d_cost(point: Point) -> Cost:
    """Return the cost: n elements are read over the link and written to DRAM."""
    size = point.n * itemsize(point.dtype)
    return Cost(bytes=(Bytes(0, size), Bytes(size, 0, channel="host")))


def d2h_cost(point: Point) -> Cost:
    """Return the cost: n elements are read from DRAM and written over the link."""
    size = point.n * itemsize(point.dtype)
    return Cost(bytes=(Bytes(size, 0), Bytes(0, size, channel="host")))


AXES = (
    Axis("n", 2**26, "elements", main=True),
    Axis("dtype", "fp32", "dtype of x and y", choices=("fp32", "bf16")),
)

H2D = Workload(
    name="h2d",
    summary="host to device, from pinned memory",
    formula="n·s bytes over the link",
    axes=AXES,
    inputs=lambda point, make: {"x": make((point.n,), point.dtype)},
    reference=lambda inputs, point: inputs["x"].double(),
    cost=h2d_cost,
    prepared=lambda point: ("x",),  # h2d_torch holds a copy of it
    implementations=(Implementation("torch", h2d_torch, "torch, Tensor.copy_", supports),),
    terms=lambda point: 1,
)

D2H = Workload(
    name="d2h",
    summary="device to host, into pinned memory",
    formula="n·s bytes over the link",
    axes=AXES,
    inputs=lambda point, make: {"x": make((point.n,), point.dtype)},
    reference=lambda inputs, point: inputs["x"].double(),
    cost=d2h_cost,
    on_host=True,
    implementations=(Implementation("torch", d2h_torch, "torch, Tensor.copy_", supports),),
    terms=lambda point: 1,
)
