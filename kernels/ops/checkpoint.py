"""Train a stack of transformer blocks for a step: keep activations, or compute them again.

The blocks are those of `_transformer.py`; d = heads·head_dim, T = batch·seq tokens. A layer's
products are 24·T·d² FLOP forward, its causal attention 2·batch·d·seq·(seq + 1), and twice both
backward. The cost has the FLOPs of the model; the work adds those of the recomputation, and of all
pairs in eager attention. Its bytes are those of the cost, and of all tensors that the backward pass
reads, as often as they are written and read. The time is that of the step without an optimizer.

A layer keeps, in tensors of T·d elements besides the weights:

- `none`: 16, and the softmax (heads·seq/d, `eager` attention) or the output of attention (`sdpa`),
  which is one of the 16 where the kernel writes it as the projection reads it (flash, on a GPU).
- `selective`: 16; attention runs again in the backward pass. torch stops it before the last
  product, whose result no gradient needs.
- `full`: 1, its input. The layer runs again but for its last product: 2/3 of 24·T·d² more.

The reading `kept_bytes` of a record is what the forward pass did keep; the memory of a record is
what one call allocates, gradients included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpuperf.kernels._transformer import ATTENTIONS, WEIGHTS, Inputs, Step, shapes, step, width_of

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.units import itemsize

LEAST_HEAD = 16  # the norm of a few elements may divide by a variance that is rounding alone
KEPT = 16  # tensors of T·d elements that a layer keeps besides what attention keeps
PRODUCTS = 24  # FLOP of the products of a layer over T·d², of which down has a third


def make_inputs(point: Point, make: Callable[[tuple[int, ...], str], torch.Tensor]) -> Inputs:
    """Draw x, dy, and weights that keep the size of what they multiply."""
    inputs = {name: make(shape, point.dtype) for name, shape in shapes(point).items()}
    for name in WEIGHTS:
        inputs[name].mul_(inputs[name].shape[-1] ** -0.5)
    return inputs


def reference(inputs: Inputs, point: Point) -> Any:
    """Compute y, dx and the gradients of the weights in float64, one layer at a time in memory."""
    exact = {name: tensor.double() for name, tensor in inputs.items()}
    return Step(exact, Point({**point, "attention": "eager"}), "full")()


def attention_flops(point: Point, matmuls: int, pairs: int) -> int:
    """Return the FLOPs of *matmuls* over *pairs* of a query and a key of one sequence."""
    return int(2 * matmuls * point.batch * width_of(point) * pairs)


def product_flops(point: Point) -> int:
    """Return the FLOPs of a layer's products forward."""
    return int(PRODUCTS * point.batch * point.seq * width_of(point) ** 2)


def causal_pairs(point: Point) -> int:
    """Return the pairs of a query and a key that the mask admits in a sequence."""
    return int(point.seq * (point.seq + 1) // 2)


def matmuls(point: Point, layer: int) -> tuple[Flops, ...]:
    """Return *layer* FLOPs for each layer."""
    return (Flops(point.depth * layer, "matmul", point.dtype, "fp32"),)


def cost(point: Point) -> Cost:
    """Return the FLOPs of the model, thrice the forward pass; inputs and gradients move once."""
    layer = 3 * (product_flops(point) + attention_flops(point, 2, causal_pairs(point)))
    given = {name: torch.Size(shape).numel() for name, shape in shapes(point).items()}
    weights = sum(given[name] for name in WEIGHTS)
    moved = itemsize(point.dtype) * (weights + given["x"] + given["dy"])
    return Cost(matmuls(point, layer), (Bytes(moved, moved),))


def kept_elements(point: Point, kept: str) -> int:
    """Return the elements that a layer keeps, without the sums of norms and of attention."""
    stream = int(point.batch * point.seq * width_of(point))
    if kept == "full":
        return stream
    scores = int(point.batch * point.heads * point.seq**2)
    attention = scores if point.attention == "eager" else stream
    return KEPT * stream + (attention if kept == "none" else 0)


def work(kept: str) -> Callable[[Point], Work]:
    """Return the work of a step that keeps what *kept* says."""

    def of_point(point: Point) -> Work:
        # Fused attention computes its scores again backward: five products, and not four.
        eager = point.attention == "eager"
        pairs, backward = (point.seq**2, 4) if eager else (causal_pairs(point), 5)
        layer = 3 * product_flops(point) + attention_flops(point, 2 + backward, pairs)
        if kept == "full":
            layer += product_flops(point) * 2 // 3 + attention_flops(point, 2, pairs)
        elif kept == "selective":
            layer += attention_flops(point, 1 if eager else 2, pairs)
        (least,) = cost(point).bytes
        elements = kept_elements(point, "none")
        elements += kept_elements(point, kept) if kept != "none" else 0
        moved = point.depth * elements * itemsize(point.dtype)
        return Work(matmuls(point, layer), (Bytes(least.read + moved, least.written + moved),))

    return of_point


CHECKPOINT = Workload(
    name="checkpoint",
    summary="training step of transformer blocks",
    formula="depth·(72·T·d² + 6·batch·d·seq·(seq + 1)) FLOP, T = batch·seq; inputs and gradients "
    "once",
    axes=(
        Axis("depth", 4, "transformer blocks"),
        Axis("heads", 16, "heads of attention"),
        Axis("batch", 4, "sequences"),
        Axis("seq", 2048, "tokens of a sequence", main=True),
        Axis("head_dim", 128, "elements of a head", minimum=LEAST_HEAD),
        Axis("attention", "sdpa", "how attention is computed", choices=tuple(ATTENTIONS)),
        Axis("dtype", "auto", "dtype of all tensors", choices=("fp32", "bf16")),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=tuple(
        Implementation(kept, step(kept), summary, work=work(kept))
        for kept, summary in (
            ("none", "no checkpoint: all activations are kept"),
            ("selective", "attention runs again backward"),
            ("full", "each block runs again backward"),
        )
    ),
    terms=lambda point: point.depth * max(4 * width_of(point), point.batch * point.seq),
    roundings=lambda point: 4 + 2 * point.depth,
)
