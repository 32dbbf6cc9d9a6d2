"""Compute the backward of attention in Triton, once for dk and dv and once for dq.

`_flash.py` launches the kernels; the Gluon backward launches `prepare_kernel` and `finish_kernel`.
`_flash_forward.py` explains *rows*, *tiles* and *scalars*. For dk and dv, *rows* are the keys j of
a block, the first query of each, the one after its last (in a band), the offset, n_q and n_k;
*tiles* are those of queries and of the gradients of o.
"""

from __future__ import annotations

from gpuperf.kernels._flash_forward import (
    band_range,
    head_at,
    key_range,
    keys_seen,
    tanh,
    tile_at,
    tiles_at,
)

from gpuperf.jit import jit, tl


@jit
def sums_of_rows(o, do, i, nq, b, h, s_b, s_h, s_n, D: tl.constexpr):
    """Return Σ over d of o ∘ do for the queries i of a head; 0 past the last one."""
    d, here = tl.arange(0, D), i[:, None] < nq
    at = i[:, None].to(tl.int64) * s_n + d[None, :]
    out = tl.load(head_at(o, b, h, s_b, s_h) + at, here, 0.0).to(tl.float32)
    grad = tl.load(head_at(do, b, h, s_b, s_h) + at, here, 0.0).to(tl.float32)
    return tl.sum(out * grad, 1)


@jit
def row_sums_kernel(o, do, sums, nq, heads, s_b, s_h, s_n, D: tl.constexpr, BM: tl.constexpr):
    """Compute Σ over d of o ∘ do for a block of queries."""
    block, bh = tl.program_id(0), tl.program_id(1)
    i = block * BM + tl.arange(0, BM)
    total = sums_of_rows(o, do, i, nq, bh // heads, bh % heads, s_b, s_h, s_n, D)
    tl.store(sums + bh.to(tl.int64) * nq + i, total, i < nq)


@jit
def rounded(x):
    """Return x in the precision of bf16."""
    return x.to(tl.bfloat16).to(tl.float32)


@jit
def parts_of(x, c):
    """Return three bf16 whose sum is x (m,) where c (1, n) is 0, 1 and 2, and 0 elsewhere. Of an
    infinite x two of them are NaN."""
    high = rounded(x)
    middle = rounded(x - high)
    low = tl.where(c == 2, (x - high - middle)[:, None], 0.0)
    part = tl.where(c == 0, high[:, None], tl.where(c == 1, middle[:, None], low))
    return part.to(tl.bfloat16)


@jit
def prepare_kernel(
    o, do, lse, norm, parts, dq, inverse, nq, padded, heads, s_b, s_h, s_n,
    CAPPED: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Set the sum dq to 0, and store two numbers of each query, padded, each as the sum of three
    bf16: the log-sum-exp · inverse, and Σ over d of o ∘ do. With CAPPED store the log-sum-exp too.

    Where a query sees no key, 3e38 stands for a log-sum-exp of inf: a product multiplies both
    numbers, one of them by 0, and 0 · inf would be NaN. So a query whose o or do is not finite has
    NaN in dv too.
    """
    block, bh = tl.program_id(0), tl.program_id(1)
    i, d = block * BM + tl.arange(0, BM), tl.arange(0, D)
    row, first = bh.to(tl.int64) * padded + i, bh.to(tl.int64) * nq
    total = sums_of_rows(o, do, i, nq, bh // heads, bh % heads, s_b, s_h, s_n, D)
    shift = tl.load(lse + first + i, i < nq, float("inf"))
    if CAPPED:
        tl.store(norm + row, shift)
    c = tl.arange(0, PARTS)[None, :]
    both = parts_of(tl.minimum(shift * inverse, 3e38), c) + parts_of(total, c - 3)
    tl.store(parts + row[:, None] * PARTS + c, both)
    zeros = tl.zeros((BM, D), tl.float32)
    tl.store(dq + (first + i[:, None]) * D + d[None, :], zeros, i[:, None] < nq)


@jit
def finish_kernel(total, dq, scale, nq, heads, s_b, s_h, s_n, D: tl.constexpr, BM: tl.constexpr):
    """Scale the sum dq and round it."""
    block, bh = tl.program_id(0), tl.program_id(1)
    i, d = block * BM + tl.arange(0, BM), tl.arange(0, D)
    here = i[:, None] < nq
    value = tl.load(total + (bh.to(tl.int64) * nq + i[:, None]) * D + d[None, :], here, 0.0)
    to = head_at(dq, bh // heads, bh % heads, s_b, s_h) + i[:, None].to(tl.int64) * s_n + d[None, :]
    tl.store(to, (value * scale).to(dq.dtype.element_ty), here)


@jit
def queries_seen(i, rows, MASK: tl.constexpr):
    """Return which queries i (m,) attend to the keys of *rows* (n,), (n, m)."""
    j, begins, ends, offset, nq, nk = rows
    seen = (i[None, :] < nq) & (j[:, None] < nk)
    if MASK == "causal":
        seen = seen & (j[:, None] <= i[None, :] + offset)
    if MASK == "band":
        seen = (i[None, :] >= begins[:, None]) & (i[None, :] < ends[:, None])
    return seen


@jit
def query_range(
    band, first, j, offset, nq, nk, MASK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Return the *rows* of the keys j, which begin at *first*, and the queries that see them: where
    they begin, where they see all keys, up to where, and their end."""
    query_begins, query_ends = band
    whole = tl.cdiv(nq, BM) * BM
    begin, last, end, begins, ends = nq * 0, nq // BM * BM, nq, j, j
    clear = begin
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
    return (j, begins, ends, offset, nq, nk), begin, clear, tl.maximum(clear, last), end


@jit
def kv_blocks(
    gradients, own, tiles, norms, first, end, rows, scalars, MASKED: tl.constexpr,
    MASK: tl.constexpr, CAP: tl.constexpr, BM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the terms of the queries from *first* to *end* to dk and dv; scores are (BN, BM)."""
    dkeys, dvalues = gradients
    keys, values = own
    queries_at, grads_at = tiles
    lse, sums = norms
    nq = rows[4]
    slope, factor = scalars
    for start in tl.range(first, end, BM):
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
            share = tl.where(queries_seen(i, rows, MASK), share, 0.0)
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
    first, scalars = block * BN, (slope, factor)
    keys_at, values_at = tiles_at(k, v, b, h, nk, sk_b, sk_h, sk_n, BN, D)
    own = (keys_at.load([first, 0]), values_at.load([first, 0]))
    gradients = (tl.zeros((BN, D), tl.float32), tl.zeros((BN, D), tl.float32))
    j = first + tl.arange(0, BN)
    rows, begin, clear, last, end = query_range(
        (query_begins, query_ends), first, j, offset, nq, nk, MASK, BM, BN
    )
    for member in range(group):
        head = h * group + member
        row = (b * heads + head).to(tl.int64) * nq
        norms = (lse + row, sums + row)
        tiles = tiles_at(q, do, b, head, nq, sq_b, sq_h, sq_n, BM, D)
        gradients = kv_blocks(
            gradients,
            own,
            tiles,
            norms,
            begin,
            clear,
            rows,
            scalars,
            True,
            MASK,
            CAP,
            BM,
            PRECISION,
        )
        gradients = kv_blocks(
            gradients,
            own,
            tiles,
            norms,
            clear,
            last,
            rows,
            scalars,
            False,
            MASK,
            CAP,
            BM,
            PRECISION,
        )
        gradients = kv_blocks(
            gradients, own, tiles, norms, last, end, rows, scalars, True, MASK, CAP, BM, PRECISION
        )
    dkeys, dvalues = gradients
    dkeys_at, dvalues_at = tiles_at(dk, dv, b, h, nk, sk_b, sk_h, sk_n, BN, D)
    dkeys_at.store([first, 0], (dkeys * scale).to(dk.dtype.element_ty))
    dvalues_at.store([first, 0], dvalues.to(dv.dtype.element_ty))


@jit
def q_blocks(
    total, own, tiles, first, end, rows, scalars, MASKED: tl.constexpr,
    MASK: tl.constexpr, CAP: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the terms of the keys from *first* to *end* to dq, given what the queries have."""
    queries, grads, norm, drop = own
    keys_at, values_at = tiles
    slope, factor = scalars
    for start in tl.range(first, end, BN):
        keys, values = keys_at.load([start, 0]), values_at.load([start, 0])
        scores = tl.dot(queries, keys.T, input_precision=PRECISION)
        if CAP != "none":
            scores = tanh(scores * slope, CAP)
        share = tl.exp2(scores * factor - norm[:, None])
        if MASKED:
            share = tl.where(keys_seen(start + tl.arange(0, BN), rows, MASK), share, 0.0)
        dshare = tl.dot(grads, values.T, input_precision=PRECISION)
        dscores = share * (dshare - drop[:, None])
        if CAP != "none":
            dscores *= 1.0 - scores * scores
        total = tl.dot(dscores.to(keys.dtype), keys, total, input_precision=PRECISION)
    return total


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
    tiles = tiles_at(k, v, b, h // group, nk, sk_b, sk_h, sk_n, BN, D)
    first, scalars = block * BM, (slope, factor)
    i = first + tl.arange(0, BM)
    row = bh.to(tl.int64) * nq
    queries_at, grads_at = tiles_at(q, do, b, h, nq, sq_b, sq_h, sq_n, BM, D)
    own = (
        queries_at.load([first, 0]),
        grads_at.load([first, 0]),
        tl.load(lse + row + i, i < nq, float("inf")),  # a query past the end has no share
        tl.load(sums + row + i, i < nq, 0.0),
    )
    rows, begin, clear, last, end = key_range(
        (key_begins, key_ends), first, i, offset, nq, nk, MASK, BM, BN
    )
    total = tl.zeros((BM, D), tl.float32)
    if MASK == "band":
        total = q_blocks(
            total, own, tiles, begin, clear, rows, scalars, True, MASK, CAP, BN, PRECISION
        )
    total = q_blocks(total, own, tiles, clear, last, rows, scalars, False, MASK, CAP, BN, PRECISION)
    total = q_blocks(total, own, tiles, last, end, rows, scalars, True, MASK, CAP, BN, PRECISION)
    dq_at = tile_at(dq, b, h, nq, sq_b, sq_h, sq_n, BM, D)
    dq_at.store([first, 0], (total * scale).to(dq.dtype.element_ty))
