"""Find the keys that queries attend to, and the queries that attend to keys, in Gluon.

*grid* and *rows* are the tuples of `_flash_hopper.py` and `_flash_hopper_backward.py`.
"""

from __future__ import annotations

from gpuperf.kernels._gluon import gl, gluon_jit


@gluon_jit
def tile_at(place, tiles, blocks, together):
    """Return the block and the head of the tile at a *place* in the order of
    `_flash_hopper_schedule.py`, which begins with the first blocks."""
    alone = tiles - together * blocks
    rest = place - alone
    if rest < 0:
        block = place % blocks
        head = place // blocks
    else:
        block = rest // together
        head = alone // blocks + rest % together
    return block, head


@gluon_jit
def first_row(block, tall, MEMBERS: gl.constexpr):
    """Return the first row of a tile. The first *tall* tiles of a head have 64 rows for each
    warpgroup, and the others have none for the last one."""
    return 64 * (block * (MEMBERS - 1) + gl.minimum(block, tall))


@gluon_jit
def key_blocks(block, grid, MASK: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr):
    """Return the first block of keys that a block of queries reads, and the one after the last.

    There is at least one block, to write 0 from. With a mask each tile has rows for all warpgroups.
    """
    _blocks, _tall, _heads, _group, offset, nq, nk, key_begins, key_ends = grid
    begin = nk * 0
    end = nk
    if MASK == "causal":
        end = gl.minimum(nk, gl.maximum(0, (block + 1) * BM + offset))
    if MASK == "band":
        begin = gl.minimum(gl.load(key_begins + block * BM), nk - 1)
        end = gl.load(key_ends + gl.minimum((block + 1) * BM, nq) - 1)
    return begin // BN, gl.maximum(begin // BN + 1, gl.cdiv(end, BN))


@gluon_jit
def clear_keys(first, grid, MASK: gl.constexpr):
    """Return the first key that all of the 64 queries from *first* see, and the one after the
    last."""
    _blocks, _tall, _heads, _group, offset, nq, nk, key_begins, key_ends = grid
    low = nk * 0
    clear = nk
    if MASK == "causal":
        clear = gl.minimum(nk, gl.maximum(0, first + offset + 1))
    if MASK == "band":
        clear = gl.load(key_ends + gl.minimum(first, nq - 1))
        low = gl.load(key_begins + gl.minimum(first + 63, nq - 1))
    return low, clear


@gluon_jit
def clear_blocks(keys, blocks, BN: gl.constexpr):
    """Return the first block of keys of *blocks* that needs no mask, and the one after the last, of
    the clear *keys*: at most the last of *blocks*, whose scores come first."""
    low, clear = keys
    begin, end = blocks
    clear = gl.maximum(begin, gl.minimum(clear // BN, end - 1))
    return gl.minimum(gl.maximum(gl.cdiv(low, BN), begin), clear), clear


@gluon_jit
def kept(x):
    """Return *x* by an instruction that no compiler moves, so that what needs it stays behind its
    branch."""
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [x], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon_jit
def hide(scores, start, rows, MASK: gl.constexpr):
    """Set the scores of hidden pairs to -inf."""
    i, begins, ends, keys, offset, nk, _factor, _slope = rows
    BN: gl.constexpr = scores.shape[1]
    j = start + gl.arange(0, BN, gl.SliceLayout(0, scores.type.layout))
    if MASK == "band":  # few blocks need both comparisons, which take as long as the softmax
        low, clear = keys
        if start + BN > clear:
            scores = gl.where(j[None, :] < kept(ends)[:, None], scores, float("-inf"))
        if start < low:
            scores = gl.where(j[None, :] >= kept(begins)[:, None], scores, float("-inf"))
        return scores
    if MASK == "all":  # `j < nk` is the same, but ptxas then computes one row after the other
        last = i * 0 + nk - 1
        return gl.where(j[None, :] <= last[:, None], scores, float("-inf"))
    end = gl.minimum(i + offset + 1, nk)
    return gl.where(j[None, :] < kept(end)[:, None], scores, float("-inf"))


@gluon_jit
def hide_some(scores, start, rows, MASK: gl.constexpr):
    """Return the scores with those of hidden pairs at -inf, which few blocks of keys have: only
    these compare positions, behind a branch."""
    _i, _begins, _ends, keys, _offset, _nk, _factor, _slope = rows
    low, clear = keys
    hidden = start + scores.shape[1] > clear
    if MASK == "band":
        hidden = hidden | (start < low)
    if hidden:
        scores = hide(scores, start, rows, MASK)
    return scores


@gluon_jit
def query_range(first, grid, MASK: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr):
    """Return the first query that a block of keys needs, the first without a mask, the one after
    the last of them, and the end."""
    _blocks, _together, _heads, _group, offset, nq, nk, _padded, query_begins, query_ends = grid
    whole = gl.cdiv(nq, BM) * BM
    begin = whole * 0
    clear = whole * 0
    if MASK == "causal":
        begin = gl.minimum(gl.maximum(0, first - offset) // BM * BM, whole)
        clear = gl.cdiv(gl.maximum(first + BN - 1 - offset, 0), BM) * BM
        clear = gl.minimum(gl.maximum(clear, begin), whole)
    last = whole
    if MASK == "band":
        final = gl.minimum(first + BN, nk) - 1
        begin = gl.load(query_begins + first) // BM * BM
        whole = gl.maximum(begin, gl.cdiv(gl.load(query_ends + final), BM) * BM)
        clear = gl.cdiv(gl.load(query_begins + final), BM) * BM
        clear = gl.minimum(gl.maximum(clear, begin), whole)
        last = gl.maximum(clear, gl.load(query_ends + first) // BM * BM)
    if first + BN > nk:
        clear = whole
        last = whole
    return begin, clear, last, whole
