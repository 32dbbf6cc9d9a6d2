"""Compute attention of a few new tokens of each sequence over a cache of keys and values.

q is (batch, heads, queries, head_dim); the cache has kv tokens of each sequence and heads/gqa heads
of keys and values. The new tokens are its last: query i attends to the keys j ≤ i + kv − queries,
and the last query to all. `_cache.py` describes the layouts of the cache; in a paged one the table
(batch, pages) of int32 says which pages a sequence has.

The FLOPs are those of the matmuls over the pairs that the mask admits, 4·batch·heads·head_dim a
pair. The bytes are q and o, the keys and the values once for all query heads that share them, and
the table. The last page counts whole, up to page − 1 tokens of a sequence more than are read.

- `eager`: torch's matmul, scale, mask, softmax, matmul over repeated keys. A paged cache is first
  gathered into a contiguous one, as in `sdpa`, which reads and writes it once more.
- `sdpa`: torch's scaled_dot_product_attention with enable_gqa, by the backend that torch chooses.
- `flex`: torch's flex_attention, compiled, on a contiguous cache.
- `triton_split`: gpuperf's Triton kernels (`_split_kv.py`), which read pages where they are. The
  option `splits` is the number of programs that share the keys of a sequence; 0 derives it from the
  number of SMs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from gpuperf.kernels import _split_kv as split_kv
from gpuperf.kernels._cache import (
    DTYPE,
    LAYOUT,
    PAGE,
    cache_shape,
    draw_table,
    gathered,
    is_paged,
    pages_of,
)

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Workload
from gpuperf.errors import CannotMeasure
from gpuperf.jit import Tuned, compiled, lacks_compiler, lacks_triton, tune
from gpuperf.units import itemsize

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], Any]
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

HEAD_DIMS = (16, 32, 64, 128, 256)
MOST_ROWS = 64  # queries of all heads that share keys, in the registers of one program
SPLITS = (0, 1, 8, 32)


def make_inputs(point: Point, make: Callable[..., torch.Tensor]) -> Inputs:
    """Draw q, the cache, and the table of a paged cache.

    Raises: CannotMeasure if gqa does not divide heads, or the queries are not in the cache.
    """
    if point.heads % point.gqa:
        raise CannotMeasure(
            f"{point.heads} heads cannot be shared by {point.gqa} at a time",
            "--gqa has to divide --heads",
        )
    if point.queries > point.kv:
        raise CannotMeasure(
            f"{point.queries} new tokens are more than the {point.kv} tokens of the cache",
            "--kv counts the new tokens too: give at least as many as --queries",
        )
    inputs = {"q": make((point.batch, point.heads, point.queries, point.head_dim), point.dtype)}
    shape = cache_shape(point, point.heads // point.gqa)
    inputs |= {name: make(shape, point.dtype) for name in "kv"}
    if is_paged(point):
        inputs["table"] = draw_table(point, make)
    return inputs


def contiguous(inputs: Inputs, point: Point) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and values (batch, kv_heads, kv, head_dim); those in pages are copied."""
    k, v = inputs["k"], inputs["v"]
    if "table" not in inputs:
        return k, v
    return gathered(k, inputs["table"], point.kv), gathered(v, inputs["table"], point.kv)


def hidden_keys(point: Point, device: Any) -> torch.Tensor:
    """Return which keys a query must not attend to, (queries, kv)."""
    i, j = (torch.arange(n, device=device) for n in (point.queries, point.kv))
    return j > i[:, None] + point.kv - point.queries


def eager(point: Point, device: Any) -> Attend:
    """Return attention as single operations over keys that are repeated for their query heads."""
    hidden = hidden_keys(point, device) if point.queries > 1 else None

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if point.gqa > 1:
            k, v = k.repeat_interleave(point.gqa, 1), v.repeat_interleave(point.gqa, 1)
        scores = q @ k.transpose(-1, -2) * point.head_dim**-0.5
        if hidden is not None:
            scores = torch.where(hidden, -math.inf, scores)
        return torch.softmax(scores, -1) @ v

    return attend


def sdpa(point: Point, device: Any) -> Attend:
    """Return torch's scaled_dot_product_attention, which takes keys that query heads share."""
    corner = None
    if point.queries > 1:
        from torch.nn.attention import bias  # it imports torch's compiler, for 1 to 4 s

        corner = bias.causal_lower_right(point.queries, point.kv)
    return partial(F.scaled_dot_product_attention, attn_mask=corner, enable_gqa=point.gqa > 1)


def flex(point: Point, device: Any) -> Attend:
    """Return compiled flex_attention, with a block mask where there are several queries."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    offset, mask = point.kv - point.queries, None
    if point.queries > 1:
        mask = create_block_mask(
            lambda b, h, i, j: j <= i + offset,
            None,
            None,
            point.queries,
            point.kv,
            device=str(device),
        )
    return compiled(partial(flex_attention, block_mask=mask, enable_gqa=point.gqa > 1))


def build_of(make: Callable[[Point, Any], Attend]) -> Callable[..., Call]:
    """Return the build of what `make(point, device)` returns, called on contiguous keys."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        attend, q = make(point, inputs["q"].device), inputs["q"]
        return lambda: attend(q, *contiguous(inputs, point))

    return build


def decode_triton(inputs: Inputs, point: Point, options: Mapping[str, Any]) -> Tuned:
    """Build gpuperf's Triton kernels with the fastest tile, and the number of splits."""
    q, k, v = (inputs[name] for name in "qkv")
    sequences = point.batch * k.shape[1]
    splits = options["splits"] or split_kv.choose_splits(sequences, point.kv, split_kv.sm_count(q))
    attend = partial(split_kv.decode_split, q, k, v, inputs.get("table"), point.kv, splits)
    call = tune(attend, split_kv.TILES)
    return Tuned(call, {"splits": splits, **call.chosen})


def flex_supports(point: Point, device: Any) -> str | None:
    """Return why flex_attention cannot run the point, or None where it can."""
    if device.kind == "cpu":
        return "needs a GPU"
    return "takes a contiguous cache" if is_paged(point) else lacks_compiler(point, device)


def triton_supports(point: Point, device: Any) -> str | None:
    """Return why gpuperf's Triton kernels cannot run the point, or None where they can."""
    if point.head_dim not in HEAD_DIMS:
        return f"head-dim must be one of {', '.join(map(str, HEAD_DIMS))}"
    if point.gqa * point.queries > MOST_ROWS:
        return f"takes gqa · queries of at most {MOST_ROWS}"
    if device.kind == "cpu" and point.dtype == "bf16":
        return "Triton's interpreter does not multiply bf16"
    return lacks_triton(point, device)


def reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """Compute attention in float64, one sequence at a time."""
    q, table = inputs["q"].double(), inputs.get("table")
    o = torch.empty_like(q)
    hidden = hidden_keys(point, q.device).repeat(point.gqa, 1)
    for sequence in range(q.shape[0]):
        k, v = (
            inputs[name][sequence]
            if table is None
            else gathered(inputs[name], table[sequence][None], point.kv)[0]
            for name in "kv"
        )
        rows = q[sequence].reshape(k.shape[0], -1, point.head_dim)
        scores = rows * point.head_dim**-0.5 @ k.double().transpose(1, 2)
        shares = torch.softmax(scores.masked_fill_(hidden, -math.inf), -1)
        o[sequence] = (shares @ v.double()).view_as(q[sequence])
    return o


def cost(point: Point) -> Cost:
    """Return two matmuls over the admitted pairs; q, the cache and the table read, o written."""
    size, kv_heads = itemsize(point.dtype), point.heads // point.gqa
    pairs = point.queries * point.kv - point.queries * (point.queries - 1) // 2
    flops = 4 * point.batch * point.heads * point.head_dim * pairs
    q = point.batch * point.heads * point.queries * point.head_dim * size
    cache = 2 * math.prod(cache_shape(point, kv_heads)) * size
    table = 4 * point.batch * pages_of(point) if is_paged(point) else 0
    return Cost((Flops(flops, "matmul", point.dtype, "fp32"),), (Bytes(q + cache + table, q),))


def narrow(inputs: Inputs, rows: torch.Tensor) -> Inputs:
    """Return the inputs of the sequences *rows*, which share the pages."""
    shared = ("k", "v") if "table" in inputs else ()
    return {name: value if name in shared else value[rows] for name, value in inputs.items()}


DECODE = Workload(
    name="decode",
    summary="attention of new tokens over a cache",
    formula="4·b·h·d·S FLOP (S admitted pairs); q, o, the cache, and the page table once",
    axes=(
        Axis("batch", 8, "sequences"),
        Axis("heads", 32, "heads of queries"),
        Axis("gqa", 4, "query heads that share a head of keys"),
        Axis("kv", 4096, "tokens of a sequence in the cache, with the new ones", main=True),
        PAGE,
        Axis("head_dim", 128, "elements of a head"),
        Axis("queries", 1, "new tokens of a sequence"),
        LAYOUT,
        DTYPE,
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation("eager", build_of(eager), "torch, operation by operation"),
        Implementation("sdpa", build_of(sdpa), "torch's scaled_dot_product_attention"),
        Implementation("flex", build_of(flex), "torch's flex_attention, compiled", flex_supports),
        Implementation(
            "triton_split",
            decode_triton,
            "Flash-Decoding in Triton, tuned",
            triton_supports,
            options={"splits": SPLITS},
        ),
    ),
    narrow=narrow,
    terms=lambda point: point.kv,
    roundings=lambda point: 4,
)
