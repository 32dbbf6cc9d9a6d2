"""sin²x + cos²x of a vector: y (n,) from x (n,), which is 1 everywhere, the long way round.

2 special functions and 3 FLOP an element; x read once and y written once: 2 tensor passes.

- `eager`: five kernels of torch (sin, cos, two squares, a sum); 11 tensor passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.units import itemsize

Make = Callable[[tuple[int, ...], str], torch.Tensor]
Inputs = Mapping[str, torch.Tensor]


def sincos_eager(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
    """Operation by operation."""
    x = inputs["x"]

    def call() -> torch.Tensor:
        sine, cosine = torch.sin(x), torch.cos(x)
        return sine * sine + cosine * cosine

    return call


def reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """The same in float64."""
    x = inputs["x"].double()
    return x.sin().square() + x.cos().square()


def flops(point: Point) -> tuple[Flops, ...]:
    """Two special functions, two products and a sum an element."""
    return (
        Flops(2 * point.n, "special", point.dtype),
        Flops(3 * point.n, "elementwise", point.dtype),
    )


def cost(point: Point) -> Cost:
    """One pass in, one out."""
    size = point.n * itemsize(point.dtype)
    return Cost(flops(point), (Bytes(size, size),))


def eager_work(point: Point) -> Work:
    """sin and cos 2 passes each, the squares 2 each, the sum 3."""
    size = point.n * itemsize(point.dtype)
    return Work(flops(point), (Bytes(6 * size, 5 * size),))


SINCOS = Workload(
    name="sincos",
    summary="sin²x + cos²x of a vector",
    formula="2·n special functions + 3·n FLOP; 2·n·s bytes",
    axes=(
        Axis("n", 2**26, "elements", main=True),
        Axis("dtype", "auto", "of x and y", choices=("fp32", "bf16", "fp16", "fp64")),
    ),
    inputs=lambda point, make: {"x": make((point.n,), point.dtype)},
    reference=reference,
    cost=cost,
    implementations=(
        Implementation("eager", sincos_eager, "five kernels of torch", work=eager_work),
    ),
    narrow=lambda inputs, rows: {"x": inputs["x"][rows]},
    terms=lambda point: 4,
)
