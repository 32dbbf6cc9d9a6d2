"""Divide a matrix (m, n) into tiles of whole rows, for kernels whose programs hold a tile.

Each program takes one tile; or programs are persistent, and load the next tile while they compute
one, which keeps memory busy where a row fills a whole SM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from gpuperf import Point
from gpuperf.jit import jit, lacks_triton, tl, triton

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
WIDE_ROW = 16384  # elements from which on few programs fit an SM, and one of them may be persistent


@jit
def row_of(tile: tl.tensor, m: tl.tensor, ROWS: tl.constexpr) -> Any:
    """Return the rows (ROWS, 1) of a tile; rows beyond the last are row m − 1 again."""
    return tl.minimum(tile * ROWS + tl.arange(0, ROWS), m - 1).to(tl.int64)[:, None]


@jit
def load_tile(
    x: tl.tensor,
    tile: tl.tensor,
    m: tl.tensor,
    n: tl.tensor,
    stride: tl.tensor,
    other: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> Any:
    """Load a tile (ROWS, BLOCK) of x (m, n), with *other* beyond n, bypassing L1."""
    i = tl.arange(0, BLOCK)[None, :]
    return tl.load(x + row_of(tile, m, ROWS) * stride + i, i < n, other, cache_modifier=".cg")


def block_of(n: int) -> int:
    """Return the least power of 2 that is at least n: Triton's blocks have such sizes only."""
    return int(triton.next_power_of_2(n))


def holds_rows(point: Point, device: Any) -> str | None:
    """Return why a program cannot hold a row of the point, or None where it can."""
    if point.n > LARGEST_ROW:
        return f"a program holds rows of at most {LARGEST_ROW} elements"
    return lacks_triton(point, device)


def tilings(n: int) -> Iterator[dict[str, int]]:
    """Yield the tilings to tune among for rows of n elements.

    A tiling has the rows of a tile, warps, the limit of registers for each thread (0: the
    compiler's choice), persistent programs on an SM (0: each program has one tile), and whether
    those load the next tile ahead.
    """
    block = block_of(n)
    for rows in sorted({min(MOST_ROWS, max(1, tile // block)) for tile in TILES}):
        counts = {min(MOST_WARPS, max(1, rows * block // (32 * each))) for each in PER_THREAD}
        for warps in sorted(counts):
            many = rows * block == 32 * warps * max(PER_THREAD)
            for bound in (0, *(BOUNDS if many else ())):
                if bound * 32 * warps <= REGISTERS:
                    yield {
                        "rows": rows,
                        "warps": warps,
                        "registers": bound,
                        "per_sm": 0,
                        "ahead": 0,
                    }
    if block >= WIDE_ROW:
        for bound in (0, REGISTERS // (32 * MOST_WARPS)):
            yield {"rows": 1, "warps": MOST_WARPS, "registers": bound, "per_sm": 1, "ahead": 1}


def launch_of(tiling: Mapping[str, int], n: int) -> dict[str, int]:
    """Return the keyword arguments of a launch with *tiling*, for rows of n elements."""
    bound = {"maxnreg": tiling["registers"]} if tiling["registers"] else {}
    return {
        "ROWS": tiling["rows"],
        "BLOCK": block_of(n),
        "AHEAD": tiling["ahead"],
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
