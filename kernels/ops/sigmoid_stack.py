"""Compute y = σ(σ(σ(x))) of a vector (n,), and dx: keep the inner results or compute them again.

A sigmoid is an exponential and 3 FLOP, its gradient dy·s·(1 − s) 3 FLOP. bf16 is left out: y is so
nearly constant that the tolerance of bf16 would accept a constant. Forward and backward together
move, in passes over a tensor:

- `eager`: torch's kernels, three forward and three backward; 15 passes.
- `checkpoint`: the same under torch.utils.checkpoint, which keeps x alone; 21 passes.
- `compile`: torch.compile of eager, which decides what to keep.
- `stored`: a Triton kernel each way, all results kept; 9 passes.
- `stored_inner`: y is computed again from the second result; 8 passes.
- `recomputed`: x alone is kept; 5 passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from gpuperf.kernels._modes import MODE, by_torch, of_mode
from gpuperf.kernels._sigmoids import stack_triton

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.jit import compiled, lacks_compiler, lacks_triton
from gpuperf.units import itemsize

Inputs = Mapping[str, torch.Tensor]
STACK = 3


def stack_torch(wrap: Callable[..., Any]) -> Callable[[Inputs, Point, object], Any]:
    """Return the build of what *wrap* makes of torch's sigmoids."""
    return lambda inputs, point, options: by_torch(point.mode, wrap(eager), inputs, ("x",))


def eager(x: torch.Tensor) -> torch.Tensor:
    """Return σ(σ(σ(x))), operation by operation."""
    return torch.sigmoid(torch.sigmoid(torch.sigmoid(x)))


def checkpointed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function*, whose backward runs it again."""
    from torch.utils.checkpoint import checkpoint

    return lambda x: checkpoint(function, x, use_reentrant=False, preserve_rng_state=False)


def make_inputs(point: Point, make: Callable[[tuple[int, ...], str], torch.Tensor]) -> Inputs:
    """Draw x, and dy where the mode has a backward."""
    names = ("x",) if point.mode == "fwd" else ("x", "dy")
    return {name: make((point.n,), point.dtype) for name in names}


def reference(inputs: Inputs, point: Point) -> Any:
    """Compute y, dx or both in float64."""
    y, slope = inputs["x"].double(), 1.0
    for _ in range(STACK):
        y = torch.sigmoid(y)
        slope = slope * y * (1 - y)
    dx = inputs.get("dy", 0.0) * slope
    return {"fwd": y, "bwd": (dx,), "fwd+bwd": (y, dx)}[point.mode]


def flops(point: Point, sigmoids: int) -> tuple[Flops, ...]:
    """Return the FLOPs of *sigmoids*, and of the gradient in the modes that have one."""
    elementwise = 3 * sigmoids + of_mode(point.mode, 0, 3 * STACK)
    counted = (Flops(elementwise * point.n, "elementwise", point.dtype),)
    special = (Flops(sigmoids * point.n, "special", point.dtype, function="exp"),)
    return counted + special * (sigmoids > 0)


def cost(point: Point) -> Cost:
    """Return the least: x and dy are read once, y and dx are written once."""
    size = point.n * itemsize(point.dtype)
    moved = Bytes(size * (1 + (point.mode != "fwd")), size * of_mode(point.mode, 1, 1))
    return Cost(flops(point, of_mode(point.mode, STACK, 0)), (moved,))


def passes(
    forward: tuple[int, int], backward: tuple[int, int], again: int = 0
) -> Callable[[Point], Work]:
    """Return the work of (reads, writes) each way, and of sigmoids computed *again* backward."""

    def work(point: Point) -> Work:
        size = point.n * itemsize(point.dtype)
        moved = (size * of_mode(point.mode, f, b) for f, b in zip(forward, backward, strict=True))
        return Work(flops(point, of_mode(point.mode, STACK, again)), (Bytes(*moved),))

    return work


SIGMOID_STACK = Workload(
    name="sigmoid_stack",
    summary="three sigmoids and their gradient",
    formula="fwd 3·n exp + 9·n FLOP, 2·n·s bytes; bwd 9·n FLOP, 3·n·s bytes",
    axes=(
        Axis("n", 2**26, "elements", main=True),
        replace(MODE, default="fwd+bwd"),
        Axis("dtype", "auto", "dtype of the vectors", choices=("fp32", "fp16")),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation(
            "eager", stack_torch(lambda f: f), "torch, six kernels", work=passes((3, 3), (6, 3))
        ),
        Implementation(
            "checkpoint",
            stack_torch(checkpointed),
            "torch.utils.checkpoint of eager",
            work=passes((3, 3), (9, 6), STACK),
        ),
        Implementation("compile", stack_torch(compiled), "torch.compile of eager", lacks_compiler),
        *(
            Implementation(name, stack_triton(kept), f"Triton, {held} kept", lacks_triton, work)
            for name, kept, held, work in (
                ("stored", 3, "three results", passes((1, 3), (4, 1))),
                ("stored_inner", 2, "two results", passes((1, 3), (3, 1), 1)),
                ("recomputed", 0, "x alone", passes((1, 1), (2, 1), STACK)),
            )
        ),
    ),
    narrow=lambda inputs, rows: {name: tensor[rows] for name, tensor in inputs.items()},
    terms=lambda point: 2 * STACK,
    roundings=lambda point: of_mode(point.mode, 2, 5),
    prepared=lambda point: ("x",) if point.mode == "bwd" else (),
)
