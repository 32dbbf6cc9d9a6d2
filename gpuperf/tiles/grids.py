"""Does the grid of a launch bear out the tile that a kernel's name tells, and which way it lies?

A name gives a tile in the kernel's own orientation. Each way is held against the blocks that were
launched; of cuBLAS on an H200 all that the two ways told apart lay turned, but for xmma's older
kernels.

- A grid of a block a tile: tiles along one axis and the other, the first widened by a power of two
  where neighbours share rows (swizzle), and along z the parts that K is split in.
- A persistent grid: as many blocks as there are tiles, filled up to whole clusters, but never more
  than the device holds at once; at that number it tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from gpuperf.model.record import Launch
from gpuperf.tiles.names import NamedTile

# `named`: the tile's rows lie along m. `turned`: along n, as torch's row-major product is for BLAS.
Way = Literal["named", "turned"]

MOST_SWIZZLE = 3  # log2, of CUTLASS


def capacity(launch: Launch | None, sms: int, cluster: int = 1) -> int:
    """The SMs that work at a time: clusters of several blocks may not fit them all.

    *cluster* blocks are in one where there is no *launch* to tell it.
    """
    if launch is not None and launch.cluster_blocks > 1:
        cluster = launch.cluster_blocks
        if launch.most_clusters:
            return min(sms, launch.most_clusters * cluster)
    return sms // cluster * cluster


def splits(launch: Launch) -> int:
    """The parts that K is split in, of a grid of a block a tile."""
    return max(1, launch.grid[2])


def ways(tile: NamedTile, launch: Launch, m: int, n: int, sms: int) -> frozenset[Way]:
    """How *tile* may lie on C (m, n), by the blocks launched for it; empty: not at all."""
    lying: tuple[tuple[Way, int, int], ...] = (("named", m, n), ("turned", n, m))
    found = []
    for way, down, across in lying:
        tiles = (-(-down // tile.rows), -(-across // tile.columns))
        if _persistent(tile, launch, tiles, sms) if tile.persistent else _plain(launch, tiles):
            found.append(way)
    return frozenset(found)


def _plain(launch: Launch, tiles: tuple[int, int]) -> bool:
    x, y, _ = launch.grid
    return any(
        x == one << swizzle and y == -(-other // (1 << swizzle))
        for one, other in (tiles, tiles[::-1])
        for swizzle in range(MOST_SWIZZLE + 1)
    )


def _persistent(tile: NamedTile, launch: Launch, tiles: tuple[int, int], sms: int) -> bool:
    blocks, most = launch.blocks, capacity(launch, sms)
    for units in _filled(tile, launch, tiles):
        if blocks == min(most, units) or (tile.splits and (blocks % units == 0 or blocks == most)):
            return True
    return False


def _filled(tile: NamedTile, launch: Launch, tiles: tuple[int, int]) -> Iterable[int]:
    """Tiles filled up to whole clusters: as the name has their sides, or, where it is silent, as
    the launch may have them."""
    if tile.cluster != (1, 1):
        sides = {tile.cluster}
    else:
        x, y, whole = max(1, launch.cluster[0]), max(1, launch.cluster[1]), launch.cluster_blocks
        sides = {(x, y), (y, x), (whole, 1), (1, whole)}
    for rows, columns in sides:
        yield -(-tiles[0] // rows) * rows * (-(-tiles[1] // columns) * columns)
