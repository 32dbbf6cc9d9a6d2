"""Compute layer norm and RMS norm over the rows of x (m, n), and their gradients.

With u a normalized row:

- `layernorm`  u = (x − mean x) / √(var x + ε), y = u·weight + bias
- `rmsnorm`    u = x / √(mean x² + ε), y = u·weight

Forward: 7·m·n FLOP, of which mean 1, difference 1, squares and their sum 2, u 1, y 2; rmsnorm 4·m·n
(squares and their sum 2, u 1, y 1). x is read once and y written once.

Backward, with g = dy·weight: dx = (g − u·mean(g·u) − mean g) / √(var x + ε), dweight = Σ dy·u,
dbias = Σ dy over the rows. 13·m·n FLOP: u 2, dweight 2, dbias 1, g 1, the means 3, dx 4; rmsnorm
9·m·n: it lacks a difference for u, dbias, mean g and its difference. x and dy are read, dx written.

- `torch`: `F.layer_norm`, `F.rms_norm`. The backward reads x and dy twice, for dx and for dweight,
  and wide rows more often.
- `compile`: the same functions, and their gradients, under torch.compile.
- `triton`: a Triton kernel that holds a row in registers. Backward, each program takes many rows
  and sums their share of dweight and dbias; a second kernel adds the sums of the programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from gpuperf.kernels import _rows
from gpuperf.kernels._modes import MODE, autograd, by_mode
from gpuperf.kernels._rows import block_of, holds_rows, launch_of, load_tile, programs, row_of

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.errors import CannotMeasure
from gpuperf.jit import Tuned, compiled, jit, lacks_compiler, tl, triton, tune
from gpuperf.units import itemsize

Make = Callable[[tuple[int, ...], str], torch.Tensor]
Inputs = Mapping[str, torch.Tensor]
Tiling = Mapping[str, int]
Call = Callable[[], Any]

EPS = 1e-5
LEAST_ROW = 16  # elements of a row with a gradient; that of a shorter row may cancel to noise
WIDE_TILE = 4096  # elements of a tile of short rows, backward
STAGES = (1, 4)  # tiles that are computed or loaded at a time, backward
HELD, OTHER = 5, 32  # registers that a thread needs for each element, and for anything besides
SUMMED, COLUMNS = 64, 32  # rows and columns of the programs' sums that are added at a time


@jit
def norm_kernel(
    x, weight, bias, y, mean, rstd, m, n, stride, eps,
    CENTRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Normalize tiles of ROWS whole rows; programs step through the tiles by their number.

    With AHEAD a program loads the next tile while it computes one. Rows beyond the last are row
    m − 1 again. mean and rstd (m,) are stored for the backward. Weight and bias are read again for
    each tile, from L1: held, they would take the registers of a row.
    """
    i = tl.arange(0, BLOCK)[None, :]
    first, step = tl.program_id(0), tl.num_programs(0)
    if AHEAD:
        coming = load_tile(x, first, m, n, stride, 0.0, ROWS, BLOCK)
    for tile in range(first, tl.cdiv(m, ROWS), step):
        if AHEAD:
            here = coming
            coming = load_tile(x, tile + step, m, n, stride, 0.0, ROWS, BLOCK)
        else:
            here = load_tile(x, tile, m, n, stride, 0.0, ROWS, BLOCK)
        row, value = row_of(tile, m, ROWS), here.to(tl.float32)
        if CENTRED:
            centre = tl.sum(value, 1, keep_dims=True) / n
            value = tl.where(i < n, value - centre, 0.0)
            tl.store(mean + row, centre)
        scale = 1.0 / tl.sqrt(tl.sum(value * value, 1, keep_dims=True) / n + eps)
        tl.store(rstd + row, scale)
        value *= scale * tl.load(weight + i, i < n, 0.0).to(tl.float32)
        if CENTRED:
            value += tl.load(bias + i, i < n, 0.0).to(tl.float32)
        tl.store(y + row * n + i, value.to(y.dtype.element_ty), i < n)


@jit
def norm_backward_kernel(
    x, weight, dy, mean, rstd, dx, sums, m, n, stride,
    CENTRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Compute dx of tiles of rows, and the sums (k, programs, n) of dweight and dbias."""
    i = tl.arange(0, BLOCK)[None, :]
    dweight = tl.zeros((ROWS, BLOCK), tl.float32)
    dbias = tl.zeros((ROWS, BLOCK), tl.float32)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (row < m) & (i < n)
        scale = tl.load(rstd + row, row < m, 0.0)
        # This order of loads and sums, with this policy, takes 300 µs for rows of 16 k on an H200;
        # another order without the policy took 565.
        grad = tl.load(dy + row * n + i, inside, 0.0, eviction_policy="evict_last").to(tl.float32)
        unit = tl.load(x + row * stride + i, inside, 0.0, eviction_policy="evict_last")
        unit = unit.to(tl.float32)
        w = tl.load(weight + i, i < n, 0.0, eviction_policy="evict_last").to(tl.float32)
        if CENTRED:
            unit = tl.where(i < n, unit - tl.load(mean + row, row < m, 0.0), 0.0)
        unit *= scale
        dweight += grad * unit
        steep = grad * w
        share = tl.sum(steep * unit, 1, keep_dims=True) / n
        if CENTRED:
            dbias += grad
            centre = tl.sum(steep, 1, keep_dims=True) / n
        slope = steep - unit * share
        if CENTRED:
            slope -= centre
        tl.store(dx + row * n + i, (slope * scale).to(dx.dtype.element_ty), inside)
    own = sums + tl.program_id(0) * n + i
    tl.store(own, tl.sum(dweight, 0, keep_dims=True), i < n)
    if CENTRED:
        tl.store(own + tl.num_programs(0) * n, tl.sum(dbias, 0, keep_dims=True), i < n)


@jit
def norm_sums_kernel(sums, totals, count, n, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Sum sums (k, count, n) over the programs to totals (k, n), BLOCK columns in each program."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    sums += tl.program_id(1) * count * n
    total = tl.zeros((COUNT, BLOCK), tl.float32)
    for start in range(0, count, COUNT):
        row = start + tl.arange(0, COUNT)[:, None]
        total += tl.load(sums + row * n + i, (row < count) & (i < n), 0.0)
    total = tl.sum(total, 0, keep_dims=True)
    tl.store(totals + tl.program_id(1) * n + i, total.to(totals.dtype.element_ty), i < n)


class ForwardResult(NamedTuple):
    """The output y (m, n), and the mean and 1/√(variance + ε) of each row, both (m,)."""

    y: torch.Tensor
    mean: torch.Tensor
    rstd: torch.Tensor


def empty_result(x: torch.Tensor) -> ForwardResult:
    """Allocate the result of the forward of x (m, n)."""
    mean, rstd = x.new_empty((2, x.shape[0]), dtype=torch.float32)
    return ForwardResult(x.new_empty(x.shape), mean, rstd)


def forward_call(inputs: Inputs, result: ForwardResult, tiling: Tiling) -> Call:
    """Return the call of the forward kernel: layer norm where there is a bias, else RMS norm."""
    x, weight, centred = inputs["x"], inputs["weight"], "bias" in inputs
    m, n = x.shape
    bias = inputs["bias"] if centred else weight
    grid, launch = (programs(tiling, x),), launch_of(tiling, n)

    def call() -> torch.Tensor:
        norm_kernel[grid](
            x, weight, bias, *result, m, n, x.stride(0), EPS, CENTRED=centred, **launch
        )
        return result.y

    return call


def backward_tilings(n: int) -> Iterator[dict[str, int]]:
    """Yield the tilings to tune among for persistent programs that fill an SM."""
    block = block_of(n)
    for rows in sorted({min(_rows.MOST_ROWS, max(1, WIDE_TILE // block)), 1}, reverse=True):
        counts = {
            min(_rows.MOST_WARPS, max(1, rows * block // (32 * each))) for each in _rows.PER_THREAD
        }
        for warps in sorted(counts):
            registers = OTHER + HELD * rows * block // (32 * warps)
            per_sm = min(_rows.MOST_PROGRAMS, max(1, _rows.REGISTERS // registers // (32 * warps)))
            for stages in STAGES:
                yield {"rows": rows, "warps": warps, "stages": stages, "per_sm": per_sm}


def backward_call(inputs: Inputs, result: ForwardResult, tiling: Tiling) -> Call:
    """Return the call of the backward: dx (m, n), dweight (n,) and, with a bias, dbias (n,)."""
    x, weight, dy, centred = inputs["x"], inputs["weight"], inputs["dy"], "bias" in inputs
    m, n = x.shape
    dx, count, block = x.new_empty(x.shape), programs(tiling, x), block_of(n)
    rows, stages, warps = tiling["rows"], tiling["stages"], tiling["warps"]
    sums = x.new_empty((1 + centred, count, n), dtype=torch.float32)
    totals = weight.new_empty((1 + centred, n))
    grid = (triton.cdiv(n, COLUMNS), 1 + centred)

    def call() -> tuple[torch.Tensor, ...]:
        norm_backward_kernel[(count,)](
            x, weight, dy, result.mean, result.rstd, dx, sums, m, n, x.stride(0),
            CENTRED=centred, ROWS=rows, BLOCK=block, STAGES=stages, num_warps=warps,
        )  # fmt: skip
        norm_sums_kernel[grid](sums, totals, count, n, COUNT=SUMMED, BLOCK=COLUMNS)
        return (dx, *totals)

    return call


def norm_triton(inputs: Inputs, point: Point, options: object) -> Tuned:
    """Build the Triton kernels of the mode, each with its fastest tiling.

    The forward of mode `bwd` is not part of the measured call, and so is not tuned.
    """
    result = empty_result(inputs["x"])
    candidates = [*_rows.tilings(point.n)]
    if "fwd" not in point.mode:
        candidates = candidates[:1]
    forward = tune(partial(forward_call, inputs, result), candidates)
    if point.mode == "fwd":
        return forward
    forward()
    backward = tune(partial(backward_call, inputs, result), backward_tilings(point.n))

    def both() -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
        return forward(), lambda gradient: backward()  # which reads inputs["dy"]

    chosen = {f"backward_{name}": value for name, value in backward.chosen.items()}
    if point.mode == "fwd+bwd":
        chosen |= forward.chosen
    return Tuned(by_mode(point.mode, inputs, both, forward), chosen)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return torch's layer norm over the rows of x (m, n)."""
    return F.layer_norm(x, x.shape[1:], weight, bias, EPS)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return torch's RMS norm over the rows of x (m, n)."""
    return F.rms_norm(x, x.shape[1:], weight, EPS)


def of_torch(function: Callable[..., torch.Tensor], inputs: Inputs, mode: str) -> Call:
    """Return the call of *function*(x, weight[, bias]) in *mode*, with autograd's gradient."""
    arguments = {name: value for name, value in inputs.items() if name != "dy"}
    forward = autograd(function, arguments, [*arguments])
    call: Call = by_mode(mode, inputs, forward, lambda: function(*arguments.values()))
    return call


def norm_torch(function: Callable[..., torch.Tensor]) -> Callable[[Inputs, Point, object], Call]:
    """Return the build of *function*."""
    return lambda inputs, point, options: of_torch(function, inputs, point.mode)


def torch_supports(point: Point, device: Any) -> str | None:
    """Return why torch cannot run layer norm on *device*, or None where it can.

    On a CPU torch 2.13 sums dweight and dbias in the dtype of x, with errors up to 8 % in bf16.
    """
    inexact = device.kind == "cpu" and point.dtype != "fp32" and point.mode != "fwd"
    return f"torch sums gradients in {point.dtype} on a CPU" if inexact else None


def norm_compile(function: Callable[..., torch.Tensor]) -> Callable[[Inputs, Point, object], Call]:
    """Return the build of *function* under torch.compile."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        call = of_torch(compiled(function), inputs, point.mode)
        call()
        return call

    return build


def plain(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Compute the formula: layer norm where there is a bias, else RMS norm."""
    if bias is not None:
        x = x - x.mean(1, keepdim=True)
    unit = x / (x.square().mean(1, keepdim=True) + EPS).sqrt()
    return unit * weight if bias is None else unit * weight + bias


def reference(inputs: Inputs, point: Point) -> Any:
    """Compute the formula in float64, with autograd's gradient."""
    return of_torch(plain, {k: v.double() for k, v in inputs.items()}, point.mode)()


def narrow(inputs: Inputs, rows: torch.Tensor) -> Inputs | None:
    """Return the inputs of some rows of y; None with a gradient, which needs all rows of x."""
    return None if "dy" in inputs else {**inputs, "x": inputs["x"][rows]}


def inputs_of(names: tuple[str, ...]) -> Callable[[Point, Make], Inputs]:
    """Return the `inputs` of x (m, n), the vectors *names* (n,) and, for a backward, dy (m, n)."""

    def inputs(point: Point, make: Make) -> Inputs:
        if point.mode != "fwd" and point.n < LEAST_ROW:
            raise CannotMeasure(
                f"the gradient of rows of {point.n} elements may cancel to rounding noise",
                f"give --n {LEAST_ROW} or more, or --mode fwd",
            )
        shapes = {"x": (point.m, point.n), **dict.fromkeys(names, (point.n,))}
        if point.mode != "fwd":
            shapes["dy"] = (point.m, point.n)
        return {name: make(shape, point.dtype) for name, shape in shapes.items()}

    return inputs


def cost_of(vectors: int, forward: int, backward: int) -> Callable[[Point], Cost]:
    """Return the cost of a norm with *vectors* (n,), given the FLOPs for each element of x.

    A backward alone reads the weight but no bias.
    """

    def cost(point: Point) -> Cost:
        size, vector = point.m * point.n, point.n
        ahead, back = "fwd" in point.mode, "bwd" in point.mode
        read = size + (vectors if ahead else 1) * vector + back * size
        written = ahead * size + back * (size + vectors * vector)
        flops = Flops(
            (ahead * forward + back * backward) * size, "elementwise", point.dtype, "fp32"
        )
        each = itemsize(point.dtype)
        return Cost((flops,), (Bytes(read * each, written * each),))

    return cost


def work_of(cost: Callable[[Point], Cost], reads: int) -> Callable[[Point], Work]:
    """Return the work of a backward that reads x and dy *reads* times, after a forward x again."""

    def work(point: Point) -> Work:
        needed, size = cost(point), point.m * point.n * itemsize(point.dtype)
        extra = 2 * (reads - 1) * ("bwd" in point.mode) + (point.mode == "fwd+bwd")
        (least,) = needed.bytes
        return Work(needed.flops, (Bytes(least.read + extra * size, least.written),))

    return work


def norm(
    name: str,
    title: str,
    formula: str,
    vectors: tuple[str, ...],
    cost: Callable[[Point], Cost],
    function: Callable[..., torch.Tensor],
) -> Workload:
    """Return the workload of one norm; its first implementation is *function* by torch."""
    return Workload(
        name=name,
        summary=f"{title} over rows and its gradients",
        formula=formula,
        axes=(
            Axis("m", 8192, "rows"),
            Axis("n", 4096, "columns", main=True),
            MODE,
            Axis("dtype", "auto", "dtype of all tensors", choices=("fp32", "bf16", "fp16")),
        ),
        inputs=inputs_of(vectors),
        reference=reference,
        cost=cost,
        implementations=(
            Implementation(
                "torch",
                norm_torch(function),
                f"torch, F.{function.__name__}",
                torch_supports if vectors[1:] else lambda point, device: None,
                work_of(cost, 2),
            ),
            Implementation(
                "compile", norm_compile(function), "torch.compile of torch", lacks_compiler
            ),
            Implementation(
                "triton",
                norm_triton,
                "Triton, rows in registers, tuned",
                holds_rows,
                work_of(cost, 1),
            ),
        ),
        narrow=narrow,
        terms=lambda point: max(point.m, point.n),
        draws=lambda point: ("offset",) if point.mode == "fwd" else (),
        prepared=lambda point: ("x", *vectors) if point.mode == "bwd" else (),
    )


LAYERNORM = norm(
    "layernorm",
    "layer norm",
    "fwd 7·m·n FLOP, 2·m·n·s bytes; bwd 13·m·n FLOP, 3·m·n·s bytes",
    ("weight", "bias"),
    cost_of(2, 7, 13),
    layer_norm,
)

RMSNORM = norm(
    "rmsnorm",
    "RMS norm",
    "fwd 4·m·n FLOP, 2·m·n·s bytes; bwd 9·m·n FLOP, 3·m·n·s bytes",
    ("weight",),
    cost_of(1, 4, 9),
    rms_norm,
)
