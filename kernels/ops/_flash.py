"""Compute attention with Triton kernels that keep the scores of a block in registers.

The loops follow FlashAttention-2 (arXiv 2307.08691); memory grows with n and not with n².

q is (b, h, n_q, d), k and v are (b, h_k, n_k, d), where h/h_k query heads share a head of keys.
With a causal mask query i attends to the keys j ≤ i + offset. In a band, the keys of each query
follow each other, and their first and last move only forward from one query to the next: sliding
windows and documents are bands. A query without a key gives 0, and infinity as its log-sum-exp,
which is stored in base 2. With a cap, scores are cap · tanh(score / cap). The backward computes the
scores again, once for dk and dv and once for dq, so that no two programs add to one element.

Loads and stores use tensor descriptors: TMA from Hopper on, plain loads before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from gpuperf.jit import jit, tl, triton

Tile = Mapping[str, int]
LOG2_E = 1.4426950408889634

# Tiles to tune among: queries and keys of a block, warps, stages. On an H200 the first was the
# fastest for long sequences of d 64 to 256.
FORWARD = (
    {"BM": 64, "BN": 64, "num_warps": 4, "num_stages": 3},
    {"BM": 128, "BN": 128, "num_warps": 8, "num_stages": 3},
    {"BM": 64, "BN": 32, "num_warps": 4, "num_stages": 2},
)
BACKWARD_KV = (
    {"BM": 64, "BN": 64, "num_warps": 4, "num_stages": 2},
    {"BM": 64, "BN": 128, "num_warps": 8, "num_stages": 2},
    {"BM": 32, "BN": 64, "num_warps": 8, "num_stages": 1},
)
BACKWARD_Q = (
    {"BM": 128, "BN": 64, "num_warps": 8, "num_stages": 3},
    {"BM": 128, "BN": 128, "num_warps": 8, "num_stages": 2},
    {"BM": 64, "BN": 32, "num_warps": 8, "num_stages": 1},
)
# Heads of 256 elements leave registers for these alone.
BACKWARD_KV_256 = (
    {"BM": 64, "BN": 64, "num_warps": 8, "num_stages": 2},
    {"BM": 32, "BN": 64, "num_warps": 8, "num_stages": 2},
    {"BM": 32, "BN": 64, "num_warps": 8, "num_stages": 1},
)
BACKWARD_Q_256 = (
    {"BM": 64, "BN": 64, "num_warps": 8, "num_stages": 2},
    {"BM": 64, "BN": 32, "num_warps": 8, "num_stages": 1},
)


def tiles(part: str, q: torch.Tensor) -> tuple[Tile, ...]:
    """Return the tiles to tune among for *part*: `forward`, or `kv` or `q` of the backward.

    fp32 has one small tile: it uses no tensor cores, and large tiles compile for most of a minute.
    """
    every: dict[str, tuple[Tile, ...]] = {"forward": FORWARD, "kv": BACKWARD_KV, "q": BACKWARD_Q}
    if q.shape[-1] == 256:
        every |= {"kv": BACKWARD_KV_256, "q": BACKWARD_Q_256}
    candidates = every[part]
    return candidates[-1:] if q.dtype == torch.float32 else candidates


class Band(NamedTuple):
    """The first key that each query attends to and the one after the last, int32 (n_q,), and the
    first query that attends to each key and the one after the last, int32 (n_k,)."""

    key_begins: torch.Tensor
    key_ends: torch.Tensor
    query_begins: torch.Tensor
    query_ends: torch.Tensor


class Mask(NamedTuple):
    """The keys that a query attends to, the scale of its scores, and their cap, of which 0 is none.

    A band replaces the causal mask.
    """

    causal: bool
    offset: int
    scale: float
    band: Band | None = None
    cap: float = 0.0

    @property
    def kind(self) -> str:
        """`all`, `causal` or `band`."""
        return "band" if self.band else "causal" if self.causal else "all"

    @property
    def slope(self) -> float:
        """What the product of a query and a key is multiplied by before its hyperbolic tangent."""
        return self.scale / self.cap if self.cap else 1.0

    @property
    def factor(self) -> float:
        """What it is multiplied by after that, or without one, for a power of 2."""
        return (self.cap or self.scale) * LOG2_E


def band_of(key_begins: torch.Tensor, key_ends: torch.Tensor, keys: int) -> Band:
    """Return the band in which query i attends to the keys from `key_begins[i]` up to, and without,
    `key_ends[i]`; both rise from query to query, and are from 0 to *keys*."""
    begins, ends = key_begins.int().contiguous(), key_ends.int().contiguous()
    j = torch.arange(keys, dtype=torch.int32, device=begins.device)
    # The queries before the first to see a key end at or before it; those up to the last begin so.
    of_keys = (torch.searchsorted(of, j, right=True).int() for of in (ends, begins))
    return Band(begins, ends, *of_keys)


@jit
def head_at(pointer, batch, head, s_b, s_h):
    """Return the address of a head, computed in 64 bits: tensors may have over 2³¹ elements."""
    return pointer + batch.to(tl.int64) * s_b + head.to(tl.int64) * s_h


@jit
def tanh(x, CAP: tl.constexpr):
    """Return the hyperbolic tangent of x, with a relative error of 2⁻¹¹ if CAP is `fast`."""
    if CAP == "fast":
        return tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    square = x * x
    # 1 - 2 / (e²ˣ + 1) loses the digits of a small x. The next term is 2⁻²⁷ of the sum at 0.25.
    series = 1.0 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * 62 / 2835)))
    return tl.where(square < 0.0625, x * series, 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0))


@jit
def band_range(begins, ends, first, rows, count, whole: tl.constexpr):
    """Return where the columns of *rows* rows from *first* begin, where all rows see them, up to
    where, and their end: the first three are multiples of a block."""
    last = tl.minimum(first + rows, count) - 1
    begin = tl.load(begins + first) // whole * whole
    end = tl.maximum(begin, tl.load(ends + last))
    clear = tl.minimum(tl.cdiv(tl.load(begins + last), whole), tl.cdiv(end, whole)) * whole
    clear = tl.maximum(clear, begin)
    return begin, clear, tl.maximum(clear, tl.load(ends + first) // whole * whole), end


@jit
def forward_step(
    acc, total, most, queries, keys_at, values_at, start, i, begins, ends, offset, nk, factor,
    slope, MASKED: tl.constexpr, MASK: tl.constexpr, CAP: tl.constexpr, BN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Add a block of keys to the sums of o; update the running maximum and rescale the sums."""
    keys = keys_at.load([start, 0])
    scores = tl.dot(queries, keys.T, input_precision=PRECISION)
    if CAP != "none":
        scores = tanh(scores * slope, CAP)
    if MASKED:
        j = start + tl.arange(0, BN)
        seen = j[None, :] < nk
        if MASK == "causal":
            seen = seen & (j[None, :] <= i[:, None] + offset)
        if MASK == "band":
            seen = (j[None, :] >= begins[:, None]) & (j[None, :] < ends[:, None])
        scores = tl.where(seen, scores, float("-inf"))
    risen = tl.maximum(most, tl.max(scores, 1) * factor)
    shift = risen
    if MASKED:
        shift = tl.where(risen == float("-inf"), 0.0, risen)
    share = tl.exp2(scores * factor - shift[:, None])
    shrink = tl.exp2(most - shift)
    total = total * shrink + tl.sum(share, 1)
    values = values_at.load([start, 0])
    acc = tl.dot(share.to(values.dtype), values, acc * shrink[:, None], input_precision=PRECISION)
    return acc, total, risen


@jit
def forward_kernel(
    q, k, v, o, lse, key_begins, key_ends, factor, slope, offset, nq, nk, heads, group,
    sq_b, sq_h, sq_n, sk_b, sk_h, sk_n,
    D: tl.constexpr, MASK: tl.constexpr, CAP: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Compute o of a block of queries. Keys that need no mask come before those that do, and in a
    band between them."""
    block, bh = tl.program_id(0), tl.program_id(1)
    if MASK == "causal":
        block = tl.num_programs(0) - 1 - block  # the blocks with most keys begin first
    b, h = bh // heads, bh % heads
    keys = head_at(k, b, h // group, sk_b, sk_h)
    values = head_at(v, b, h // group, sk_b, sk_h)
    keys_at = tl.make_tensor_descriptor(keys, [nk, D], [sk_n, 1], [BN, D])
    values_at = tl.make_tensor_descriptor(values, [nk, D], [sk_n, 1], [BN, D])
    queries_at = tl.make_tensor_descriptor(
        head_at(q, b, h, sq_b, sq_h), [nq, D], [sq_n, 1], [BM, D]
    )
    out_at = tl.make_tensor_descriptor(head_at(o, b, h, sq_b, sq_h), [nq, D], [sq_n, 1], [BM, D])
    i = block * BM + tl.arange(0, BM)
    queries = queries_at.load([block * BM, 0])
    most = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    begin, clear, end, begins, ends = 0, nk // BN * BN, nk, i, i
    if MASK == "causal":
        end = tl.minimum(nk, tl.maximum(0, (block + 1) * BM + offset))
        clear = tl.minimum(clear, tl.maximum(0, (block * BM + offset + 1) // BN * BN))
    if MASK == "band":
        begins = tl.load(key_begins + i, i < nq, 0)
        ends = tl.load(key_ends + i, i < nq, 0)
        edge, begin, clear, end = band_range(key_begins, key_ends, block * BM, BM, nq, BN)
        for start in tl.range(edge, begin, BN):
            acc, total, most = forward_step(
                acc, total, most, queries, keys_at, values_at, start, i, begins, ends, offset, nk,
                factor, slope, True, MASK, CAP, BN, PRECISION,
            )  # fmt: skip
    for start in tl.range(begin, clear, BN):
        acc, total, most = forward_step(
            acc, total, most, queries, keys_at, values_at, start, i, begins, ends, offset, nk,
            factor, slope, False, MASK, CAP, BN, PRECISION,
        )  # fmt: skip
    for start in tl.range(clear, end, BN):
        acc, total, most = forward_step(
            acc, total, most, queries, keys_at, values_at, start, i, begins, ends, offset, nk,
            factor, slope, True, MASK, CAP, BN, PRECISION,
        )  # fmt: skip
    nothing = total == 0.0
    total = tl.where(nothing, 1.0, total)
    out_at.store([block * BM, 0], (acc / total[:, None]).to(o.dtype.element_ty))
    norm = tl.where(nothing, float("inf"), most + tl.log2(total))
    tl.store(lse + bh.to(tl.int64) * nq + i, norm, i < nq)


@jit
def row_sums_kernel(o, do, sums, nq, heads, s_b, s_h, s_n, D: tl.constexpr, BM: tl.constexpr):
    """Compute Σ over d of o ∘ do for a block of queries."""
    block, bh = tl.program_id(0), tl.program_id(1)
    i, d = block * BM + tl.arange(0, BM), tl.arange(0, D)
    at, here = i[:, None].to(tl.int64) * s_n + d[None, :], i[:, None] < nq
    b, h = bh // heads, bh % heads
    out = tl.load(head_at(o, b, h, s_b, s_h) + at, here, 0.0).to(tl.float32)
    grad = tl.load(head_at(do, b, h, s_b, s_h) + at, here, 0.0).to(tl.float32)
    tl.store(sums + bh.to(tl.int64) * nq + i, tl.sum(out * grad, 1), i < nq)


@jit
def kv_step(
    dkeys, dvalues, keys, values, queries_at, grads_at, lse, sums, start, j, begins, ends, offset,
    nq, nk, factor, slope, MASKED: tl.constexpr, MASK: tl.constexpr, CAP: tl.constexpr,
    BM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the terms of a block of queries to dk and dv; scores are transposed, (BN, BM)."""
    queries = queries_at.load([start, 0])
    i = start + tl.arange(0, BM)
    scores = tl.dot(keys, queries.T, input_precision=PRECISION)
    if CAP != "none":
        scores = tanh(scores * slope, CAP)
    if MASKED:
        norm, drop = tl.load(lse + i, i < nq, float("inf")), tl.load(sums + i, i < nq, 0.0)
    else:
        norm, drop = tl.load(lse + i), tl.load(sums + i)
    share = tl.exp2(scores * factor - norm[None, :])
    if MASKED:
        seen = (i[None, :] < nq) & (j[:, None] < nk)
        if MASK == "causal":
            seen = seen & (j[:, None] <= i[None, :] + offset)
        if MASK == "band":
            seen = (i[None, :] >= begins[:, None]) & (i[None, :] < ends[:, None])
        share = tl.where(seen, share, 0.0)
    grads = grads_at.load([start, 0])
    dvalues = tl.dot(share.to(grads.dtype), grads, dvalues, input_precision=PRECISION)
    dshare = tl.dot(values, grads.T, input_precision=PRECISION)
    dscores = share * (dshare - drop[None, :])
    if CAP != "none":
        dscores *= 1.0 - scores * scores
    dkeys = tl.dot(dscores.to(queries.dtype), queries, dkeys, input_precision=PRECISION)
    return dkeys, dvalues


@jit
def backward_kv_kernel(
    q, k, v, do, lse, sums, dk, dv, query_begins, query_ends, factor, slope, scale, offset, nq, nk,
    heads, group, sq_b, sq_h, sq_n, sk_b, sk_h, sk_n,
    D: tl.constexpr, MASK: tl.constexpr, CAP: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Compute dk and dv of a block of keys over the queries of all heads that share it."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // (heads // group), bh % (heads // group)
    first = block * BN
    j = first + tl.arange(0, BN)
    keys_at = tl.make_tensor_descriptor(head_at(k, b, h, sk_b, sk_h), [nk, D], [sk_n, 1], [BN, D])
    values_at = tl.make_tensor_descriptor(head_at(v, b, h, sk_b, sk_h), [nk, D], [sk_n, 1], [BN, D])
    keys, values = keys_at.load([first, 0]), values_at.load([first, 0])
    dkeys, dvalues = tl.zeros((BN, D), tl.float32), tl.zeros((BN, D), tl.float32)
    # Queries from `begin` on attend to some keys of the block, from `clear` on to all of them.
    whole = tl.cdiv(nq, BM) * BM
    begin, clear, last, end, begins, ends = 0, 0, nq // BM * BM, nq, j, j
    if MASK == "causal":
        begin = tl.maximum(0, first - offset) // BM * BM
        clear = tl.cdiv(tl.maximum(first + BN - 1 - offset, 0), BM) * BM
        clear = tl.minimum(tl.maximum(clear, begin), whole)
    if MASK == "band":
        begins = tl.load(query_begins + j, j < nk, 0)
        ends = tl.load(query_ends + j, j < nk, 0)
        begin, clear, last, end = band_range(query_begins, query_ends, first, BN, nk, BM)
        whole = tl.cdiv(end, BM) * BM
    if first + BN > nk:
        clear = whole
    for member in range(group):
        head = h * group + member
        row = (b * heads + head).to(tl.int64) * nq
        queries_at = tl.make_tensor_descriptor(
            head_at(q, b, head, sq_b, sq_h), [nq, D], [sq_n, 1], [BM, D]
        )
        grads_at = tl.make_tensor_descriptor(
            head_at(do, b, head, sq_b, sq_h), [nq, D], [sq_n, 1], [BM, D]
        )
        for start in tl.range(begin, clear, BM):
            dkeys, dvalues = kv_step(
                dkeys, dvalues, keys, values, queries_at, grads_at, lse + row, sums + row, start,
                j, begins, ends, offset, nq, nk, factor, slope, True, MASK, CAP, BM, PRECISION,
            )  # fmt: skip
        for start in tl.range(clear, last, BM):
            dkeys, dvalues = kv_step(
                dkeys, dvalues, keys, values, queries_at, grads_at, lse + row, sums + row, start,
                j, begins, ends, offset, nq, nk, factor, slope, False, MASK, CAP, BM, PRECISION,
            )  # fmt: skip
        for start in tl.range(tl.maximum(clear, last), end, BM):
            dkeys, dvalues = kv_step(
                dkeys, dvalues, keys, values, queries_at, grads_at, lse + row, sums + row, start,
                j, begins, ends, offset, nq, nk, factor, slope, True, MASK, CAP, BM, PRECISION,
            )  # fmt: skip
    dkeys_at = tl.make_tensor_descriptor(head_at(dk, b, h, sk_b, sk_h), [nk, D], [sk_n, 1], [BN, D])
    dvalues_at = tl.make_tensor_descriptor(
        head_at(dv, b, h, sk_b, sk_h), [nk, D], [sk_n, 1], [BN, D]
    )
    dkeys_at.store([first, 0], (dkeys * scale).to(dk.dtype.element_ty))
    dvalues_at.store([first, 0], dvalues.to(dv.dtype.element_ty))


@jit
def q_step(
    dqueries, queries, grads, norm, drop, keys_at, values_at, start, i, begins, ends, offset, nq,
    nk, factor, slope, MASKED: tl.constexpr, MASK: tl.constexpr, CAP: tl.constexpr,
    BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the terms of a block of keys to dq."""
    keys, values = keys_at.load([start, 0]), values_at.load([start, 0])
    scores = tl.dot(queries, keys.T, input_precision=PRECISION)
    if CAP != "none":
        scores = tanh(scores * slope, CAP)
    share = tl.exp2(scores * factor - norm[:, None])
    if MASKED:
        j = start + tl.arange(0, BN)
        seen = (i[:, None] < nq) & (j[None, :] < nk)
        if MASK == "causal":
            seen = seen & (j[None, :] <= i[:, None] + offset)
        if MASK == "band":
            seen = (j[None, :] >= begins[:, None]) & (j[None, :] < ends[:, None])
        share = tl.where(seen, share, 0.0)
    dshare = tl.dot(grads, values.T, input_precision=PRECISION)
    dscores = share * (dshare - drop[:, None])
    if CAP != "none":
        dscores *= 1.0 - scores * scores
    return tl.dot(dscores.to(keys.dtype), keys, dqueries, input_precision=PRECISION)


@jit
def backward_q_kernel(
    q, k, v, do, lse, sums, dq, key_begins, key_ends, factor, slope, scale, offset, nq, nk,
    heads, group, sq_b, sq_h, sq_n, sk_b, sk_h, sk_n,
    D: tl.constexpr, MASK: tl.constexpr, CAP: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Compute dq of a block of queries over its keys, in the order of the forward."""
    block, bh = tl.program_id(0), tl.program_id(1)
    if MASK == "causal":
        block = tl.num_programs(0) - 1 - block
    b, h = bh // heads, bh % heads
    keys = head_at(k, b, h // group, sk_b, sk_h)
    values = head_at(v, b, h // group, sk_b, sk_h)
    keys_at = tl.make_tensor_descriptor(keys, [nk, D], [sk_n, 1], [BN, D])
    values_at = tl.make_tensor_descriptor(values, [nk, D], [sk_n, 1], [BN, D])
    queries_at = tl.make_tensor_descriptor(
        head_at(q, b, h, sq_b, sq_h), [nq, D], [sq_n, 1], [BM, D]
    )
    grads_at = tl.make_tensor_descriptor(head_at(do, b, h, sq_b, sq_h), [nq, D], [sq_n, 1], [BM, D])
    i = block * BM + tl.arange(0, BM)
    queries, grads = queries_at.load([block * BM, 0]), grads_at.load([block * BM, 0])
    norm = tl.load(lse + bh.to(tl.int64) * nq + i, i < nq, float("inf"))
    drop = tl.load(sums + bh.to(tl.int64) * nq + i, i < nq, 0.0)
    dqueries = tl.zeros((BM, D), tl.float32)
    begin, clear, end, begins, ends = 0, nk // BN * BN, nk, i, i
    if MASK == "causal":
        end = tl.minimum(nk, tl.maximum(0, (block + 1) * BM + offset))
        clear = tl.minimum(clear, tl.maximum(0, (block * BM + offset + 1) // BN * BN))
    if MASK == "band":
        begins = tl.load(key_begins + i, i < nq, 0)
        ends = tl.load(key_ends + i, i < nq, 0)
        edge, begin, clear, end = band_range(key_begins, key_ends, block * BM, BM, nq, BN)
        for start in tl.range(edge, begin, BN):
            dqueries = q_step(
                dqueries, queries, grads, norm, drop, keys_at, values_at, start, i, begins, ends,
                offset, nq, nk, factor, slope, True, MASK, CAP, BN, PRECISION,
            )  # fmt: skip
    for start in tl.range(begin, clear, BN):
        dqueries = q_step(
            dqueries, queries, grads, norm, drop, keys_at, values_at, start, i, begins, ends,
            offset, nq, nk, factor, slope, False, MASK, CAP, BN, PRECISION,
        )  # fmt: skip
    for start in tl.range(clear, end, BN):
        dqueries = q_step(
            dqueries, queries, grads, norm, drop, keys_at, values_at, start, i, begins, ends,
            offset, nq, nk, factor, slope, True, MASK, CAP, BN, PRECISION,
        )  # fmt: skip
    dq_at = tl.make_tensor_descriptor(head_at(dq, b, h, sq_b, sq_h), [nq, D], [sq_n, 1], [BM, D])
    dq_at.store([block * BM, 0], (dqueries * scale).to(dq.dtype.element_ty))


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Mask, tile: Tile
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return o (b, h, n_q, d), and the log-sum-exp in base 2 of the scaled scores (b, h, n_q)."""
    q, k, v = (*_plain(q), *_plain(k, v))
    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    grid = (triton.cdiv(q.shape[2], tile["BM"]), q.shape[0] * q.shape[1])
    forward_kernel[grid](
        *(q, k, v, o, lse, *(mask.band or (None, None))[:2]),
        *(mask.factor, mask.slope, mask.offset, *_shape(q, k)),
        **_fixed(q, mask, tile),
    )
    return o, lse


def row_sums(o: torch.Tensor, do: torch.Tensor) -> torch.Tensor:
    """Return δ = Σ over d of o ∘ do (b, h, n_q), which the gradient of softmax subtracts."""
    o, do = _plain(o, do)
    b, h, n, d = o.shape
    sums = torch.empty((b, h, n), dtype=torch.float32, device=o.device)
    row_sums_kernel[(triton.cdiv(n, 64), b * h)](o, do, sums, n, h, *o.stride()[:3], D=d, BM=64)
    return sums


def backward(
    part: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    lse: torch.Tensor,
    sums: torch.Tensor,
    mask: Mask,
    tile: Tile,
) -> tuple[torch.Tensor, ...]:
    """Return (dk, dv) if *part* is `kv`, and (dq,) if it is `q`."""
    (q, do), (k, v) = _plain(q, do), _plain(k, v)
    shape = _shape(q, k)
    scalars = (mask.factor, mask.slope, mask.scale, mask.offset, *shape)
    of_queries, of_keys = (mask.band[:2], mask.band[2:]) if mask.band else [(None, None)] * 2
    fixed = _fixed(q, mask, tile)
    if part == "kv":
        dk, dv = torch.empty_like(k), torch.empty_like(v)
        grid = (triton.cdiv(k.shape[2], tile["BN"]), k.shape[0] * k.shape[1])
        backward_kv_kernel[grid](q, k, v, do, lse, sums, dk, dv, *of_keys, *scalars, **fixed)
        return dk, dv
    dq = torch.empty_like(q)
    grid = (triton.cdiv(q.shape[2], tile["BM"]), q.shape[0] * q.shape[1])
    backward_q_kernel[grid](q, k, v, do, lse, sums, dq, *of_queries, *scalars, **fixed)
    return (dq,)


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Allocate the memory in which Triton stores the descriptors that a kernel makes."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _plain(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return *tensors* of one shape, copied where the kernels cannot take them as they are.

    The kernels take equal strides, (b, h, n, d) or (b, n, h, d) in memory without gaps, as
    `empty_like` makes their results, and addresses that are multiples of 16 bytes.
    """
    triton.set_allocator(_scratch)
    first = tensors[0]
    gaps = not (first.is_contiguous() or first.transpose(1, 2).is_contiguous())
    odd = any(stride * first.element_size() % 16 for stride in first.stride()[:3])
    odd = odd or any(t.stride() != first.stride() or t.data_ptr() % 16 for t in tensors)
    if not (gaps or odd):
        return tensors
    # `contiguous` would not copy a tensor without gaps at an odd address.
    return tuple(t.clone(memory_format=torch.contiguous_format) for t in tensors)


def _shape(q: torch.Tensor, k: torch.Tensor) -> tuple[int, ...]:
    """Return n_q, n_k, query heads, the query heads that share keys, and the strides of both."""
    heads = q.shape[1]
    return (
        q.shape[2], k.shape[2], heads, heads // k.shape[1], *q.stride()[:3], *k.stride()[:3],
    )  # fmt: skip


def _fixed(q: torch.Tensor, mask: Mask, tile: Tile) -> dict[str, object]:
    """Return the constants of a kernel. Products in fp32 must not be rounded to tf32."""
    of_fp32 = q.dtype == torch.float32
    fast = q.is_cuda and not of_fp32
    return {
        "D": q.shape[3],
        "MASK": mask.kind,
        "CAP": "none" if not mask.cap else "fast" if fast else "exact",
        "PRECISION": "ieee" if of_fp32 else "tf32",
        **tile,
    }
