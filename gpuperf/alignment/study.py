"""Compute what an operation loses where its rows are off the memory's alignment.

A row-major matrix begins each row at a multiple of its row's bytes, and the largest power of two
that divides them is the most that every row's address is aligned to. Sixteen bytes is the hard
edge: TMA and the widest loads need it, and without it a library falls back to slower kernels; 128,
a line of the cache, is the good one (NVIDIA, Matrix Multiplication Background, DU-09799).
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpuperf.model.record import Record, Run
from gpuperf.model.samples import Samples
from gpuperf.roofline.speedup import Speedup, ratio
from gpuperf.show.axes import implementation_of, moved_axes, where
from gpuperf.tiles.alignment import alignment_of, nearby
from gpuperf.tiles.names import main_kernel
from gpuperf.units import DTYPES, LARGEST

LEAST_S, MOST_S, MOST_DONE = 1e-12, 1e9, 1e30  # a run file may hold any number
ALIKE = 0.01  # of the best time: sizes within it are as good, and the smallest of them is cheapest


@dataclass(frozen=True)
class AlignedPoint:
    """One size that has a time: its elements, the power of two that divides the bytes of its row,
    its operations (without any, its bytes) per second, and its main kernel."""

    record: Record
    samples: Samples
    elements: int
    alignment: int
    throughput: float
    kernel: str


@dataclass(frozen=True)
class AlignmentClass:
    """The sizes of one alignment: how many, their median throughput, and their median loss against
    the best-aligned sizes around each (None for the best-aligned class)."""

    alignment: int
    count: int
    throughput: float
    loss: float | None
    kernels: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Suggestion:
    """The smallest of the fastest sizes from *asked* on, with its gain in speed; None where no
    larger size nearby is surely faster."""

    asked: AlignedPoint
    better: AlignedPoint | None
    gain: Speedup | None


@dataclass(frozen=True)
class Group:
    """The sizes of one implementation in one dtype under one contract, in rising order; `where`
    holds the values of the other axes that vary."""

    implementation: str
    dtype: str
    contract: object
    where: str
    unit: str
    points: tuple[AlignedPoint, ...]

    @property
    def name(self) -> str:
        """Return the name of the group: `torch bf16, k=768`."""
        return ", ".join(filter(None, (f"{self.implementation} {self.dtype}", self.where)))

    @property
    def classes(self) -> tuple[AlignmentClass, ...]:
        """The classes by rising alignment; losses are relative to the last, best-aligned class."""
        by_alignment: dict[int, list[AlignedPoint]] = {}
        for point in self.points:
            by_alignment.setdefault(point.alignment, []).append(point)
        best = by_alignment[max(by_alignment)]
        return tuple(_class_of(by_alignment[alignment], best) for alignment in sorted(by_alignment))

    def suggest(self, elements: int) -> Suggestion | None:
        """Return the suggestion for the size *elements*; None if that size has no time."""
        sizes = nearby(elements)
        tried = [p for p in self.points if p.elements in sizes]
        asked = next((p for p in tried if p.elements == elements), None)
        if asked is None:
            return None
        least = min(p.samples.median_s for p in tried)
        better = next(p for p in tried if p.samples.median_s <= least * (1 + ALIKE))
        gain = ratio(asked.samples, better.samples)
        if better is asked or gain.low is None or gain.low <= 1:
            return Suggestion(asked, None, None)
        return Suggestion(asked, better, gain)


def groups(run: Run) -> tuple[Group, ...]:
    """Group the records of *run* that have a time by implementation, dtype, contract and the other
    axes, in the run's order.

    Raises: UsageError where no axis varies.
    """
    (axis, *_), others = moved_axes(run)
    by_key: dict[tuple[str, str, object, str], list[AlignedPoint]] = {}
    for record in run.records:
        dtype = str(record.case.point.get("dtype", "fp32"))
        point = _point(record, dtype, axis)
        if point is not None:
            name = implementation_of(record, False)
            key = (name, dtype, record.contract, where(record.case.point, others))
            by_key.setdefault(key, []).append(point)
    return tuple(
        Group(*key, _unit(points), tuple(sorted(points, key=_elements)))
        for key, points in by_key.items()
    )


def _point(record: Record, dtype: str, axis: str) -> AlignedPoint | None:
    """Return the size of *record*, None where it has no time or a figure is out of range."""
    samples, cost, elements = record.samples, record.cost, record.case.point.get(axis)
    done = (cost.flop_count or cost.dram_bytes) if cost else 0
    if record.status != "ok" or samples is None or not samples.size or dtype not in DTYPES:
        return None
    if not isinstance(elements, int) or not 0 < elements <= LARGEST:
        return None
    if not 0 < done <= MOST_DONE or not LEAST_S < samples.median_s < MOST_S:
        return None
    alignment, rate = alignment_of(elements, dtype), done / samples.median_s
    return AlignedPoint(record, samples, elements, alignment, rate, main_kernel(record))


def _elements(point: AlignedPoint) -> int:
    return point.elements


def _unit(points: Sequence[AlignedPoint]) -> str:
    cost = points[0].record.cost
    return "FLOP/s" if cost and cost.flop_count else "B/s"


def _class_of(points: Sequence[AlignedPoint], best: Sequence[AlignedPoint]) -> AlignmentClass:
    kernels = Counter(point.kernel for point in points if point.kernel)
    losses = [1 - point.throughput / _interpolated(best, point.elements) for point in points]
    return AlignmentClass(
        points[0].alignment,
        len(points),
        statistics.median(p.throughput for p in points),
        None if points is best else statistics.median(losses),
        tuple(kernels.most_common()),
    )


def _interpolated(points: Sequence[AlignedPoint], elements: int) -> float:
    """Return the throughput at *elements*, interpolated between *points* of rising size.

    A comparison with it leaves out the growth of throughput with size.
    """
    place = bisect_left(points, elements, key=_elements)
    if place in (0, len(points)):
        return points[min(place, len(points) - 1)].throughput
    low, high = points[place - 1], points[place]
    share = (elements - low.elements) / (high.elements - low.elements)
    return low.throughput + share * (high.throughput - low.throughput)
