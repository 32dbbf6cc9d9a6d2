"""Multiply by blocks of keys and values in a warpgroup on Hopper, in Gluon.

*rows*, *blocks* and *memory*, which is the buffers and the barriers, are tuples of
`_flash_hopper.py`. A *state* holds the sums of o, the sums of the shares and the maxima of the
scores, the shares of the last block, packed, and the steps so far.
"""

from __future__ import annotations

from gpuperf.kernels._flash_hopper_ranges import clear_blocks, hide, hide_some
from gpuperf.kernels._gluon import (
    fast_tanh,
    gl,
    gluon_jit,
    left_operand,
    mbarrier,
    packed,
    sums_layout,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon_jit
def soften(scores, most, total, factor):
    """Return exp2(scores · factor - maximum), the maximum, the sum, and the old sum's factor."""
    risen = gl.maximum(most, gl.max(scores, 1) * factor)
    share = gl.exp2(scores * factor - risen[:, None])
    shrink = gl.exp2(most - risen)
    return share, risen, total * shrink + gl.sum(share, 1), shrink


@gluon_jit
def begin_scores(q_tile, k_tiles, k_full, step):
    """Begin the product of the queries and a block of keys."""
    STAGES: gl.constexpr = k_tiles.shape[0]
    BN: gl.constexpr = k_tiles.shape[1]
    mbarrier.wait(k_full.index(step % STAGES), step // STAGES & 1)
    none = gl.zeros([64, BN], gl.float32, sums_layout(BN))
    keys = k_tiles.index(step % STAGES).permute((1, 0))
    return warpgroup_mma(q_tile, keys, none, use_acc=False, is_async=True)


@gluon_jit
def begin_values(shares, v_tiles, v_full, acc, step):
    """Begin to add the product of the shares and a block of values."""
    STAGES: gl.constexpr = v_tiles.shape[0]
    mbarrier.wait(v_full.index(step % STAGES), step // STAGES & 1)
    return warpgroup_mma(shares, v_tiles.index(step % STAGES), acc, is_async=True)


@gluon_jit
def free_blocks(step, last, bars, MEMBER: gl.constexpr, STAGES: gl.constexpr):
    """Free the keys of *step*, and after a tile's last block its queries too."""
    _q_full, q_empty, _k_full, k_empty, _v_full, _v_empty = bars
    mbarrier.arrive(k_empty.index(step % STAGES), count=1)
    if last:
        mbarrier.arrive(q_empty.index(MEMBER), count=1)


@gluon_jit
def first_shares(scores, start, rows, MASK: gl.constexpr, CAPPED: gl.constexpr):
    """Return the shares of a tile's first block, their sum, and the maximum of the scores."""
    _i, _begins, _ends, _keys, _offset, _nk, factor, slope = rows
    ROWS: gl.constexpr = gl.SliceLayout(1, sums_layout(scores.shape[1]))
    if CAPPED:
        scores = fast_tanh(scores * slope)
    scores = hide_some(scores, start, rows, MASK)
    # Less than any score, and finite: shares of a row that sees no key are exp2(-inf) = 0, not NaN.
    most = gl.full([64], -3e38, gl.float32, ROWS)
    total = gl.zeros([64], gl.float32, ROWS)
    share, most, total, _shrink = soften(scores, most, total, factor)
    return share, total, most


@gluon_jit
def begin_tile(
    rows, blocks, memory, MASK: gl.constexpr, CAPPED: gl.constexpr, MEMBER: gl.constexpr
):
    """Return the state after the first block of keys of a program's first tile."""
    buffers, bars = memory
    q_tiles, k_tiles, v_tiles, _o_tiles = buffers
    _q_full, _q_empty, k_full, _k_empty, _v_full, _v_empty = bars
    begin, end = blocks
    BN: gl.constexpr = k_tiles.shape[1]
    D: gl.constexpr = v_tiles.shape[2]
    last = begin == end - 1
    pending = begin_scores(q_tiles.index(MEMBER), k_tiles, k_full, 0)
    scores = warpgroup_mma_wait(0, deps=(pending,))
    free_blocks(0, last, bars, MEMBER, k_tiles.shape[0])
    share, total, most = first_shares(scores, (end - 1) * BN, rows, MASK, CAPPED)
    acc = gl.zeros([64, D], gl.float32, sums_layout(D))
    return acc, total, most, packed(share, k_tiles.dtype), 1


@gluon_jit
def multiply(state, last, memory, MEMBER: gl.constexpr):
    """Begin the products of the queries and a block of keys, and of the shares and the values of
    the block before; return the scores, and the sums and the shares of the other product. *last*:
    no other block of keys of the tile comes."""
    buffers, bars = memory
    q_tiles, k_tiles, v_tiles, _o_tiles = buffers
    _q_full, _q_empty, k_full, _k_empty, v_full, _v_empty = bars
    acc, _total, _most, shares, step = state
    pending = begin_scores(q_tiles.index(MEMBER), k_tiles, k_full, step)
    left = left_operand(shares, v_tiles.dtype, v_tiles.shape[2])
    adding = begin_values(left, v_tiles, v_full, acc, step - 1)
    scores = warpgroup_mma_wait(1, deps=(pending,))
    free_blocks(step, last, bars, MEMBER, k_tiles.shape[0])
    return scores, adding, left


@gluon_jit
def add_values(adding, left, step, memory):
    """Return the sums of o once the product with the values of *step* has been added."""
    buffers, bars = memory
    _q_tiles, _k_tiles, v_tiles, _o_tiles = buffers
    _q_full, _q_empty, _k_full, _k_empty, v_full, v_empty = bars
    STAGES: gl.constexpr = v_tiles.shape[0]
    # This barrier has completed: ptxas moves no softmax past this branch, below the end of the
    # products.
    mbarrier.wait(v_full.index(step % STAGES), step // STAGES & 1)
    acc, left = warpgroup_mma_wait(0, deps=(adding, left))
    mbarrier.arrive(v_empty.index(step % STAGES), count=1)
    return acc


@gluon_jit
def add_last_values(state, memory):
    """Return the sums of o with the product of the shares of the last block and its values."""
    buffers, bars = memory
    _q_tiles, _k_tiles, v_tiles, _o_tiles = buffers
    _q_full, _q_empty, _k_full, _k_empty, v_full, v_empty = bars
    acc, _total, _most, shares, step = state
    STAGES: gl.constexpr = v_tiles.shape[0]
    step -= 1
    left = left_operand(shares, v_tiles.dtype, v_tiles.shape[2])
    adding = begin_values(left, v_tiles, v_full, acc, step)
    acc, left = warpgroup_mma_wait(0, deps=(adding, left))
    mbarrier.arrive(v_empty.index(step % STAGES), count=1)
    return acc


@gluon_jit
def attend_blocks(
    state, first, last, begin, rows, memory,
    BRANCH: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr, MEMBER: gl.constexpr,
):  # fmt: skip
    """Multiply by the blocks of keys before *last* down to *first*, and meanwhile the shares of the
    block before by its values; *begin* is the last block of the tile that is read. With BRANCH each
    block asks whether MASK hides any of its pairs."""
    buffers, _bars = memory
    _q_tiles, k_tiles, _v_tiles, _o_tiles = buffers
    _i, _begins, _ends, _keys, _offset, _nk, factor, slope = rows
    BN: gl.constexpr = k_tiles.shape[1]
    acc, total, most, shares, step = state
    for start in range((last - 1) * BN, first * BN - 1, -BN):
        now = (acc, total, most, shares, step)
        scores, adding, left = multiply(now, start == begin * BN, memory, MEMBER)
        if CAPPED:
            scores = fast_tanh(scores * slope)
        if MASK != "all":
            hiding: gl.constexpr = hide_some if BRANCH else hide
            scores = hiding(scores, start, rows, MASK)
        share, most, total, shrink = soften(scores, most, total, factor)
        acc = add_values(adding, left, step - 1, memory)
        acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, acc.type.layout))[:, None]
        shares = packed(share, k_tiles.dtype)
        step += 1
    return acc, total, most, shares, step


@gluon_jit
def attend_tile(
    state, rows, blocks, memory, MASK: gl.constexpr, CAPPED: gl.constexpr, MEMBER: gl.constexpr
):
    """Return the state after all blocks of keys of a tile but the first that is read."""
    buffers, _bars = memory
    _q_tiles, k_tiles, _v_tiles, _o_tiles = buffers
    _i, _begins, _ends, keys, _offset, _nk, _factor, _slope = rows
    begin, end = blocks
    if MASK == "all" or not CAPPED:
        return attend_blocks(state, begin, end - 1, begin, rows, memory, True, MASK, CAPPED, MEMBER)
    # Tangents and powers keep one unit busy all the time, so that even a branch costs 5 %.
    low, clear = clear_blocks(keys, blocks, k_tiles.shape[1])
    state = attend_blocks(state, clear, end - 1, begin, rows, memory, False, MASK, CAPPED, MEMBER)
    state = attend_blocks(state, low, clear, begin, rows, memory, False, "all", CAPPED, MEMBER)
    if MASK == "band":
        state = attend_blocks(state, begin, low, begin, rows, memory, False, MASK, CAPPED, MEMBER)
    return state
