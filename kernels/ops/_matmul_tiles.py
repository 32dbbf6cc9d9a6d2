"""Divide a matrix product on Hopper into tiles, and choose the tiles to try by a model.

`_matmul_clusters.py` computes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, product
from typing import NamedTuple

LINE = 128  # bytes of a line of the L2, and of k in a block
SIDE = 64  # rows of the left operand or columns of the right one in a box
BOX = SIDE * LINE  # bytes of a box
MOST_BOX = 256  # lines of a box of TMA
EIGHT = 8  # elements that a thread stores, and the least columns by which tiles differ
SHARED = 227 * 1024 - 1024  # bytes for blocks of k; they begin at a multiple of 1024
BARRIERS = 2 * 8  # bytes for each block of k
MOST_STAGES = 8
LEAST_BUFFERS = 2  # boxes of C of a warpgroup: one is written while TMA reads the other
# The most columns of a tile by the bytes of an element and the warpgroups that multiply, and those
# of one product by the latter.
MOST_COLUMNS = {2: {1: 256, 2: 320, 3: 256}, 1: {1: 192, 2: 192, 3: 128}}
LEAST_COLUMNS = 64
MOST_TWICE = 128  # columns of which a thread has the sums and two products, in fp8
MOST_WIDTH = {1: 256, 2: 256, 3: 192}
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)  # parts of k in the last wave
LEAST_PART = 1024  # bytes of k in a part
# The model, in cycles: a request of the L2, the store of an element, meetings of a cluster; and for
# an element that is computed in parts, its own time and that of each part but the last, which it
# reads at 64 bytes a cycle. The first three are fitted to 93 trials on an H200, of 13 sizes, when
# stores went without TMA, which made them longer. The last two are fitted to four large tiles.
REQUEST, STORED, PAIRED = 1.8, 0.07, 3000.0
PARTED, READ = 0.4, 0.06
# Under a power limit a tile takes longer, by this times the rows and columns that it loads for an
# element: 192 x 256 ran at 1,606 to 1,628 MHz, 128 x 256 at 1,579 to 1,606, 128 x 128 at 1,484 to
# 1,534 in products of 5,120 and 8,192.
POWER = 7.0
SHARPNESS = 10  # products and requests, of which the longer counts, hinder each other if alike
PRODUCTS = 32  # elements of C whose products of a block a multiprocessor computes in a cycle
# The model of fp8: cycles of a block beside its products, fewer where these are added beside those
# of the next block, and how many times as long a block takes in a cluster. They are estimates from
# trials of some tiles of nine products, and no fit.
FP8_BLOCK, FP8_TWICE, FP8_PAIRED = 110.0, 85.0, 1.04
TRIED = 6  # tiles that the model puts first, which are timed


class Tile(NamedTuple):
    """A tile of C, or of Cᵀ if it is *turned*: warpgroups of 64 rows, columns, blocks of a cluster,
    and parts of k of each tile of the last wave."""

    members: int
    columns: int
    cluster: int
    splits: int = 1
    turned: bool = False

    @property
    def rows(self) -> int:
        """Rows of the tile of one block."""
        return 64 * self.members

    @property
    def boxes(self) -> int:
        """Boxes of 64 columns of a block of the right operand."""
        return ceiling(self.columns, SIDE)

    @property
    def pieces(self) -> int:
        """Pieces in which columns that are contiguous along k are loaded."""
        return max(self.cluster, ceiling(self.columns, MOST_BOX))

    @property
    def piece(self) -> int:
        """Columns of a piece: each begins where the swizzle of shared memory repeats."""
        return ceiling(self.columns, EIGHT * self.pieces) * EIGHT

    @property
    def stages(self) -> int:
        """Blocks of k that shared memory holds beside boxes of C."""
        boxes = self.members * min(self.boxes, LEAST_BUFFERS)
        return min(MOST_STAGES, (SHARED - boxes * BOX) // self._stage)

    @property
    def buffers(self) -> int:
        """Boxes of C of a warpgroup that shared memory holds."""
        return min(self.boxes, (SHARED - self.stages * self._stage) // (self.members * BOX))

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block."""
        return self.stages * self._stage + self.buffers * self.members * BOX + 1024

    @property
    def _stage(self) -> int:
        return (self.members + self.boxes) * BOX + BARRIERS

    @property
    def twice(self) -> bool:
        """Whether a thread has registers for two products in fp8 and their sums."""
        return self.members < 3 and self.columns <= MOST_TWICE

    def width(self, size: int) -> int:
        """Return the columns of the first product of elements of *size* bytes. In fp8 it has all,
        if two products and their sums fit the registers, or half of them. In other dtypes it has as
        many as fit, and the second one begins at a box."""
        if size == 1:
            return self.columns if self.twice else ceiling(self.columns, 2 * EIGHT) * EIGHT
        most = MOST_WIDTH[self.members]
        if self.columns <= most:
            return self.columns
        return 128 if self.members == 3 else 192


class Waves(NamedTuple):
    """Tiles of a cluster down and across the product, those that are computed whole, the parts of k
    of each of the others, and the elements of k in a part."""

    rows: int
    columns: int
    whole: int
    splits: int
    chunk: int

    @property
    def items(self) -> int:
        """Whole tiles and parts."""
        return self.whole + self.rest * self.splits

    @property
    def rest(self) -> int:
        """Tiles that are computed in parts."""
        return self.rows * self.columns - self.whole


def ceiling(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


def waves(m: int, n: int, k: int, tile: Tile, clusters: int, size: int = 2) -> Waves:
    """Divide a product of elements of *size* bytes between *clusters* that run at a time: the last
    wave in parts of k."""
    if tile.turned:
        m, n = n, m
    rows, columns = ceiling(m, tile.rows * tile.cluster), ceiling(n, tile.columns)
    depth = LINE // size
    chunk = ceiling(ceiling(k, depth), tile.splits) * depth
    splits = ceiling(k, chunk)  # so that no part is empty
    tiles = rows * columns
    return Waves(
        rows, columns, tiles if splits == 1 else tiles // clusters * clusters, splits, chunk
    )


def cycles(m: int, n: int, k: int, tile: Tile, processors: int, size: int = 2) -> float:
    """Return the modelled cycles of a product of elements of *size* bytes, and more of them where a
    tile lowers the clock.

    A block of k takes about as long as its products or as its requests of the L2.
    """
    clusters, depth = processors // tile.cluster, LINE // size
    work = waves(m, n, k, tile, clusters, size)
    along = 1 + (k % depth > 0)  # requests for a line of an operand that is contiguous along k
    rows, columns = (n, m) if tile.turned else (m, n)
    left = min(rows, tile.rows) * along
    right = min(columns, tile.piece) * tile.pieces * along
    if size == 2 and tile.turned:
        left = tile.rows * (1 + (n % depth > 0))
    elif size == 2:
        right = SIDE * tile.boxes * (1 + (n % depth > 0 or tile.columns % depth > 0))
    requests = left + right / tile.cluster
    elements = tile.rows * tile.columns
    products = elements / PRODUCTS
    if size == 1:
        beside = FP8_TWICE if tile.twice else FP8_BLOCK
        products = (products + beside) * (FP8_PAIRED if tile.cluster > 1 else 1)
    block = (products**SHARPNESS + (REQUEST * requests) ** SHARPNESS) ** (1 / SHARPNESS)
    whole = ceiling(k, depth) * block + STORED * elements
    part = work.chunk // depth * block + (PARTED + READ * (work.splits - 1)) * elements
    total = ceiling(work.whole, clusters) * whole + PAIRED * (tile.cluster > 1)
    total += ceiling(work.rest * work.splits, clusters) * part
    return float(total * (1 + POWER * (1 / tile.rows + 1 / tile.columns)))


def ranked(m: int, n: int, k: int, processors: int, size: int = 2) -> dict[Tile, float]:
    """Return the modelled cycles of each tile for elements of *size* bytes, the fewest first."""

    def usable(tile: Tile) -> bool:
        few = tile.splits == 1 or k * size >= LEAST_PART * tile.splits
        shared = tile.cluster == 1 or (n if tile.turned else m) > tile.rows
        clusters = processors // tile.cluster
        if not (few and shared and tile.splits <= clusters):
            return False
        return tile.splits == 1 or waves(m, n, k, tile, clusters, size).rest > 0

    every = [
        Tile(members, columns, cluster, splits, turned)
        for members, most in MOST_COLUMNS[size].items()
        for columns in range(LEAST_COLUMNS, most + 1, EIGHT)
        for cluster, splits, turned in product((1, 2), SPLITS, (False, True))
    ]
    modelled = {tile: cycles(m, n, k, tile, processors, size) for tile in every if usable(tile)}
    return dict(sorted(modelled.items(), key=lambda pair: (pair[1], -pair[0].columns)))


def two_of_a_size(some: Iterable[Tile]) -> Iterator[Tile]:
    """Yield the first two of *some* tiles of each size and orientation."""
    count: Counter[tuple[int, int, bool]] = Counter()
    for tile in some:
        count[same := (tile.members, tile.columns, tile.turned)] += 1
        if count[same] <= 2:
            yield tile


def tiles(m: int, n: int, k: int, processors: int, size: int = 2) -> list[Tile]:
    """Return the tiles to try for elements of *size* bytes: those with the fewest modelled cycles,
    two of a size at most. A turned tile is tried only if it has fewer cycles than when it is not
    turned."""
    modelled = ranked(m, n, k, processors, size)

    def gains(tile: Tile) -> bool:
        straight = modelled.get(tile._replace(turned=False), float("inf"))
        return not tile.turned or modelled[tile] < straight

    chosen = list(islice(two_of_a_size(filter(gains, modelled)), TRIED))
    # The model knows no DRAM. Where that is the bound, tiles without clusters and parts do best.
    plain = [tile for tile in modelled if tile[2:] == (1, 1, False)]
    if not any(tile in chosen for tile in plain):
        chosen[-1] = plain[0]
    return chosen
