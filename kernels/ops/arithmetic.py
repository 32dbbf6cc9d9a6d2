"""Compute chains of operations on registers, which measure vector and special-function units.

- `fma`      y ← y·½ + 1, `repeats` times: 2 FLOP for each element and link
- `special`  y ← sin(y + π/2 − 1) or exp(−y), `repeats` times: one special function for each

x (n, 4) is read once and y (n, 4) written once. The implementations:

- `torch`: torch's sine or exponential, on a CPU, where the tensor stays in the caches.
- `cuda`: a CUDA C kernel with four independent chains in each thread.
- `cuda_fast`: the same kernel with the intrinsics `__sinf` and `__expf`, the approximations of the
  hardware; no kernel that calls such functions is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Workload
from gpuperf.nvrtc import F32, POINTER, U32, U64, kernels_of
from gpuperf.units import itemsize

Make = Callable[[tuple[int, ...], str], torch.Tensor]
Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]

THREADS = 256
SHIFT = 0.5707963  # π/2 − 1: sin(y + SHIFT) leads to 1
NAMES = ("fma_chain", "sin_chain", "exp_chain", "sin_fast_chain", "exp_fast_chain")


def is_cpu(point: Point, device: Any) -> str | None:
    """Return None on a CPU, and on a GPU why torch's chain would not measure its arithmetic."""
    return (
        None
        if device.kind == "cpu"
        else "runs on a CPU only: a GPU would move the tensor for each link"
    )


def supports(point: Point, device: Any) -> str | None:
    """Return why CUDA C cannot run on *device*, or None where it can."""
    return None if device.kind == "cuda" else "CUDA C needs an NVIDIA GPU"


def chain(name: str, inputs: Inputs, point: Point, *factors: float) -> Call:
    """Return the call of the kernel *name*, whose threads take a row of four elements each."""
    x = inputs["x"]
    y = torch.empty_like(x)
    major, minor = torch.cuda.get_device_capability(x.device)
    kernel = kernels_of("arithmetic.cu", f"sm_{major}{minor}", NAMES)[name]
    grid = -(-point.n // THREADS)

    def call() -> torch.Tensor:
        stream = torch.cuda.current_stream(x.device).cuda_stream
        args = (x.data_ptr(), y.data_ptr(), point.n, point.repeats, *factors)
        types = (POINTER, POINTER, U64, U32, *[F32] * len(factors))
        kernel.launch(stream, grid, THREADS, args, types)
        return y

    return call


def fma_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the chain of fused multiply-adds."""
    return chain("fma_chain", inputs, point, 0.5, 1.0)


def special_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the chain of torch's sines or exponentials, in place."""
    x, sine = inputs["x"], point.function == "sin"
    y = torch.empty_like(x)

    def call() -> torch.Tensor:
        y.copy_(x)
        for _ in range(point.repeats):
            if sine:
                torch.sin(y.add_(SHIFT), out=y)
            else:
                torch.exp(y.neg_(), out=y)
        return y

    return call


def special_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the chain of `sinf` or `expf`, which are accurate to the last bits."""
    return chain(f"{point.function}_chain", inputs, point)


def special_fast(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the chain of the intrinsics `__sinf` or `__expf`."""
    return chain(f"{point.function}_fast_chain", inputs, point)


def fma_reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """Compute the chain in closed form: 2 + (x − 2)/2^repeats."""
    return 2 + (inputs["x"].double() - 2) * 0.5**point.repeats


def special_reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """Compute the chain link by link in float64."""
    y = inputs["x"].double()
    for _ in range(point.repeats):
        y = torch.sin(y + SHIFT) if point.function == "sin" else torch.exp(-y)
    return y


def cost_of(kind: Any, count: int) -> Callable[[Point], Cost]:
    """Return the cost of *count* operations of *kind* for each element and link."""

    def cost(point: Point) -> Cost:
        elements = 4 * point.n
        size = elements * itemsize(point.dtype)
        function = point.function if kind == "special" else ""
        flops = Flops(count * point.repeats * elements, kind, point.dtype, function=function)
        return Cost((flops,), (Bytes(size, size),))

    return cost


ROWS = Axis("n", 2**19, "rows of four elements", main=True)
FP32 = Axis("dtype", "fp32", "dtype of x and y", choices=("fp32",))

FMA = Workload(
    name="fma",
    summary="chains of fused multiply-adds",
    formula="2·repeats·4·n FLOP; 2·4·n·s bytes",
    axes=(ROWS, Axis("repeats", 2048, "links of each chain"), FP32),
    inputs=lambda point, make: {"x": make((point.n, 4), point.dtype)},
    reference=fma_reference,
    cost=cost_of("elementwise", 2),
    implementations=(
        Implementation("cuda", fma_cuda, "CUDA C, four chains in each thread", supports),
    ),
    narrow=lambda inputs, rows: {"x": inputs["x"][rows]},
    terms=lambda point: point.repeats,
)

SPECIAL = Workload(
    name="special",
    summary="chains of sines or exponentials",
    formula="repeats·4·n special functions; 2·4·n·s bytes",
    axes=(
        ROWS,
        Axis("repeats", 128, "links of each chain"),
        Axis("function", "sin", "function of each link", choices=("sin", "exp")),
        FP32,
    ),
    inputs=lambda point, make: {"x": make((point.n, 4), point.dtype)},
    reference=special_reference,
    cost=cost_of("special", 1),
    implementations=(
        Implementation("cuda", special_cuda, "CUDA C with sinf or expf", supports),
        Implementation(
            "cuda_fast",
            special_fast,
            "CUDA C with the fast __sinf or __expf",
            supports,
            computes="approximations",
        ),
        Implementation(
            "torch", special_torch, "torch.sin or torch.exp, in the caches of a CPU", is_cpu
        ),
    ),
    narrow=lambda inputs, rows: {"x": inputs["x"][rows]},
    terms=lambda point: 16 * point.repeats,
)
