"""How long does a tiled matmul take, by its tiles and the waves that they come in?

C (m, n) is cut into tiles of TM × TN, each the work of one program, and the SMs take them in waves:
a tile more than they hold is a wave more, and the last one may be nearly empty. In cycles, not in
seconds, since a clock under a power cap rises while SMs idle; and by SM, not by program, since
programs on one SM share its tensor cores.

    tiles     = ⌈m/TM⌉ · ⌈n/TN⌉
    waves     = ⌈tiles / SMs⌉        the most tiles that one SM gets
    cycles    = launch + waves · (start + ⌈k/TK⌉ · step)

`launch`, `start` (filling the pipeline, storing the tile) and `step` (a K-tile) are fitted for each
kernel on some sizes and judged on others. Where programs share a tile's sum (split-K, stream-K) it
does not hold. NVIDIA, Matrix Multiplication Background, DU-09799, has tiles and waves; its A100
example is in the tests.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Fit", "Measured", "Tiling", "errors", "fit", "held_out", "oriented"]


@dataclass(frozen=True)
class Tiling:
    """Tiles of *rows* × *columns* of C, steps of *depth* along k, on so many SMs at a time.

    Raises: ValueError for numbers below 1.
    """

    rows: int
    columns: int
    depth: int
    sms: int

    def __post_init__(self) -> None:
        if min(self.rows, self.columns, self.depth, self.sms) < 1:
            raise ValueError("a tile, its depth and the SMs are at least 1")

    def tiles(self, m: int, n: int) -> int:
        """Programs that C (m, n) is cut into."""
        return -(-m // self.rows) * -(-n // self.columns)

    def waves(self, m: int, n: int) -> int:
        """The most tiles that one SM gets."""
        return -(-self.tiles(m, n) // self.sms)

    def steps(self, k: int) -> int:
        """K-tiles of one tile."""
        return -(-k // self.depth)

    def tile_efficiency(self, m: int, n: int) -> float:
        """The part of the tiles that is C, and not beyond its edges."""
        return m * n / (self.tiles(m, n) * self.rows * self.columns)

    def wave_efficiency(self, m: int, n: int) -> float:
        """The part of the waves' places that has a tile."""
        return self.tiles(m, n) / (self.waves(m, n) * self.sms)

    def depth_efficiency(self, k: int) -> float:
        """The part of the K-tiles that is k."""
        return k / (self.steps(k) * self.depth)

    def efficiency(self, m: int, n: int, k: int) -> float:
        """All three together: the part of the machine's work that the product needs."""
        return (
            self.tile_efficiency(m, n) * self.wave_efficiency(m, n) * self.depth_efficiency(k)
        )


@dataclass(frozen=True)
class Measured:
    """One product that was timed: its sizes, and SM cycles of a call."""

    m: int
    n: int
    k: int
    cycles: float


@dataclass(frozen=True)
class Fit:
    """Cycles of one kernel: `launch` of a call, `start` of a tile, `step` of a K-tile."""

    tiling: Tiling
    launch: float
    start: float
    step: float

    def cycles(self, m: int, n: int, k: int) -> float:
        """Of one call."""
        each = self.start + self.tiling.steps(k) * self.step
        return self.launch + self.tiling.waves(m, n) * each


def fit(tiling: Tiling, points: Sequence[Measured]) -> Fit:
    """The costs that lie nearest to *points*, by relative error, none below 0.

    Points of one wave or of one k cannot tell all three apart: what they cannot tell is in the
    others. Raises: ValueError without a point.
    """
    if not points:
        raise ValueError("a fit needs a point")
    from scipy.optimize import nnls

    columns = []
    for point in points:
        waves, steps = tiling.waves(point.m, point.n), tiling.steps(point.k)
        columns.append([1 / point.cycles, waves / point.cycles, waves * steps / point.cycles])
    # Columns of one size, or the solver's tolerance is that of the largest.
    sizes = [max(row[i] for row in columns) for i in range(3)]
    scaled = [[value / size for value, size in zip(row, sizes, strict=True)] for row in columns]
    found, _ = nnls(scaled, [1.0] * len(points))
    launch, start, step = (float(v) / s for v, s in zip(found, sizes, strict=True))
    return Fit(tiling, launch, start, step)


def errors(model: Fit, points: Sequence[Measured]) -> tuple[float, ...]:
    """How far the prediction is from each, as a fraction: above 0 where it is too slow."""
    return tuple(model.cycles(p.m, p.n, p.k) / p.cycles - 1 for p in points)


def held_out(
    points: Sequence[Measured],
) -> tuple[tuple[Measured, ...], tuple[Measured, ...]]:
    """Half of them to fit on, the first and the last among these; and half to be judged by.

    Two and two, not every other one: those might all be whole tiles, and the rest halves.
    """
    ordered = sorted(points, key=lambda p: (p.m * p.n * p.k, p.m, p.n))
    last = len(ordered) - 1
    judged = [i for i in range(last) if i % 4 in (1, 2)]
    kept = set(range(len(ordered))) - set(judged)
    return tuple(ordered[i] for i in sorted(kept)), tuple(ordered[i] for i in judged)


def oriented(tiling: Tiling, points: Sequence[Measured]) -> tuple[Tiling, bool]:
    """*tiling* or its transpose, whichever fits *points* better, and whether by far.

    A name tells a kernel's own orientation, which is column-major for BLAS.
    """
    turned = Tiling(tiling.columns, tiling.rows, tiling.depth, tiling.sms)
    if turned == tiling:
        return tiling, True
    misses = []
    for way in (tiling, turned):
        told = errors(fit(way, points), points)
        misses.append(math.sqrt(statistics.fmean(error**2 for error in told)))
    sure = max(misses) > 1.5 * min(misses) + 1e-6
    return (tiling if misses[0] <= misses[1] else turned), sure
