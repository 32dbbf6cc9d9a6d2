"""What do the waves explain of a run of matmuls, kernel by kernel?

Each kernel is fitted on half of its sizes and judged on the others. Where the model does
not apply, or nothing is known of a kernel's tile, that is said, and nothing is predicted.
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

DROP = 0.05  # of throughput: a boundary that costs more is worth a word
# A stranger's file may hold any number.
MOST_BOUNDARIES, MOST_CYCLES, MOST_HZ = 1000, 1e18, 1e12
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
    the tile's orientation is told by the grid or the fit, and not only assumed."""

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
        """The sizes that the model was not fitted on."""
        judged = split_points([point.measured for point in self.points])[1] if self.model else ()
        return frozenset((at.m, at.n, at.k) for at in judged)

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
    """Between two sizes one kernel needs more waves: after *last* (predicted) `after` instead of
    `waves`, at a cost in throughput of *predicted* there; *met* says whether the measured
    throughput fell within one step of it by half of what is predicted between the two sizes, and
    by more than the model is off; None where that prediction is under `DROP`."""

    kernel: str
    where: str
    last: int
    waves: int
    after: int
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
    _refuse_device(run)
    axes, others = moved_axes(run)
    kernels, left_out = _kernels(run, axes[0], others)
    every = sorted({point.size for kernel in kernels for point in kernel.points})
    boundaries = [b for kernel in kernels for b in _boundaries(kernel, axes, every)]
    return WaveStudy(axes, kernels, tuple(sorted(boundaries, key=lambda b: b.last)), left_out)


def study_plane(run: Run) -> WaveStudy:
    """The same with one model a kernel over every m and n that it took at one k, for a picture of
    both: no axis is swept, so no boundary is told. Raises: UsageError, as `study_waves`."""
    _refuse_device(run)
    axes, others = moved_axes(run)
    rest = [name for name in (*axes, *others) if name not in ("m", "n", "k")]
    kernels, left_out = _kernels(run, "m", ("k", *rest))
    return WaveStudy(("m", "n"), kernels, (), left_out)


def _refuse_device(run: Run) -> None:
    device = run.header.device
    if device.kind == "cpu":
        raise UsageError("waves are of a GPU's SMs, and this run is of a CPU", "run it on a GPU")
    if device.sm_count < 1:
        raise UsageError(f"the number of SMs of {device.name} is unknown", "waves need it")


def _kernels(
    run: Run, axis: str, others: Sequence[str]
) -> tuple[tuple[KernelStudy, ...], tuple[str, ...]]:
    """What of *run* has cycles, by kernel and *others*, its sizes those of *axis*; and what has
    none, with the reason."""
    ceilings = run.header.ceilings or run.header.peaks
    bandwidth = ceilings.bandwidth if ceilings else None
    found: dict[tuple[str, str, object, str, str], list[WavePoint]] = {}
    left_out = []
    for record in run.records:
        point = record.case.point
        if not {"m", "n", "k"} <= point.keys():
            raise UsageError(f"{record.case.op} has no m, n and k", "waves are of matmuls")
        samples = record.samples
        if record.status != "ok" or samples is None or not samples.size:
            left_out.append(f"{record.case.id}: {record.status}: {record.reason}")
        elif not samples.clock_hz:
            left_out.append(f"{record.case.id}: its SM clock is unknown, and so are its cycles")
        elif (measured := _measured(record, samples, bandwidth)) is None:
            left_out.append(f"{record.case.id}: its sizes or its cycles are beyond any matmul's")
        else:
            size = int(point[axis])
            at = WavePoint(record, size, measured, samples.clock_hz, label_of(record))
            key = (record.case.implementation, str(point.get("dtype", "")), record.contract)
            found.setdefault((*key, where(point, others), at.kernel), []).append(at)
    kernels = tuple(
        _study_kernel(
            KernelStudy(key[0], key[1], key[3], key[4], tuple(sorted(points, key=_size))),
            run.header.device.sm_count,
        )
        for key, points in found.items()
    )
    return kernels, tuple(left_out)


def _size(point: WavePoint) -> int:
    return point.size


def _study_kernel(told: KernelStudy, sm_count: int) -> KernelStudy:
    points = told.points
    tiling, sure, reason = tiling_of([point.record for point in points], sm_count)
    if tiling is None:
        return replace(told, reason=reason)
    measured = [point.measured for point in points]
    sizes = len({(point.m, point.n, point.k) for point in measured})
    if sizes < FEWEST:
        words = f"{sizes} sizes are" if sizes > 1 else "1 size is"
        return replace(told, reason=f"{words} too few to fit and to judge by")
    seen, unseen = split_points(measured)
    if all(point.memory_bound for point in seen):
        return replace(told, reason="its bytes tell its time, and tiles do not")
    way, sure = (tiling, True) if sure else orient(tiling, seen)
    model = fit(way, seen)
    return replace(told, model=model, sure=sure, unseen=relative_errors(model, unseen))


def _measured(record: Record, samples: Samples, bandwidth: Figure | None) -> Measured | None:
    """The point in cycles, where its numbers are those of a matmul."""
    sizes = sizes_of(record)
    if sizes is None:
        return None
    clock_hz = samples.clock_hz or 0.0
    cycles, moved = samples.median_s * clock_hz, counted(record).measured or 0.0
    memory = moved / bandwidth.value * clock_hz if bandwidth else 0.0
    known = 1 <= clock_hz <= MOST_HZ and 1 <= cycles <= MOST_CYCLES and memory <= MOST_CYCLES
    return Measured(*sizes, cycles, memory) if known else None


def _boundaries(study: KernelStudy, axes: Sequence[str], every: Sequence[int]) -> list[Boundary]:
    """Where between two sizes that are neighbours in *every* the kernel begins another wave."""
    model, place = study.model, {size: i for i, size in enumerate(every)}
    if model is None:
        return []
    found: list[Boundary] = []
    for i, (low, high) in enumerate(pairwise(study.points)):
        at, after = (model.tiling.waves(p.measured.m, p.measured.n) for p in (low, high))
        if after <= at or place[high.size] != place[low.size] + 1:
            continue
        step = 1 - _per_cycle(model, high.measured) / _per_cycle(model, low.measured)
        met = None
        if step > DROP:
            near = [
                p
                for p in study.points[max(0, i - 1) : i + 3]
                if -1 <= place[p.size] - place[low.size] <= 2
            ]
            drops = [1 - b.flop_per_cycle / a.flop_per_cycle for a, b in pairwise(near)]
            met = max(drops) > max(step / 2, 2 * (study.median_error or 0.0))
        begin = low.size
        while begin < high.size and len(found) < MOST_BOUNDARIES:
            last = _last_of_wave(model.tiling, low, begin, high.size, axes)
            if last >= high.size:
                break
            here, there = (_moved(low, axes, size) for size in (last, last + 1))
            found.append(
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
    return found


def _last_of_wave(
    tiling: Tiling, point: WavePoint, begin: int, end: int, axes: Sequence[str]
) -> int:
    """The largest size up to *end* that has the waves of *begin*: they never fall as it grows."""
    least, most = begin, end + 1
    first = _moved(point, axes, begin)
    waves = tiling.waves(first.m, first.n)
    while most - least > 1:
        middle = (least + most) // 2
        at = _moved(point, axes, middle)
        least, most = (middle, most) if tiling.waves(at.m, at.n) <= waves else (least, middle)
    return least


def _moved(point: WavePoint, axes: Sequence[str], size: int) -> Measured:
    return replace(point.measured, **{axis: size for axis in axes if axis in ("m", "n", "k")})


def _per_cycle(model: Fit, at: Measured) -> float:
    return at.m * at.n * at.k / model.cycles(at.m, at.n, at.k)
