"""Arithmetic on registers, and next to no memory: what the vector and special-function units do.

- `fma`      y ← y·½ + 1, `repeats` times: 2 FLOP an element and step
- `special`  y ← sin(y + π/2 − 1) or exp(−y), `repeats` times: one special function a step

- `torch`: of special functions on a CPU, torch's own on a tensor that stays in the caches.
- `cuda`: ours, four independent chains a thread.
- `cuda_fast`: the same with the intrinsics `__sinf` and `__expf`, which are the hardware's own
  approximations: the roof over any kernel that calls such functions.
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
    """A tensor of which each thread's part stays in its cache."""
    return None if device.kind == "cpu" else "a GPU would move the tensor each time"


def supports(point: Point, device: Any) -> str | None:
    """CUDA C."""
    return None if device.kind == "cuda" else "CUDA C needs an NVIDIA GPU"


def chain(name: str, inputs: Inputs, point: Point, *factors: float) -> Call:
    """The kernel *name* on rows of four elements, a thread each."""
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
    """Fused multiply-adds."""
    return chain("fma_chain", inputs, point, 0.5, 1.0)


def special_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """torch's sine or exponential, and the sum or the sign before it."""
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
    """`sinf` or `expf`, right to the last bits."""
    return chain(f"{point.function}_chain", inputs, point)


def special_fast(inputs: Inputs, point: Point, options: object) -> Call:
    """`__sinf` or `__expf`."""
    return chain(f"{point.function}_fast_chain", inputs, point)


def fma_reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """The chain in closed form: 2 + (x − 2)/2^repeats."""
    return 2 + (inputs["x"].double() - 2) * 0.5**point.repeats


def special_reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """The chain, step by step."""
    y = inputs["x"].double()
    for _ in range(point.repeats):
        y = torch.sin(y + SHIFT) if point.function == "sin" else torch.exp(-y)
    return y


def cost(kind: Any, each: int) -> Callable[[Point], Cost]:
    """*each* operations of *kind* an element and step; one tensor read and one written."""

    def of(point: Point) -> Cost:
        elements = 4 * point.n
        size = elements * itemsize(point.dtype)
        function = point.function if kind == "special" else ""
        flops = Flops(each * point.repeats * elements, kind, point.dtype, function=function)
        return Cost((flops,), (Bytes(size, size),))

    return of


ROWS = Axis("n", 2**19, "rows of four elements", main=True)
FP32 = Axis("dtype", "fp32", "of x", choices=("fp32",))

FMA = Workload(
    name="fma",
    summary="a chain of fused multiply-adds on each element",
    formula="2·repeats·4·n FLOP; 2·4·n·s bytes",
    axes=(ROWS, Axis("repeats", 2048, "links of the chain"), FP32),
    inputs=lambda point, make: {"x": make((point.n, 4), point.dtype)},
    reference=fma_reference,
    cost=cost("elementwise", 2),
    implementations=(Implementation("cuda", fma_cuda, "four chains a thread", supports),),
    narrow=lambda inputs, rows: {"x": inputs["x"][rows]},
    terms=lambda point: point.repeats,
)

SPECIAL = Workload(
    name="special",
    summary="a chain of sines or exponentials on each element",
    formula="repeats·4·n special functions; 2·4·n·s bytes",
    axes=(
        ROWS,
        Axis("repeats", 128, "links of the chain"),
        Axis("function", "sin", "of each link", choices=("sin", "exp")),
        FP32,
    ),
    inputs=lambda point, make: {"x": make((point.n, 4), point.dtype)},
    reference=special_reference,
    cost=cost("special", 1),
    implementations=(
        Implementation("cuda", special_cuda, "sinf, expf", supports),
        Implementation(
            "cuda_fast", special_fast, "__sinf, __expf", supports, computes="approximations"
        ),
        Implementation("torch", special_torch, "torch's, in the caches of a CPU", is_cpu),
    ),
    narrow=lambda inputs, rows: {"x": inputs["x"][rows]},
    terms=lambda point: 16 * point.repeats,
)
