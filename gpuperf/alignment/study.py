"""What does an operation lose where its rows do not fall on the memory's own steps?

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
from gpuperf.show.axes import moved_axes, where
from gpuperf.tiles.alignment import alignment_of, nearby
from gpuperf.tiles.names import main_kernel
from gpuperf.units import DTYPES, LARGEST

LEAST_S, MOST_S, MOST_DONE = 1e-12, 1e9, 1e30  # a stranger's file may hold any number
ALIKE = 0.01  # of the best time: sizes within it are as good, and the smallest of them is cheapest


@dataclass(frozen=True)
class AlignedPoint:
    """One size that has a time: its elements, what divides its row in bytes, operations (or, where
    it has none, bytes) a second, and the kernel that took it."""

    record: Record
    samples: Samples
    elements: int
    alignment: int
    throughput: float
    kernel: str


@dataclass(frozen=True)
class AlignmentClass:
    """The sizes of one alignment: how many, their median throughput, and the median share that they
    lose against the best-aligned sizes around each (None of those themselves)."""

    alignment: int
    count: int
    throughput: float
    loss: float | None
    kernels: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Suggestion:
    """The cheapest better size from *asked* on: its elements, and how much faster than that it is.
    None where no larger size nearby is faster."""

    asked: AlignedPoint
    better: AlignedPoint | None
    gain: Speedup | None


@dataclass(frozen=True)
class Group:
    """What one implementation did in one dtype under one contract, by rising size; `where` are the
    axes that vary besides."""

    implementation: str
    dtype: str
    contract: object
    where: str
    unit: str
    points: tuple[AlignedPoint, ...]

    @property
    def name(self) -> str:
        """`torch bf16, k=768`."""
        return ", ".join(filter(None, (f"{self.implementation} {self.dtype}", self.where)))

    @property
    def classes(self) -> tuple[AlignmentClass, ...]:
        """By rising alignment; the last is what the others are held against."""
        best = max(point.alignment for point in self.points)
        reference = [point for point in self.points if point.alignment == best]
        return tuple(
            _class_of([p for p in self.points if p.alignment == alignment], reference)
            for alignment in sorted({point.alignment for point in self.points})
        )

    def suggest(self, elements: int) -> Suggestion | None:
        """The cheapest better size from *elements* on; None where that one has no time."""
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
    """What of *run* has a time, apart by implementation, dtype and contract, in the run's order.

    Raises: UsageError where no axis varies.
    """
    axes, others = moved_axes(run)
    found: dict[tuple[str, str, object, str], list[AlignedPoint]] = {}
    for record in run.records:
        samples, point, cost = record.samples, record.case.point, record.cost
        dtype, elements = str(point.get("dtype", "fp32")), point.get(axes[0])
        done = (cost.flop_count or cost.dram_bytes) if cost else 0
        if record.status != "ok" or samples is None or not samples.size or dtype not in DTYPES:
            continue
        if not isinstance(elements, int) or not 0 < elements <= LARGEST:
            continue
        if not 0 < done <= MOST_DONE or not LEAST_S < samples.median_s < MOST_S:
            continue
        options = ",".join(f"{k}={v}" for k, v in record.case.options.items())
        name = record.case.implementation + (f"[{options}]" if options else "")
        divides, per_s = alignment_of(elements, dtype), done / samples.median_s
        at = AlignedPoint(record, samples, elements, divides, per_s, main_kernel(record))
        found.setdefault((name, dtype, record.contract, where(point, others)), []).append(at)
    return tuple(
        Group(name, dtype, contract, at, _unit(points), tuple(sorted(points, key=_elements)))
        for (name, dtype, contract, at), points in found.items()
    )


def _elements(point: AlignedPoint) -> int:
    return point.elements


def _unit(points: Sequence[AlignedPoint]) -> str:
    cost = points[0].record.cost
    return "FLOP/s" if cost and cost.flop_count else "B/s"


def _class_of(points: Sequence[AlignedPoint], reference: Sequence[AlignedPoint]) -> AlignmentClass:
    kernels = Counter(point.kernel for point in points if point.kernel)
    best = points[0].alignment == reference[0].alignment
    losses = [1 - point.throughput / _around(reference, point.elements) for point in points]
    return AlignmentClass(
        points[0].alignment,
        len(points),
        statistics.median(p.throughput for p in points),
        None if best else statistics.median(losses),
        tuple(kernels.most_common()),
    )


def _around(reference: Sequence[AlignedPoint], elements: int) -> float:
    """The throughput that *reference*, by rising size, would have at *elements*: throughput grows
    with the size, which is no loss of the alignment."""
    place = bisect_left(reference, elements, key=_elements)
    if place in (0, len(reference)):
        return reference[min(place, len(reference) - 1)].throughput
    low, high = reference[place - 1], reference[place]
    share = (elements - low.elements) / (high.elements - low.elements)
    return low.throughput + share * (high.throughput - low.throughput)
