"""Compute the forward of attention in Triton, with parts that the backward shares.

`_flash.py` explains the masks and launches the kernels. Three tuples go through all functions:
*rows*, the queries i of a block, the first key of each, the one after its last (in a band), the
offset of the causal mask, and n_k; *tiles*, descriptors of keys and values; and *scalars*, what
scores are multiplied by before and after the cap.
"""

from __future__ import annotations

from gpuperf.jit import jit, tl


@jit
def head_at(pointer, batch, head, s_b, s_h):
    """Return the address of a head, computed in 64 bits: tensors may have over 2³¹ elements."""
    return pointer + batch.to(tl.int64) * s_b + head.to(tl.int64) * s_h


@jit
def tile_at(pointer, batch, head, count, s_b, s_h, s_n, ROWS: tl.constexpr, D: tl.constexpr):
    """Return the descriptor of blocks of ROWS of the *count* rows of a head."""
    head = head_at(pointer, batch, head, s_b, s_h)
    return tl.make_tensor_descriptor(head, [count, D], [s_n, 1], [ROWS, D])


@jit
def tiles_at(x, y, batch, head, count, s_b, s_h, s_n, ROWS: tl.constexpr, D: tl.constexpr):
    """Return the descriptors of a head of x and of one of y, which has the same strides."""
    of_x = tile_at(x, batch, head, count, s_b, s_h, s_n, ROWS, D)
    return of_x, tile_at(y, batch, head, count, s_b, s_h, s_n, ROWS, D)


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
def key_range(
    band, first, i, offset, nq, nk, MASK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Return the *rows* of the queries i, which begin at *first*, and their keys: where they begin,
    where all queries see them, up to where, and their end."""
    key_begins, key_ends = band
    begin, end, begins, ends = nk * 0, nk, i, i
    clear, last = begin, nk // BN * BN
    if MASK == "causal":
        end = tl.minimum(nk, tl.maximum(0, first + BM + offset))
        last = tl.minimum(last, tl.maximum(0, (first + offset + 1) // BN * BN))
    if MASK == "band":
        begins = tl.load(key_begins + i, i < nq, 0)
        ends = tl.load(key_ends + i, i < nq, 0)
        begin, clear, last, end = band_range(key_begins, key_ends, first, BM, nq, BN)
    return (i, begins, ends, offset, nk), begin, clear, last, end


@jit
def keys_seen(j, rows, MASK: tl.constexpr):
    """Return which keys j (n,) the queries of *rows* (m,) attend to, (m, n)."""
    i, begins, ends, offset, nk = rows
    seen = (j < nk)[None, :]
    if MASK == "causal":
        seen = seen & (j[None, :] <= i[:, None] + offset)
    if MASK == "band":
        seen = (j[None, :] >= begins[:, None]) & (j[None, :] < ends[:, None])
    return seen


@jit
def forward_blocks(
    sums, queries, tiles, first, end, rows, scalars, MASKED: tl.constexpr, MASK: tl.constexpr,
    CAP: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the keys from *first* to *end* to the sums of o and of the shares, which are scaled by
    the maximum of the scores so far."""
    acc, total, most = sums
    keys_at, values_at = tiles
    slope, factor = scalars
    for start in tl.range(first, end, BN):
        keys = keys_at.load([start, 0])
        scores = tl.dot(queries, keys.T, input_precision=PRECISION)
        if CAP != "none":
            scores = tanh(scores * slope, CAP)
        if MASKED:
            seen = keys_seen(start + tl.arange(0, BN), rows, MASK)
            scores = tl.where(seen, scores, float("-inf"))
        risen = tl.maximum(most, tl.max(scores, 1) * factor)
        shift = risen
        if MASKED:
            shift = tl.where(risen == float("-inf"), 0.0, risen)
        share = tl.exp2(scores * factor - shift[:, None])
        shrink = tl.exp2(most - shift)
        total = total * shrink + tl.sum(share, 1)
        values = values_at.load([start, 0])
        acc = acc * shrink[:, None]
        acc = tl.dot(share.to(values.dtype), values, acc, input_precision=PRECISION)
        most = risen
    return acc, total, most


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
    tiles = tiles_at(k, v, b, h // group, nk, sk_b, sk_h, sk_n, BN, D)
    first, scalars = block * BM, (slope, factor)
    i = first + tl.arange(0, BM)
    queries = tile_at(q, b, h, nq, sq_b, sq_h, sq_n, BM, D).load([first, 0])
    sums = (
        tl.zeros((BM, D), tl.float32),
        tl.zeros((BM,), tl.float32),
        tl.full((BM,), float("-inf"), tl.float32),
    )
    rows, begin, clear, last, end = key_range(
        (key_begins, key_ends), first, i, offset, nq, nk, MASK, BM, BN
    )
    if MASK == "band":
        sums = forward_blocks(
            sums, queries, tiles, begin, clear, rows, scalars, True, MASK, CAP, BN, PRECISION
        )
    sums = forward_blocks(
        sums, queries, tiles, clear, last, rows, scalars, False, MASK, CAP, BN, PRECISION
    )
    acc, total, most = forward_blocks(
        sums, queries, tiles, last, end, rows, scalars, True, MASK, CAP, BN, PRECISION
    )
    nothing = total == 0.0
    total = tl.where(nothing, 1.0, total)
    out_at = tile_at(o, b, h, nq, sq_b, sq_h, sq_n, BM, D)
    out_at.store([first, 0], (acc / total[:, None]).to(o.dtype.element_ty))
    norm = tl.where(nothing, float("inf"), most + tl.log2(total))
    tl.store(lse + bh.to(tl.int64) * nq + i, norm, i < nq)
