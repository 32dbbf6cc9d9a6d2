"""Compute the forward of attention on Hopper with warp specialization, in Gluon.

The plan is that of FlashAttention-3 (arXiv 2407.08608). One warp loads blocks of keys and values by
TMA. Each of two or three warpgroups computes 64 rows of o: it multiplies its queries by the next
block of keys while it multiplies the shares of the block before by their values, and computes the
softmax of the former while the latter is on the tensor cores. With `turns`, warpgroups take turns
to start their products, so that one computes a softmax while another multiplies.

Blocks of keys are read from the last to the first: only the first blocks that are read, at the
diagonal or at the end of the keys, need a mask. Arguments and results are those of `_flash.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from gpuperf.kernels._flash import LOG2_E, Mask, _plain
from gpuperf.kernels._gluon import (
    TensorDescriptor,
    constexpr_function,
    fence_async_shared,
    gl,
    gluon_jit,
    mbarrier,
    thread_barrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from gpuperf.jit import triton


class Plan(NamedTuple):
    """The division of the forward: keys of a block, warpgroups that compute, blocks in shared
    memory, whether warpgroups take turns, and whether a program computes one tile or several."""

    keys: int
    members: int
    stages: int
    turns: bool
    persistent: bool


# By head dim and causal mask.
PLANS = {
    (64, False): Plan(128, 2, 2, True, False),
    (64, True): Plan(128, 2, 2, True, False),
    (128, False): Plan(128, 2, 2, True, False),
    (128, True): Plan(128, 2, 2, True, False),
    (256, False): Plan(64, 2, 2, True, False),
    (256, True): Plan(64, 2, 2, True, False),
}
# Registers of a thread by the number of warpgroups that compute: at the launch, in a warpgroup
# that computes, and in the one that loads. A multiprocessor has 65,536.
REGISTERS = {2: (168, 240, 24), 3: (128, 160, 32)}


@constexpr_function
def sums_layout(n):
    """Return the layout of n columns of a warpgroup's sums."""
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, n, 16])


@gluon_jit
def tile_at(tile, blocks, heads, CAUSAL: gl.constexpr):
    """Return the block of queries, the sequence and the head of a tile; heavy blocks come first."""
    block = tile % blocks
    if CAUSAL:
        block = blocks - 1 - block
    head = tile // blocks
    return block, head // heads, head % heads


@gluon_jit
def key_blocks(block, offset, nk, CAUSAL: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr):
    """Return how many blocks of keys a block of queries reads: one at least, which may be hidden."""
    end = nk
    if CAUSAL:
        end = gl.minimum(nk, gl.maximum(0, (block + 1) * BM + offset))
    return gl.maximum(1, gl.cdiv(end, BN))


@gluon_jit
def load_blocks(q_at, k_at, v_at, tiles_of, bars, grid, CAUSAL: gl.constexpr):
    """Load the queries of each tile, and its blocks of keys and values from the last to the first."""
    q_tiles, k_tiles, v_tiles, o_tiles = tiles_of
    q_full, q_empty, k_full, k_empty, v_full, v_empty, turns = bars
    tiles, blocks, heads, group, offset, nq, nk = grid
    MEMBERS: gl.constexpr = q_tiles.shape[0]
    STAGES: gl.constexpr = k_tiles.shape[0]
    BN: gl.constexpr = k_tiles.shape[1]
    row_bytes: gl.constexpr = k_tiles.shape[2] * 2
    phase = 1
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        block, b, h = tile_at(tile, blocks, heads, CAUSAL)
        for c in gl.static_range(MEMBERS):
            mbarrier.wait(q_empty.index(c), phase)
            mbarrier.expect(q_full.index(c), 64 * row_bytes)
            row = (block * MEMBERS + c) * 64
            tma.async_copy_global_to_shared(q_at, [b, h, row, 0], q_full.index(c), q_tiles.index(c))
        phase ^= 1
        count = key_blocks(block, offset, nk, CAUSAL, 64 * MEMBERS, BN)
        for t in range(count):
            place, free = step % STAGES, step // STAGES & 1 ^ 1
            at = [b, h // group, (count - 1 - t) * BN, 0]
            mbarrier.wait(k_empty.index(place), free)
            mbarrier.expect(k_full.index(place), BN * row_bytes)
            tma.async_copy_global_to_shared(k_at, at, k_full.index(place), k_tiles.index(place))
            mbarrier.wait(v_empty.index(place), free)
            mbarrier.expect(v_full.index(place), BN * row_bytes)
            tma.async_copy_global_to_shared(v_at, at, v_full.index(place), v_tiles.index(place))
            step += 1


@gluon_jit
def hide(scores, start, i, offset, nk, CAUSAL: gl.constexpr, BN: gl.constexpr):
    """Set the scores of hidden pairs to -inf."""
    layout: gl.constexpr = scores.type.layout
    j = start + gl.arange(0, BN, gl.SliceLayout(0, layout))
    last = gl.minimum(i + offset, nk - 1) if CAUSAL else gl.maximum(i * 0 + nk - 1, 0)
    return gl.where(j[None, :] <= last[:, None], scores, float("-inf"))


@gluon_jit
def soften(scores, most, total, factor, MASKED: gl.constexpr):
    """Return exp2(scores · factor - maximum), the maximum, the new sum, and the old one's factor."""
    risen = gl.maximum(most, gl.max(scores, 1) * factor)
    shift = risen
    if MASKED:
        shift = gl.where(risen == float("-inf"), 0.0, risen)
    share = gl.exp2(scores * factor - shift[:, None])
    shrink = gl.exp2(most - shift)
    return share, risen, total * shrink + gl.sum(share, 1), shrink


@gluon_jit
def attend_block(
    acc, total, most, shares, step, turn, start, q_tile, k_tiles, v_tiles, k_full, k_empty, v_full, v_empty,
    turns, i, offset, nk, factor,
    MASKED: gl.constexpr, CAUSAL: gl.constexpr, BN: gl.constexpr, MEMBER: gl.constexpr,
    MEMBERS: gl.constexpr, STAGES: gl.constexpr, TURNS: gl.constexpr,
    SCORES: gl.constexpr, SHARES: gl.constexpr,
):  # fmt: skip
    """Multiply by a block of keys, and meanwhile the shares of the block before by its values."""
    place, full = step % STAGES, step // STAGES & 1
    before, ready = (step - 1) % STAGES, (step - 1) // STAGES & 1
    mbarrier.wait(k_full.index(place), full)
    if TURNS:
        mbarrier.wait(turns.index(MEMBER), turn & 1 ^ (1 if MEMBER == 0 else 0))
    none = gl.zeros([64, BN], gl.float32, SCORES)
    keys = k_tiles.index(place).permute((1, 0))
    pending = warpgroup_mma(q_tile, keys, none, use_acc=False, is_async=True)
    mbarrier.wait(v_full.index(before), ready)
    adding = warpgroup_mma(shares, v_tiles.index(before), acc, is_async=True)
    if TURNS:
        mbarrier.arrive(turns.index((MEMBER + 1) % MEMBERS), count=1)
    scores = warpgroup_mma_wait(1, deps=(pending,))
    mbarrier.arrive(k_empty.index(place), count=1)
    if MASKED:
        scores = hide(scores, start, i, offset, nk, CAUSAL, BN)
    share, most, total, shrink = soften(scores, most, total, factor, MASKED)
    acc, shares = warpgroup_mma_wait(0, deps=(adding, shares))
    mbarrier.arrive(v_empty.index(before), count=1)
    acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, acc.type.layout))[:, None]
    shares = gl.convert_layout(share.to(k_tiles.dtype), SHARES)
    return acc, total, most, shares


@gluon_jit
def attend(
    lse, o_at, tiles_of, bars, grid, factor,
    CAUSAL: gl.constexpr, MEMBER: gl.constexpr, TURNS: gl.constexpr, OWN: gl.constexpr,
):  # fmt: skip
    """Compute 64 rows of o of each tile in a warpgroup."""
    q_tiles, k_tiles, v_tiles, o_tiles = tiles_of
    q_full, q_empty, k_full, k_empty, v_full, v_empty, turns = bars
    tiles, blocks, heads, group, offset, nq, nk = grid
    MEMBERS: gl.constexpr = q_tiles.shape[0]
    STAGES: gl.constexpr = k_tiles.shape[0]
    BN: gl.constexpr = k_tiles.shape[1]
    D: gl.constexpr = k_tiles.shape[2]
    SCORES: gl.constexpr = sums_layout(BN)
    SUMS: gl.constexpr = sums_layout(D)
    SHARES: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, SCORES)
    q_tile, o_tile = q_tiles.index(MEMBER), o_tiles.index(MEMBER)
    phase = 0
    step = 0
    turn = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        block, b, h = tile_at(tile, blocks, heads, CAUSAL)
        first = (block * MEMBERS + MEMBER) * 64
        i = first + gl.arange(0, 64, ROWS)
        count = key_blocks(block, offset, nk, CAUSAL, 64 * MEMBERS, BN)
        clear = nk // BN
        if CAUSAL:
            clear = gl.minimum(clear, gl.maximum(0, first + offset + 1) // BN)
        clear = gl.minimum(clear, count - 1)

        most = gl.full([64], float("-inf"), gl.float32, ROWS)
        total = gl.zeros([64], gl.float32, ROWS)
        acc = gl.zeros([64, D], gl.float32, SUMS)
        mbarrier.wait(q_full.index(MEMBER), phase)
        place, full = step % STAGES, step // STAGES & 1
        mbarrier.wait(k_full.index(place), full)
        none = gl.zeros([64, BN], gl.float32, SCORES)
        keys = k_tiles.index(place).permute((1, 0))
        pending = warpgroup_mma(q_tile, keys, none, use_acc=False, is_async=True)
        scores = warpgroup_mma_wait(0, deps=(pending,))
        mbarrier.arrive(k_empty.index(place), count=1)
        scores = hide(scores, (count - 1) * BN, i, offset, nk, CAUSAL, BN)
        share, most, total, shrink = soften(scores, most, total, factor, True)
        shares = gl.convert_layout(share.to(k_tiles.dtype), SHARES)
        step += 1
        for start in range((count - 2) * BN, clear * BN - 1, -BN):
            acc, total, most, shares = attend_block(
                acc, total, most, shares, step, turn, start, q_tile, k_tiles, v_tiles, k_full, k_empty,
                v_full, v_empty, turns, i, offset, nk, factor,
                True, CAUSAL, BN, MEMBER, MEMBERS, STAGES, TURNS, SCORES, SHARES,
            )  # fmt: skip
            step += 1
            turn += 1
        for start in range((clear - 1) * BN, -1, -BN):
            acc, total, most, shares = attend_block(
                acc, total, most, shares, step, turn, start, q_tile, k_tiles, v_tiles, k_full, k_empty,
                v_full, v_empty, turns, i, offset, nk, factor,
                False, CAUSAL, BN, MEMBER, MEMBERS, STAGES, TURNS, SCORES, SHARES,
            )  # fmt: skip
            step += 1
            turn += 1
        if OWN:
            mbarrier.arrive(q_empty.index(MEMBER), count=1)
        place, full = (step - 1) % STAGES, (step - 1) // STAGES & 1
        mbarrier.wait(v_full.index(place), full)
        adding = warpgroup_mma(shares, v_tiles.index(place), acc, is_async=True)
        acc, shares = warpgroup_mma_wait(0, deps=(adding, shares))
        mbarrier.arrive(v_empty.index(place), count=1)

        nothing = total == 0.0
        total = gl.where(nothing, 1.0, total)
        norm = gl.where(nothing, float("inf"), most + gl.log2(total))
        gl.store(lse + (b * heads + h).to(gl.int64) * nq + i, norm, i < nq)
        inverse = gl.convert_layout(1.0 / total, gl.SliceLayout(1, SUMS))
        tma.store_wait(0)
        thread_barrier()
        o_tile.store((acc * inverse[:, None]).to(o_tiles.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(o_at, [b, h, first, 0], o_tile)
        if not OWN:
            tma.store_wait(0)
            mbarrier.arrive(q_empty.index(MEMBER), count=1)
        phase ^= 1
    tma.store_wait(0)


# One compilation serves all sizes.
@gluon_jit(do_not_specialize=["offset", "nq", "nk", "tiles", "blocks", "heads", "group"])
def forward_hopper_kernel(
    q_at, k_at, v_at, o_at, lse, factor, offset, nq, nk, tiles, blocks, heads, group,
    CAUSAL: gl.constexpr, D: gl.constexpr, BN: gl.constexpr, MEMBERS: gl.constexpr,
    STAGES: gl.constexpr, TURNS: gl.constexpr, OWN: gl.constexpr, REGISTERS: gl.constexpr,
    LOADER: gl.constexpr,
):  # fmt: skip
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    BAR: gl.constexpr = mbarrier.MBarrierLayout()
    q_tiles = gl.allocate_shared_memory(q_at.dtype, [MEMBERS, 64, D], LAYOUT)
    k_tiles = gl.allocate_shared_memory(q_at.dtype, [STAGES, BN, D], LAYOUT)
    v_tiles = gl.allocate_shared_memory(q_at.dtype, [STAGES, BN, D], LAYOUT)
    o_tiles = q_tiles
    if OWN:
        o_tiles = gl.allocate_shared_memory(q_at.dtype, [MEMBERS, 64, D], LAYOUT)
    q_full = gl.allocate_shared_memory(gl.int64, [MEMBERS, 1], BAR)
    q_empty = gl.allocate_shared_memory(gl.int64, [MEMBERS, 1], BAR)
    turns = gl.allocate_shared_memory(gl.int64, [MEMBERS, 1], BAR)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BAR)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BAR)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BAR)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BAR)
    for c in gl.static_range(MEMBERS):
        mbarrier.init(q_full.index(c), count=1)
        mbarrier.init(q_empty.index(c), count=1)
        mbarrier.init(turns.index(c), count=1)
    for s in gl.static_range(STAGES):
        mbarrier.init(k_full.index(s), count=1)
        mbarrier.init(v_full.index(s), count=1)
        mbarrier.init(k_empty.index(s), count=MEMBERS)
        mbarrier.init(v_empty.index(s), count=MEMBERS)
    fence_async_shared()
    tiles_of = (q_tiles, k_tiles, v_tiles, o_tiles)
    bars = (q_full, q_empty, k_full, k_empty, v_full, v_empty, turns)
    grid = (tiles, blocks, heads, group, offset, nq, nk)
    if MEMBERS == 2:
        gl.warp_specialize(
            [
                (attend, (lse, o_at, tiles_of, bars, grid, factor, CAUSAL, 0, TURNS, OWN)),
                (attend, (lse, o_at, tiles_of, bars, grid, factor, CAUSAL, 1, TURNS, OWN)),
                (load_blocks, (q_at, k_at, v_at, tiles_of, bars, grid, CAUSAL)),
            ],
            [4, 1],
            [REGISTERS, LOADER],
        )
    else:
        gl.warp_specialize(
            [
                (attend, (lse, o_at, tiles_of, bars, grid, factor, CAUSAL, 0, TURNS, OWN)),
                (attend, (lse, o_at, tiles_of, bars, grid, factor, CAUSAL, 1, TURNS, OWN)),
                (attend, (lse, o_at, tiles_of, bars, grid, factor, CAUSAL, 2, TURNS, OWN)),
                (load_blocks, (q_at, k_at, v_at, tiles_of, bars, grid, CAUSAL)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, LOADER],
        )


def descriptor(x: torch.Tensor, rows: int) -> object:
    """Return the TMA descriptor of blocks of *rows* rows of one head of x (b, h, n, d)."""
    layout = gl.NVMMASharedLayout(128, 8 * x.element_size(), rank=4)
    block = [1, 1, rows, min(x.shape[3], 256)]
    return TensorDescriptor(x, list(x.shape), list(x.stride()), block, layout)


def programs_for(tiles: int, persistent: bool, device: torch.device) -> int:
    """Return how many programs compute *tiles* tiles: one each, or one on each multiprocessor."""
    if not persistent:
        return tiles
    return min(tiles, torch.cuda.get_device_properties(device).multi_processor_count)


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Mask, plan: Plan | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return o (b, h, n_q, d), and the log-sum-exp in base 2 of the scaled scores (b, h, n_q)."""
    q, k, v = (*_plain(q), *_plain(k, v))
    (b, h, nq, d), nk = q.shape, k.shape[2]
    plan = plan or PLANS[d, mask.causal]
    o, lse = torch.empty_like(q), torch.empty((b, h, nq), dtype=torch.float32, device=q.device)
    blocks = triton.cdiv(nq, 64 * plan.members)
    tiles = blocks * b * h
    launch, own, loader = REGISTERS[plan.members]
    forward_hopper_kernel[(programs_for(tiles, plan.persistent, q.device),)](
        *(descriptor(x, rows) for x, rows in ((q, 64), (k, plan.keys), (v, plan.keys), (o, 64))),
        lse, mask.scale * LOG2_E, mask.offset, nq, nk, tiles, blocks, h, h // k.shape[1],
        CAUSAL=mask.causal, D=d, BN=plan.keys, MEMBERS=plan.members, STAGES=plan.stages,
        TURNS=plan.turns, OWN=d < 256, REGISTERS=own, LOADER=loader, num_warps=4, maxnreg=launch,
    )  # fmt: skip
    return o, lse
