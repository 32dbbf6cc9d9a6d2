"""Fit the model of tiles and waves to the kernels of a run of matmuls, and judge its predictions.

A kernel's model is fitted on half of its sizes and tested on the other half. If the model does not
apply, or the tile of a kernel is unknown, the study gives the reason and predicts nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gpuperf.errors import UsageError
from gpuperf.model.counted import counted
from gpuperf.model.peaks import Figure
from gpuperf.model.record import Record, Run
from gpuperf.model.samples import Samples
from gpuperf.show.axes import moved_axes, where
from gpuperf.tiles.tiling import label_of, sizes_of, tiling_of
from gpuperf.tiles.waves import Fit, Measured, Tiling, fit, orient, relative_errors, split_points

DROP = 0.05  # loss of throughput at a wave's end, from which on the end is listed
# Bounds on the numbers of a run file, which may hold any.
MOST_BOUNDARIES, MOST_CYCLES, MOST_HZ = 1000, 1e18, 1e12
FEWEST = 5  # sizes of a kernel: three costs are fitted, and some sizes are held out


@dataclass(frozen=True)
class WavePoint:
    """One size that has a time and a clock, with its cycles and its kernel."""

    record: Record
    size: int
    measured: Measured
    clock_hz: float
    kernel: str

    @property
    def flop_per_cycle(self) -> float:
        """FLOPs of the model over the cycles of the SMs."""
        at = self.measured
        return 2 * at.m * at.n * at.k / at.cycles


@dataclass(frozen=True)
class KernelStudy:
    """The sizes that one kernel computed, and its model or the *reason* why it has none.

    `unseen` holds the relative errors of the model at sizes that it was not fitted on, and `where`
    the values of the other axes that vary. `sure` says that the grid or the fit shows which side of
    the tile lies along m; it is assumed otherwise.
    """

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
    def held_out(self) -> frozenset[tuple[int, int, int]]:
        """The sizes that the model was not fitted on, as (m, n, k)."""
        judged = split_points([point.measured for point in self.points])[1] if self.model else ()
        return frozenset((at.m, at.n, at.k) for at in judged)

    @property
    def median_error(self) -> float | None:
        """The median error at sizes that the model was not fitted on, without its sign."""
        return statistics.median(map(abs, self.unseen)) if self.unseen else None

    @property
    def high_error(self) -> float | None:
        """The error that nine of ten such sizes stay within."""
        return ninetieth(self.unseen) if self.unseen else None


@dataclass(frozen=True)
class Boundary:
    """The end of a wave between two sizes of one kernel.

    Up to the size *last* there are `waves` waves and from the next size on `after`, which lowers
    the throughput by the fraction *predicted*. *met* says whether the measured throughput fell
    there by half of the drop that is predicted between the two sizes, and by more than the model's
    error; it is None if that drop is under `DROP`.
    """

    kernel: str
    where: str
    last: int
    waves: int
    after: int
    predicted: float
    met: bool | None


@dataclass(frozen=True)
class WaveStudy:
    """The kernels of a run, the ends of their waves, and the cases that are left out, in words."""

    axes: tuple[str, ...]
    kernels: tuple[KernelStudy, ...]
    boundaries: tuple[Boundary, ...]
    left_out: tuple[str, ...]


def ninetieth(values: Sequence[float]) -> float:
    """Return the magnitude that nine of ten *values* stay within."""
    ordered = sorted(map(abs, values))
    return ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]


def study_waves(run: Run) -> WaveStudy:
    """Study the kernels of *run* over its swept axes.

    Raises: UsageError for a workload without m, n and k, a device without SMs, or one size.
    """
    _refuse_device(run)
    axes, others = moved_axes(run)
    kernels, left_out = _kernels(run, axes[0], others)
    every = sorted({point.size for kernel in kernels for point in kernel.points})
    boundaries = [b for kernel in kernels for b in _boundaries(kernel, axes, every)]
    return WaveStudy(axes, kernels, tuple(sorted(boundaries, key=lambda b: b.last)), left_out)


def study_plane(run: Run) -> WaveStudy:
    """Study the kernels of *run* with one model each over all m and n at one k, for a heatmap.

    No axis is swept, so there are no boundaries. Raises: UsageError, as `study_waves`.
    """
    _refuse_device(run)
    axes, others = moved_axes(run)
    rest = [name for name in (*axes, *others) if name not in ("m", "n", "k")]
    kernels, left_out = _kernels(run, "m", ("k", *rest))
    return WaveStudy(("m", "n"), kernels, (), left_out)


def _refuse_device(run: Run) -> None:
    device = run.header.device
    if device.kind == "cpu":
        raise UsageError("a CPU has no SMs, and so no waves", "measure on a GPU")
    if device.sm_count < 1:
        raise UsageError(
            f"the number of SMs of {device.name} is unknown, and waves depend on it",
            "measure on a GPU whose driver reports its SMs",
        )


def _kernels(
    run: Run, axis: str, others: Sequence[str]
) -> tuple[tuple[KernelStudy, ...], tuple[str, ...]]:
    """Study each kernel of *run* at each value of the axes *others*, over the sizes of *axis*.

    Return the cases without cycles too, each with the reason.
    """
    ceilings = run.header.ceilings or run.header.peaks
    bandwidth = ceilings.bandwidth if ceilings else None
    by_key: dict[tuple[str, str, object, str, str], list[WavePoint]] = {}
    left_out = []
    for record in run.records:
        point = record.case.point
        if not {"m", "n", "k"} <= point.keys():
            raise UsageError(f"{record.case.op} has no axes m, n and k", "measure a matmul")
        samples = record.samples
        if record.status != "ok" or samples is None or not samples.size:
            left_out.append(f"{record.case.id}: {record.status}: {record.reason}")
        elif not samples.clock_hz:
            left_out.append(f"{record.case.id}: its cycles are unknown without the SM clock")
        elif (measured := _measured(record, samples, bandwidth)) is None:
            left_out.append(f"{record.case.id}: its sizes or its cycles are out of range")
        else:
            size = int(point[axis])
            at = WavePoint(record, size, measured, samples.clock_hz, label_of(record))
            key = (record.case.implementation, str(point.get("dtype", "")), record.contract)
            by_key.setdefault((*key, where(point, others), at.kernel), []).append(at)
    kernels = tuple(
        _study_kernel(
            KernelStudy(
                key[0], key[1], key[3], key[4], tuple(sorted(points, key=lambda point: point.size))
            ),
            run.header.device.sm_count,
        )
        for key, points in by_key.items()
    )
    return kernels, tuple(left_out)


def _study_kernel(study: KernelStudy, sm_count: int) -> KernelStudy:
    points = study.points
    tiling, sure, reason = tiling_of([point.record for point in points], sm_count)
    if tiling is None:
        return replace(study, reason=reason)
    measured = [point.measured for point in points]
    sizes = len({(point.m, point.n, point.k) for point in measured})
    if sizes < FEWEST:
        words = f"{sizes} sizes are" if sizes > 1 else "1 size is"
        return replace(study, reason=f"{words} too few to fit a model and judge it")
    seen, unseen = split_points(measured)
    if all(point.memory_bound for point in seen):
        return replace(
            study, reason="the kernel is memory-bound: its time follows its bytes, not its tiles"
        )
    way, sure = (tiling, True) if sure else orient(tiling, seen)
    model = fit(way, seen)
    return replace(study, model=model, sure=sure, unseen=relative_errors(model, unseen))


def _measured(record: Record, samples: Samples, bandwidth: Figure | None) -> Measured | None:
    """Return the point in cycles, None where its numbers cannot be those of a matmul."""
    sizes = sizes_of(record)
    if sizes is None:
        return None
    clock_hz = samples.clock_hz or 0.0
    cycles, moved = samples.median_s * clock_hz, counted(record).measured or 0.0
    memory = moved / bandwidth.value * clock_hz if bandwidth else 0.0
    known = 1 <= clock_hz <= MOST_HZ and 1 <= cycles <= MOST_CYCLES and memory <= MOST_CYCLES
    return Measured(*sizes, cycles, memory) if known else None


def _boundaries(study: KernelStudy, axes: Sequence[str], every: Sequence[int]) -> list[Boundary]:
    """Return the ends of waves between sizes of the kernel that are neighbours in *every*."""
    model, place = study.model, {size: i for i, size in enumerate(every)}
    if model is None:
        return []
    boundaries: list[Boundary] = []
    for i, (low, high) in enumerate(pairwise(study.points)):
        at, after = (model.tiling.waves(p.measured.m, p.measured.n) for p in (low, high))
        if after <= at or place[high.size] != place[low.size] + 1:
            continue
        drop = 1 - _per_cycle(model, high.measured) / _per_cycle(model, low.measured)
        met = None
        if drop > DROP:
            near = [
                p
                for p in study.points[max(0, i - 1) : i + 3]
                if -1 <= place[p.size] - place[low.size] <= 2
            ]
            drops = [1 - b.flop_per_cycle / a.flop_per_cycle for a, b in pairwise(near)]
            met = max(drops) > max(drop / 2, 2 * (study.median_error or 0.0))
        begin = low.size
        while begin < high.size and len(boundaries) < MOST_BOUNDARIES:
            last = _last_of_wave(model.tiling, low, begin, high.size, axes)
            if last >= high.size:
                break
            here, there = (at_size(low, axes, size) for size in (last, last + 1))
            boundaries.append(
                Boundary(
                    study.kernel,
                    study.where,
                    last,
                    model.tiling.waves(here.m, here.n),
                    model.tiling.waves(there.m, there.n),
                    1 - _per_cycle(model, there) / _per_cycle(model, here),
                    met,
                )
            )
            begin = last + 1
    return boundaries


def _last_of_wave(
    tiling: Tiling, point: WavePoint, begin: int, end: int, axes: Sequence[str]
) -> int:
    """Return the largest size up to *end* with the waves of *begin*, which never fall with size."""
    least, most = begin, end + 1
    first = at_size(point, axes, begin)
    waves = tiling.waves(first.m, first.n)
    while most - least > 1:
        middle = (least + most) // 2
        at = at_size(point, axes, middle)
        least, most = (middle, most) if tiling.waves(at.m, at.n) <= waves else (least, middle)
    return least


def at_size(point: WavePoint, axes: Sequence[str], size: int) -> Measured:
    """Return the sizes of *point* with its swept *axes* at *size*."""
    return replace(point.measured, **{axis: size for axis in axes if axis in ("m", "n", "k")})


def _per_cycle(model: Fit, at: Measured) -> float:
    return at.m * at.n * at.k / model.cycles(at.m, at.n, at.k)
