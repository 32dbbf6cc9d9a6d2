"""Compute softmax over the rows of x (m, n): y (m, n) = exp(x − max x) / Σ exp(x − max x).

The cost is m·n special functions and 4·m·n FLOP (maximum, difference, sum, quotient); x is read
once and y written once. A row whose elements are all −inf gives NaN, as in torch. The gradient is
dx = y·(dy − Σ y·dy), 4·m·n FLOP: y and dy are read, dx is written.

- `eager`: five kernels of torch (maximum, difference, exp, sum, quotient); 5 reads, 3 writes.
- `safe`: a Triton kernel that reads a row for its maximum, its sum and its quotients; 3 reads,
  1 write.
- `online`: a Triton kernel that computes maximum and sum together, and rescales the sum when the
  maximum rises (Milakov and Gimelshein, arXiv 1805.02867); 2 reads, 1 write.
- `fused`: a Triton kernel that holds a row in registers, or reads rows of 4 to 32 Ki elements in
  pieces, and again from the L1; 1 read, 1 write.
- `cuda`: a CUDA C kernel for long rows, which a cluster of blocks shares; 1 read, 1 write.
- `torch`: `torch.softmax`.
- `compile`: the eager function under torch.compile.

The work of `safe` and `online` counts all reads of their loops. While the rows that are computed at
a time fit the L2 together, the later reads hit it, and only 1 read and 1 write go through DRAM: on
an H200, up to rows of about 512 KiB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from gpuperf.kernels._modes import MODE, Backward, by_mode, by_torch, of_mode
from gpuperf.kernels._rows import holds_rows
from gpuperf.kernels._rows_cuda import (
    BACKWARD,
    FORWARD,
    compile_shapes,
    shapes,
    softmax_backward_call,
    softmax_call,
    supports,
)
from gpuperf.kernels._softmax_triton import (
    fused,
    softmax_backward_kernel,
    softmax_fused_kernel,
    softmax_online_kernel,
    softmax_safe_kernel,
)

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.jit import Tuned, compiled, lacks_compiler, lacks_triton, triton, tune
from gpuperf.units import itemsize

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]

STREAMED = 4096  # elements of a row that `safe` and `online` load at a time


def eager(x: torch.Tensor) -> torch.Tensor:
    """Return y (m, n) of x (m, n), operation by operation."""
    shifted = x - x.amax(1, keepdim=True)
    exponential = torch.exp(shifted)
    return exponential / exponential.sum(1, keepdim=True)


def softmax_eager(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the five torch operations, and four more for the gradient."""

    def forward() -> tuple[torch.Tensor, Backward]:
        y = eager(inputs["x"])
        return y, lambda dy: (y * (dy - (y * dy).sum(1, keepdim=True)),)

    call: Call = by_mode(mode_of(point), inputs, forward, lambda: eager(inputs["x"]))
    return call


def softmax_streamed(kernel: Any) -> Callable[[Inputs, Point, object], Call]:
    """Return the build of a *kernel* that reads its row several times."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        x = inputs["x"]
        y = x.new_empty(x.shape)
        block = min(STREAMED, triton.next_power_of_2(point.n))
        warps = 8 if block > 2048 else 4

        def call() -> torch.Tensor:
            kernel[(point.m,)](x, y, point.n, x.stride(0), BLOCK=block, num_warps=warps)
            return y

        return call

    return build


def softmax_fused(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the fused kernels of the mode, each with its fastest tiling."""
    forward = fused("softmax", softmax_fused_kernel, inputs["x"])
    backward = partial(fused, "softmax_backward", softmax_backward_kernel)
    return tuned_softmax(inputs, point, forward, backward)


def softmax_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the CUDA C kernels of the mode, each with its fastest clusters."""
    x, n = inputs["x"], point.n
    y, dx = x.new_empty(x.shape), x.new_empty(x.shape)
    prepare = partial(compile_shapes, "softmax.cu", x, {})
    forward = tune(partial(softmax_call, x, y), list(shapes(FORWARD, n, 1, 0)), prepare)

    def backward(y: torch.Tensor, dy: torch.Tensor) -> Tuned:
        tried = list(shapes(BACKWARD, n, 2, 0))
        return tune(partial(softmax_backward_call, y, dy, dx), tried, prepare)

    return tuned_softmax(inputs, point, forward, backward)


def tuned_softmax(
    inputs: Inputs, point: Point, forward: Tuned, backward_of: Callable[..., Tuned]
) -> Call:
    """Return the call of the mode of *point*; `backward_of(y, dy)` builds the gradient."""
    mode = mode_of(point)
    if mode == "fwd":
        return forward
    backward = backward_of(forward(), inputs["dy"])

    def both() -> tuple[torch.Tensor, Backward]:
        return forward(), lambda dy: (backward(),)  # which reads inputs["dy"]

    chosen = {f"backward_{name}": value for name, value in backward.chosen.items()}
    if mode == "fwd+bwd":
        chosen |= forward.chosen
    return Tuned(by_mode(mode, inputs, both, forward), chosen)


def softmax_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """Build `torch.softmax` over the rows, with autograd's gradient."""
    call: Call = by_torch(mode_of(point), lambda x: torch.softmax(x, 1), inputs, ["x"])
    return call


def softmax_compile(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the eager function under torch.compile, compiled for this size.

    A gradient is that of `torch.softmax`: autograd of eager has one for the maximum too.
    """
    mode = mode_of(point)
    function = compiled(eager if mode == "fwd" else lambda x: torch.softmax(x, 1))
    call: Call = by_torch(mode, function, inputs, ["x"])
    call()
    return call


def mode_of(point: Point) -> str:
    """Return the mode; points of a forward lack it."""
    return str(point.get("mode", "fwd"))


def streams(point: Point, device: Any) -> str | None:
    """Return why a kernel that reads its row several times cannot run, or None where it can."""
    return "has no gradient" if mode_of(point) != "fwd" else lacks_triton(point, device)


def make_inputs(point: Point, make: Callable[..., torch.Tensor]) -> Inputs:
    """Draw x and, for a gradient, dy, both (m, n)."""
    names = ("x",) if mode_of(point) == "fwd" else ("x", "dy")
    return {name: make((point.m, point.n), point.dtype) for name in names}


def reference(inputs: Inputs, point: Point) -> Any:
    """Compute the formula, and that of its gradient, in float64."""
    x, mode = inputs["x"].double(), mode_of(point)
    exponential = (x - x.amax(1, keepdim=True)).exp()
    y = exponential / exponential.sum(1, keepdim=True)
    if mode == "fwd":
        return y
    dy = inputs["dy"].double()
    dx = y * (dy - (y * dy).sum(1, keepdim=True))
    return dx if mode == "bwd" else (y, dx)


def sizes(inputs: Inputs, point: Point) -> tuple[torch.Tensor | None, ...]:
    """Return the sizes of the addends of dx, y·dy and y·Σ y·dy, which cancel.

    They err by the rounding of y, which each gradient reads. Torch's on a GPU rounds y·dy too.
    """
    mode = mode_of(point)
    if mode == "fwd":
        return (None,)
    y, dy = torch.softmax(inputs["x"].double(), 1), inputs["dy"].double().abs()
    terms = y * (dy + (y * dy).sum(1, keepdim=True))
    return (terms,) if mode == "bwd" else (None, terms)


def flops(point: Point) -> tuple[Flops, ...]:
    """Return the FLOPs of an element: four operations and an exponential forward, four backward."""
    mode, count = mode_of(point), point.m * point.n
    operations = Flops(of_mode(mode, 4, 4) * count, "elementwise", point.dtype, "fp32")
    if mode == "bwd":
        return (operations,)
    return (operations, Flops(count, "special", point.dtype, function="exp"))


def cost(point: Point) -> Cost:
    """Return the cost: x and dy are read once, y and dx are written once."""
    mode, size = mode_of(point), point.m * point.n * itemsize(point.dtype)
    read = size if mode == "fwd" else 2 * size
    return Cost(flops(point), (Bytes(read, of_mode(mode, size, size)),))


def passes(read: int, written: int, backward: tuple[int, int] = (0, 0)) -> Callable[[Point], Work]:
    """Return the work of the tensors (m, n) that a forward and a backward read and write."""

    def work(point: Point) -> Work:
        mode, size = mode_of(point), point.m * point.n * itemsize(point.dtype)
        reads, writes = of_mode(mode, read, backward[0]), of_mode(mode, written, backward[1])
        return Work(flops(point), (Bytes(reads * size, writes * size),))

    return work


SOFTMAX = Workload(
    name="softmax",
    summary="softmax over rows and its gradient",
    formula="fwd m·n special functions + 4·m·n FLOP, 2·m·n·s bytes; bwd 4·m·n FLOP, 3·m·n·s bytes",
    axes=(
        Axis("m", 8192, "rows"),
        Axis("n", 4096, "columns", main=True),
        replace(MODE, optional=True),
        Axis("dtype", "auto", "dtype of x and y", choices=("fp32", "bf16", "fp16")),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        # A difference of up to 8, rounded to the dtype of x, is an error of 8 roundoffs in the
        # exponential; exponential, sum and quotient add theirs, and product and difference
        # in a gradient. The others compute in fp32, but for what `sizes` says of gradients.
        Implementation(
            "eager",
            softmax_eager,
            "torch, five kernels",
            work=passes(5, 3, (6, 3)),
            roundings=lambda point: 2,
        ),
        Implementation(
            "safe",
            softmax_streamed(softmax_safe_kernel),
            "Triton, reads the row three times",
            streams,
            passes(3, 1),
        ),
        Implementation(
            "online",
            softmax_streamed(softmax_online_kernel),
            "Triton, reads the row twice",
            streams,
            passes(2, 1),
        ),
        Implementation(
            "fused",
            softmax_fused,
            "Triton, rows in registers or in the L1, tuned",
            holds_rows,
            passes(1, 1, (2, 1)),
        ),
        Implementation(
            "cuda",
            softmax_cuda,
            "CUDA C, a cluster of blocks for a row, tuned",
            supports,
            passes(1, 1, (2, 1)),
        ),
        Implementation("torch", softmax_torch, "torch.softmax"),
        Implementation("compile", softmax_compile, "torch.compile of eager", lacks_compiler),
    ),
    narrow=lambda inputs, rows: {name: value[rows] for name, value in inputs.items()},
    terms=lambda point: point.n,
    sizes=sizes,
    draws=lambda point: ("offset", "extreme") if mode_of(point) == "fwd" else (),
    prepared=lambda point: ("x",) if mode_of(point) == "bwd" else (),
)
