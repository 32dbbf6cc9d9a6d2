"""Copy a vector between memory of the host and the device: y (n,) ← x (n,).

- `h2d`, `d2h`: n·s bytes over the link, read on one side and written on the other.
- `h2d_d2h`: both at once, on two streams. Its result and its cost are those of `h2d`; the copy to
  the host is what runs beside it.

The implementation `torch` is `Tensor.copy_` with `non_blocking=True` and pinned memory. `pageable`
is `Tensor.copy_` with usual memory, which the driver copies to pinned memory first: the host waits,
so only --timer wall and events time it.
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


def pageable(x: torch.Tensor) -> torch.Tensor:
    """Allocate usual memory of the host, of the shape and dtype of *x*."""
    return torch.empty(x.shape, dtype=x.dtype)


def h2d(allocate: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Call]:
    """Return the build of the copy to the device of a host copy of x, in memory of *allocate*,
    which is renewed when x changes."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        x = inputs["x"]
        host, y, version = allocate(x), torch.empty_like(x), -1

        def call() -> torch.Tensor:
            nonlocal version
            if x._version != version:
                host.copy_(x)
                version = x._version
            return y.copy_(host, non_blocking=True)

        return call

    return build


def d2h(allocate: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Call]:
    """Return the build of the copy to memory of *allocate*, which is allocated once."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        x = inputs["x"]
        host = allocate(x)
        return lambda: host.copy_(x, non_blocking=True)

    return build


def both(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the copies in both directions at once, each on a stream of its own."""
    x = inputs["x"]
    to_device, to_host = (make(pinned)(inputs, point, options) for make in (h2d, d2h))
    side = torch.cuda.Stream(x.device)

    def call() -> torch.Tensor:
        main = torch.cuda.current_stream(x.device)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            to_host()
        y = to_device()
        main.wait_stream(side)
        return y

    return call


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
    Axis("gpu", 0, "index of the GPU, that of --device", minimum=0, optional=True),
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
    implementations=(
        Implementation("torch", h2d(pinned), "torch, Tensor.copy_", supports),
        Implementation("pageable", h2d(pageable), "torch, pageable memory", supports),
    ),
    standard=("torch",),
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
    implementations=(
        Implementation("torch", d2h(pinned), "torch, Tensor.copy_", supports),
        Implementation("pageable", d2h(pageable), "torch, pageable memory", supports),
    ),
    standard=("torch",),
    terms=lambda point: 1,
)

H2D_D2H = Workload(
    name="h2d_d2h",
    summary="h2d and d2h at once, in pinned memory",
    formula="n·s bytes over the link in each direction",
    axes=AXES,
    inputs=lambda point, make: {"x": make((point.n,), point.dtype)},
    reference=lambda inputs, point: inputs["x"].double(),
    cost=h2d_cost,
    prepared=lambda point: ("x",),
    implementations=(Implementation("torch", both, "torch, Tensor.copy_, two streams", supports),),
    terms=lambda point: 1,
)
