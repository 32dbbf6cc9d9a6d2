"""Compute the gradients of attention on Hopper in one pass over the scores, in Gluon.

A program keeps a block of keys and values in shared memory and its dk and dv in registers, and
reads the queries in blocks. It computes five products for each block, where `_flash.py` computes
seven: scores and gradients of the shares, transposed so that both are operands in registers for
dv and dk; and dq, which TMA adds to a sum in fp32 that all programs of a head share. The order of
these additions differs between runs, and with it the last bits of dq.

One warp loads. Two warpgroups compute together: dv and dk are on the tensor cores while the
gradients of the scores are computed and dq is written.

What each step gained, in TFLOP/s of the model's 8·d a pair at 8192 positions, plain and causal, on
H200s. At d 128: torch 178 and 58; `_flash_backward.py` 349 and 322; this file at first 421 and 403,
where cuDNN has 431 and 414. On another card, where cuDNN has 487 and 444: the order of
`_flash_hopper_schedule.py`, in which the last heads advance together, 447 and 427; sums of dq that
are stored without conflicts between banks of shared memory 471 and 449. With tensor cores that
subtract the log-sum-exp and the sums of rows, h200-attention has 524 and 505, where cuDNN has 485
and 446. Plans that compute scores ahead spill registers.

At d 64 nothing spills: scores ahead and two blocks of dq that wait raise 328 and 312 to 341 and
325, where cuDNN has 369 and 339. On the other card (378 and 342) the order reaches 351 and 342, and
keys and values that registers hold 373 and 368; in h200-attention, with tensor cores that subtract,
it is 381 and 370, where cuDNN has 378 and 341. `docs/measured/hopper_plans.txt` has plans and
shapes of the first version.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from gpuperf.kernels._flash import Mask, _plain
from gpuperf.kernels._flash_backward import finish_kernel, prepare_kernel
from gpuperf.kernels._flash_hopper_gradients import (
    add_blocks,
    begin_scores,
    carried,
    minus_ones,
    sums_layout,
)
from gpuperf.kernels._flash_hopper_ranges import query_range, tile_at
from gpuperf.kernels._flash_hopper_schedule import heads_together, work_of
from gpuperf.kernels._gluon import (
    TensorDescriptor,
    barriers,
    descriptor,
    fence_async_shared,
    gl,
    gluon_jit,
    mbarrier,
    processors_of,
    thread_barrier,
    tma,
    warpgroup_mma_wait,
)

from gpuperf.jit import triton

KEYS = 128  # keys of a block
PADDED = 128  # rows are padded to a multiple of this in `norm` and `parts`
PARTS = 16  # columns of `parts`, as many as one instruction of a product multiplies


class Plan(NamedTuple):
    """The division of the backward: queries of a block, its blocks in shared memory, blocks of dq
    that wait there to be added, and whether registers hold the keys and the values, as operands of
    products, and the scores of the next block, which are computed ahead."""

    queries: int
    stages: int
    waiting: int = 1
    ahead: bool = False


PLANS = {64: Plan(64, 2, 2, True), 128: Plan(64, 2)}  # by head dim
REGISTERS, LOADER = 168, 24  # of a thread at the launch, and in the warp that loads


@gluon_jit
def load_queries(
    tensors, buffers, bars, grid, MASK: gl.constexpr, CAPPED: gl.constexpr, AHEAD: gl.constexpr
):
    """Load a block of keys and values, then the blocks of queries and gradients of each head."""
    q_at, do_at, k_at, v_at, norm_at, parts_at = tensors
    k_tile, v_tile, q_tiles, do_tiles, norms, parts, _ds_tile, _dq_tiles = buffers
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
            mbarrier.expect(full, BM * (D + parts.shape[2]) * 2)
            tma.async_copy_global_to_shared(q_at, [b, head, start, 0], full, q_tiles.index(place))
            tma.async_copy_global_to_shared(parts_at, [row + start, 0], full, parts.index(place))
            full = do_full.index(place)
            mbarrier.expect(full, BM * (D * 2 + (4 if CAPPED else 0)))
            tma.async_copy_global_to_shared(do_at, [b, head, start, 0], full, do_tiles.index(place))
            if CAPPED:
                tma.async_copy_global_to_shared(norm_at, [row + start], full, norms.index(place))
            step += 1
    if AHEAD:  # the scores after the last ones are computed too, of any queries
        place, free = step % STAGES, step // STAGES & 1 ^ 1
        mbarrier.wait(empty.index(place), free)
        mbarrier.expect(q_full.index(place), BM * D * 2)
        any_at = [b, h * group, begin, 0]
        tma.async_copy_global_to_shared(q_at, any_at, q_full.index(place), q_tiles.index(place))


@gluon_jit
def differentiate(
    dq_at, dk_at, dv_at, buffers, bars, grid, scalars,
    MASK: gl.constexpr, CAPPED: gl.constexpr, AHEAD: gl.constexpr,
):  # fmt: skip
    """Compute dk and dv of a block of keys, and add its terms to dq."""
    k_tile, v_tile, q_tiles, _do_tiles, _norms, parts, _ds_tile, _dq_tiles = buffers
    kv_full, _q_full, _do_full, _empty = bars
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
    ends = j
    if MASK == "band":
        begins = gl.load(query_begins + j, j < nk, 0)
        ends = gl.load(query_ends + j, j < nk, 0)
    else:  # no query sees a key beyond the last
        begins = gl.where(j < nk, j - offset if MASK == "causal" else 0, 1 << 30)
    rows = (begins, ends, factor, slope)
    none = gl.zeros([BN, D], gl.float32, sums_layout(BN, D))
    scores = none
    mbarrier.wait(kv_full, 0)
    minus_norm, minus_sum = minus_ones(parts, 0, BN), minus_ones(parts, 3, BN)
    memory = ((k_tile, v_tile, minus_norm, minus_sum), buffers, bars)
    if AHEAD:
        LEFT: gl.constexpr = gl.DotOperandLayout(0, sums_layout(BN, BM), 2)
        keys, values = k_tile.load(LEFT), v_tile.load(LEFT)
        memory = ((keys, values, minus_norm, minus_sum), buffers, bars)
        scores = warpgroup_mma_wait(0, deps=(begin_scores(0, memory, CAPPED),))
    state = carried(0, none, none, scores, AHEAD)
    for member in range(group):
        out = (dq_at, b, h * group + member)
        state = add_blocks(state, begin, clear, out, memory, rows, True, MASK, CAPPED, AHEAD)
        state = add_blocks(state, clear, last, out, memory, rows, False, MASK, CAPPED, AHEAD)
        if MASK == "band":
            state = add_blocks(state, last, whole, out, memory, rows, True, MASK, CAPPED, AHEAD)
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
    q_at, do_at, k_at, v_at, norm_at, parts_at, dq_at, dk_at, dv_at, query_begins, query_ends,
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
    parts = gl.allocate_shared_memory(
        gl.bfloat16, [STAGES, BM, parts_at.block_shape[1]], parts_at.layout
    )
    ds_tile = gl.allocate_shared_memory(q_at.dtype, [BN, BM], LAYOUT)
    dq_tiles = gl.allocate_shared_memory(gl.float32, [WAITING, BM, D], SUMS)
    buffers = (k_tile, v_tile, q_tiles, do_tiles, norms, parts, ds_tile, dq_tiles)
    of_stages = (barriers(STAGES, 1), barriers(STAGES, 1), barriers(STAGES, 1))
    bars = (barriers(1, 1).index(0), of_stages[0], of_stages[1], of_stages[2])
    fence_async_shared()
    tensors = (q_at, do_at, k_at, v_at, norm_at, parts_at)
    grid = (blocks, together, heads, group, offset, nq, nk, padded, query_begins, query_ends)
    scalars = (factor, slope, scale)
    gl.warp_specialize(
        [
            (
                differentiate,
                (dq_at, dk_at, dv_at, buffers, bars, grid, scalars, MASK, CAPPED, AHEAD),
            ),
            (load_queries, (tensors, buffers, bars, grid, MASK, CAPPED, AHEAD)),
        ],
        [1],
        [LOADER],
    )


def rows_descriptors(norm: torch.Tensor, parts: torch.Tensor, rows: int) -> tuple[object, object]:
    """Return the TMA descriptors of blocks of *rows* rows of norm (n) and of parts (n, PARTS)."""
    of_norm = gl.NVMMASharedLayout(0, 32, rank=1)
    of_parts = gl.NVMMASharedLayout(2 * PARTS, 16, rank=2)
    return (
        TensorDescriptor(norm, list(norm.shape), [1], [rows], of_norm),
        TensorDescriptor(parts, list(parts.shape), [PARTS, 1], [rows, PARTS], of_parts),
    )


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
    capped = mask.cap > 0
    norms = b * h * padded if capped else plan.queries  # without a cap none are read
    norm = torch.empty(norms, dtype=torch.float32, device=q.device)
    parts = torch.empty((b * h * padded, PARTS), dtype=torch.bfloat16, device=q.device)
    total = torch.empty((b, h, nq, d), dtype=torch.float32, device=q.device)
    strides, heads = q.stride()[:3], (triton.cdiv(padded, 64), b * h)
    given = (o, do, lse, norm, parts, total, 1 / mask.factor, nq, padded, h, *strides)
    prepare_kernel[heads](*given, CAPPED=capped, D=d, PARTS=PARTS, BM=64)
    blocks = triton.cdiv(nk, KEYS)
    of_queries = (descriptor(x, plan.queries) for x in (q, do))
    of_keys = (descriptor(x, KEYS) for x in (k, v))
    results = ((total, plan.queries), (dk, KEYS), (dv, KEYS))
    together = heads_together(work_of(mask, k, k), blocks, processors_of(q.device), h // hk)
    sizes = (mask.offset, nq, nk, padded, blocks, together, h, h // hk)
    backward_hopper_kernel[(blocks * b * hk,)](
        *of_queries,
        *of_keys,
        *rows_descriptors(norm, parts, plan.queries),
        *(descriptor(x, n) for x, n in results),
        *(mask.band[2:] if mask.band else (lse, lse)),
        *(mask.factor, mask.slope, mask.scale, *sizes),
        MASK=mask.kind,
        CAPPED=capped,
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
