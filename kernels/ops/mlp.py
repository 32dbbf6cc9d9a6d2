"""Compute a transformer's MLP of x (b, n) with a hidden width of h, and its gradients.

- `plain`: y = gelu(x·Upᵀ)·Downᵀ, with GELU in its tanh form (GPT-2).
- `gated`: y = (silu(x·Gateᵀ) ⊙ x·Upᵀ)·Downᵀ (Llama).

Gate and Up are (h, n), Down is (n, h). Each product is 2·b·n·h FLOP forward and 4·b·n·h backward,
for the gradients of its input and of its weight: 4·b·n·h and 8·b·n·h plain, 6·b·n·h and 12·b·n·h
gated. The activation is elementwise and not counted, as in `gpuperf theory mlp`. The cost has the
inputs and results once; the work has the operands and the result of each product, and each pass of
the activation over a tensor (b, h).

- `eager`: torch, product by product; gated, the activation makes 5 passes forward, 9 backward.
- `compile`: torch.compile of eager, which fuses the activation.
- `triton`: torch's products, and one Triton kernel each way; gated, 3 passes forward, 5 backward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from gpuperf.kernels._mlp_triton import mlp_triton
from gpuperf.kernels._modes import MODE, by_torch, of_mode

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.jit import compiled, lacks_compiler, lacks_triton
from gpuperf.units import itemsize

Inputs = Mapping[str, torch.Tensor]
Passes = tuple[int, int]  # tensors (b, h) that are read and written

FORMS = ("plain", "gated")
NAMES = {"plain": ("x", "up", "down"), "gated": ("x", "gate", "up", "down")}


def plain(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """Return the plain MLP of x."""
    return F.linear(F.gelu(F.linear(x, up), approximate="tanh"), down)


def gated(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """Return the gated MLP of x."""
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def mlp_torch(wrap: Callable[..., Any]) -> Callable[[Inputs, Point, object], Any]:
    """Return the build of what *wrap* makes of the eager MLP."""

    def build(inputs: Inputs, point: Point, options: object) -> Any:
        function = wrap(gated if point.form == "gated" else plain)
        return by_torch(point.mode, function, inputs, NAMES[point.form])

    return build


def shapes(point: Point) -> dict[str, tuple[int, int]]:
    """Return the shape of each input."""
    b, n, h = point.b, point.n, point.h
    every = {"x": (b, n), "gate": (h, n), "up": (h, n), "down": (n, h)}
    drawn = {name: every[name] for name in NAMES[point.form]}
    return drawn if point.mode == "fwd" else {**drawn, "dy": (b, n)}


def make_inputs(point: Point, make: Callable[[tuple[int, ...], str], torch.Tensor]) -> Inputs:
    """Draw x, weights that keep the size of what they multiply, and dy in modes with a backward."""
    inputs = {name: make(shape, point.dtype) for name, shape in shapes(point).items()}
    for name in NAMES[point.form][1:]:
        inputs[name].mul_(inputs[name].shape[1] ** -0.5)
    return inputs


def reference(inputs: Inputs, point: Point) -> Any:
    """Compute y, the gradients of x and of the weights, or all, in float64."""
    exact = {name: tensor.double() for name, tensor in inputs.items()}
    built = mlp_torch(lambda function: function)(exact, point, {})
    return built()


def narrow(inputs: Inputs, rows: torch.Tensor) -> Inputs | None:
    """Return the inputs of some rows of y; gradients of weights need all rows."""
    return None if "dy" in inputs else {**inputs, "x": inputs["x"][rows]}


def products(point: Point) -> int:
    """Return the number of products forward."""
    return len(NAMES[point.form]) - 1


def flops(point: Point) -> tuple[Flops, ...]:
    """Return the FLOPs of the products of the mode."""
    forward = 2 * point.b * point.n * point.h * products(point)
    return (Flops(of_mode(point.mode, forward, 2 * forward), "matmul", point.dtype, "fp32"),)


def cost(point: Point) -> Cost:
    """Return the least: the inputs are read once; y, the gradients or all are written once."""
    size, given = itemsize(point.dtype), shapes(point)
    read = sum(rows * columns for rows, columns in given.values())
    gradients = sum(given[name][0] * given[name][1] for name in NAMES[point.form])
    written = of_mode(point.mode, point.b * point.n, gradients)
    return Cost(flops(point), (Bytes(size * read, size * written),))


def moved(point: Point, forward: Passes, backward: Passes, sums: Passes) -> Bytes:
    """Return the bytes of the products, of the activation's passes over (b, h), and of the *sums*
    of the two gradients of x, which are passes over (b, n)."""
    b, n, h, size = point.b, point.n, point.h, itemsize(point.dtype)
    into = products(point) - 1  # products from n to h
    reads = [
        into * (b * n + n * h) + b * h + n * h + forward[0] * b * h,
        (into + 1) * (b * h + b * n) + b * n + n * h + into * (b * h + n * h),
    ]
    writes = [into * b * h + b * n + forward[1] * b * h, (into + 1) * n * h + b * h + into * b * n]
    reads[1] += backward[0] * b * h + sums[0] * b * n
    writes[1] += backward[1] * b * h + sums[1] * b * n
    return Bytes(size * of_mode(point.mode, *reads), size * of_mode(point.mode, *writes))


def eager_work(point: Point) -> Work:
    """Return the work of an activation whose operators are kernels of their own."""
    if point.form == "plain":
        return Work(flops(point), (moved(point, (1, 1), (2, 1), (0, 0)),))
    return Work(flops(point), (moved(point, (3, 2), (6, 3), (2, 1)),))


def triton_work(point: Point) -> Work:
    """Return the work of one kernel for the activation, and of a product that adds to dx."""
    if point.form == "plain":
        return eager_work(point)
    return Work(flops(point), (moved(point, (2, 1), (3, 2), (1, 0)),))


MLP = Workload(
    name="mlp",
    summary="MLP, plain or gated, and its gradients",
    formula="2·b·n·h FLOP a product (2 plain, 3 gated) forward, 4·b·n·h backward; inputs and "
    "results once",
    axes=(
        Axis("b", 2048, "rows of x: tokens", main=True),
        Axis("n", 2048, "width of x and y"),
        Axis("h", 8192, "width of the hidden layer"),
        Axis("form", "gated", "plain (GELU) or gated (SiLU)", choices=FORMS),
        MODE,
        Axis("dtype", "auto", "dtype of all tensors", choices=("fp32", "bf16", "fp16")),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation(
            "eager", mlp_torch(lambda f: f), "torch, operator by operator", work=eager_work
        ),
        Implementation("compile", mlp_torch(compiled), "torch.compile of eager", lacks_compiler),
        Implementation(
            "triton",
            mlp_triton,
            "torch's products, activation in Triton",
            lacks_triton,
            triton_work,
        ),
    ),
    narrow=narrow,
    terms=lambda point: max(point.b, point.n, point.h),
    roundings=lambda point: products(point) + (2 if point.mode != "fwd" else 0),
    prepared=lambda point: NAMES[point.form] if point.mode == "bwd" else (),
)
