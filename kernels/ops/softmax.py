"""Compute softmax over the rows of x (m, n): y (m, n) = exp(x − max x) / Σ exp(x − max x).

The cost is m·n special functions and 4·m·n FLOP (maximum, difference, sum, quotient); x is read
once and y written once. A row whose elements are all −inf gives NaN, as in torch.

- `eager`: five kernels of torch (maximum, difference, exp, sum, quotient); 5 reads, 3 writes.
- `safe`: a Triton kernel that reads a row for its maximum, its sum and its quotients; 3 reads,
  1 write.
- `online`: a Triton kernel that computes maximum and sum together, and rescales the sum when the
  maximum rises (Milakov and Gimelshein, arXiv 1805.02867); 2 reads, 1 write.
- `fused`: a Triton kernel that holds a row in registers; 1 read, 1 write.
- `torch`: `torch.softmax`.
- `compile`: the eager function under torch.compile.

The work of `safe` and `online` counts all reads of their loops. While the rows that are computed at
a time fit the L2 together, the later reads hit it, and only 1 read and 1 write go through DRAM: on
an H200, up to rows of about 512 KiB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.kernels._rows import holds_rows, launch_of, load_tile, programs, row_of, tilings

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.jit import compiled, jit, lacks_compiler, lacks_triton, tl, triton, tune
from gpuperf.units import itemsize

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]

STREAMED = 4096  # elements of a row that `safe` and `online` load at a time


@jit
def softmax_safe_kernel(
    x: tl.tensor, y: tl.tensor, n: tl.tensor, stride: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """Compute a row in each program: its maximum, then its sum, then its quotients."""
    x += tl.program_id(0).to(tl.int64) * stride
    y += tl.program_id(0).to(tl.int64) * n
    i = tl.arange(0, BLOCK)
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, n, BLOCK):
        value = tl.load(x + start + i, start + i < n, float("-inf")).to(tl.float32)
        most = tl.maximum(most, value)
    peak = tl.max(most, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        value = tl.load(x + start + i, start + i < n, float("-inf")).to(tl.float32)
        total += tl.exp(value - peak)
    scale = 1.0 / tl.sum(total, 0)
    for start in range(0, n, BLOCK):
        value = tl.load(x + start + i, start + i < n, float("-inf")).to(tl.float32)
        share = tl.exp(value - peak) * scale
        tl.store(y + start + i, share.to(y.dtype.element_ty), start + i < n)


@jit
def softmax_online_kernel(
    x: tl.tensor, y: tl.tensor, n: tl.tensor, stride: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """Compute a row in each program: maximum and sum together, then the quotients."""
    x += tl.program_id(0).to(tl.int64) * stride
    y += tl.program_id(0).to(tl.int64) * n
    i = tl.arange(0, BLOCK)
    # The lowest fp32, since −inf − (−inf) is NaN, and a row may begin with blocks of −inf.
    peak = tl.full((), -3.4028234e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        value = tl.load(x + start + i, start + i < n, float("-inf")).to(tl.float32)
        risen = tl.maximum(peak, tl.max(value, 0))
        total = total * tl.exp(peak - risen) + tl.exp(value - risen)
        peak = risen
    scale = 1.0 / tl.sum(total, 0)
    for start in range(0, n, BLOCK):
        value = tl.load(x + start + i, start + i < n, float("-inf")).to(tl.float32)
        share = tl.exp(value - peak) * scale
        tl.store(y + start + i, share.to(y.dtype.element_ty), start + i < n)


@jit
def softmax_fused_kernel(
    x: tl.tensor,
    y: tl.tensor,
    m: tl.tensor,
    n: tl.tensor,
    stride: tl.tensor,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
) -> None:
    """Compute tiles of ROWS whole rows; programs step through the tiles by their number.

    With AHEAD a program loads the next tile while it computes one. Rows beyond the last are row
    m − 1 again, which is written with the same values.
    """
    i = tl.arange(0, BLOCK)[None, :]
    first, step = tl.program_id(0), tl.num_programs(0)
    if AHEAD:
        coming = load_tile(x, first, m, n, stride, float("-inf"), ROWS, BLOCK)
    for tile in range(first, tl.cdiv(m, ROWS), step):
        if AHEAD:
            here = coming
            coming = load_tile(x, tile + step, m, n, stride, float("-inf"), ROWS, BLOCK)
        else:
            here = load_tile(x, tile, m, n, stride, float("-inf"), ROWS, BLOCK)
        value = here.to(tl.float32)
        share = tl.exp(value - tl.max(value, 1, keep_dims=True))
        share *= 1.0 / tl.sum(share, 1, keep_dims=True)
        tl.store(y + row_of(tile, m, ROWS) * n + i, share.to(y.dtype.element_ty), i < n)


def eager(x: torch.Tensor) -> torch.Tensor:
    """Return y (m, n) of x (m, n), operation by operation."""
    shifted = x - x.amax(1, keepdim=True)
    exponential = torch.exp(shifted)
    return exponential / exponential.sum(1, keepdim=True)


def softmax_eager(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the five torch operations."""
    return lambda: eager(inputs["x"])


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


def fused_call(x: torch.Tensor, y: torch.Tensor, tiling: Mapping[str, int]) -> Call:
    """Return the call of the fused kernel with *tiling*, from x to y, both (m, n)."""
    m, n = x.shape
    grid, launch = (programs(tiling, x),), launch_of(tiling, n)

    def call() -> torch.Tensor:
        softmax_fused_kernel[grid](x, y, m, n, x.stride(0), **launch)
        return y

    return call


def softmax_fused(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the fused kernel with the fastest tiling."""
    x = inputs["x"]
    y = x.new_empty(x.shape)
    return tune(lambda tiling: fused_call(x, y, tiling), tilings(point.n))


def softmax_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """Build `torch.softmax` over the rows."""
    return lambda: torch.softmax(inputs["x"], 1)


def softmax_compile(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the eager function under torch.compile, compiled for this size."""
    x, function = inputs["x"], compiled(eager)
    function(x)
    return lambda: function(x)


def reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """Compute the formula in float64."""
    x = inputs["x"].double()
    exponential = (x - x.amax(1, keepdim=True)).exp()
    return exponential / exponential.sum(1, keepdim=True)


def flops(point: Point) -> tuple[Flops, ...]:
    """Return the FLOPs: four operations and one exponential for each element."""
    count = point.m * point.n
    return (
        Flops(4 * count, "elementwise", point.dtype, "fp32"),
        Flops(count, "special", point.dtype, function="exp"),
    )


def cost(point: Point) -> Cost:
    """Return the cost: x is read once, and y is written once."""
    size = point.m * point.n * itemsize(point.dtype)
    return Cost(flops(point), (Bytes(size, size),))


def passes(read: int, written: int) -> Callable[[Point], Work]:
    """Return the work of *read* tensors (m, n) read and *written* tensors written."""

    def work(point: Point) -> Work:
        size = point.m * point.n * itemsize(point.dtype)
        return Work(flops(point), (Bytes(read * size, written * size),))

    return work


SOFTMAX = Workload(
    name="softmax",
    summary="softmax over rows",
    formula="m·n special functions + 4·m·n FLOP; 2·m·n·s bytes",
    axes=(
        Axis("m", 8192, "rows"),
        Axis("n", 4096, "columns", main=True),
        Axis("dtype", "auto", "dtype of x and y", choices=("fp32", "bf16", "fp16")),
    ),
    inputs=lambda point, make: {"x": make((point.m, point.n), point.dtype)},
    reference=reference,
    cost=cost,
    implementations=(
        # A difference of up to 8, rounded to the dtype of x, is an error of 8 roundoffs in the
        # exponential; exponential, sum and quotient add theirs. The others compute in fp32.
        Implementation(
            "eager",
            softmax_eager,
            "torch, five kernels",
            work=passes(5, 3),
            roundings=lambda point: 2,
        ),
        Implementation(
            "safe",
            softmax_streamed(softmax_safe_kernel),
            "Triton, reads the row three times",
            lacks_triton,
            passes(3, 1),
        ),
        Implementation(
            "online",
            softmax_streamed(softmax_online_kernel),
            "Triton, reads the row twice",
            lacks_triton,
            passes(2, 1),
        ),
        Implementation(
            "fused", softmax_fused, "Triton, rows in registers, tuned", holds_rows, passes(1, 1)
        ),
        Implementation("torch", softmax_torch, "torch.softmax"),
        Implementation("compile", softmax_compile, "torch.compile of eager", lacks_compiler),
    ),
    narrow=lambda inputs, rows: {"x": inputs["x"][rows]},
    terms=lambda point: point.n,
    draws=lambda point: ("offset", "extreme"),
)
