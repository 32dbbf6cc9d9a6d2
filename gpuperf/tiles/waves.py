"""How long does a tiled matmul take, by its tiles and the waves that they come in?

C (m, n) is cut into tiles of TM × TN, each the work of one program, and the SMs take them in waves:
a tile more than they hold is a wave more, and the last one may be nearly empty. In cycles, not in
seconds, since a clock under a power cap rises while SMs idle; and by SM, not by program, since
programs on one SM share its tensor cores.

    tiles     = ⌈m/TM⌉ · ⌈n/TN⌉ · splits
    waves     = ⌈tiles / SMs⌉        the most tiles that one SM gets
    cycles    = launch + waves · (start + ⌈⌈k/TK⌉ / splits⌉ · step)

`launch`, `start` (filling the pipeline, storing the tile) and `step` (a K-tile) are fitted for each
kernel on some sizes and judged on others. Stream-K deals out K-tiles, not tiles: an SM gets
⌈tiles · ⌈k/TK⌉ / SMs⌉ of them. Where memory is slower than the tiles, its time counts: the bytes
that were measured over the bandwidth. NVIDIA, Matrix Multiplication Background, DU-09799, has tiles
and waves; its A100 example is in the tests.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

MEMORY_BOUND = 0.9  # of the time: what is nearer to what the bytes need is memory's


@dataclass(frozen=True)
class Tiling:
    """Tiles of *rows* × *columns* of C, steps of *depth* along k, on so many SMs at a time; K in
    *splits* parts, or, where a kernel *streams*, in as many as make the SMs' shares equal.

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
            raise ValueError("a tile, its depth, the SMs and the parts are at least 1")

    def tiles(self, m: int, n: int) -> int:
        """Programs' worth of work that C (m, n) is cut into."""
        return -(-m // self.rows) * -(-n // self.columns) * self.splits

    def waves(self, m: int, n: int) -> int:
        """The most tiles that one SM gets."""
        return -(-self.tiles(m, n) // self.sms)

    def load(self, m: int, n: int, k: int) -> tuple[int, int]:
        """Tiles that the SM with most work begins, and K-tiles that it does."""
        each = -(-self.steps(k) // self.splits)
        if not self.streams:
            waves = self.waves(m, n)
            return waves, waves * each
        done = -(-self.tiles(m, n) * each // self.sms)
        return -(-done // each), done

    def steps(self, k: int) -> int:
        """K-tiles of one tile."""
        return -(-k // self.depth)

    def tile_efficiency(self, m: int, n: int) -> float:
        """The part of the tiles that is C, and not beyond its edges."""
        return m * n * self.splits / (self.tiles(m, n) * self.rows * self.columns)

    def wave_efficiency(self, m: int, n: int) -> float:
        """The part of the waves' places that has a tile."""
        return self.tiles(m, n) / (self.waves(m, n) * self.sms)

    def depth_efficiency(self, k: int) -> float:
        """The part of the K-tiles that is k."""
        return k / (self.steps(k) * self.depth)

    def efficiency(self, m: int, n: int, k: int) -> float:
        """All three together: the part of the machine's work that the product needs."""
        return self.tile_efficiency(m, n) * self.wave_efficiency(m, n) * self.depth_efficiency(k)


@dataclass(frozen=True)
class Measured:
    """One product that was timed: its sizes, SM cycles of a call, and those that memory needs for
    the bytes measured (0 where there are none)."""

    m: int
    n: int
    k: int
    cycles: float
    memory: float = 0.0

    @property
    def memory_bound(self) -> bool:
        """Whether its time is memory's, so that it tells nothing of tiles."""
        return self.memory > MEMORY_BOUND * self.cycles


@dataclass(frozen=True)
class Fit:
    """Cycles of one kernel: `launch` of a call, `start` of a tile, `step` of a K-tile."""

    tiling: Tiling
    launch: float
    start: float
    step: float

    def cycles(self, m: int, n: int, k: int) -> float:
        """Of one call."""
        begun, steps = self.tiling.load(m, n, k)
        return self.launch + begun * self.start + steps * self.step

    def predict(self, at: Measured) -> float:
        """Cycles of a call at the sizes of *at*: of its tiles, or of its bytes if they are more."""
        return max(self.cycles(at.m, at.n, at.k), at.memory)


def fit(tiling: Tiling, points: Sequence[Measured]) -> Fit:
    """The costs that lie nearest to *points*, by relative error, none below 0.

    Points of one wave or of one k cannot tell all three apart: what they cannot tell is in the
    others. Those that memory bounds are left out. Raises: ValueError without a point.
    """
    points = [point for point in points if not point.memory_bound]
    if not points:
        raise ValueError("a fit needs a point that tiles bound")
    from scipy.optimize import nnls

    columns = []
    for point in points:
        begun, steps = tiling.load(point.m, point.n, point.k)
        columns.append([1 / point.cycles, begun / point.cycles, steps / point.cycles])
    # Columns of one size, or the solver's tolerance is that of the largest.
    sizes = [max(row[i] for row in columns) for i in range(3)]
    scaled = [[value / size for value, size in zip(row, sizes, strict=True)] for row in columns]
    found, _ = nnls(scaled, [1.0] * len(points))
    launch, start, step = (float(v) / s for v, s in zip(found, sizes, strict=True))
    return Fit(tiling, launch, start, step)


def relative_errors(model: Fit, points: Sequence[Measured]) -> tuple[float, ...]:
    """How far the prediction is from each, as a fraction: above 0 where it is too slow."""
    return tuple(model.predict(p) / p.cycles - 1 for p in points)


def split_points(points: Sequence[Measured]) -> tuple[tuple[Measured, ...], tuple[Measured, ...]]:
    """Half of them to fit on, the first and the last among these; and half to be judged by.

    Two and two, not every other one: those might all be whole tiles, and the rest halves. A size
    that was measured twice is on one side.
    """
    ordered = sorted({(p.m * p.n * p.k, p.m, p.n, p.k) for p in points})
    judged = {sizes[1:] for i, sizes in enumerate(ordered[:-1]) if i % 4 in (1, 2)}
    whole = sorted(points, key=lambda p: (p.m * p.n * p.k, p.m, p.n))
    return (
        tuple(p for p in whole if (p.m, p.n, p.k) not in judged),
        tuple(p for p in whole if (p.m, p.n, p.k) in judged),
    )


def transpose(tiling: Tiling) -> Tiling:
    """*tiling* with its rows along n."""
    return replace(tiling, rows=tiling.columns, columns=tiling.rows)


def orient(tiling: Tiling, points: Sequence[Measured]) -> tuple[Tiling, bool]:
    """*tiling* or its transpose, whichever fits *points* better by far; or *tiling*, and that
    nothing is sure."""
    other = transpose(tiling)
    if other == tiling:
        return tiling, True
    misses = []
    for way in (tiling, other):
        told = relative_errors(fit(way, points), points)
        misses.append(math.sqrt(statistics.fmean(error**2 for error in told)))
    sure = max(misses) > 1.5 * min(misses) + 1e-6
    return (other if sure and misses[1] < misses[0] else tiling), sure
