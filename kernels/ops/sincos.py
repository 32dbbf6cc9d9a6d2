"""Compute y = sin²x + b·cos²x of a vector x (n,) and a number b in memory.

The cost is 2 special functions and 3 FLOP for each element, of the form b + (1 − b)·sin²x; x is
read once and y written once: 2 tensor passes. b is drawn like x, since with b = 1 the result would
be 1 whatever argument a kernel takes.

- `eager`: five kernels of torch (sin, cos, two squares, `addcmul`); 11 tensor passes.
- `graph`: the same kernels, launched together as a CUDA graph; they move as many bytes.
- `compile-reduce-overhead`: one kernel by torch.compile, in a CUDA graph that copies x into its own
  input first; 4 passes.
- `compile`: one kernel by torch.compile; 2 passes.
- `compile-max-autotune`: one kernel, chosen by torch.compile among several shapes of blocks.
- `triton`: a Triton kernel, tuned over the block.
- `cuda`: a CUDA C kernel for fp32, with 16 bytes for each thread.

Only `triton` imports its kernel (`_sincos_triton.py`), and with it Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.jit import compiled, lacks_compiler, lacks_triton, tune
from gpuperf.nvrtc import POINTER, U64, kernels_of
from gpuperf.units import itemsize

Make = Callable[[tuple[int, ...], str], torch.Tensor]
Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]

THREADS = tuple({"threads": threads} for threads in (128, 256, 512))
CANDIDATES = tuple(
    {"BLOCK": block, "warps": warps} for block, warps in ((1024, 4), (512, 4), (1024, 8), (2048, 8))
)


def sum_of_squares(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return sin²x + b·cos²x, operation by operation."""
    sine, cosine = torch.sin(x), torch.cos(x)
    return torch.addcmul(sine * sine, cosine * cosine, b)


def sincos_eager(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the five torch operations."""
    return lambda: sum_of_squares(inputs["x"], inputs["b"])


def sincos_graph(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the replay of the eager kernels, captured as a CUDA graph."""
    x, b = inputs["x"], inputs["b"]
    sum_of_squares(x, b)  # loads the kernels, which a capture does not allow
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = sum_of_squares(x, b)

    def call() -> torch.Tensor:
        graph.replay()
        return y

    return call


def sincos_compiled(mode: str) -> Callable[[Inputs, Point, object], Call]:
    """Return the build by torch.compile in *mode*."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        x, b = inputs["x"], inputs["b"]
        function = compiled(sum_of_squares, mode)
        for _ in range(3):  # compiles, warms up, and captures a graph in some modes
            function(x, b)
        return lambda: function(x, b)

    return build


def sincos_triton(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the Triton kernel with the fastest block."""
    from gpuperf.kernels._sincos_triton import sincos_kernel

    x, b = inputs["x"], inputs["b"]
    y = torch.empty_like(x)

    def make(tile: Mapping[str, int]) -> Call:
        block, warps = tile["BLOCK"], tile["warps"]
        grid = (-(-point.n // block),)

        def call() -> torch.Tensor:
            sincos_kernel[grid](x, b, y, point.n, BLOCK=block, num_warps=warps)
            return y

        return call

    return tune(make, CANDIDATES)


def sincos_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the CUDA C kernel with the fastest number of threads in a block."""
    x, b = inputs["x"], inputs["b"]
    y = torch.empty_like(x)
    properties = torch.cuda.get_device_properties(x.device)
    arch = f"sm_{properties.major}{properties.minor}"
    kernel = kernels_of("elementwise.cu", arch, ("sincos_vector",))["sincos_vector"]

    def make(block: Mapping[str, int]) -> Call:
        threads = block["threads"]
        grid = -(-point.n // (4 * threads))

        def call() -> torch.Tensor:
            stream = torch.cuda.current_stream(x.device).cuda_stream
            args = (x.data_ptr(), b.data_ptr(), y.data_ptr(), point.n)
            kernel.launch(stream, grid, threads, args, (POINTER, POINTER, POINTER, U64))
            return y

        return call

    return tune(make, THREADS)


def needs_cuda(point: Point, device: Any) -> str | None:
    """Return why CUDA graphs are not available, or None where they are."""
    return None if device.kind == "cuda" else "CUDA graphs need an NVIDIA GPU"


def needs_cuda_and_compiler(point: Point, device: Any) -> str | None:
    """Return why torch.compile with CUDA graphs is not available, or None where it is."""
    return needs_cuda(point, device) or lacks_compiler(point, device)


def cuda_supports(point: Point, device: Any) -> str | None:
    """Return why the CUDA C kernel cannot run the point, or None where it can."""
    if device.kind != "cuda":
        return "CUDA C needs an NVIDIA GPU"
    return None if point.dtype == "fp32" else "takes fp32 only"


def reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """Compute the formula in float64."""
    x = inputs["x"].double()
    return x.sin().square() + inputs["b"].double() * x.cos().square()


def flops(point: Point) -> tuple[Flops, ...]:
    """Return the FLOPs: two special functions, a square and a multiply-add for each element."""
    return (
        Flops(2 * point.n, "special", point.dtype, function="sin"),
        Flops(3 * point.n, "elementwise", point.dtype),
    )


def cost(point: Point) -> Cost:
    """Return the cost: x and b are read once, and y is written once."""
    size, number = point.n * itemsize(point.dtype), itemsize(point.dtype)
    return Cost(flops(point), (Bytes(size + number, size),))


def passes(read: int, written: int) -> Callable[[Point], Work]:
    """Return the work of *read* tensors (n,) read and *written* tensors written."""

    def work(point: Point) -> Work:
        size, number = point.n * itemsize(point.dtype), itemsize(point.dtype)
        return Work(flops(point), (Bytes(read * size + number, written * size),))

    return work


EAGER = passes(6, 5)  # sin, cos and the squares 2 passes each, addcmul 3
FUSED = passes(1, 1)

SINCOS = Workload(
    name="sincos",
    summary="sin²x + b·cos²x of a vector",
    formula="2·n special functions + 3·n FLOP; 2·n·s bytes",
    axes=(
        Axis("n", 2**26, "elements", main=True),
        Axis("dtype", "auto", "dtype of x and y", choices=("fp32", "bf16", "fp16", "fp64")),
    ),
    inputs=lambda point, make: {"x": make((point.n,), point.dtype), "b": make((1,), point.dtype)},
    reference=reference,
    cost=cost,
    implementations=(
        Implementation("eager", sincos_eager, "torch, five kernels", work=EAGER),
        Implementation(
            "graph", sincos_graph, "torch, five kernels in a CUDA graph", needs_cuda, EAGER
        ),
        Implementation(
            "compile-reduce-overhead",
            sincos_compiled("reduce-overhead"),
            "torch.compile with CUDA graphs",
            needs_cuda_and_compiler,
            passes(2, 2),
        ),
        Implementation(
            "compile",
            sincos_compiled("default"),
            "torch.compile, one kernel",
            lacks_compiler,
            FUSED,
        ),
        Implementation(
            "compile-max-autotune",
            sincos_compiled("max-autotune-no-cudagraphs"),
            "torch.compile, autotuned",
            lacks_compiler,
            FUSED,
        ),
        Implementation("triton", sincos_triton, "Triton, tuned blocks", lacks_triton, FUSED),
        Implementation(
            "cuda", sincos_cuda, "CUDA C, 16 bytes for each thread", cuda_supports, FUSED
        ),
    ),
    narrow=lambda inputs, rows: {**inputs, "x": inputs["x"][rows]},
    terms=lambda point: 4,
    version=2,
)
