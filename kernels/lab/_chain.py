"""Multiply a tensor by k factors in turn: k operators, each a kernel of its own, or all in one.

The factors are 1.25 and 0.8, by turns. No compiler merges two of them: floating-point products are
not associative. The tensor is four times the L2, so that each pass goes through memory.
- `eager`: k operators of torch, 2·k passes.
- `cuda_apart`: k launches of one CUDA C kernel: the same passes without torch.
- `compile`: torch.compile, one kernel, 2 passes.
- `cuda`: one CUDA C kernel with 16 bytes for each thread, 2 passes, until the products take longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from gpuperf.lab_experiments._cuda import cuda_call, lacks_cuda

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.jit import compiled, lacks_compiler
from gpuperf.theory.fusion import apart

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]
Supports = Callable[[Point, Any], str | None]
FACTORS, THREADS, SIZE = (1.25, 0.8), 256, 4  # bytes of an element
MANY, MOST = 32, 2**20  # operators that run apart, and in one kernel

CUDA = """
__device__ void scale(float4& v, float c) { v.x *= c; v.y *= c; v.z *= c; v.w *= c; }
extern "C" __global__ void chain(
    const float4* x, float4* y, unsigned n, unsigned ops, float up, float down) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i];
#pragma unroll 8
    for (unsigned k = 0; k < ops / 2; ++k) { scale(v, up); scale(v, down); }
    if (ops % 2) scale(v, up);
    y[i] = v;
}
"""


def chain(x: torch.Tensor, ops: int) -> torch.Tensor:
    """Multiply *x* by *ops* factors, one operator each."""
    for k in range(ops):
        x = x * FACTORS[k % 2]
    return x


def chain_eager(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the chain by torch."""
    return lambda: chain(inputs["x"], point.ops)


def chain_compiled(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the chain by torch.compile."""
    function = compiled(chain)
    return lambda: function(inputs["x"], point.ops)


def chain_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the chain as one kernel."""
    return launch(inputs["x"], torch.empty_like(inputs["x"]), point.ops, *FACTORS)


def chain_apart(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the chain as a launch of the kernel for each operator."""
    x, y = inputs["x"], torch.empty_like(inputs["x"])
    calls = [launch(y if k else x, y, 1, FACTORS[k % 2], 1.0) for k in range(point.ops)]
    return lambda: [call() for call in calls][-1]


def launch(x: torch.Tensor, y: torch.Tensor, ops: int, up: float, down: float) -> Call:
    n = x.numel() // 4
    return cuda_call(CUDA, "chain", y, -(-n // THREADS), THREADS, x, y, n, ops, up, down)


def supports(point: Point, device: Any, most: int, needs: Supports) -> str | None:
    """Return why the point cannot run, or None."""
    if point.n % 4 or point.ops > most:
        return "takes multiples of 4 elements" if point.n % 4 else f"takes at most {most} operators"
    return needs(point, device)


FEW = partial(supports, most=MANY, needs=lambda point, device: None)
FEW_CUDA = partial(supports, most=MANY, needs=lacks_cuda)
FEW_COMPILED = partial(supports, most=MANY, needs=lacks_compiler)  # it splits long chains
ANY_CUDA = partial(supports, most=MOST, needs=lacks_cuda)


def moved(passes: Callable[[int], int], point: Point) -> Work:
    """Return the work of a chain with that many passes, half of them reads."""
    half = passes(point.ops) // 2 * SIZE * point.n
    return Work((Flops(point.ops * point.n, "elementwise", "fp32"),), (Bytes(half, half),))


APART, FUSED = partial(moved, apart), partial(moved, lambda ops: apart(1))

CHAIN = Workload(
    name="chain",
    summary="products of a tensor with k factors in turn",
    formula="k·n FLOP; 2·n·s bytes",
    axes=(
        Axis("ops", 8, "operators"),
        Axis("n", 2**26, "elements", main=True),
        Axis("dtype", "fp32", "dtype of the tensor", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((point.n,), point.dtype)},
    reference=lambda inputs, point: chain(inputs["x"].double(), point.ops),
    cost=lambda point: Cost(FUSED(point).flops, FUSED(point).bytes),
    implementations=(
        Implementation("eager", chain_eager, "torch, a kernel for each", FEW, APART),
        Implementation("cuda_apart", chain_apart, "CUDA C, a launch for each", FEW_CUDA, APART),
        Implementation("compile", chain_compiled, "torch.compile", FEW_COMPILED, FUSED),
        Implementation("cuda", chain_cuda, "CUDA C, one kernel", ANY_CUDA, FUSED),
    ),
    roundings=lambda point: point.ops,
)
