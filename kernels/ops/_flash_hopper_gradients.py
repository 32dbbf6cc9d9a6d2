"""Multiply a block of keys by blocks of queries for the gradients of attention, in Gluon.

*rows*, *memory*, which is the operands, the buffers and the barriers, and *out*, which is dq and
a head of it, are tuples of `_flash_hopper_backward.py`. A *state* holds the steps so far, the sums
dk and dv and, where they are computed ahead, the scores of the next block.

Shared memory, of which a multiprocessor reads or writes 128 bytes a cycle, limits these kernels:
at d 64 ncu counted 1,792 such accesses for a block, beside those of TMA, in 2,700 cycles. Of these,
256 read the log-sum-exp and the sums of rows into registers, where 64 threads hold each of them.
Now tensor cores subtract both, as one more step of their products, which takes 64 accesses. At d 64
registers hold the keys and the values for the products, which saves 256 accesses.
"""

from __future__ import annotations

from gpuperf.kernels._gluon import (
    builtin,
    constexpr_function,
    fast_tanh,
    fence_async_shared,
    gl,
    gluon_jit,
    mbarrier,
    thread_barrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@builtin
def add_to_global(descriptor, coord, src, _semantic=None):
    """Add the elements of shared memory to those of a tensor, by TMA."""
    from triton._C.libtriton import ir

    builder = _semantic.builder
    coord = _semantic._convert_to_ir_values(coord, require_i64=False)
    add = ir.DESCRIPTOR_REDUCE_KIND.ADD
    builder.create_async_tma_reduce(add, descriptor.handle, coord, src.handle)


@constexpr_function
def sums_layout(m, n):
    """Return the layout of (m, n) sums of eight warps, which divide n between them if m is 64."""
    warps = [8, 1] if m >= 128 else [4, 2]
    return gl.NVMMADistributedLayout([3, 0], warps, [16, n // warps[1], 16])


@constexpr_function
def swapped_layout(columns):
    """Return the layout of (64, columns) fp32 sums in a tile of TMA, with the columns c and c ^ 16
    of odd rows swapped. TMA itself moves the columns of rows 1, 2 and 4 by 4, 8 and 16."""
    first = [[0, 1 << n] for n in range(5)]
    rows = [[1, 4 ^ 16], [2, 8], [4, 16], [8, 0], [16, 0], [32, 0]]
    rest = [[0, 32 << n] for n in range((columns // 64).bit_length())]
    return gl.SharedLinearLayout(first + rows + rest, [], 1024)


@gluon_jit
def halves(x):
    """Return the columns c of x with c & 16 = 0, and the others."""
    parts = gl.reshape(x, [x.shape[0], x.shape[1] // 32, 2, 16])
    return gl.split(gl.permute(parts, (0, 1, 3, 2)))


@gluon_jit
def store_sums(x, tile):
    """Store fp32 sums (64, columns). Neighbouring rows would write to the same banks of shared
    memory at once; odd rows, whose columns are swapped, use others."""
    SHAPE: gl.constexpr = [x.shape[0], x.shape[1]]
    i = gl.arange(0, SHAPE[0], gl.SliceLayout(1, x.type.layout))
    j = gl.arange(0, SHAPE[1], gl.SliceLayout(0, x.type.layout))
    odd, _same = halves((i & 1)[:, None] + 0 * j[None, :])
    low, high = halves(x)
    parts = gl.join(gl.where(odd == 1, high, low), gl.where(odd == 1, low, high))
    swapped = gl.reshape(gl.permute(parts, (0, 1, 3, 2)), SHAPE)
    view = tile._reinterpret(gl.float32, SHAPE, swapped_layout(SHAPE[1]))
    view.store(gl.convert_layout(swapped, x.type.layout, True))


@gluon_jit
def minus_ones(parts, FIRST: gl.constexpr, BN: gl.constexpr):
    """Return the left operand whose product with *parts* is minus the sum of the three columns that
    begin at FIRST."""
    BM: gl.constexpr = parts.shape[1]
    PARTS: gl.constexpr = parts.shape[2]
    LEFT: gl.constexpr = gl.DotOperandLayout(0, sums_layout(BN, BM), 2)
    c = gl.arange(0, PARTS, gl.SliceLayout(0, LEFT))[None, :] + gl.zeros(
        [BN, PARTS], gl.int32, LEFT
    )
    return gl.where((c >= FIRST) & (c < FIRST + 3), -1.0, 0.0).to(gl.bfloat16)


@gluon_jit
def begin_less(minus, parts, left, right, BN: gl.constexpr):
    """Begin the product of *left* and *right*, and subtract from each of its columns the sum of the
    numbers in a row of *parts* where *minus* is -1. These are two asynchronous products."""
    BM: gl.constexpr = parts.shape[0]
    none = gl.zeros([BN, BM], gl.float32, sums_layout(BN, BM))
    less = warpgroup_mma(minus, parts.permute((1, 0)), none, use_acc=False, is_async=True)
    return warpgroup_mma(left, right, less, is_async=True)


@gluon_jit
def begin_scores(step, memory, CAPPED: gl.constexpr):
    """Begin the product of the keys and a block of queries, less their log-sum-exp where scores are
    not capped."""
    operands, buffers, bars = memory
    keys, _values, minus_norm, _minus_sum = operands
    _k_tile, _v_tile, q_tiles, _do_tiles, _norms, parts, _ds_tile, _dq_tiles = buffers
    _kv_full, q_full, _do_full, _empty = bars
    STAGES: gl.constexpr = q_tiles.shape[0]
    BM: gl.constexpr = q_tiles.shape[1]
    BN: gl.constexpr = keys.shape[0]
    mbarrier.wait(q_full.index(step % STAGES), step // STAGES & 1)
    queries = q_tiles.index(step % STAGES).permute((1, 0))
    if CAPPED:
        none = gl.zeros([BN, BM], gl.float32, sums_layout(BN, BM))
        return warpgroup_mma(keys, queries, none, use_acc=False, is_async=True)
    return begin_less(minus_norm, parts.index(step % STAGES), keys, queries, BN)


@gluon_jit
def hide_shares(share, start, rows, MASK: gl.constexpr):
    """Set the shares (keys, queries) of hidden pairs to 0."""
    begins, ends, _factor, _slope = rows
    i = start + gl.arange(0, share.shape[1], gl.SliceLayout(0, share.type.layout))
    seen = i[None, :] >= begins[:, None]
    if MASK == "band":
        seen = seen & (i[None, :] < ends[:, None])
    return gl.where(seen, share, 0.0)


@gluon_jit
def shares_of(
    scores, norms, start, rows, MASKED: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr
):
    """Return the shares of a block, and what their gradients are multiplied by to be those of the
    scores. The log-sum-exp has been subtracted from scores that are not capped."""
    _begins, _ends, factor, slope = rows
    if CAPPED:
        scores = fast_tanh(scores * slope)
        norm = norms.load(gl.SliceLayout(0, scores.type.layout))
        share = gl.exp2(scores * factor - norm[None, :])
    else:
        share = gl.exp2(scores * factor)
    if MASKED:
        share = hide_shares(share, start, rows, MASK)
    weight = share
    if CAPPED:
        weight = share * (1.0 - scores * scores)
    return share, weight


@gluon_jit
def carried(step, dkeys, dvalues, scores, AHEAD: gl.constexpr):
    """Return what a block leaves to the next: without AHEAD, no scores."""
    return (step, dkeys, dvalues, scores) if AHEAD else (step, dkeys, dvalues)


@gluon_jit
def add_block(
    state, start, out, memory, rows,
    MASKED: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr, AHEAD: gl.constexpr,
):  # fmt: skip
    """Add the terms of a block of queries to dk, dv and dq."""
    step, dkeys, dvalues = state[0], state[1], state[2]
    operands, buffers, bars = memory
    k_tile, _v_tile, q_tiles, do_tiles, norms, parts, ds_tile, dq_tiles = buffers
    _keys, values, _minus_norm, minus_sum = operands
    _kv_full, _q_full, do_full, empty = bars
    STAGES: gl.constexpr = q_tiles.shape[0]
    BM: gl.constexpr = q_tiles.shape[1]
    D: gl.constexpr = q_tiles.shape[2]
    BN: gl.constexpr = k_tile.shape[0]
    LEFT: gl.constexpr = gl.DotOperandLayout(0, sums_layout(BN, D), 2)
    WAITING: gl.constexpr = dq_tiles.shape[0]
    place = step % STAGES
    if not AHEAD:
        scoring = begin_scores(step, memory, CAPPED)
    mbarrier.wait(do_full.index(place), step // STAGES & 1)
    grads = do_tiles.index(place)
    changing = begin_less(minus_sum, parts.index(place), values, grads.permute((1, 0)), BN)
    # The two products that began last compute the gradients of the shares.
    scores = state[3] if AHEAD else warpgroup_mma_wait(2, deps=(scoring,))
    share, weight = shares_of(scores, norms.index(place), start, rows, MASKED, MASK, CAPPED)
    shares = gl.convert_layout(share.to(k_tile.dtype), LEFT)
    adding_v = warpgroup_mma(shares, grads, dvalues, is_async=True)
    dshare = warpgroup_mma_wait(1, deps=(changing,))
    dscore = (weight * dshare).to(k_tile.dtype)
    ds_tile.store(dscore)
    fence_async_shared()
    none = gl.zeros([BM, D], gl.float32, sums_layout(BM, D))
    left = ds_tile.permute((1, 0))
    adding_q = warpgroup_mma(left, k_tile, none, use_acc=False, is_async=True)
    dscores = gl.convert_layout(dscore, LEFT)
    adding_k = warpgroup_mma(dscores, q_tiles.index(place), dkeys, is_async=True)
    dquery, dvalues, shares = warpgroup_mma_wait(1, deps=(adding_q, adding_v, shares))
    tma.store_wait(WAITING - 1)  # TMA has read the tile that is written next
    thread_barrier()
    dq_tile = dq_tiles.index(step % WAITING)
    if D == 128:
        store_sums(dquery, dq_tile)
    else:  # the swap takes as long as the conflicts
        dq_tile.store(dquery)
    if AHEAD:  # only now are registers free for the next scores
        scoring = begin_scores(step + 1, memory, CAPPED)
    fence_async_shared()
    dq_at, b, head = out
    add_to_global(dq_at, [b, head, start, 0], dq_tile)
    if AHEAD:
        dkeys, scores, dscores = warpgroup_mma_wait(0, deps=(adding_k, scoring, dscores))
    else:
        dkeys, dscores = warpgroup_mma_wait(0, deps=(adding_k, dscores))
    mbarrier.arrive(empty.index(place), count=1)
    return carried(step + 1, dkeys, dvalues, scores, AHEAD)


@gluon_jit
def add_blocks(
    state, first, last, out, memory, rows,
    MASKED: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr, AHEAD: gl.constexpr,
):  # fmt: skip
    """Add the terms of the queries from *first* to *last*."""
    _operands, buffers, _bars = memory
    BM: gl.constexpr = buffers[2].shape[1]
    for start in range(first, last, BM):
        state = add_block(state, start, out, memory, rows, MASKED, MASK, CAPPED, AHEAD)
    return state
