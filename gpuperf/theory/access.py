"""Count the memory accesses of a warp, and of a matmul whose operands are staged in tiles.

Source: CUDA C++ Best Practices Guide, coalesced access to global memory: a warp moves as many
32-byte sectors as its addresses touch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WARP = 32  # lanes
SECTOR = 32  # bytes


def sectors(addresses: Iterable[int], size: int = 4) -> int:
    """Return the sectors that elements of *size* bytes at these byte addresses touch."""
    touched = {(address + byte) // SECTOR for address in addresses for byte in range(size)}
    return len(touched)


def useful_share(elements: Sequence[int], size: int = 4) -> float:
    """Return the useful share of the bytes that a warp moves, which reads the distinct *elements*
    of an array, one a lane."""
    moved = sectors((index * size for index in elements), size) * SECTOR
    return len(set(elements)) * size / moved


def strided(stride: int, offset: int = 0) -> range:
    """Return the elements of a warp whose lanes read every *stride*-th one."""
    return range(offset, offset + WARP * stride, stride)


def serial_paths(paths: Sequence[int]) -> int:
    """Return how many paths a warp runs one after another, if lane i takes `paths[i]`."""
    return len(set(paths))


def tiled_reads(n: int, tile: int) -> int:
    """Return the elements that an n³ matmul reads from global memory with square tiles of *tile*;
    a tile of 1 is a thread that reads for itself."""
    return 2 * n**3 // tile
