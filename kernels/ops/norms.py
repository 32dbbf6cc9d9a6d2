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
- `triton`: a Triton kernel that holds a row in registers, or reads it again from the L1. Backward,
  each program takes many rows and sums their share of dweight and dbias; a second kernel adds the
  sums of the programs.
- `cuda`: a CUDA C kernel for long rows, which a cluster of blocks shares, with rows on their way to
  shared memory while others are computed. The backward is as that of `triton`.

With `residual` on, the rows are total = x + residual, which is a result beside y, as between the
layers of a transformer: one more tensor read and written. Backward, dx (of x and of the residual)
has the gradient dtotal added; a backward alone has the sum as its x. 1 FLOP each way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from gpuperf.kernels._modes import MODE, autograd, by_mode
from gpuperf.kernels._norms_triton import (
    EPS,
    backward_call,
    backward_tilings,
    empty_result,
    forward_call,
)
from gpuperf.kernels._rows import candidates_for, holds_rows, piece_tilings, tilings
from gpuperf.kernels._rows_cuda import (
    FORWARD,
    SUMMED,
    compile_shapes,
    norm_backward_call,
    norm_call,
    norm_constants,
    shapes,
    supports,
)

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.errors import CannotMeasure
from gpuperf.jit import Tuned, compiled, lacks_compiler, tune
from gpuperf.units import itemsize

Make = Callable[[tuple[int, ...], str], torch.Tensor]
Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], Any]
# The function that builds the call of a candidate, the candidates, and the function that compiles
# them together.
Candidates = Sequence[Mapping[str, int]]
Choice = tuple[Callable[..., Call], Candidates, Callable[[Candidates], None] | None]

LEAST_ROW = 16  # elements of a row with a gradient; that of a shorter row may cancel to noise
RESIDUAL = Axis(
    "residual", "off", "whether x is added to a residual", choices=("off", "on"), optional=True
)


def norm_triton(inputs: Inputs, point: Point, options: object) -> Tuned:
    """Build the Triton kernels of the mode, each with its fastest tiling."""
    x, size = inputs["x"], inputs["x"].element_size()
    name = ("layernorm" if "bias" in inputs else "norm") + "_residual" * adds(point)
    every = [*tilings(point.n, size, 1 + ("residual" in inputs)), *piece_tilings(point.n)]
    forwards = candidates_for(name, x, every)
    backwards = candidates_for(f"{name}_backward", x, backward_tilings(point.n, size))
    ahead, back = (forward_call, forwards, None), (backward_call, backwards, None)
    return tuned_norm(inputs, point, ahead, back)


def norm_cuda(inputs: Inputs, point: Point, options: object) -> Tuned:
    """Build the CUDA C kernels of the mode, each with its fastest clusters."""
    forwards = list(shapes(FORWARD, point.n, 1 + ("residual" in inputs), 1 + ("bias" in inputs)))
    backwards = list(shapes(SUMMED, point.n, 2 + ("dtotal" in inputs), 1))
    prepare = partial(compile_shapes, "norms.cu", inputs["x"])
    ahead = partial(prepare, norm_constants(inputs, "residual", point.mode != "fwd"))
    back = partial(prepare, norm_constants(inputs, "dtotal"))
    return tuned_norm(
        inputs, point, (norm_call, forwards, ahead), (norm_backward_call, backwards, back)
    )


def tuned_norm(inputs: Inputs, point: Point, ahead: Choice, back: Choice) -> Tuned:
    """Return the call of the mode of *point* by the fastest candidates *ahead* and *back*.

    The forward of mode `bwd` is not part of the measured call, and so is not tuned.
    """
    (forward_of, candidates, prepare), (backward_of, tried, prepare_back) = ahead, back
    if "fwd" not in point.mode:
        candidates = candidates[:1]
    result, kept = empty_result(inputs), point.mode != "fwd"
    build = partial(forward_of, inputs, result, kept=kept)
    forward = tune(build, candidates, prepare)

    def outputs() -> Any:
        y, rows, *_ = forward()
        return (y, rows) if "residual" in inputs else y

    if point.mode == "fwd":
        return Tuned(outputs, forward.chosen)
    forward()
    backward = tune(partial(backward_of, inputs, result), tried, prepare_back)

    def both() -> tuple[Any, Callable[[Any], Any]]:
        return outputs(), lambda gradient: backward()  # which reads the gradients in inputs

    chosen = {f"backward_{name}": value for name, value in backward.chosen.items()}
    if point.mode == "fwd+bwd":
        chosen |= forward.chosen
    return Tuned(by_mode(point.mode, inputs, both, outputs, upstream(inputs)), chosen)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return torch's layer norm over the rows of x (m, n)."""
    return F.layer_norm(x, x.shape[1:], weight, bias, EPS)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return torch's RMS norm over the rows of x (m, n)."""
    return F.rms_norm(x, x.shape[1:], weight, EPS)


def upstream(inputs: Inputs) -> str | tuple[str, ...]:
    """Return the names of the gradients of the output."""
    return ("dy", "dtotal") if "dtotal" in inputs else "dy"


def with_residual(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """Return *function* of x + residual, with that sum."""

    def normalized(x: torch.Tensor, residual: torch.Tensor, *vectors: torch.Tensor) -> Any:
        total = x + residual
        return function(total, *vectors), total

    return normalized


def of_torch(
    function: Callable[..., torch.Tensor],
    inputs: Inputs,
    mode: str,
    wrap: Callable[..., Any] = lambda function: function,
) -> Call:
    """Return the call of *function*(x, weight[, bias]) in *mode*, with autograd's gradient.

    With a residual stream the function has that sum as a result too. Its gradient alone is that of
    the sum, which is x, plus nothing.
    """
    given = {name: value for name, value in inputs.items() if name not in ("dy", "dtotal")}
    names, ahead = [name for name in given if name != "residual"], wrap(function)
    if "residual" in inputs or "dtotal" in inputs:
        whole, nothing = wrap(with_residual(function)), inputs["x"].new_zeros(())
        residual = inputs.get("residual", nothing)

        def ahead(x: torch.Tensor, *vectors: torch.Tensor) -> Any:
            return whole(x, residual, *vectors)

    forward = autograd(ahead, given, names)
    values = [given[name] for name in names]
    call: Call = by_mode(mode, inputs, forward, lambda: ahead(*values), upstream(inputs))
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
        call = of_torch(function, inputs, point.mode, compiled)
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
    if "dy" in inputs:
        return None
    return {k: v[rows] if k in ("x", "residual") else v for k, v in inputs.items()}


def adds(point: Point) -> bool:
    """Return whether the rows are added to a residual stream first."""
    return point.get("residual", "off") == "on"


def inputs_of(names: tuple[str, ...]) -> Callable[[Point, Make], Inputs]:
    """Return the `inputs` of x (m, n), the vectors *names* (n,) and, for a backward, dy (m, n).

    With a residual stream: that too, and the gradient of the sum. A backward alone has the sum
    as x.
    """

    def inputs(point: Point, make: Make) -> Inputs:
        if point.mode != "fwd" and point.n < LEAST_ROW:
            raise CannotMeasure(
                f"the gradient of rows of {point.n} elements may cancel to rounding noise",
                f"give --n {LEAST_ROW} or more, or --mode fwd",
            )
        tensors = ["x", *(["residual"] if adds(point) and "fwd" in point.mode else [])]
        slopes = ["dy", *(["dtotal"] if adds(point) else [])]
        shapes: dict[str, tuple[int, ...]] = {name: (point.m, point.n) for name in tensors}
        shapes |= dict.fromkeys(names, (point.n,))
        if point.mode != "fwd":
            shapes |= {name: (point.m, point.n) for name in slopes}
        return {name: make(shape, point.dtype) for name, shape in shapes.items()}

    return inputs


def cost_of(vectors: int, forward: int, backward: int) -> Callable[[Point], Cost]:
    """Return the cost of a norm with *vectors* (n,), given the FLOPs for each element of x.

    A backward alone reads the weight but no bias.
    """

    def cost(point: Point) -> Cost:
        size, vector, more = point.m * point.n, point.n, int(adds(point))
        ahead, back = "fwd" in point.mode, "bwd" in point.mode
        read = (1 + ahead * more) * size + (vectors if ahead else 1) * vector
        read += back * (1 + more) * size
        written = ahead * (1 + more) * size + back * (size + vectors * vector)
        count = ahead * (forward + more) + back * (backward + more)
        flops = Flops(count * size, "elementwise", point.dtype, "fp32")
        each = itemsize(point.dtype)
        return Cost((flops,), (Bytes(read * each, written * each),))

    return cost


def work_of(cost: Callable[[Point], Cost], reads: int, fused: bool) -> Callable[[Point], Work]:
    """Return the work of a backward that reads x and dy *reads* times, after a forward x again.

    Unless sums with the residual stream and its gradient are *fused*, what is added was written
    before, or is read after.
    """

    def work(point: Point) -> Work:
        needed, size = cost(point), point.m * point.n * itemsize(point.dtype)
        ahead, back, sums = "fwd" in point.mode, "bwd" in point.mode, adds(point) and not fused
        read = 2 * (reads - 1) * back + (ahead and back) + sums * (ahead + back)
        (least,) = needed.bytes
        moved = Bytes(least.read + read * size, least.written + sums * back * size)
        return Work(needed.flops, (moved,))

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
            RESIDUAL,
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
                work_of(cost, 2, False),
            ),
            Implementation(
                "compile", norm_compile(function), "torch.compile of torch", lacks_compiler
            ),
            Implementation(
                "triton",
                norm_triton,
                "Triton, rows in registers or in the L1, tuned",
                holds_rows,
                work_of(cost, 1, True),
            ),
            Implementation(
                "cuda",
                norm_cuda,
                "CUDA C, a cluster of blocks for a row, tuned",
                supports,
                work_of(cost, 1, True),
            ),
        ),
        narrow=narrow,
        terms=lambda point: max(point.m, point.n),
        roundings=lambda point: int(adds(point)),  # of the sum with the residual stream
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
