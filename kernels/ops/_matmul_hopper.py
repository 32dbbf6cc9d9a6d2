"""Compute the matrix product C = A·B on Hopper with warp specialization, in Gluon.

One warp loads blocks of A and B by TMA. Each of one to three warpgroups computes 64 rows of a tile
of C, with one product on the tensor cores while it waits for the next block. Programs are
persistent, so that the blocks of the next tile arrive while a tile is stored.

The tile is chosen by its rate and the waves that it needs: a tile of 192 rows needs three waves for
3072 x 3072, where one of 128 x 256 needs as many for a third less work.

What each step gained for 4096 x 4096 x 4096 in bf16, in TFLOP/s (h200-compare-matmul and
hopper_plans.txt of docs/measured): one element of C in each thread has 3.5 on an H200, tiles in
shared memory 19, Triton's tensor cores and TMA 779, cuBLAS 785. On an H100 this kernel has 693,
where cuBLAS has 731. The tile of 192 rows gains for 3072 x 3072 x 3072: from 557 to 709, where
cuBLAS has 727.

In fp8, B is column-major, and each block's products are added in fp32, since Hopper's tensor cores
keep about 14 bits of a sum of products in fp8 (DeepSeek-V3, arXiv 2412.19437, section 3.3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from gpuperf.kernels._gluon import (
    TensorDescriptor,
    barriers,
    constexpr_function,
    fence_async_shared,
    gl,
    gluon_jit,
    lacks_gluon,
    mbarrier,
    thread_barrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from gpuperf.jit import Tuned, jit, tl, triton


class Tile(NamedTuple):
    """A tile of C: warpgroups of 64 rows, columns, elements of k at a time, blocks in shared
    memory, parts in which it is stored, and its rate in FLOP a cycle of a multiprocessor."""

    members: int
    columns: int
    depth: int
    stages: int
    parts: int
    rate: int


# The rate orders tiles that need equally many waves.
TILES = (
    Tile(2, 256, 64, 4, 2, 3600),
    Tile(3, 256, 64, 3, 2, 3640),
    Tile(3, 128, 64, 4, 1, 3740),
    Tile(2, 128, 64, 5, 1, 3660),
    Tile(1, 256, 64, 4, 2, 3280),
    Tile(1, 128, 64, 6, 1, 3060),
)
# Of fp8. The rates are no fit: twice those above, less for the sums of each block.
FP8_TILES = (
    Tile(2, 128, 128, 5, 1, 6600),
    Tile(3, 128, 128, 4, 1, 6500),
    Tile(1, 128, 128, 6, 1, 5000),
)
SPLITS = (1, 2, 3, 4, 6, 8)  # parts of k that programs of their own compute
# Cycles of a tile beside its products, for its first blocks and its store, and of the kernel that
# adds the parts of k; bytes a cycle from DRAM, and to and from the L2 in that kernel. They and the
# rates of the tiles are fitted to the times of 22 products on an H100
# (docs/measured/hopper_plans.txt), where the tile that they choose takes 2.5 % longer than the best
# one, in the mean; no other product was tried.
TILE_CYCLES, ADD_CYCLES, DRAM_RATE, ADD_RATE = 2300, 7000, 1150, 1820
GROUP = 8  # rows of tiles that are computed together
SHARED = 227 * 1024 - 256  # bytes for blocks and tiles in a program; the rest is for barriers
# Registers of a thread by the number of warpgroups that compute: at the launch, in a warpgroup
# that computes, and in the one that loads.
REGISTERS = {1: (232, 240, 40), 2: (168, 240, 24), 3: (128, 160, 32)}


@constexpr_function
def sums_layout(n, members, size):
    """Return the layout of n columns of a warpgroup's sums, of which three have few registers, of
    products of elements of *size* bytes."""
    width = min(n, 128 if members == 3 else 256)
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, width, 32 // size])


@gluon_jit
def tile_at(tile, rows, columns, GROUP: gl.constexpr):
    """Return the row and the column of a tile, counted in tiles; GROUP rows are taken together."""
    first = tile // (GROUP * columns) * GROUP
    height = gl.minimum(rows - first, GROUP)
    within = tile % (GROUP * columns)
    return first + within % height, within // height


@gluon_jit
def load_blocks(a_at, b_at, tiles, bars, grid, GROUP: gl.constexpr):
    """Load the blocks of A and B of each tile of this program."""
    a_tiles, b_tiles, _c_tiles = tiles
    full, empty = bars
    rows, columns, k, splits, chunk = grid
    STAGES: gl.constexpr = b_tiles.shape[0]
    BYTES: gl.constexpr = a_tiles.dtype.primitive_bitwidth // 8
    BK: gl.constexpr = a_tiles.shape[2]
    BN: gl.constexpr = b_tiles.shape[1] * b_tiles.shape[2] // BK
    MEMBERS: gl.constexpr = a_tiles.shape[0] // STAGES
    step = 0
    for tile in range(gl.program_id(0), rows * columns * splits, gl.num_programs(0)):
        row, column = tile_at(tile // splits, rows, columns, GROUP)
        begin = tile % splits * chunk
        for start in range(begin, gl.minimum(begin + chunk, k), BK):
            place = step % STAGES
            ready = full.index(place)
            mbarrier.wait(empty.index(place), step // STAGES & 1 ^ 1)
            mbarrier.expect(ready, (64 * MEMBERS + BN) * BK * BYTES)
            for c in gl.static_range(MEMBERS):
                at = [(row * MEMBERS + c) * 64, start]
                tma.async_copy_global_to_shared(a_at, at, ready, a_tiles.index(place * MEMBERS + c))
            at = [column * BN, start] if BYTES == 1 else [start, column * BN]
            tma.async_copy_global_to_shared(b_at, at, ready, b_tiles.index(place))
            step += 1


@gluon_jit
def store_part(c_at, at, c_tile, sums):
    """Store a part of a tile by TMA, after the part before it has left shared memory."""
    tma.store_wait(0)
    thread_barrier()
    c_tile.store(sums.to(c_tile.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(c_at, at, c_tile)


@gluon_jit
def multiply(c_at, tiles, bars, grid, MEMBER: gl.constexpr, GROUP: gl.constexpr):
    """Compute 64 rows of each tile in a warpgroup."""
    a_tiles, b_tiles, c_tiles = tiles
    full, empty = bars
    rows, columns, k, splits, chunk = grid
    STAGES: gl.constexpr = b_tiles.shape[0]
    BYTES: gl.constexpr = a_tiles.dtype.primitive_bitwidth // 8
    BK: gl.constexpr = a_tiles.shape[2]
    BN: gl.constexpr = b_tiles.shape[1] * b_tiles.shape[2] // BK
    MEMBERS: gl.constexpr = a_tiles.shape[0] // STAGES
    PART: gl.constexpr = c_tiles.shape[2]
    LAYOUT: gl.constexpr = sums_layout(BN, MEMBERS, BYTES)
    c_tile = c_tiles.index(MEMBER)
    step = 0
    for tile in range(gl.program_id(0), rows * columns * splits, gl.num_programs(0)):
        row, column = tile_at(tile // splits, rows, columns, GROUP)
        begin = tile % splits * chunk
        sums = gl.zeros([64, BN], gl.float32, LAYOUT)
        for start in range(begin, gl.minimum(begin + chunk, k), BK):
            place = step % STAGES
            mbarrier.wait(full.index(place), step // STAGES & 1)
            left = a_tiles.index(place * MEMBERS + MEMBER)
            right = b_tiles.index(place)
            if BYTES == 1:
                none = gl.zeros([64, BN], gl.float32, LAYOUT)
                right = right.permute((1, 0))
                some = warpgroup_mma(left, right, none, use_acc=False, is_async=True)
                some = warpgroup_mma_wait(0, deps=(some,))
                mbarrier.arrive(empty.index(place), count=1)
                sums += some
            else:
                sums = warpgroup_mma(left, right, sums, use_acc=start > begin, is_async=True)
                sums = warpgroup_mma_wait(1, deps=(sums,))
                mbarrier.arrive(empty.index((step - 1) % STAGES), count=1, pred=start > begin)
            step += 1
        if BYTES == 2:
            sums = warpgroup_mma_wait(0, deps=(sums,))
            mbarrier.arrive(empty.index((step - 1) % STAGES), count=1)
        # The sums of a part of k follow those of the parts before it, in rows of their own.
        first = ((tile % splits * rows + row) * MEMBERS + MEMBER) * 64
        at = [first, column * BN]
        if PART == BN:
            store_part(c_at, at, c_tile, sums)
        else:
            low, high = gl.split(gl.permute(gl.reshape(sums, [64, 2, PART]), [0, 2, 1]))
            store_part(c_at, at, c_tile, gl.convert_layout(low, sums_layout(PART, MEMBERS, BYTES)))
            at = [first, column * BN + PART]
            store_part(c_at, at, c_tile, gl.convert_layout(high, sums_layout(PART, MEMBERS, BYTES)))
    tma.store_wait(0)


# One compilation serves all sizes.
@gluon_jit(do_not_specialize=["rows", "columns", "k", "splits", "chunk"])
def matmul_hopper_kernel(
    a_at,
    b_at,
    c_at,
    rows,
    columns,
    k,
    splits,
    chunk,
    BN: gl.constexpr,
    BK: gl.constexpr,
    MEMBERS: gl.constexpr,
    STAGES: gl.constexpr,
    PARTS: gl.constexpr,
    GROUP: gl.constexpr,
    REGISTERS: gl.constexpr,
    LOADER: gl.constexpr,
):
    """Allocate shared memory, and divide the work between the warps that load and that compute."""
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout(128, a_at.dtype.primitive_bitwidth, 2)
    C_LAYOUT: gl.constexpr = gl.NVMMASharedLayout(128, c_at.dtype.primitive_bitwidth, 2)
    a_tiles = gl.allocate_shared_memory(a_at.dtype, [STAGES * MEMBERS, 64, BK], LAYOUT)
    OF_FP8: gl.constexpr = a_at.dtype.primitive_bitwidth == 8
    B_SHAPE: gl.constexpr = [STAGES, BN, BK] if OF_FP8 else [STAGES, BK, BN]
    b_tiles = gl.allocate_shared_memory(a_at.dtype, B_SHAPE, LAYOUT)
    c_tiles = gl.allocate_shared_memory(c_at.dtype, [MEMBERS, 64, BN // PARTS], C_LAYOUT)
    tiles = (a_tiles, b_tiles, c_tiles)
    bars = (barriers(STAGES, 1), barriers(STAGES, MEMBERS))
    fence_async_shared()
    grid = (rows, columns, k, splits, chunk)
    if MEMBERS == 1:
        gl.warp_specialize(
            [
                (multiply, (c_at, tiles, bars, grid, 0, GROUP)),
                (load_blocks, (a_at, b_at, tiles, bars, grid, GROUP)),
            ],
            [1],
            [LOADER],
        )
    elif MEMBERS == 2:
        gl.warp_specialize(
            [
                (multiply, (c_at, tiles, bars, grid, 0, GROUP)),
                (multiply, (c_at, tiles, bars, grid, 1, GROUP)),
                (load_blocks, (a_at, b_at, tiles, bars, grid, GROUP)),
            ],
            [4, 1],
            [REGISTERS, LOADER],
        )
    else:
        gl.warp_specialize(
            [
                (multiply, (c_at, tiles, bars, grid, 0, GROUP)),
                (multiply, (c_at, tiles, bars, grid, 1, GROUP)),
                (multiply, (c_at, tiles, bars, grid, 2, GROUP)),
                (load_blocks, (a_at, b_at, tiles, bars, grid, GROUP)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, LOADER],
        )


@jit
def add_kernel(parts, c, size, splits, stride, BLOCK: tl.constexpr):
    """Add the sums of all parts of k, and round them."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(splits):
        total += tl.load(parts + part * stride + at, at < size, 0.0)
    tl.store(c + at, total.to(c.dtype.element_ty), at < size)


def cycles(
    m: int, n: int, k: int, tile: Tile, splits: int, processors: int, size: int = 2
) -> float:
    """Return the modelled cycles of a product of elements of *size* bytes, with *tile* and *splits*
    parts of k."""
    rows = 64 * tile.members
    waves = -(-triton.cdiv(m, rows) * triton.cdiv(n, tile.columns) * splits // processors)
    products = 2 * rows * tile.columns * -(-k // splits) / tile.rate
    moved = (size * (m * k + k * n) + 2 * m * n) / DRAM_RATE
    added = ADD_CYCLES + m * n * (8 * splits + 2) / ADD_RATE if splits > 1 else 0.0
    computed = waves * (products + TILE_CYCLES)
    return float((computed**4 + moved**4) ** 0.25 + added)  # the longer one, and some of the other


def fits(tile: Tile, splits: int, size: int = 2) -> bool:
    """Return whether the blocks, of elements of *size* bytes, and the stored part of *tile* fit
    shared memory.

    Sums of one of several parts of k are stored in fp32, in twice the bytes.
    """
    rows = 64 * tile.members
    blocks = size * tile.stages * tile.depth * (rows + tile.columns)
    stored = rows * tile.columns // tile.parts * (4 if splits > 1 else 2)
    return blocks + stored <= SHARED


def choose(m: int, n: int, k: int, processors: int, size: int = 2) -> tuple[Tile, int]:
    """Return the tile and the parts of k with the fewest modelled cycles."""
    few = [splits for splits in SPLITS if splits == 1 or k >= 512 * splits]
    tiles = FP8_TILES if size == 1 else TILES
    every = ((tile, splits) for tile in tiles for splits in few if fits(tile, splits, size))
    return min(every, key=lambda choice: cycles(m, n, k, choice[0], choice[1], processors, size))


def descriptor(x: torch.Tensor, rows: int, columns: int) -> object:
    """Return the TMA descriptor of blocks (rows, columns) of the matrix x."""
    layout = gl.NVMMASharedLayout(128, 8 * x.element_size(), rank=2)
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [rows, columns], layout)


def multiply_by(
    a: torch.Tensor, b: torch.Tensor, tile: Tile, splits: int = 1
) -> Callable[[], torch.Tensor]:
    """Return the call that computes a·b with *tile* and at most *splits* parts of k."""
    (m, k), n = a.shape, b.shape[1]
    of_fp8 = a.element_size() == 1
    c = torch.empty((m, n), dtype=torch.bfloat16 if of_fp8 else a.dtype, device=a.device)
    rows, columns = triton.cdiv(m, 64 * tile.members), triton.cdiv(n, tile.columns)
    chunk = triton.cdiv(triton.cdiv(k, tile.depth), splits) * tile.depth
    splits = triton.cdiv(k, chunk)  # so that no part is empty
    height = rows * 64 * tile.members
    to = c if splits == 1 else torch.empty((splits * height, n), device=a.device)
    launch, own, loader = REGISTERS[tile.members]
    blocks = (
        (a, 64, tile.depth),
        (b.t(), tile.columns, tile.depth) if of_fp8 else (b, tile.depth, tile.columns),
        (to, 64, tile.columns // tile.parts),
    )
    descriptors = [descriptor(*block) for block in blocks]
    processors = torch.cuda.get_device_properties(a.device).multi_processor_count
    grid = (min(rows * columns * splits, processors),)

    def call() -> torch.Tensor:
        matmul_hopper_kernel[grid](
            *descriptors,
            rows,
            columns,
            k,
            splits,
            chunk,
            BN=tile.columns,
            BK=tile.depth,
            MEMBERS=tile.members,
            STAGES=tile.stages,
            PARTS=tile.parts,
            GROUP=GROUP,
            REGISTERS=own,
            LOADER=loader,
            num_warps=4,
            maxnreg=launch,
        )
        if splits > 1:
            adders = (triton.cdiv(m * n, 1024),)
            add_kernel[adders](to, c, m * n, splits, height * n, BLOCK=1024)
        return c

    return call


def matmul_gluon(inputs: Mapping[str, torch.Tensor], point: Any, options: object) -> Tuned:
    """Build the product with the tile that the model of waves chooses."""
    processors = torch.cuda.get_device_properties(inputs["a"].device).multi_processor_count
    size = inputs["a"].element_size()
    tile, splits = choose(point.m, point.n, point.k, processors, size)
    chosen = {"BM": 64 * tile.members, "BN": tile.columns, "BK": tile.depth, "splits": splits}
    return Tuned(multiply_by(inputs["a"], inputs["b"], tile, splits), chosen)


def gluon_supports(point: Any, device: Any) -> str | None:
    """Return why the kernel cannot run the point, or None where it can."""
    if point.dtype not in ("bf16", "fp16", "fp8"):
        return "takes bf16, fp16, fp8 only"
    whole = 16 if point.dtype == "fp8" else 8
    if point.n % whole or point.k % whole:
        return f"needs multiples of {whole} for n and k, since TMA moves rows of 16 bytes"
    lacking: str | None = lacks_gluon(point, device)
    return lacking
