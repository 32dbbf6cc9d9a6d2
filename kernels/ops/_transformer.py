"""Train a stack of transformer blocks for a step, and count what it keeps for its backward pass.

A block is GPT-2's without biases: x + Wₒ·attention(norm x), then x + Down·gelu(Up·norm x).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from gpuperf import Point

Inputs = Mapping[str, torch.Tensor]
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

WEIGHTS = ("qkv", "out", "up", "down")


def width_of(point: Point) -> int:
    """Return the width of the residual stream."""
    return int(point.heads * point.head_dim)


def shapes(point: Point) -> dict[str, tuple[int, ...]]:
    """Return the shape of each input; the weights of all layers are one tensor."""
    d, layers, stream = width_of(point), point.depth, (point.batch, point.seq, width_of(point))
    weights = {"qkv": (3 * d, d), "out": (d, d), "up": (4 * d, d), "down": (d, 4 * d)}
    return {"x": stream} | {n: (layers, *s) for n, s in weights.items()} | {"dy": stream}


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return causal attention as single operations, whose softmax is kept."""
    hidden = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).triu_(1)
    scores = (q @ k.transpose(-1, -2)).mul_(q.shape[-1] ** -0.5).masked_fill_(hidden, -math.inf)
    return torch.softmax(scores, -1) @ v


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return causal attention by torch's scaled_dot_product_attention."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


ATTENTIONS: dict[str, Attend] = {"eager": eager, "sdpa": sdpa}


def again(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return *function*, which keeps its inputs alone and runs again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = checkpoint(
            function, *tensors, use_reentrant=False, preserve_rng_state=False
        )
        return y

    return run


def block_of(point: Point, kept: str) -> Callable[..., torch.Tensor]:
    """Return one block, f(x, qkv, out, up, down), which keeps what *kept* says."""
    attend = ATTENTIONS[point.attention]
    if kept == "selective":
        attend = again(attend)

    def block(
        x: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor, up: torch.Tensor, down: torch.Tensor
    ) -> torch.Tensor:
        norm = F.layer_norm(x, x.shape[-1:])
        split = F.linear(norm, qkv).view(*x.shape[:2], 3, point.heads, point.head_dim)
        heads = attend(*split.permute(2, 0, 3, 1, 4).contiguous())
        x = x + F.linear(heads.transpose(1, 2).reshape(x.shape), out)
        norm = F.layer_norm(x, x.shape[-1:])
        return x + F.linear(F.gelu(F.linear(norm, up), approximate="tanh"), down)

    return again(block) if kept == "full" else block


class Step:
    """One forward and backward pass: y, dx and the gradients of each layer's weights."""

    def __init__(self, inputs: Inputs, point: Point, kept: str) -> None:
        self._inputs, self._layers = inputs, int(point.depth)
        self._block = block_of(point, kept)

    def __call__(self) -> tuple[torch.Tensor, ...]:
        leaves = self._leaves()
        y = self._forward(leaves)
        return (y.detach(), *torch.autograd.grad(y, leaves, self._inputs["dy"]))

    def readings(self) -> dict[str, float]:
        """Return the bytes that the forward pass keeps for the backward pass, without inputs."""
        leaves, kept = self._leaves(), dict[int, int]()
        given = {tensor.untyped_storage().data_ptr() for tensor in self._inputs.values()}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in given:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            y = self._forward(leaves)
        del y  # until here no address is used twice
        return {"kept_bytes": float(sum(kept.values()))}

    def _leaves(self) -> list[torch.Tensor]:
        weights = [self._inputs[name][i] for i in range(self._layers) for name in WEIGHTS]
        return [tensor.detach().requires_grad_() for tensor in (self._inputs["x"], *weights)]

    def _forward(self, leaves: Sequence[torch.Tensor]) -> torch.Tensor:
        y, weights = leaves[0], leaves[1:]
        with torch.enable_grad():
            for i in range(0, len(weights), len(WEIGHTS)):
                y = self._block(y, *weights[i : i + len(WEIGHTS)])
        return y


def step(kept: str) -> Callable[[Inputs, Point, Any], Step]:
    """Return the build of a step that keeps what *kept* says: all, `selective` or `full`."""
    return lambda inputs, point, options: Step(inputs, point, kept)
