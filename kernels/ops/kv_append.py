"""Write the keys and values of new tokens into a cache, each at the place of its sequence.

The new keys and values are (batch, tokens, kv_heads, head_dim), as a projection writes them; the
call changes the cache, whose layouts `_cache.py` describes. In a contiguous cache the tokens of a
sequence are written from its position on: `positions` (batch,) of int32. In a paged cache each
token has a slot, page · size + place in the page: `slots` (batch, tokens) of int32, which a serving
engine computes from its page tables once for all layers.

No FLOP. The new keys and values are read once and written once, and the positions or slots are
read; the rest of the cache is not touched, but belongs to the result that is checked.

- `torch`: `index_put_` on a transposed cache, once for keys and once for values, after small
  kernels that compute the indices.
- `triton`: one Triton kernel for both, tuned over the block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from gpuperf.kernels._cache import (
    DTYPE,
    LAYOUT,
    PAGE,
    block_size,
    cache_shape,
    draw_positions,
    draw_slots,
    is_paged,
)

from gpuperf import Axis, Bytes, Cost, Implementation, Point, Workload
from gpuperf.errors import CannotMeasure
from gpuperf.jit import Tuned, jit, lacks_triton, tl, triton, tune
from gpuperf.units import itemsize

Inputs = Mapping[str, torch.Tensor]
Caches = tuple[torch.Tensor, torch.Tensor]

BLOCKS = tuple({"BLOCK": size, "num_warps": size // 256} for size in (1024, 512, 2048))


@jit
def append_kernel(
    k,
    v,
    new_k,
    new_v,
    places,
    n,
    tokens,
    kv_heads,
    size,
    D: tl.constexpr,
    PAGED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write BLOCK elements of the new keys and values to the cache (blocks, kv_heads, size, D)."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    d, row = i % D, i // D
    head, token = row % kv_heads, row // kv_heads
    if PAGED:
        slot = tl.load(places + token, inside, 0)
        block, place = slot // size, slot % size
    else:
        block = token // tokens
        place = tl.load(places + block, inside, 0) + token % tokens
    at = ((block.to(tl.int64) * kv_heads + head) * size + place) * D + d
    tl.store(k + at, tl.load(new_k + i, inside), inside)
    tl.store(v + at, tl.load(new_v + i, inside), inside)


def make_inputs(point: Point, make: Callable[..., torch.Tensor]) -> Inputs:
    """Draw the new keys and values, the cache, and the places of the new tokens.

    Raises: CannotMeasure if a sequence has less space in the cache than new tokens.
    """
    if point.tokens > point.kv:
        raise CannotMeasure(
            f"{point.tokens} new tokens do not fit a cache of {point.kv} for a sequence",
            "give --kv of at least --tokens",
        )
    new = (point.batch, point.tokens, point.kv_heads, point.head_dim)
    inputs = {name: make(new, point.dtype) for name in ("new_k", "new_v")}
    inputs |= {name: make(cache_shape(point, point.kv_heads), point.dtype) for name in "kv"}
    if is_paged(point):
        return inputs | {"slots": draw_slots(point, make)}
    return inputs | {"positions": draw_positions(point, make)}


def places_of(inputs: Inputs, point: Point) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the block of the cache and the place in it of each new token, as int64."""
    if "slots" in inputs:
        slots = inputs["slots"].long()
        return slots // point.page, slots % point.page
    positions = inputs["positions"].long()
    batch = torch.arange(len(positions), device=positions.device)[:, None]
    tokens = torch.arange(point.tokens, device=positions.device)
    return batch.expand(-1, point.tokens), positions[:, None] + tokens


def append_torch(inputs: Inputs, point: Point, options: object) -> Callable[[], Caches]:
    """Build the append by torch's `index_put_`."""
    k, v = inputs["k"], inputs["v"]

    def call() -> Caches:
        places = places_of(inputs, point)
        k.transpose(1, 2).index_put_(places, inputs["new_k"])
        v.transpose(1, 2).index_put_(places, inputs["new_v"])
        return k, v

    return call


def append_triton(inputs: Inputs, point: Point, options: object) -> Tuned:
    """Build the append by the Triton kernel."""
    k, v, new_k, new_v = (inputs[name] for name in ("k", "v", "new_k", "new_v"))
    places, n = inputs["slots" if is_paged(point) else "positions"], new_k.numel()

    def make(tile: Mapping[str, int]) -> Callable[[], Caches]:
        def call() -> Caches:
            append_kernel[(triton.cdiv(n, tile["BLOCK"]),)](
                k,
                v,
                new_k,
                new_v,
                places,
                n,
                point.tokens,
                point.kv_heads,
                block_size(point),
                D=point.head_dim,
                PAGED=is_paged(point),
                **tile,
            )
            return k, v

        return call

    return tune(make, BLOCKS)


def reference(inputs: Inputs, point: Point) -> Caches:
    """Write the new tokens to a copy of the cache in float64."""
    k, v = inputs["k"].double(), inputs["v"].double()
    places = places_of(inputs, point)
    for cache, new in ((k, inputs["new_k"]), (v, inputs["new_v"])):
        cache.transpose(1, 2)[places] = new.double()
    return k, v


def narrow(inputs: Inputs, rows: torch.Tensor) -> Inputs:
    """Return the inputs of the blocks *rows* of the cache, with the tokens written there alone."""
    if "positions" in inputs:
        return {name: value[rows] for name, value in inputs.items()}
    size, slots = inputs["k"].shape[2], inputs["slots"].flatten()
    token, row = (slots[:, None] // size == rows).nonzero(as_tuple=True)
    new = {name: inputs[name].flatten(0, 1)[token] for name in ("new_k", "new_v")}
    cache = {name: inputs[name][rows] for name in "kv"}
    return {**new, **cache, "slots": row * size + slots[token] % size}


def cost(point: Point) -> Cost:
    """Return the bytes of the new keys and values, read and written, and of their places."""
    new = 2 * point.batch * point.tokens * point.kv_heads * point.head_dim * itemsize(point.dtype)
    places = 4 * point.batch * (point.tokens if is_paged(point) else 1)
    return Cost(bytes=(Bytes(new + places, new),))


KV_APPEND = Workload(
    name="kv_append",
    summary="new keys and values put into a cache",
    formula="0 FLOP; 4·b·t·h·d·s bytes (keys and values, read and written), and the places",
    axes=(
        Axis("batch", 64, "sequences", main=True),
        Axis("kv_heads", 8, "heads of keys"),
        Axis("tokens", 1, "new tokens of a sequence"),
        Axis("kv", 4096, "tokens for which a sequence has space"),
        Axis("head_dim", 128, "elements of a head"),
        LAYOUT,
        PAGE,
        DTYPE,
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation("torch", append_torch, "torch, Tensor.index_put_"),
        Implementation("triton", append_triton, "Triton, tuned blocks", lacks_triton),
    ),
    narrow=narrow,
    mutates=("k", "v"),
    terms=lambda point: 1,
)
