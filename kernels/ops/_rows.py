"""Divide a matrix (m, n) into tiles of whole rows, for kernels whose programs hold a tile.

Each program takes one tile; or programs are persistent, and asynchronous copies to shared memory
load the next tiles while they compute one, which keeps memory busy where a row fills a whole SM.

A tile is loaded in its own dtype. A value that is needed again after a sum over the row may stay
in registers as fp32, or be converted once more from its two bytes (`again`): then rows of twice the
length fit, and twice as many loads are in flight.

Or a program reads its row in pieces, and again from the L1 after each sum. It needs few registers,
so that other programs of an SM load while it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from gpuperf.kernels._rows_hopper import CHOSEN
from gpuperf.kernels.matmul import has_tma

from gpuperf import Point
from gpuperf.jit import INTERPRETED, jit, lacks_triton, tl, triton

LARGEST_ROW = 2**16  # elements that a program holds at most: 64 registers of each of 1024 threads
TILES = (2048, 8192)  # elements of a tile of short rows
MOST_ROWS = 64  # rows of a tile
MOST_WARPS = 32
MOST_PROGRAMS = 32  # blocks that an SM of an A100 or H100 holds; smaller chips hold 16 or 24
REGISTERS = 65536  # 32-bit registers of an SM, since compute capability 5.0
PER_THREAD = (16, 32, 64)  # elements
# Limits to the registers of a thread that holds many elements, so that more programs fit an SM
# than with the compiler's own choice.
BOUNDS = (80, 128)
WIDE_ROW = 16384  # elements from which on few programs fit an SM
# Elements of a tile, warps, programs on an SM and stages of candidates that load tiles ahead, by
# the longest row that they are for.
PERSISTENT = (
    (4096, ((4096, 4, 4, 3), (4096, 4, 6, 3), (4096, 8, 4, 3), (8192, 8, 2, 3))),
    (8192, ((8192, 4, 3, 3), (8192, 8, 3, 3), (8192, 8, 2, 4))),
    (16384, ((16384, 8, 2, 3), (16384, 16, 1, 4), (16384, 16, 2, 3), (16384, 8, 2, 2))),
    (32768, ((32768, 16, 1, 4), (32768, 16, 1, 3), (32768, 32, 1, 3), (32768, 16, 1, 2))),
    (65536, ((65536, 32, 1, 2),)),
)
SHARED = 220 * 1024  # bytes for tiles in an SM of a Hopper GPU

# Warps of candidates that read a row again, by the elements of a piece.
PIECES = {4096: (4, 8, 16), 8192: (16, 32), 16384: (16, 32)}
# Elements of the shortest and of the longest row that is read so; the L1 holds several in bf16.
PIECED_ROWS = (4096, 32768)
LONG = 2048  # elements beyond which a row has the tilings of its own length alone

KEYS = ("rows", "warps", "registers", "per_sm", "stages", "again", "pieces")
# "again" needs assembly of NVIDIA GPUs.
PTX = tl is not None and not INTERPRETED and torch.version.hip is None
XOR = tl.constexpr("xor.b32 $0, $1, $2;") if tl else ""
# The lower of two bf16 is shifted up, the upper one is masked; operands are the pair, a shift and a
# mask, the last two once for each element.
UNPACK = tl.constexpr("shl.b32 $0, $2, $3; and.b32 $1, $2, $5;") if tl else ""
PAIRS = tl.constexpr(PTX) if tl else False


@jit
def row_of(tile: tl.tensor, m: tl.tensor, ROWS: tl.constexpr) -> Any:
    """Return the rows (ROWS, 1) of a tile; rows beyond the last are row m − 1 again."""
    return tl.minimum(tile * ROWS + tl.arange(0, ROWS), m - 1).to(tl.int64)[:, None]


@jit
def widened(packed: tl.tensor, after: tl.tensor, AGAIN: tl.constexpr) -> Any:
    """Return *packed* in fp32; with AGAIN converted only when *after*, a result of it, is there.

    The compiler would keep the first conversion in registers. It cannot know that the bits do not
    change: they are combined with those of a comparison, which is true if *after* is NaN.
    """
    if AGAIN:
        nothing = tl.broadcast_to((after != after).to(tl.int16), packed.shape)
        packed = tl.inline_asm_elementwise(
            XOR, "=r,r,r", [packed, nothing], dtype=packed.dtype, is_pure=True, pack=2
        )
    return packed.to(tl.float32)


@jit
def unpacked(packed: tl.tensor, after: tl.tensor, AGAIN: tl.constexpr) -> Any:
    """Return what `widened` returns. An element of bf16 takes one operation here, where it takes
    1.5 there, or 2 with AGAIN.

    This saves nothing where the compiler joins the conversion with an exponential that follows.
    """
    if not PAIRS or packed.dtype != tl.bfloat16 or packed.numel == 1:
        wide = widened(packed, after, AGAIN)
    else:  # not after a `return`, as the compiler reads on there
        nothing = (after != after).to(tl.int32) if AGAIN else tl.full((), 0, tl.int32)
        shift = tl.broadcast_to(16 + nothing, packed.shape)
        mask = tl.broadcast_to(-65536 - nothing, packed.shape)
        given = [packed, shift, mask]
        wide = tl.inline_asm_elementwise(
            UNPACK, "=&r,=r,r,r,r,r,r", given, dtype=tl.float32, is_pure=True, pack=2
        )
    return wide


def block_of(n: int) -> int:
    """Return the least power of 2 that is at least n: Triton's blocks have such sizes only."""
    return int(triton.next_power_of_2(n))


def holds_rows(point: Point, device: Any) -> str | None:
    """Return why a program cannot hold a row of the point, or None where it can."""
    if point.n > LARGEST_ROW:
        return f"a program holds rows of at most {LARGEST_ROW} elements"
    return lacks_triton(point, device)


def tilings(n: int, size: int = 4, tensors: int = 1) -> Iterator[dict[str, int]]:
    """Yield the tilings to tune among for rows of n elements of *size* bytes in *tensors* inputs.

    A tiling has the rows of a tile, warps, the limit of registers for each thread (0: the
    compiler's choice), persistent programs on an SM (0: each program has one tile), the tiles that
    those load or compute at a time, whether values are converted again, and the pieces in which a
    row is read (0: registers hold it).
    """
    block = block_of(n)
    packs = PTX and size == 2
    for rows in sorted({min(MOST_ROWS, max(1, tile // block)) for tile in TILES}):
        counts = {min(MOST_WARPS, max(1, rows * block // (32 * each))) for each in PER_THREAD}
        for warps in sorted(counts):
            many = rows * block == 32 * warps * max(PER_THREAD)
            for bound in (0, *(BOUNDS if many else ())):
                if bound * 32 * warps <= REGISTERS:
                    yield tiling_of(rows, warps, bound, 0, 1, 0, 0)
            if packs and many:
                yield tiling_of(rows, warps, 0, 0, 1, 1, 0)
    yield from persistent_tilings(block, size, tensors)


def persistent_tilings(block: int, size: int, tensors: int) -> Iterator[dict[str, int]]:
    """Yield the tilings of persistent programs whose tiles fit an SM, of *block* elements a row."""
    shapes = next(shapes for length, shapes in PERSISTENT if block <= length)
    for elements, warps, per_sm, stages in shapes:
        rows = min(MOST_ROWS, elements // block)
        if rows * block * size * tensors * (stages - 1) * per_sm <= SHARED:
            bound = min(255, REGISTERS // (32 * warps * per_sm) // 8 * 8)
            yield tiling_of(rows, warps, bound, per_sm, stages, PTX and size == 2, 0)


def piece_tilings(n: int) -> Iterator[dict[str, int]]:
    """Yield the tilings that read rows of n elements in pieces of equal length."""
    shortest, longest = PIECED_ROWS
    for elements, counts in PIECES.items() if shortest <= n <= longest else ():
        for warps in counts if n % elements == 0 else ():
            yield tiling_of(1, warps, 0, 0, 1, 0, n // elements)


def tiling_of(*values: int) -> dict[str, int]:
    """Return the tiling of *values* in the order of KEYS."""
    return {key: int(value) for key, value in zip(KEYS, values, strict=True)}


def is_hopper(device: torch.device) -> bool:
    """Return whether *device* is a Hopper GPU, and no later one."""
    return bool(has_tma(device)) and torch.cuda.get_device_capability(device)[0] == 9


def candidates_for(
    kernel: str, x: torch.Tensor, every: Iterable[Mapping[str, int]]
) -> list[Mapping[str, int]]:
    """Return what a run on a Hopper GPU chose for *kernel* and rows of *x*, else *every* tiling.

    The run had rows whose length is a power of 2, which shorter rows share up to LONG elements.
    """
    n, tried = int(x.shape[1]), [*every]
    known = CHOSEN.get((kernel, block_of(n), x.element_size()))
    other = n > LONG and n != block_of(n)
    if known is None or other or not is_hopper(x.device):
        return tried
    return [dict(zip(tried[0], values, strict=True)) for values in known]


def launch_of(tiling: Mapping[str, int], n: int) -> dict[str, int]:
    """Return the keyword arguments of a launch with *tiling*, for rows of n elements."""
    if tiling["pieces"]:
        pieces = tiling["pieces"]
        return {"PIECES": pieces, "BLOCK": n // pieces, "num_warps": tiling["warps"]}
    bound = {"maxnreg": min(255, tiling["registers"])} if tiling["registers"] else {}
    return {
        "ROWS": tiling["rows"],
        "BLOCK": block_of(n),
        "STAGES": tiling["stages"],
        "AGAIN": tiling["again"],
        "num_warps": tiling["warps"],
        **bound,
    }


def programs(tiling: Mapping[str, int], x: torch.Tensor) -> int:
    """Return the number of programs that a launch over x (m, n) has."""
    tiles = -(-int(x.shape[0]) // tiling["rows"])
    if not tiling["per_sm"]:
        return tiles
    count = 1  # SMs of Triton's interpreter
    if x.is_cuda:
        count = int(torch.cuda.get_device_properties(x.device).multi_processor_count)
    return min(tiles, tiling["per_sm"] * count)
