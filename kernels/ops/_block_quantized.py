"""Compute one transformer block with int8 weights, by the kernels of `linear`.

The products read their factors from tensors that their builds are bound to, so that what is between
two products (norms, RoPE and attention, activation, sums) is a function that writes its result
there. On a GPU torch.compile fuses these functions, and a CUDA graph launches all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from gpuperf.kernels._linear_cuda import linear_best
from gpuperf.kernels._transformer_block import (
    EPS,
    WEIGHTS,
    Call,
    Held,
    Inputs,
    attend,
    captured,
    weight_step,
)

from gpuperf import Point
from gpuperf.jit import compiled

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def normalize(into: torch.Tensor, x: torch.Tensor, gain: torch.Tensor) -> None:
    """Write the RMS norm of x."""
    into.copy_(F.rms_norm(x, x.shape[-1:], gain, EPS))


def add_and_normalize(
    into: torch.Tensor, total: torch.Tensor, x: torch.Tensor, more: torch.Tensor, gain: torch.Tensor
) -> None:
    """Write the sum of x and more, and its RMS norm."""
    total.copy_(x + more)
    into.copy_(F.rms_norm(total, x.shape[-1:], gain, EPS))


def activate(into: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> None:
    """Write silu(gate) ⊙ up."""
    into.copy_(F.silu(gate) * up)


def attention_of(point: Point) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Return attention, which writes its result and returns the new keys and values."""

    def attention(
        into: torch.Tensor,
        projected: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        *cache: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # A row of the product is a new token of one of the sequences.
        tokens = len(projected) // point.batch
        heads = projected.view(point.batch, tokens, -1, point.head_dim)
        mixed, k, v = attend(heads, point.gqa, cos, sin, cache)
        into.copy_(mixed.reshape(into.shape))
        return k, v.clone()

    return attention


class Products:
    """The products of a block with int8 codes of the weights, and the tensors that they read."""

    def __init__(self, inputs: Inputs) -> None:
        self._weights = {name: inputs[name] for name in WEIGHTS}
        tokens = inputs["x"].numel() // inputs["x"].shape[-1]
        self.codes = {n: torch.empty_like(w, dtype=torch.int8) for n, w in self._weights.items()}
        self.factor = {
            name: weight.new_zeros((tokens, weight.shape[1]))
            for name, weight in self._weights.items()
            if name != "up"
        }
        self.factor["up"] = self.factor["gate"]
        self.call = {name: self._build(name, tokens) for name in WEIGHTS}

    def update(self) -> None:
        """Convert the weights to codes."""
        for name, weight in self._weights.items():
            self.codes[name].copy_(weight / weight_step(weight.shape[1]))

    def _build(self, name: str, tokens: int) -> Callable[[], torch.Tensor]:
        n, k = self.codes[name].shape
        scale = self._weights[name].new_full((n, 1), weight_step(k))
        bound = {"x": self.factor[name], "weight": self.codes[name], "scale": scale}
        dtype = "bf16" if scale.dtype == torch.bfloat16 else "fp32"
        point = Point(m=tokens, n=n, k=k, weights="int8", dtype=dtype)
        product: Callable[[], torch.Tensor] = linear_best(bound, point, {})
        return product


def layer_call(inputs: Inputs, point: Point, held: Held, products: Products, wrap: Wrap) -> Call:
    """Return the call of the block, whose functions between products are changed by *wrap*."""
    first, second, active = wrap(normalize), wrap(add_and_normalize), wrap(activate)
    attend, factor, call = wrap(attention_of(point)), products.factor, products.call
    gain_attention, _, _, gain_mlp, *_ = held.parameters
    x = inputs["x"]
    total = torch.empty_like(x.view(-1, x.shape[-1]))

    def compute() -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            rows = x.view(total.shape)
            first(factor["qkv"], rows, gain_attention)
            k, v = attend(factor["out"], call["qkv"](), *held.tables, *held.cache)
            second(factor["gate"], total, rows, call["out"](), gain_mlp)
            active(factor["down"], call["gate"](), call["up"]())
            return (total + call["down"]()).view(x.shape), k, v

    return compute


def int8_rung(
    layer: Callable[[Inputs, Point, Held, Products, Wrap], Call],
) -> Callable[[Inputs, Point, object], Call]:
    """Return the build of *layer* with int8 weights; on a GPU compiled and captured."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        on_gpu, x = inputs["x"].is_cuda, inputs["x"]
        held, products = Held(inputs, point, x.dtype), Products(inputs)
        products.update()
        compute = layer(inputs, point, held, products, compiled if on_gpu else lambda f: f)
        if on_gpu:
            compute = captured(compute)

        def call() -> tuple[torch.Tensor, ...]:
            if held.update():
                products.update()
            results: tuple[torch.Tensor, ...] = compute()
            return results

        return call

    return build
