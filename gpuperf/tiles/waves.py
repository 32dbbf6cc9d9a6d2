"""Model the cycles of a tiled matmul by its tiles and waves.

C (m, n) is cut into tiles of TM × TN, each the work of one program, and the SMs compute them in
waves: one tile more than they hold takes one wave more, and the last wave may be nearly empty. The
model counts cycles instead of seconds, since a clock under a power cap rises while SMs idle; and it
counts by SM instead of by program, since programs on one SM share its tensor cores.

    tiles     = ⌈m/TM⌉ · ⌈n/TN⌉ · splits
    waves     = ⌈tiles / SMs⌉        the most tiles of one SM
    cycles    = launch + waves · (start + ⌈⌈k/TK⌉ / splits⌉ · step)

`launch`, `start` (filling the pipeline, storing the tile) and `step` (a K-tile) are fitted for each
kernel on some sizes and tested on others. Stream-K distributes K-tiles instead of tiles: an SM gets
⌈tiles · ⌈k/TK⌉ / SMs⌉ of them. If memory is slower than the tiles, its time counts: the measured
bytes over the bandwidth. Source of tiles and waves: NVIDIA, Matrix Multiplication Background,
DU-09799, whose A100 example is in the tests.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

MEMORY_BOUND = 0.9  # share of the time from which the memory's time makes a call memory-bound


@dataclass(frozen=True)
class Tiling:
    """Tiles of *rows* × *columns* of C and K-tiles of *depth*, on *sms* SMs at a time; K is split
    in *splits* parts or, if a kernel *streams*, such that all SMs have equal shares.

    Raises: ValueError for numbers below 1.
    """

    rows: int
    columns: int
    depth: int
    sms: int
    splits: int = 1
    streams: bool = False

    def __post_init__(self) -> None:
        if min(self.rows, self.columns, self.depth, self.sms, self.splits) < 1:
            raise ValueError("a tile, its depth, the SMs and the parts must be at least 1")

    def tiles(self, m: int, n: int) -> int:
        """Return the number of tiles of C (m, n), times the parts of K."""
        return -(-m // self.rows) * -(-n // self.columns) * self.splits

    def waves(self, m: int, n: int) -> int:
        """Return the most tiles of one SM."""
        return -(-self.tiles(m, n) // self.sms)

    def load(self, m: int, n: int, k: int) -> tuple[int, int]:
        """Return the tiles and the K-tiles of the SM with the most work."""
        each = -(-self.steps(k) // self.splits)
        if not self.streams:
            waves = self.waves(m, n)
            return waves, waves * each
        done = -(-self.tiles(m, n) * each // self.sms)
        return -(-done // each), done

    def steps(self, k: int) -> int:
        """Return the K-tiles of one tile."""
        return -(-k // self.depth)

    def tile_efficiency(self, m: int, n: int) -> float:
        """Return the share of the tiles' area that lies inside C."""
        return m * n * self.splits / (self.tiles(m, n) * self.rows * self.columns)

    def wave_efficiency(self, m: int, n: int) -> float:
        """Return the share of the waves' places that have a tile."""
        return self.tiles(m, n) / (self.waves(m, n) * self.sms)

    def depth_efficiency(self, k: int) -> float:
        """Return the share of the K-tiles that lies inside k."""
        return k / (self.steps(k) * self.depth)

    def efficiency(self, m: int, n: int, k: int) -> float:
        """Return the useful share of the device's work: tile × wave × depth efficiency."""
        return self.tile_efficiency(m, n) * self.wave_efficiency(m, n) * self.depth_efficiency(k)


@dataclass(frozen=True)
class Measured:
    """A matmul that was timed: its sizes, the SM cycles of a call, and the cycles that memory needs
    for the measured bytes (0 if they were not measured)."""

    m: int
    n: int
    k: int
    cycles: float
    memory: float = 0.0

    @property
    def memory_bound(self) -> bool:
        """Whether memory determines the time, so that it does not depend on tiles."""
        return self.memory > MEMORY_BOUND * self.cycles


@dataclass(frozen=True)
class Fit:
    """Model of one kernel in cycles: `launch` per call, `start` per tile, `step` per K-tile."""

    tiling: Tiling
    launch: float
    start: float
    step: float

    def cycles(self, m: int, n: int, k: int) -> float:
        """Return the cycles of one call, by its tiles."""
        begun, steps = self.tiling.load(m, n, k)
        return self.launch + begun * self.start + steps * self.step

    def predict(self, at: Measured) -> float:
        """Return the cycles of a call at the sizes of *at*: those of its tiles or, if more, of its
        bytes."""
        return max(self.cycles(at.m, at.n, at.k), at.memory)


def fit(tiling: Tiling, points: Sequence[Measured]) -> Fit:
    """Fit the model to *points* by relative error, with no negative cost.

    Points of one wave or of one k do not determine all three costs; a cost that they leave open is
    part of another. Memory-bound points are ignored. Raises: ValueError without a point.
    """
    points = [point for point in points if not point.memory_bound]
    if not points:
        raise ValueError("a fit needs a point that is not memory-bound")
    from scipy.optimize import nnls

    columns = []
    for point in points:
        begun, steps = tiling.load(point.m, point.n, point.k)
        columns.append([1 / point.cycles, begun / point.cycles, steps / point.cycles])
    # Columns are scaled to equal size, since the solver's tolerance is relative to the largest.
    sizes = [max(row[i] for row in columns) for i in range(3)]
    scaled = [[value / size for value, size in zip(row, sizes, strict=True)] for row in columns]
    costs, _ = nnls(scaled, [1.0] * len(points))
    launch, start, step = (float(v) / s for v, s in zip(costs, sizes, strict=True))
    return Fit(tiling, launch, start, step)


def relative_errors(model: Fit, points: Sequence[Measured]) -> tuple[float, ...]:
    """Return, for each point, predicted over measured cycles − 1: above 0, predicted too slow."""
    return tuple(model.predict(p) / p.cycles - 1 for p in points)


def split_points(points: Sequence[Measured]) -> tuple[tuple[Measured, ...], tuple[Measured, ...]]:
    """Split *points* into one half to fit, with the first and the last, and one half to test.

    They alternate in pairs, since every other point might be a whole number of tiles. All points
    of one size are in the same half.
    """
    ordered = sorted({(p.m * p.n * p.k, p.m, p.n, p.k) for p in points})
    tested = {sizes[1:] for i, sizes in enumerate(ordered[:-1]) if i % 4 in (1, 2)}
    by_size = sorted(points, key=lambda p: (p.m * p.n * p.k, p.m, p.n))
    return (
        tuple(p for p in by_size if (p.m, p.n, p.k) not in tested),
        tuple(p for p in by_size if (p.m, p.n, p.k) in tested),
    )


def transpose(tiling: Tiling) -> Tiling:
    """Return *tiling* with its rows along n."""
    return replace(tiling, rows=tiling.columns, columns=tiling.rows)


def orient(tiling: Tiling, points: Sequence[Measured]) -> tuple[Tiling, bool]:
    """Return *tiling*, or its transpose if that fits *points* much better, and whether one does."""
    transposed = transpose(tiling)
    if transposed == tiling:
        return tiling, True
    misses = []
    for candidate in (tiling, transposed):
        errors = relative_errors(fit(candidate, points), points)
        misses.append(math.sqrt(statistics.fmean(error**2 for error in errors)))
    sure = max(misses) > 1.5 * min(misses) + 1e-6
    return (transposed if sure and misses[1] < misses[0] else tiling), sure
