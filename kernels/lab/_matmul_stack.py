"""Compute three matmuls in a row and their gradients: keep the results or compute them again.

- `stored`: autograd keeps x and the results of two layers.
- `checkpoint`: torch.utils.checkpoint, the whole forward pass again.
- `checkpoint_early`: the same with torch's early stop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from gpuperf.kernels._modes import MODE, by_torch, of_mode

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Workload
from gpuperf.units import itemsize

Inputs = Mapping[str, torch.Tensor]
LAYERS = 3
NAMES = ("x", "a", "b", "c")


def products(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """Multiply x (m, d) by each weight (d, d) in turn."""
    for weight in weights:
        x = x @ weight
    return x


def checkpointed(*tensors: torch.Tensor, early: bool) -> torch.Tensor:
    """Return the products, whose backward pass runs the forward pass again."""
    from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

    with set_checkpoint_early_stop(early):
        y: torch.Tensor = checkpoint(
            products, *tensors, use_reentrant=False, preserve_rng_state=False
        )
    return y


def build(function: Callable[..., torch.Tensor]) -> Callable[[Inputs, Point, object], Any]:
    """Return the build of *function* with its gradients by autograd."""
    return lambda inputs, point, options: by_torch(point.mode, function, inputs, NAMES)


def make_inputs(point: Point, make: Callable[..., torch.Tensor]) -> Inputs:
    """Draw x, three weights, and dy where the mode has a backward, all (d, d)."""
    names = NAMES if point.mode == "fwd" else (*NAMES, "dy")
    return {name: make((point.d, point.d), point.dtype) for name in names}


def reference(inputs: Inputs, point: Point) -> Any:
    """Compute y, the gradients of x and of the weights, or all, in float64."""
    x, *weights = (inputs[name].double() for name in NAMES)
    kept = [x]
    for weight in weights:
        kept.append(kept[-1] @ weight)
    if point.mode == "fwd":
        return kept[-1]
    gradient = inputs["dy"].double()
    of_weights: list[torch.Tensor] = []
    for result, weight in zip(kept[-2::-1], weights[::-1], strict=True):
        of_weights.insert(0, result.T @ gradient)
        gradient = gradient @ weight.T
    gradients = (gradient, *of_weights)
    return gradients if point.mode == "bwd" else (kept[-1], *gradients)


def cost(point: Point) -> Cost:
    """Return the FLOPs of a forward pass and of twice as many backward, and each tensor once."""
    flops = 2 * point.d**3 * of_mode(point.mode, LAYERS, 2 * LAYERS)
    size = point.d**2 * itemsize(point.dtype)
    moved = Bytes(size * (LAYERS + 1 + (point.mode != "fwd")), size * of_mode(point.mode, 1, 4))
    return Cost((Flops(flops, "matmul", point.dtype, "fp32"),), (moved,))


MATMUL_STACK = Workload(
    name="matmul_stack",
    summary="three matmuls and their gradients, results kept or computed again",
    formula="fwd 6·d³ FLOP; bwd 12·d³ FLOP",
    axes=(
        Axis("d", 4096, "rows and columns of every matrix", main=True),
        MODE,
        Axis("dtype", "auto", "dtype of the matrices", choices=("fp32", "bf16")),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation("stored", build(products), "all results kept"),
        Implementation("checkpoint", build(partial(checkpointed, early=False)), "none kept"),
        Implementation("checkpoint_early", build(partial(checkpointed, early=True)), "early stop"),
    ),
    terms=lambda point: point.d,
    roundings=lambda point: 2 * LAYERS,
    prepared=lambda point: NAMES if point.mode == "bwd" else (),
)
