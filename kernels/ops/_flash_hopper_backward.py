"""Compute the gradients of attention on Hopper in one pass over the scores, in Gluon.

A program keeps a block of keys and values in shared memory and its dk and dv in registers, and
reads the queries in blocks. It computes five products for each block, where `_flash.py` computes
seven: scores and gradients of the shares, transposed so that both are operands in registers for
dv and dk; and dq, which TMA adds to a sum in fp32 that all programs of a head share. The order of
these additions differs between runs, and with it the last bits of dq.

One warp loads. Two warpgroups compute together: dv and dk are on the tensor cores while the
gradients of the scores are computed and dq is written.

What each step gained, in TFLOP/s of the model's 8·d a pair at d 128 and 8192 positions, plain and
causal, on an H200: torch 178 and 58; `_flash_backward.py` 349 and 322; this file 421 and 403, where
cuDNN has 431 and 414. Plans that compute scores ahead reach at most 256 and 243 there, as they
spill registers. At d 64 nothing spills: scores ahead and two blocks of dq that wait raise 328 and
312 to 341 and 325, where cuDNN has 369 and 339. The order of `_flash_hopper_schedule.py`, in which
the last heads advance together, took 2 % less time of the causal kernel in one trial, 9 % at 2,048
positions, and 30 % there where four heads of queries share keys; h200-attention has its rates.
`docs/measured/hopper_plans.txt` has all plans and shapes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from gpuperf.kernels._flash import Mask, _plain
from gpuperf.kernels._flash_backward import finish_kernel, prepare_kernel
from gpuperf.kernels._flash_hopper_ranges import query_range, tile_at
from gpuperf.kernels._flash_hopper_schedule import heads_together, work_of
from gpuperf.kernels._gluon import (
    TensorDescriptor,
    barriers,
    builtin,
    constexpr_function,
    descriptor,
    fast_tanh,
    fence_async_shared,
    gl,
    gluon_jit,
    mbarrier,
    processors_of,
    thread_barrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from gpuperf.jit import triton

KEYS = 128  # keys of a block
PADDED = 128  # rows are padded to a multiple of this in `norm` and `sums`


class Plan(NamedTuple):
    """The division of the backward: queries of a block, its blocks in shared memory, blocks of dq
    that wait there to be added, and whether the scores of the next block are computed ahead."""

    queries: int
    stages: int
    waiting: int = 1
    ahead: bool = False


PLANS = {64: Plan(64, 2, 2, True), 128: Plan(64, 2)}  # by head dim
REGISTERS, LOADER = 168, 24  # of a thread at the launch, and in the warp that loads


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


@gluon_jit
def load_queries(tensors, buffers, bars, grid, MASK: gl.constexpr, AHEAD: gl.constexpr):
    """Load a block of keys and values, then the blocks of queries and gradients of each head."""
    q_at, do_at, k_at, v_at, norm_at, sums_at = tensors
    k_tile, v_tile, q_tiles, do_tiles, norms, sums, _ds_tile, _dq_tiles = buffers
    kv_full, q_full, do_full, empty = bars
    blocks, together, heads, group, _offset, _nq, _nk, padded, _query_begins, _query_ends = grid
    STAGES: gl.constexpr = q_tiles.shape[0]
    BM: gl.constexpr = q_tiles.shape[1]
    D: gl.constexpr = q_tiles.shape[2]
    BN: gl.constexpr = k_tile.shape[0]
    block, head = tile_at(gl.program_id(0), gl.num_programs(0), blocks, together)
    first = block * BN
    b, h = head // (heads // group), head % (heads // group)
    begin, _clear, _last, whole = query_range(first, grid, MASK, BM, BN)
    mbarrier.expect(kv_full, 2 * BN * D * 2)
    tma.async_copy_global_to_shared(k_at, [b, h, first, 0], kv_full, k_tile)
    tma.async_copy_global_to_shared(v_at, [b, h, first, 0], kv_full, v_tile)
    step = 0
    for member in range(group):
        head = h * group + member
        row = (b * heads + head) * padded
        for start in range(begin, whole, BM):
            place, free = step % STAGES, step // STAGES & 1 ^ 1
            full = q_full.index(place)
            mbarrier.wait(empty.index(place), free)
            mbarrier.expect(full, BM * (D * 2 + 4))
            tma.async_copy_global_to_shared(q_at, [b, head, start, 0], full, q_tiles.index(place))
            tma.async_copy_global_to_shared(norm_at, [row + start], full, norms.index(place))
            full = do_full.index(place)
            mbarrier.expect(full, BM * (D * 2 + 4))
            tma.async_copy_global_to_shared(do_at, [b, head, start, 0], full, do_tiles.index(place))
            tma.async_copy_global_to_shared(sums_at, [row + start], full, sums.index(place))
            step += 1
    if AHEAD:  # the scores after the last ones are computed too, of any queries
        place, free = step % STAGES, step // STAGES & 1 ^ 1
        mbarrier.wait(empty.index(place), free)
        mbarrier.expect(q_full.index(place), BM * D * 2)
        any_at = [b, h * group, begin, 0]
        tma.async_copy_global_to_shared(q_at, any_at, q_full.index(place), q_tiles.index(place))


@gluon_jit
def begin_scores(step, k_tile, q_tiles, q_full):
    """Begin the product of the keys and a block of queries."""
    STAGES: gl.constexpr = q_tiles.shape[0]
    BN: gl.constexpr = k_tile.shape[0]
    BM: gl.constexpr = q_tiles.shape[1]
    none = gl.zeros([BN, BM], gl.float32, sums_layout(BN, BM))
    mbarrier.wait(q_full.index(step % STAGES), step // STAGES & 1)
    queries = q_tiles.index(step % STAGES).permute((1, 0))
    return warpgroup_mma(k_tile, queries, none, use_acc=False, is_async=True)


@gluon_jit
def hide_shares(share, start, rows, MASK: gl.constexpr):
    """Set the shares (keys, queries) of hidden pairs to 0."""
    j, begins, ends, offset, nk, _factor, _slope = rows
    i = start + gl.arange(0, share.shape[1], gl.SliceLayout(0, share.type.layout))
    if MASK == "band":
        seen = (i[None, :] >= begins[:, None]) & (i[None, :] < ends[:, None])
    else:
        last = gl.minimum(i + offset, nk - 1) if MASK == "causal" else i * 0 + (nk - 1)
        seen = j[:, None] <= last[None, :]
    return gl.where(seen, share, 0.0)


@gluon_jit
def change_of_scores(share, changing, sums, place, dtype: gl.constexpr):
    """Return the gradients of the scores, given those of the shares, which are being computed."""
    drop = sums.index(place).load(gl.SliceLayout(0, share.type.layout))
    dshare = warpgroup_mma_wait(1, deps=(changing,))
    return (share * (dshare - drop[None, :])).to(dtype)


@gluon_jit
def carried(step, dkeys, dvalues, scores, AHEAD: gl.constexpr):
    """Return what a block leaves to the next: without AHEAD, no scores."""
    return (step, dkeys, dvalues, scores) if AHEAD else (step, dkeys, dvalues)


@gluon_jit
def add_block(
    state, start, b, head, dq_at, buffers, bars, rows,
    MASKED: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr, AHEAD: gl.constexpr,
):  # fmt: skip
    """Add the terms of a block of queries to dk, dv and dq."""
    step, dkeys, dvalues = state[0], state[1], state[2]
    _j, _begins, _ends, _offset, _nk, factor, slope = rows
    k_tile, v_tile, q_tiles, do_tiles, norms, sums, ds_tile, dq_tiles = buffers
    _kv_full, q_full, do_full, empty = bars
    STAGES: gl.constexpr = q_tiles.shape[0]
    BM: gl.constexpr = q_tiles.shape[1]
    D: gl.constexpr = q_tiles.shape[2]
    BN: gl.constexpr = k_tile.shape[0]
    SCORES: gl.constexpr = sums_layout(BN, BM)
    LEFT: gl.constexpr = gl.DotOperandLayout(0, sums_layout(BN, D), 2)
    WAITING: gl.constexpr = dq_tiles.shape[0]
    place = step % STAGES
    if not AHEAD:
        scoring = begin_scores(step, k_tile, q_tiles, q_full)
    mbarrier.wait(do_full.index(place), step // STAGES & 1)
    grads = do_tiles.index(place)
    none = gl.zeros([BN, BM], gl.float32, SCORES)
    changing = warpgroup_mma(v_tile, grads.permute((1, 0)), none, use_acc=False, is_async=True)
    norm = norms.index(place).load(gl.SliceLayout(0, SCORES))
    scores = state[3] if AHEAD else warpgroup_mma_wait(1, deps=(scoring,))
    if CAPPED:
        scores = fast_tanh(scores * slope)
    share = gl.exp2(scores * factor - norm[None, :])
    if MASKED:
        share = hide_shares(share, start, rows, MASK)
    shares = gl.convert_layout(share.to(k_tile.dtype), LEFT)
    if CAPPED:
        share = share * (1.0 - scores * scores)
    adding_v = warpgroup_mma(shares, grads, dvalues, is_async=True)
    dscore = change_of_scores(share, changing, sums, place, k_tile.dtype)
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
    dq_tile.store(dquery)
    if AHEAD:  # only now are registers free for the next scores
        scoring = begin_scores(step + 1, k_tile, q_tiles, q_full)
    fence_async_shared()
    add_to_global(dq_at, [b, head, start, 0], dq_tile)
    if AHEAD:
        dkeys, scores, dscores = warpgroup_mma_wait(0, deps=(adding_k, scoring, dscores))
    else:
        dkeys, dscores = warpgroup_mma_wait(0, deps=(adding_k, dscores))
    mbarrier.arrive(empty.index(place), count=1)
    return carried(step + 1, dkeys, dvalues, scores, AHEAD)


@gluon_jit
def add_blocks(
    state, first, last, b, head, dq_at, buffers, bars, rows,
    MASKED: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr, AHEAD: gl.constexpr,
):  # fmt: skip
    """Add the terms of the queries from *first* to *last*."""
    BM: gl.constexpr = buffers[2].shape[1]
    for start in range(first, last, BM):
        state = add_block(
            state, start, b, head, dq_at, buffers, bars, rows, MASKED, MASK, CAPPED, AHEAD
        )
    return state


@gluon_jit
def differentiate(
    dq_at, dk_at, dv_at, buffers, bars, grid, scalars,
    MASK: gl.constexpr, CAPPED: gl.constexpr, AHEAD: gl.constexpr,
):  # fmt: skip
    """Compute dk and dv of a block of keys, and add its terms to dq."""
    k_tile, v_tile, q_tiles, _do_tiles, _norms, _sums, _ds_tile, _dq_tiles = buffers
    kv_full, q_full, _do_full, _empty = bars
    blocks, together, heads, group, offset, _nq, nk, _padded, query_begins, query_ends = grid
    factor, slope, scale = scalars
    BM: gl.constexpr = q_tiles.shape[1]
    D: gl.constexpr = q_tiles.shape[2]
    BN: gl.constexpr = k_tile.shape[0]
    block, head = tile_at(gl.program_id(0), gl.num_programs(0), blocks, together)
    first = block * BN
    b, h = head // (heads // group), head % (heads // group)
    begin, clear, last, whole = query_range(first, grid, MASK, BM, BN)
    j = first + gl.arange(0, BN, gl.SliceLayout(1, sums_layout(BN, BM)))
    begins = j
    ends = j
    if MASK == "band":
        begins = gl.load(query_begins + j, j < nk, 0)
        ends = gl.load(query_ends + j, j < nk, 0)
    rows = (j, begins, ends, offset, nk, factor, slope)
    none = gl.zeros([BN, D], gl.float32, sums_layout(BN, D))
    scores = none
    mbarrier.wait(kv_full, 0)
    if AHEAD:
        scores = warpgroup_mma_wait(0, deps=(begin_scores(0, k_tile, q_tiles, q_full),))
    state = carried(0, none, none, scores, AHEAD)
    for member in range(group):
        head = h * group + member
        state = add_blocks(
            state, begin, clear, b, head, dq_at, buffers, bars, rows, True, MASK, CAPPED, AHEAD
        )
        state = add_blocks(
            state, clear, last, b, head, dq_at, buffers, bars, rows, False, MASK, CAPPED, AHEAD
        )
        if MASK == "band":
            state = add_blocks(
                state, last, whole, b, head, dq_at, buffers, bars, rows, True, MASK, CAPPED, AHEAD
            )
    thread_barrier()
    k_tile.store((state[1] * scale).to(k_tile.dtype))
    v_tile.store(state[2].to(v_tile.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(dk_at, [b, h, first, 0], k_tile)
    tma.async_copy_shared_to_global(dv_at, [b, h, first, 0], v_tile)
    tma.store_wait(0)


# One compilation serves all sizes.
@gluon_jit(
    do_not_specialize=["offset", "nq", "nk", "padded", "blocks", "together", "heads", "group"]
)
def backward_hopper_kernel(
    q_at, do_at, k_at, v_at, norm_at, sums_at, dq_at, dk_at, dv_at, query_begins, query_ends,
    factor, slope, scale, offset, nq, nk, padded, blocks, together, heads, group,
    MASK: gl.constexpr, CAPPED: gl.constexpr, D: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    STAGES: gl.constexpr, WAITING: gl.constexpr, AHEAD: gl.constexpr, LOADER: gl.constexpr,
):  # fmt: skip
    """Allocate shared memory, and divide the work between the warps that load and that compute."""
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    SUMS: gl.constexpr = gl.NVMMASharedLayout(128, 32, 2)
    k_tile = gl.allocate_shared_memory(q_at.dtype, [BN, D], LAYOUT)
    v_tile = gl.allocate_shared_memory(q_at.dtype, [BN, D], LAYOUT)
    q_tiles = gl.allocate_shared_memory(q_at.dtype, [STAGES, BM, D], LAYOUT)
    do_tiles = gl.allocate_shared_memory(q_at.dtype, [STAGES, BM, D], LAYOUT)
    norms = gl.allocate_shared_memory(gl.float32, [STAGES, BM], norm_at.layout)
    sums = gl.allocate_shared_memory(gl.float32, [STAGES, BM], norm_at.layout)
    ds_tile = gl.allocate_shared_memory(q_at.dtype, [BN, BM], LAYOUT)
    dq_tiles = gl.allocate_shared_memory(gl.float32, [WAITING, BM, D], SUMS)
    buffers = (k_tile, v_tile, q_tiles, do_tiles, norms, sums, ds_tile, dq_tiles)
    of_stages = (barriers(STAGES, 1), barriers(STAGES, 1), barriers(STAGES, 1))
    bars = (barriers(1, 1).index(0), of_stages[0], of_stages[1], of_stages[2])
    fence_async_shared()
    tensors = (q_at, do_at, k_at, v_at, norm_at, sums_at)
    grid = (blocks, together, heads, group, offset, nq, nk, padded, query_begins, query_ends)
    scalars = (factor, slope, scale)
    gl.warp_specialize(
        [
            (
                differentiate,
                (dq_at, dk_at, dv_at, buffers, bars, grid, scalars, MASK, CAPPED, AHEAD),
            ),
            (load_queries, (tensors, buffers, bars, grid, MASK, AHEAD)),
        ],
        [1],
        [LOADER],
    )


def rows_descriptor(x: torch.Tensor, rows: int) -> object:
    """Return the TMA descriptor of blocks of *rows* numbers of x, which is flat."""
    layout = gl.NVMMASharedLayout(0, 32, rank=1)
    return TensorDescriptor(x, list(x.shape), [1], [rows], layout)


def backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    do: torch.Tensor,
    lse: torch.Tensor,
    mask: Mask,
    plan: Plan | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return dq, dk and dv, given the results o and lse of the forward."""
    (q, o, do), (k, v) = _plain(q, o, do), _plain(k, v)
    (b, h, nq, d), (hk, nk) = q.shape, k.shape[1:3]
    plan = plan or PLANS[d]
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    padded = triton.cdiv(nq, PADDED) * PADDED
    rows = torch.empty((2, b * h * padded), dtype=torch.float32, device=q.device)
    total = torch.empty((b, h, nq, d), dtype=torch.float32, device=q.device)
    strides, heads = q.stride()[:3], (triton.cdiv(padded, 64), b * h)
    prepare_kernel[heads](o, do, lse, *rows, total, nq, padded, h, *strides, D=d, BM=64)
    blocks = triton.cdiv(nk, KEYS)
    of_queries = (descriptor(x, plan.queries) for x in (q, do))
    of_keys = (descriptor(x, KEYS) for x in (k, v))
    of_rows = (rows_descriptor(x, plan.queries) for x in rows)
    results = ((total, plan.queries), (dk, KEYS), (dv, KEYS))
    together = heads_together(work_of(mask, k, k), blocks, processors_of(q.device), h // hk)
    sizes = (mask.offset, nq, nk, padded, blocks, together, h, h // hk)
    backward_hopper_kernel[(blocks * b * hk,)](
        *of_queries,
        *of_keys,
        *of_rows,
        *(descriptor(x, n) for x, n in results),
        *(mask.band[2:] if mask.band else (lse, lse)),
        *(mask.factor, mask.slope, mask.scale, *sizes),
        MASK=mask.kind,
        CAPPED=mask.cap > 0,
        D=d,
        BM=plan.queries,
        BN=KEYS,
        STAGES=plan.stages,
        WAITING=plan.waiting,
        AHEAD=plan.ahead,
        LOADER=LOADER,
        num_warps=8,
        maxnreg=REGISTERS,
    )
    finish_kernel[heads](total, dq, mask.scale, nq, h, *strides, D=d, BM=64)
    return dq, dk, dv
