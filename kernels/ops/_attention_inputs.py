"""Draw the inputs of attention, and the size of the addends of its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from gpuperf.kernels._masks import admitted_keys, document_starts, key_count, mask_of, most_keys

from gpuperf import Point
from gpuperf.errors import CannotMeasure

Inputs = Mapping[str, torch.Tensor]

NAMES = ("q", "k", "v")


def make_inputs(point: Point, make: Callable[[tuple[int, ...], str], torch.Tensor]) -> Inputs:
    """Draw q, k, v, the mask, and do (batch, heads, seq, head_dim) where the mode has a backward.

    A boolean mask admits the first key for every query, since a softmax over no key is NaN.

    Raises: CannotMeasure if gqa does not divide heads, a sequence has no room for its documents,
    or no gradient could be checked.
    """
    if point.heads % point.gqa:
        raise CannotMeasure(
            f"{point.heads} heads cannot be shared by {point.gqa} at a time",
            "--gqa has to divide --heads",
        )
    if point.mode != "fwd" and most_keys(point) == 1:
        reason = "no query attends to two keys, so the gradients of q and k are 0 and check nothing"
        raise CannotMeasure(reason, "give more keys, or --mode fwd")
    document_starts(point)  # which refuses what it cannot divide
    of_queries = (point.batch, point.heads, point.seq, point.head_dim)
    of_keys = (point.batch, point.heads // point.gqa, key_count(point), point.head_dim)
    inputs = {"q": make(of_queries, point.dtype)}
    inputs |= {name: make(of_keys, point.dtype) for name in "kv"}
    if mask_of(point) != "none":
        boolean = mask_of(point) == "boolean"
        shape = point.seq, key_count(point)
        inputs["mask"] = make(shape, "bool" if boolean else point.dtype)
        if boolean:
            inputs["mask"][:, 0] = True
    if point.mode != "fwd":
        inputs["do"] = make(of_queries, point.dtype)
    return inputs


def narrow(inputs: Inputs, rows: torch.Tensor) -> Inputs:
    """Return the inputs of the sequences *rows*, which share the mask."""
    return {name: value if name == "mask" else value[rows] for name, value in inputs.items()}


def prepared(point: Point) -> tuple[str, ...]:
    """Return the inputs that the forward reads, which the calls of `bwd` do not read again."""
    return (*NAMES, "mask") if point.mode == "bwd" else ()


def gradient_sizes(inputs: Inputs, point: Point) -> tuple[torch.Tensor | None, ...]:
    """Return the size of the addends of dq (b, h, n, 1), and None for the other results.

    The addends are p·(do·v − δ)·k. A query with one key has δ = do·v, and they cancel in the
    formula, but not in a kernel that sums each separately. A query has as many addends as keys,
    with a softmax p of about 1/keys.
    """
    if point.mode == "fwd":
        return (None,)
    _, k, v = (inputs[name].double().square().mean().sqrt() for name in NAMES)
    keys = admitted_keys(inputs, point).clamp_min(1)
    grad = inputs["do"].double().norm(dim=-1, keepdim=True)
    of_dq = grad * v * k * point.head_dim**-0.5 / keys.sqrt()[:, None]
    return (None, of_dq, None, None)[point.mode == "bwd" :]
