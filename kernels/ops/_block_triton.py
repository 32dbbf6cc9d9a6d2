"""Compute one transformer block with int8 weights, by Triton kernels of other workloads.

Products are those of `linear`, norms those of `rmsnorm`, the activation that of `mlp`, attention
that of `decode` or, of a prompt, that of `attention`. RoPE, the new keys and values of the cache,
and the sums are torch's, compiled on a GPU. A CUDA graph launches all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from gpuperf.kernels import _flash as flash
from gpuperf.kernels import _split_kv as split_kv
from gpuperf.kernels._block_quantized import Products
from gpuperf.kernels._blocks import in_blocks
from gpuperf.kernels._mlp_triton import activate_kernel
from gpuperf.kernels._norms_triton import empty_result, forward_call
from gpuperf.kernels._rows import tilings
from gpuperf.kernels._transformer_block import Call, Held, Inputs, rotate

from gpuperf import Point
from gpuperf.jit import tune

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
Pair = tuple[torch.Tensor, torch.Tensor]


def norm_call(x: torch.Tensor, gain: torch.Tensor, into: torch.Tensor) -> Callable[[], Any]:
    """Return the fastest call that writes the RMS norm of x (tokens, d)."""
    bound = {"x": x, "weight": gain}
    result = empty_result(bound)._replace(y=into)
    make = partial(forward_call, bound, result, kept=False)
    call: Callable[[], Any] = tune(make, tilings(x.shape[1], x.element_size()))
    return call


def heads_of(point: Point) -> Callable[..., Pair]:
    """Return a function that writes queries with RoPE, and returns new keys and values; these are
    written to the cache too, if there is one."""
    kv_heads = point.heads // point.gqa

    def heads(
        query: torch.Tensor,
        projected: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        *cache: torch.Tensor,
    ) -> Pair:
        every = projected.view(point.batch, -1, point.heads + 2 * kv_heads, point.head_dim)
        q, k, v = every.transpose(1, 2).split((point.heads, kv_heads, kv_heads), 1)
        query.copy_(rotate(q, cos, sin))
        k = rotate(k, cos, sin)
        if cache:
            cache[0][:, :, -1:], cache[1][:, :, -1:] = k, v
        return k, v.clone(memory_format=torch.contiguous_format)

    return heads


def decode_call(query: torch.Tensor, held: Held, point: Point) -> Callable[[], torch.Tensor]:
    """Return the fastest call of attention of *query* over the cache."""
    keys, values = held.cache
    sequences = point.batch * keys.shape[1]
    splits = split_kv.choose_splits(sequences, point.seq, split_kv.sm_count(query))
    call: Callable[[], torch.Tensor] = tune(
        partial(split_kv.decode_split, query, keys, values, None, point.seq, splits), split_kv.TILES
    )
    return call


def prompt_attention(query: torch.Tensor, k: torch.Tensor) -> Callable[..., torch.Tensor]:
    """Return the fastest causal attention of *query*, f(k, v); *k* has their shape."""
    mask = flash.Mask(True, 0, query.shape[-1] ** -0.5)

    def make(tile: Mapping[str, int]) -> Callable[..., torch.Tensor]:
        return lambda keys=k, values=k: flash.forward(query, keys, values, mask, tile)[0]

    chosen = tune(make, flash.tiles("forward", query)).chosen
    return make(chosen)  # type: ignore[arg-type]


def layer_call(inputs: Inputs, point: Point, held: Held, products: Products, wrap: Wrap) -> Call:
    """Return the call of the block; *wrap* changes what torch computes."""
    x, factor, call = inputs["x"], products.factor, products.call
    rows, heads = x.view(-1, x.shape[-1]), wrap(heads_of(point))
    gain_attention, _, _, gain_mlp, *_ = held.parameters
    total = torch.empty_like(rows)
    query = x.new_zeros(point.batch, point.heads, x.shape[1], point.head_dim)
    first = norm_call(rows, gain_attention, factor["qkv"])
    second = norm_call(total, gain_mlp, factor["gate"])
    gate, up = call["gate"](), call["up"]()  # which own their results
    active = in_blocks(activate_kernel, gate.numel(), factor["down"], gate, up, True)
    if point.phase == "decode":
        attend: Callable[..., torch.Tensor] = decode_call(query, held, point)
    else:
        attend = prompt_attention(query, query[:, : point.heads // point.gqa].contiguous())

    def compute() -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            first()
            k, v = heads(query, call["qkv"](), *held.tables, *held.cache)
            factor["out"].view(x.shape[0], x.shape[1], point.heads, -1).copy_(
                (attend() if held.cache else attend(k, v)).transpose(1, 2)
            )
            torch.add(rows, call["out"](), out=total)
            second()
            call["gate"]()
            call["up"]()
            active()
            return (total + call["down"]()).view(x.shape), k, v

    return compute
