"""How is a matrix (m, n) cut for a kernel whose programs hold whole rows?

A tile is some rows, whole. Each program takes one tile, or stays for many: while it works on one,
the next are on their way, which keeps memory busy where rows are short or fill a whole SM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from gpuperf import Point
from gpuperf.jit import lacks_triton, triton

LARGEST_ROW = 2**16  # elements that a program can hold: 64 registers of each of 1024 threads
WIDE_TILE = 4096  # elements, which short rows are put together to
MOST_ROWS = 64  # of a tile
MOST_WARPS = 32
REGISTERS, OTHER_REGISTERS = 2048, 32  # an SM's for each lane of a warp; a thread's besides a row
PER_THREAD = (8, 16, 32)  # elements
STAGES = (1, 2, 4)  # tiles that a program which stays has in hand or on their way


def block_of(n: int) -> int:
    """The power of 2 from n on: Triton's blocks have no other size."""
    return int(triton.next_power_of_2(n))


def holds_rows(point: Point, device: Any) -> str | None:
    """Triton, and rows that a program can hold."""
    if point.n > LARGEST_ROW:
        return f"a program holds rows of at most {LARGEST_ROW} elements"
    return lacks_triton(point, device)


def tilings(n: int, held: int) -> Iterator[dict[str, int]]:
    """Ways to cut rows of n elements, to be tuned over: rows of a tile, warps, stages, and the
    programs an SM that stay; 0 where each has one tile.

    Of a program that stays, *held* registers an element are reckoned, to fill an SM and no more.
    """
    block = block_of(n)
    for rows in sorted({min(MOST_ROWS, max(1, WIDE_TILE // block)), 1}, reverse=True):
        warps = {min(MOST_WARPS, max(1, rows * block // (32 * each))) for each in PER_THREAD}
        for count in sorted(warps):
            registers = OTHER_REGISTERS + held * rows * block // (32 * count)
            per_sm = max(1, REGISTERS // registers // count)
            yield {"rows": rows, "warps": count, "stages": 1, "per_sm": 0}
            for stages in STAGES:
                yield {"rows": rows, "warps": count, "stages": stages, "per_sm": per_sm}


def launch_of(tiling: Mapping[str, int], n: int) -> dict[str, int]:
    """What a kernel is told of *tiling*, for rows of n elements."""
    return {
        "ROWS": tiling["rows"],
        "BLOCK": block_of(n),
        "STAGES": tiling["stages"],
        "num_warps": tiling["warps"],
    }


def programs(tiling: Mapping[str, int], x: torch.Tensor) -> int:
    """How many programs go over x (m, n)."""
    tiles = -(-int(x.shape[0]) // tiling["rows"])
    if not tiling["per_sm"]:
        return tiles
    count = 1  # where Triton is interpreted
    if x.is_cuda:
        count = int(torch.cuda.get_device_properties(x.device).multi_processor_count)
    return min(tiles, tiling["per_sm"] * count)
