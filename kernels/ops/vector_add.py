"""Add vectors: c = a + b, all (n,); n FLOP, two vectors read, one written.

- `torch`: `torch.add` into an output that is allocated once.
- `triton`: a Triton kernel, tuned over the block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.kernels._blocks import in_blocks

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Workload
from gpuperf.jit import jit, lacks_triton, tl
from gpuperf.units import itemsize

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]


@jit
def add_kernel(c: tl.tensor, a: tl.tensor, b: tl.tensor, n: tl.tensor, BLOCK: tl.constexpr) -> None:
    """Add BLOCK elements in each program, in fp64 if c is fp64, else in fp32."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    left, right = tl.load(a + i, i < n), tl.load(b + i, i < n)
    if c.dtype.element_ty != tl.float64:
        left, right = left.to(tl.float32), right.to(tl.float32)
    tl.store(c + i, (left + right).to(c.dtype.element_ty), i < n)


def add_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the addition by torch."""
    a, b = inputs["a"], inputs["b"]
    c = torch.empty_like(a)
    return lambda: torch.add(a, b, out=c)


def add_triton(inputs: Inputs, point: Point, options: object) -> Any:
    """Build the addition by the Triton kernel with the fastest block."""
    a, b = inputs["a"], inputs["b"]
    return in_blocks(add_kernel, point.n, torch.empty_like(a), a, b)


def cost(point: Point) -> Cost:
    """Return the cost: n additions, two vectors read, one written."""
    size = point.n * itemsize(point.dtype)
    return Cost((Flops(point.n, "elementwise", point.dtype),), (Bytes(2 * size, size),))


ADD = Workload(
    name="vector_add",
    summary="vector addition c = a + b",
    formula="n FLOP; 3·n·s bytes",
    axes=(
        Axis("n", 2**26, "elements", main=True),
        Axis("dtype", "auto", "dtype of the vectors", choices=("fp32", "bf16", "fp16", "fp64")),
    ),
    inputs=lambda point, make: {name: make((point.n,), point.dtype) for name in "ab"},
    reference=lambda inputs, point: inputs["a"].double() + inputs["b"].double(),
    cost=cost,
    implementations=(
        Implementation("torch", add_torch, "torch, torch.add"),
        Implementation("triton", add_triton, "Triton, tuned blocks", lacks_triton),
    ),
    narrow=lambda inputs, rows: {name: inputs[name][rows] for name in "ab"},
    terms=lambda point: 1,
)
