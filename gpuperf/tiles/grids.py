"""Compare the grid of a launch with the tile in the kernel's name, and find its orientation.

A name gives the tile in the kernel's own orientation, so both orientations are compared with the
blocks of the launch. With cuBLAS on an H200, all kernels whose orientation can be decided lay
turned, except xmma's older ones.

- A plain grid has one block for each tile: the tiles along both axes, where a swizzle multiplies
  the first by a power of two, and along z the parts of a split K.
- A persistent grid has as many blocks as tiles, rounded up to whole clusters, but at most as many
  as the device holds at once; that number is consistent with every tile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from gpuperf.model.record import Launch
from gpuperf.tiles.names import NamedTile

# `named`: the tile's rows lie along m. `turned`: along n, as torch's row-major product is for BLAS.
Way = Literal["named", "turned"]

MOST_SWIZZLE = 3  # log2 of the largest swizzle of CUTLASS


def capacity(launch: Launch | None, sms: int, cluster: int = 1) -> int:
    """Return the SMs that can work at once, since clusters of several blocks may not fit them all.

    *cluster* is the number of blocks of a cluster, if *launch* does not have it.
    """
    if launch is not None and launch.cluster_blocks > 1:
        cluster = launch.cluster_blocks
        if launch.most_clusters:
            return min(sms, launch.most_clusters * cluster)
    return sms // cluster * cluster


def splits(launch: Launch) -> int:
    """Return the number of parts of a split K, for a plain grid."""
    return max(1, launch.grid[2])


def ways(tile: NamedTile, launch: Launch, m: int, n: int, sms: int) -> frozenset[Way]:
    """Return the orientations of *tile* on C (m, n) that agree with the blocks of *launch*."""
    orientations: tuple[tuple[Way, int, int], ...] = (("named", m, n), ("turned", n, m))
    agreeing = []
    for way, down, across in orientations:
        tiles = (-(-down // tile.rows), -(-across // tile.columns))
        if _persistent(tile, launch, tiles, sms) if tile.persistent else _plain(launch, tiles):
            agreeing.append(way)
    return frozenset(agreeing)


def _plain(launch: Launch, tiles: tuple[int, int]) -> bool:
    x, y, _ = launch.grid
    return any(
        x == first << swizzle and y == -(-second // (1 << swizzle))
        for first, second in (tiles, tiles[::-1])
        for swizzle in range(MOST_SWIZZLE + 1)
    )


def _persistent(tile: NamedTile, launch: Launch, tiles: tuple[int, int], sms: int) -> bool:
    blocks, most = launch.blocks, capacity(launch, sms)
    for units in _filled(tile, launch, tiles):
        if blocks == min(most, units) or (tile.splits and (blocks % units == 0 or blocks == most)):
            return True
    return False


def _filled(tile: NamedTile, launch: Launch, tiles: tuple[int, int]) -> Iterable[int]:
    """Yield the number of tiles rounded up to whole clusters, with the sides in the name or, if it
    has none, with those that the launch allows."""
    if tile.cluster != (1, 1):
        sides = {tile.cluster}
    else:
        x, y, whole = max(1, launch.cluster[0]), max(1, launch.cluster[1]), launch.cluster_blocks
        sides = {(x, y), (y, x), (whole, 1), (1, whole)}
    for rows, columns in sides:
        yield -(-tiles[0] // rows) * rows * (-(-tiles[1] // columns) * columns)
