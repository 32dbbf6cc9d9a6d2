"""Compute the forward of attention on Hopper with warp specialization, in Gluon.

The plan is that of FlashAttention-3 (arXiv 2407.08608). One warp loads blocks of keys and values by
TMA. Each of two or three warpgroups computes 64 rows of o: it multiplies its queries by the next
block of keys while it multiplies the shares of the block before by their values, and computes the
softmax of the former while the latter is on the tensor cores.

Blocks of keys are read from the last to the first: only the first blocks that are read, at the
diagonal or at the end of the keys, need a mask, and in a band the last blocks too. Arguments and
results are those of `_flash.py`.

Each multiprocessor has one program, whose tiles a table names (`_flash_hopper_schedule.py`). It
loads the keys of a tile while it stores the results of the tile before, and multiplies the first
scores of a tile while the last values of the tile before are multiplied.

What each step gained, in TFLOP/s of 4 · 16 heads of 128 elements and 8,192 tokens, without and with
a causal mask, on H200s (docs/measured has the first two in h200-compare-attention-8k, and the last
in h200-attention):

- torch, with the scores in DRAM: 88 and 27.
- Scores in registers, `_flash_forward.py`: 533 and 501.
- A warp that loads, two products in flight, and with the mask turns, in which warpgroups started
  their products: 680 and 663.
- Programs that compute many tiles: 669 and 683. cuDNN had 700 and 641 beside the step before, and
  686 and 629 beside this one, so that the gain is 0 and 5 %. Of 2,048 tokens it was 573 and 448,
  and then 606 and 530, where cuDNN had 637 and 462, and 628 and 460.
- Without a mask, tiles that begin beside the last products of the tile before: 709, where cuDNN has
  694, and 642 of 2,048 tokens, where cuDNN has 635.
- One loop for all blocks of keys, in which a branch hides pairs, in place of two or three: the code
  is up to a third shorter. With it tiles that overlap are faster with a mask too, and warpgroups
  take no turns any more: 713 and 705, where cuDNN has 691 and 647. Capped scores keep the loops.
  In a trial those of heads of 64 and 256 elements were 1.7 % slower than before.
- Powers of one row between the comparisons of another, by a test for hidden keys that ptxas orders
  so: nothing here, where it did before, but 516 to 569 without a mask and with heads of 64
  elements, where cuDNN has 496. The last run has 723 and 700, where cuDNN has 699 and 644.

What gained nothing, in trials of one process: turns without a mask (1 to 2 % slower), a fixed order
of tiles (up to 8 %), blocks of 64 keys (8 % with three warpgroups, on an H100, and 12 % of a window
of 1,024 keys), and a polynomial of degree 3 for half or a quarter of the `exp2` (up to 30 %, and 3
to 8 % with capped scores, also where one piece of assembly computes three powers by the unit and
the fourth by the polynomial).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from gpuperf.kernels._flash import Mask, _plain
from gpuperf.kernels._flash_hopper_blocks import (
    add_last_values,
    add_values,
    attend_tile,
    begin_tile,
    first_shares,
    multiply,
)
from gpuperf.kernels._flash_hopper_ranges import clear_keys, first_row, key_blocks
from gpuperf.kernels._flash_hopper_schedule import Work, schedule, table_of, work_of
from gpuperf.kernels._gluon import (
    barriers,
    descriptor,
    fence_async_shared,
    gl,
    gluon_jit,
    mbarrier,
    packed,
    processors_of,
    sums_layout,
    thread_barrier,
    tma,
)


class Plan(NamedTuple):
    """The keys of a block, warpgroups that compute, blocks in shared memory, and how long a row
    takes for a block of keys, relative to the other plan."""

    keys: int
    members: int
    stages: int
    pace: float = 1.0


# By head dim: chosen by times of 2,048 to 16,384 tokens on an H200.
PLANS = {
    64: (Plan(128, 3, 2), Plan(128, 2, 4, 1.075)),
    128: (Plan(128, 2, 2),),
    256: (Plan(64, 2, 2),),
}
OUTPUTS = 128  # columns of o that leave through shared memory at a time
# Registers of a thread by the number of warpgroups that compute: at the launch, in a warpgroup
# that computes, and in the one that loads. A multiprocessor has 65,536.
REGISTERS = {2: (168, 240, 24), 3: (128, 160, 32)}


@gluon_jit
def load_blocks(given, buffers, bars, grid, MASK: gl.constexpr):
    """Load the queries of each tile, then its keys and values from the last block to the first."""
    q_at, k_at, v_at, tiles_at = given
    q_tiles, k_tiles, v_tiles, _o_tiles = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty = bars
    blocks, tall, heads, group, _offset, _nq, _nk, _key_begins, _key_ends = grid
    MEMBERS: gl.constexpr = q_tiles.shape[0]
    STAGES: gl.constexpr = k_tiles.shape[0]
    BN: gl.constexpr = k_tiles.shape[1]
    row_bytes: gl.constexpr = k_tiles.shape[2] * 2
    phase = 1
    step = 0
    tiles_at += gl.program_id(0)
    tile = gl.load(tiles_at + 2 * gl.num_programs(0))
    for number in range(gl.load(tiles_at)):
        block, b, h = tile % blocks, tile // blocks // heads, tile // blocks % heads
        tile = gl.load(tiles_at + (number + 3) * gl.num_programs(0))
        for c in gl.static_range(MEMBERS):
            if (c + 1 < MEMBERS) | (block < tall):
                mbarrier.wait(q_empty.index(c), phase)
                mbarrier.expect(q_full.index(c), 64 * row_bytes)
                at = [b, h, first_row(block, tall, MEMBERS) + 64 * c, 0]
                tma.async_copy_global_to_shared(q_at, at, q_full.index(c), q_tiles.index(c))
        phase ^= 1
        begin, end = key_blocks(block, grid, MASK, 64 * MEMBERS, BN)
        for t in range(end - begin):
            place, free = step % STAGES, step // STAGES & 1 ^ 1
            at = [b, h // group, (end - 1 - t) * BN, 0]
            mbarrier.wait(k_empty.index(place), free)
            mbarrier.expect(k_full.index(place), BN * row_bytes)
            tma.async_copy_global_to_shared(k_at, at, k_full.index(place), k_tiles.index(place))
            mbarrier.wait(v_empty.index(place), free)
            mbarrier.expect(v_full.index(place), BN * row_bytes)
            tma.async_copy_global_to_shared(v_at, at, v_full.index(place), v_tiles.index(place))
            step += 1


@gluon_jit
def place_of(tile, held, MASK: gl.constexpr, MEMBER: gl.constexpr):
    """Return where the rows of a warpgroup are in o, what they attend to, and the first block of
    keys and the one after the last."""
    memory, grid, scalars = held
    buffers, _bars = memory
    q_tiles, k_tiles, _v_tiles, _o_tiles = buffers
    blocks, tall, heads, _group, offset, nq, nk, key_begins, key_ends = grid
    factor, slope = scalars
    MEMBERS: gl.constexpr = q_tiles.shape[0]
    BN: gl.constexpr = k_tiles.shape[1]
    block, b, h = tile % blocks, tile // blocks // heads, tile // blocks % heads
    first = first_row(block, tall, MEMBERS) + 64 * MEMBER
    i = first + gl.arange(0, 64, gl.SliceLayout(1, sums_layout(BN)))
    begins, ends = i, i
    if MASK == "band":
        begins = gl.load(key_begins + i, i < nq, 0)
        ends = gl.load(key_ends + i, i < nq, 0)
    rows = (i, begins, ends, clear_keys(first, grid, MASK), offset, nk, factor, slope)
    return (b, h, first), rows, key_blocks(block, grid, MASK, 64 * MEMBERS, BN)


@gluon_jit
def store_tile(acc, total, most, results, at, i, held, MEMBER: gl.constexpr):
    """Store o and the log-sum-exp."""
    lse, o_at, _tiles_at = results
    memory, grid, _scalars = held
    buffers, _bars = memory
    _blocks, _tall, heads, _group, _offset, nq, _nk, _key_begins, _key_ends = grid
    b, h, first = at
    _q_tiles, _k_tiles, _v_tiles, o_tiles = buffers
    COLUMNS: gl.constexpr = o_tiles.shape[2]
    PARTS: gl.constexpr = acc.shape[1] // COLUMNS
    o_tile = o_tiles.index(MEMBER)
    nothing = total == 0.0
    total = gl.where(nothing, 1.0, total)
    norm = gl.where(nothing, float("inf"), most + gl.log2(total))
    gl.store(lse + (b * heads + h).to(gl.int64) * nq + i, norm, i < nq)
    inverse = gl.convert_layout(1.0 / total, gl.SliceLayout(1, acc.type.layout))
    o = (acc * inverse[:, None]).to(o_tile.dtype)
    parts = (o,)
    if PARTS == 2:
        parts = gl.split(gl.permute(gl.reshape(o, [64, 2, COLUMNS]), (0, 2, 1)))
    for part in gl.static_range(PARTS):
        tma.store_wait(0)
        thread_barrier()
        o_tile.store(gl.convert_layout(parts[part], sums_layout(COLUMNS), True))
        fence_async_shared()
        tma.async_copy_shared_to_global(o_at, [b, h, first, part * COLUMNS], o_tile)


@gluon_jit
def free_unread(first, last, memory):
    """Free the blocks of the tiles that have no rows for the last warpgroup, which are the steps
    from *first* to before *last*: the loader waits for all warpgroups."""
    buffers, bars = memory
    _q_tiles, k_tiles, _v_tiles, _o_tiles = buffers
    _q_full, _q_empty, k_full, k_empty, v_full, v_empty = bars
    STAGES: gl.constexpr = k_tiles.shape[0]
    for step in range(first, last):
        place, phase = step % STAGES, step // STAGES & 1
        mbarrier.wait(k_full.index(place), phase)
        mbarrier.arrive(k_empty.index(place), count=1)
        mbarrier.wait(v_full.index(place), phase)
        mbarrier.arrive(v_empty.index(place), count=1)


@gluon_jit
def attend(results, held, MASK: gl.constexpr, CAPPED: gl.constexpr, MEMBER: gl.constexpr):
    """Compute 64 rows of o of each tile, and begin the next beside the last products of a tile. The
    last warpgroup ends after the tiles that have rows for it."""
    _lse, _o_at, tiles_at = results
    memory, _grid, _scalars = held
    buffers, bars = memory
    q_tiles, k_tiles, _v_tiles, _o_tiles = buffers
    q_full, _q_empty, _k_full, _k_empty, _v_full, _v_empty = bars
    BN: gl.constexpr = k_tiles.shape[1]
    IS_LAST: gl.constexpr = q_tiles.shape[0] == MEMBER + 1
    tiles_at += gl.program_id(0)
    count = gl.load(tiles_at + (gl.num_programs(0) if IS_LAST else 0))
    tile = gl.load(tiles_at + 2 * gl.num_programs(0))
    at, rows, blocks = place_of(tile, held, MASK, MEMBER)
    mbarrier.wait(q_full.index(MEMBER), 0)
    state = begin_tile(rows, blocks, memory, MASK, CAPPED, MEMBER)
    none = state[0]  # sums of nothing
    for number in range(count):
        state = attend_tile(state, rows, blocks, memory, MASK, CAPPED, MEMBER)
        ended, i = at, rows[0]
        tile = gl.load(tiles_at + (number + 3) * gl.num_programs(0))
        at, rows, blocks = place_of(tile, held, MASK, MEMBER)
        acc, total, most, shares, step = state
        if number + 1 < count:
            begin, end = blocks
            mbarrier.wait(q_full.index(MEMBER), (number + 1) & 1)
            scores, adding, left = multiply(state, begin == end - 1, memory, MEMBER)
            share, next_total, next_most = first_shares(scores, (end - 1) * BN, rows, MASK, CAPPED)
            acc = add_values(adding, left, step - 1, memory)
            # Behind the wait: if registers that a product reads are written while another product
            # runs, ptxas lets all products wait for each other.
            shares = packed(share, k_tiles.dtype)
        else:
            acc = add_last_values(state, memory)
            next_total, next_most = total, most
        store_tile(acc, total, most, results, ended, i, held, MEMBER)
        state = (none, next_total, next_most, shares, step + 1)
    if IS_LAST and MASK == "all":
        begin, end = blocks
        free_unread(count * (end - begin), gl.load(tiles_at) * (end - begin), memory)
    tma.store_wait(0)


# One compilation serves all sizes.
@gluon_jit(do_not_specialize=["offset", "nq", "nk", "blocks", "tall", "heads", "group"])
def forward_hopper_kernel(
    q_at, k_at, v_at, o_at, lse, tiles_at, key_begins, key_ends, factor, slope, offset, nq, nk,
    blocks, tall, heads, group,
    MASK: gl.constexpr, CAPPED: gl.constexpr, D: gl.constexpr, BN: gl.constexpr,
    MEMBERS: gl.constexpr, STAGES: gl.constexpr, OUTPUTS: gl.constexpr, REGISTERS: gl.constexpr,
    LOADER: gl.constexpr,
):  # fmt: skip
    """Allocate shared memory, and divide the work between the warps that load and that compute."""
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    # One place for the queries of a warpgroup. With two in turn, ptxas 12.8 took an address of a
    # second loop of blocks (capped scores have two) from the first, which may not run, and results
    # were wrong.
    q_tiles = gl.allocate_shared_memory(q_at.dtype, [MEMBERS, 64, D], LAYOUT)
    k_tiles = gl.allocate_shared_memory(q_at.dtype, [STAGES, BN, D], LAYOUT)
    v_tiles = gl.allocate_shared_memory(q_at.dtype, [STAGES, BN, D], LAYOUT)
    o_tiles = gl.allocate_shared_memory(q_at.dtype, [MEMBERS, 64, OUTPUTS], LAYOUT)
    queries = (barriers(MEMBERS, 1), barriers(MEMBERS, 1))
    keys = (barriers(STAGES, 1), barriers(STAGES, MEMBERS))
    values = (barriers(STAGES, 1), barriers(STAGES, MEMBERS))
    buffers = (q_tiles, k_tiles, v_tiles, o_tiles)
    bars = (queries[0], queries[1], keys[0], keys[1], values[0], values[1])
    fence_async_shared()
    grid = (blocks, tall, heads, group, offset, nq, nk, key_begins, key_ends)
    scalars = (factor, slope)
    results, given = (lse, o_at, tiles_at), (q_at, k_at, v_at, tiles_at)
    held = ((buffers, bars), grid, scalars)
    if MEMBERS == 2:
        gl.warp_specialize(
            [
                (attend, (results, held, MASK, CAPPED, 0)),
                (attend, (results, held, MASK, CAPPED, 1)),
                (load_blocks, (given, buffers, bars, grid, MASK)),
            ],
            [4, 1],
            [REGISTERS, LOADER],
        )
    else:
        gl.warp_specialize(
            [
                (attend, (results, held, MASK, CAPPED, 0)),
                (attend, (results, held, MASK, CAPPED, 1)),
                (attend, (results, held, MASK, CAPPED, 2)),
                (load_blocks, (given, buffers, bars, grid, MASK)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, LOADER],
        )


def plan_of(d: int, work: Work, processors: int) -> Plan:
    """Return the plan with the shortest schedule; of a band, whose blocks are short, that with the
    fewest rows."""
    plans = PLANS[d]
    if work.mask == "band":
        return plans[-1]

    def time(plan: Plan) -> float:
        longest: float = schedule(work, plan.members, plan.keys, processors).longest
        return longest * plan.members * plan.pace

    return min(plans, key=time)


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Mask, plan: Plan | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return o (b, h, n_q, d), and the log-sum-exp in base 2 of the scaled scores (b, h, n_q)."""
    (q,), (k, v) = _plain(q), _plain(k, v)
    (b, h, nq, d), nk = q.shape, k.shape[2]
    work, processors = work_of(mask, q, k), processors_of(q.device)
    plan = plan or plan_of(d, work, processors)
    o, lse = torch.empty_like(q), torch.empty((b, h, nq), dtype=torch.float32, device=q.device)
    parts = schedule(work, plan.members, plan.keys, processors)
    table = table_of(work, plan.members, plan.keys, processors, q.device)
    launch, own, loader = REGISTERS[plan.members]
    columns = min(d, OUTPUTS)
    forward_hopper_kernel[(len(parts.programs),)](
        *(descriptor(x, rows) for x, rows in ((q, 64), (k, plan.keys), (v, plan.keys))),
        *(descriptor(o, 64, columns), lse, table),
        *(mask.band[:2] if mask.band else (lse, lse)),
        *(mask.factor, mask.slope, mask.offset, nq, nk),
        *(parts.blocks, parts.tall, h, h // k.shape[1]),
        MASK=mask.kind,
        CAPPED=mask.cap > 0,
        D=d,
        BN=plan.keys,
        MEMBERS=plan.members,
        STAGES=plan.stages,
        OUTPUTS=columns,
        REGISTERS=own,
        LOADER=loader,
        num_warps=4,
        maxnreg=launch,
    )
    return o, lse
