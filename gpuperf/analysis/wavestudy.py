"""What do the waves explain of a run of matmuls, kernel by kernel?

Each kernel is fitted on half of its sizes and judged on the others. Where the model does
not apply, or nothing is known of a kernel's tile, that is said, and nothing is predicted.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gpuperf.analysis.alignment import main_kernel, moved_axes, where
from gpuperf.analysis.tiles import parse_name, reduces_splits
from gpuperf.analysis.waves import Fit, Measured, Tiling, errors, fit, held_out, oriented
from gpuperf.errors import UsageError
from gpuperf.model.record import Record, Run

__all__ = ["DROP", "Boundary", "KernelStudy", "WavePoint", "WaveStudy", "study_waves"]

DROP = 0.05  # of throughput: a boundary that costs more is worth a word
FEWEST = 5  # sizes of a kernel: three costs are fitted, and some sizes are kept to judge by


@dataclass(frozen=True)
class WavePoint:
    """One size that has a time and a clock: where the sweep is, and what was seen there."""

    record: Record
    size: int
    measured: Measured
    clock_hz: float
    kernel: str

    @property
    def flop_per_cycle(self) -> float:
        """Model FLOPs over the cycles of the SMs."""
        at = self.measured
        return 2 * at.m * at.n * at.k / at.cycles


@dataclass(frozen=True)
class KernelStudy:
    """The sizes that one kernel took; its model and how far that is from sizes it was not fitted
    on, or the *reason* why there is none. `where` are the axes that vary besides. `sure` says that
    the tile's orientation is told by the fit, and not only assumed."""

    implementation: str
    dtype: str
    where: str
    kernel: str
    points: tuple[WavePoint, ...]
    model: Fit | None = None
    sure: bool = False
    unseen: tuple[float, ...] = ()
    reason: str = ""

    @property
    def median_error(self) -> float | None:
        """Of the sizes it was not fitted on, regardless of sign."""
        return statistics.median(map(abs, self.unseen)) if self.unseen else None

    @property
    def high_error(self) -> float | None:
        """What nine of ten of them stay within."""
        ordered = sorted(map(abs, self.unseen))
        return ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))] if ordered else None


@dataclass(frozen=True)
class Boundary:
    """Between two sizes one kernel needs another wave: after *last* (predicted), at a cost in
    throughput of *predicted* there; *met* says whether the measured throughput dropped within one
    step of it, None where the prediction between the two sizes themselves is under `DROP`."""

    kernel: str
    last: int
    waves: int
    predicted: float
    met: bool | None


@dataclass(frozen=True)
class WaveStudy:
    """All of a run: the axes that moved, its kernels, and where their waves end."""

    axes: tuple[str, ...]
    kernels: tuple[KernelStudy, ...]
    boundaries: tuple[Boundary, ...]
    left_out: tuple[str, ...]


def study_waves(run: Run) -> WaveStudy:
    """Raises: UsageError for a workload without m, n and k, a device without SMs, or one size."""
    device = run.header.device
    if device.kind == "cpu":
        raise UsageError("waves are of a GPU's SMs, and this run is of a CPU", "run it on a GPU")
    if device.sm_count < 1:
        raise UsageError(f"the number of SMs of {device.name} is unknown", "waves need it")
    axes, others = moved_axes(run.records)
    found: dict[tuple[str, str, object, str, str], list[WavePoint]] = {}
    left_out = []
    for record in run.records:
        point = record.case.point
        if not {"m", "n", "k"} <= point.keys():
            raise UsageError(f"{record.case.op} has no m, n and k", "waves are of matmuls")
        samples = record.samples
        if record.status != "ok" or samples is None or not samples.size:
            left_out.append(f"{record.case.id}: {record.status}: {record.reason}")
        elif not samples.clock_hz or samples.median_s <= 0:
            left_out.append(f"{record.case.id}: its SM clock is unknown, and so are its cycles")
        else:
            sizes = {name: int(point[name]) for name in "mnk"}
            cycles = samples.median_s * samples.clock_hz
            at = WavePoint(
                record, int(point[axes[0]]), Measured(**sizes, cycles=cycles), samples.clock_hz,
                _label(record),
            )  # fmt: skip
            key = (record.case.implementation, str(point.get("dtype", "")), record.contract)
            found.setdefault((*key, where(point, others), at.kernel), []).append(at)
    kernels = tuple(
        _study_kernel(
            KernelStudy(key[0], key[1], key[3], key[4], tuple(sorted(points, key=_size))),
            device.sm_count,
        )
        for key, points in found.items()
    )
    every = sorted({point.size for points in found.values() for point in points})
    boundaries = [b for kernel in kernels for b in _boundaries(kernel, axes, every)]
    return WaveStudy(
        axes, kernels, tuple(sorted(boundaries, key=lambda b: b.last)), tuple(left_out)
    )


def _size(point: WavePoint) -> int:
    return point.size


def _study_kernel(told: KernelStudy, sm_count: int) -> KernelStudy:
    points = told.points
    tiling, reason = _tiling_of(points[0].record, points[0].kernel, sm_count)
    if tiling is None:
        return replace(told, reason=reason)
    measured = [point.measured for point in points]
    if len(measured) < FEWEST:
        return replace(told, reason=f"{len(measured)} sizes are too few to fit and to judge by")
    seen, unseen = held_out(measured)
    way, sure = oriented(tiling, seen)
    model = fit(way, seen)
    return replace(told, model=model, sure=sure, unseen=errors(model, unseen))


def _label(record: Record) -> str:
    """The kernel; of one that was tuned, with the tile chosen."""
    tile = [str(record.chosen[name]) for name in ("BM", "BN", "BK") if name in record.chosen]
    return " ".join(filter(None, (main_kernel(record), "x".join(tile))))


def _tiling_of(record: Record, kernel: str, sm_count: int) -> tuple[Tiling | None, str]:
    """The tile that *kernel* works in, or why it is unknown or does not tell the time."""
    chosen: Mapping[str, object] = record.chosen
    if {"BM", "BN", "BK"} <= chosen.keys():
        rows, columns, depth = (int(str(chosen[name])) for name in ("BM", "BN", "BK"))
        return Tiling(rows, columns, depth, sm_count), ""
    named = parse_name(kernel)
    if named is None:
        return None, "its name tells no tile"
    if named.splits or any(reduces_splits(k.name) for k in record.kernels):
        return None, "its programs share tiles' sums (split-K): waves do not tell its time"
    cluster = named.cluster[0] * named.cluster[1]
    usable = sm_count // cluster * cluster
    if usable < 1:
        return None, f"a cluster of {cluster} does not fit {sm_count} SMs"
    return Tiling(named.rows, named.columns, named.k or 1, usable), ""


def _boundaries(
    study: KernelStudy, axes: Sequence[str], every: Sequence[int]
) -> list[Boundary]:
    """Where between two sizes that are neighbours in *every* the kernel begins another wave."""
    model, place = study.model, {size: i for i, size in enumerate(every)}
    if model is None:
        return []
    found = []
    for i, (low, high) in enumerate(pairwise(study.points)):
        at, after = (model.tiling.waves(p.measured.m, p.measured.n) for p in (low, high))
        if after <= at or place[high.size] != place[low.size] + 1:
            continue
        last = _last_of_wave(model.tiling, low, high, axes)
        here, there = (_moved(low, axes, size) for size in (last, last + 1))
        predicted = 1 - _per_cycle(model, there) / _per_cycle(model, here)
        step = 1 - _per_cycle(model, high.measured) / _per_cycle(model, low.measured)
        near = study.points[max(0, i - 1) : i + 3]
        drops = [1 - b.flop_per_cycle / a.flop_per_cycle for a, b in pairwise(near)]
        met = max(drops) > DROP / 2 if step > DROP else None
        found.append(Boundary(study.kernel, last, at, predicted, met))
    return found


def _last_of_wave(tiling: Tiling, low: WavePoint, high: WavePoint, axes: Sequence[str]) -> int:
    """The largest size that still has the waves of *low*: they never fall as a size grows."""
    least, most = low.size, high.size
    waves = tiling.waves(low.measured.m, low.measured.n)
    while most - least > 1:
        middle = (least + most) // 2
        at = _moved(low, axes, middle)
        least, most = (middle, most) if tiling.waves(at.m, at.n) <= waves else (least, middle)
    return least


def _moved(point: WavePoint, axes: Sequence[str], size: int) -> Measured:
    return replace(point.measured, **{axis: size for axis in axes if axis in ("m", "n", "k")})


def _per_cycle(model: Fit, at: Measured) -> float:
    return at.m * at.n * at.k / model.cycles(at.m, at.n, at.k)
