"""What do the waves explain of a run of matmuls, kernel by kernel?

Each kernel is fitted on half of its sizes and judged on the others. Where the model does
not apply, or nothing is known of a kernel's tile, that is said, and nothing is predicted.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gpuperf.analysis.alignment import main_kernel, moved_axes, where
from gpuperf.analysis.counted import counted
from gpuperf.analysis.grids import Way, capacity, splits, ways
from gpuperf.analysis.tiles import NamedTile, parse_name, reduces_splits
from gpuperf.analysis.waves import Fit, Measured, Tiling, errors, fit, held_out, oriented, turned
from gpuperf.errors import UsageError
from gpuperf.model.peaks import Figure
from gpuperf.model.record import Launch, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.units import LARGEST

__all__ = [
    "DROP", "Boundary", "KernelStudy", "WavePoint", "WaveStudy", "study_plane", "study_waves",
]  # fmt: skip

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
    axes, others = moved_axes(run.records)
    kernels, left_out = _kernels(run, axes[0], others)
    every = sorted({point.size for kernel in kernels for point in kernel.points})
    boundaries = [b for kernel in kernels for b in _boundaries(kernel, axes, every)]
    return WaveStudy(axes, kernels, tuple(sorted(boundaries, key=lambda b: b.last)), left_out)


def study_plane(run: Run) -> WaveStudy:
    """The same with one model a kernel over every m and n that it took at one k, for a picture of
    both: no axis is swept, so no boundary is told. Raises: UsageError, as `study_waves`."""
    _refuse_device(run)
    axes, others = moved_axes(run.records)
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
            at = WavePoint(record, size, measured, samples.clock_hz, _label(record))
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
    tiling, sure, reason = _tiling_of(points, sm_count)
    if tiling is None:
        return replace(told, reason=reason)
    measured = [point.measured for point in points]
    if len(measured) < FEWEST:
        return replace(told, reason=f"{len(measured)} sizes are too few to fit and to judge by")
    seen, unseen = held_out(measured)
    if all(point.memory_bound for point in seen):
        return replace(told, reason="its bytes tell its time, and tiles do not")
    way, sure = (tiling, True) if sure else oriented(tiling, seen)
    model = fit(way, seen)
    return replace(told, model=model, sure=sure, unseen=errors(model, unseen))


def _measured(
    record: Record, samples: Samples, bandwidth: Figure | None
) -> Measured | None:
    """The point in cycles, where its numbers are those of a matmul."""
    m, n, k = (record.case.point[name] for name in "mnk")
    for size in (m, n, k):
        if not isinstance(size, int) or not 0 < size <= LARGEST:
            return None
    assert isinstance(m, int) and isinstance(n, int) and isinstance(k, int)  # for mypy
    clock_hz = samples.clock_hz or 0.0
    cycles, moved = samples.median_s * clock_hz, counted(record).measured or 0.0
    memory = moved / bandwidth.value * clock_hz if bandwidth else 0.0
    known = 1 <= clock_hz <= MOST_HZ and 1 <= cycles <= MOST_CYCLES and memory <= MOST_CYCLES
    return Measured(m, n, k, cycles, memory) if known else None


def _chosen_tile(record: Record) -> tuple[int, int, int] | None:
    """BM, BN and BK of a kernel that was tuned."""
    values = [record.chosen.get(name) for name in ("BM", "BN", "BK")]
    numbers = [v for v in values if isinstance(v, int) and 0 < v <= LARGEST]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _label(record: Record) -> str:
    """The kernel, with what makes it another one: what was chosen of one that was tuned, and the
    parts that K is split in."""
    tile, name = _chosen_tile(record), main_kernel(record)
    words = [name]
    if tile is not None:
        words.append("x".join(map(str, tile)))
        words += [f"{key} {value}" for key, value in record.chosen.items() if len(key) > 2]
    elif (parts := _parts(record, name)) > 1:
        words.append(f"K in {parts} parts")
    return ", ".join(filter(None, words))


def _parts(record: Record, name: str) -> int:
    """The parts of K, as the grid of the kernel *name* tells them."""
    named, launch = parse_name(name), _launch(record, name)
    return 1 if named is None or named.persistent or launch is None else splits(launch)


def _launch(record: Record, name: str) -> Launch | None:
    return next((kernel.launch for kernel in record.kernels if kernel.name == name), None)


def _tiling_of(
    points: Sequence[WavePoint], sm_count: int
) -> tuple[Tiling | None, bool, str]:
    """The tile that the kernel of *points* works in, whether its orientation is sure; or why it is
    unknown or does not tell the time."""
    record = points[0].record
    if tile := _chosen_tile(record):
        return Tiling(*tile, sm_count), True, ""
    name = main_kernel(record)
    named, launch = parse_name(name), _launch(record, name)
    if named is None:
        return None, False, "its name tells no tile"
    if named.splits or any(reduces_splits(k.name) for k in record.kernels):
        return None, False, "its programs share tiles' sums (split-K): waves do not tell its time"
    if named.paired:
        return None, False, "two CTAs share a tile, which the model does not know of"
    cluster = named.cluster[0] * named.cluster[1]
    usable = capacity(launch, sm_count, cluster)
    if usable < 1:
        return None, False, f"a cluster of {cluster} does not fit {sm_count} SMs"
    found = _ways(named, points, sm_count)
    if not found:
        return None, False, "its grid contradicts the tile that its name tells"
    tiling = Tiling(
        named.rows, named.columns, named.k or 1, usable, _parts(record, name), named.streams
    )
    # BLAS is column-major, and a row-major product is given to it with its sides exchanged.
    lies = "named" if found == {"named"} else "turned"
    return (tiling if lies == "named" else turned(tiling)), len(found) == 1, ""


def _ways(named: NamedTile, points: Sequence[WavePoint], sm_count: int) -> frozenset[Way]:
    """How the tile may lie, by the grids of all *points* that have one."""
    found: frozenset[Way] = frozenset({"named", "turned"})
    for point in points:
        launch, at = _launch(point.record, main_kernel(point.record)), point.measured
        if launch is not None:
            found &= ways(named, launch, at.m, at.n, sm_count)
    return found


def _boundaries(
    study: KernelStudy, axes: Sequence[str], every: Sequence[int]
) -> list[Boundary]:
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
            near = [p for p in study.points[max(0, i - 1) : i + 3]
                    if -1 <= place[p.size] - place[low.size] <= 2]  # fmt: skip
            drops = [1 - b.flop_per_cycle / a.flop_per_cycle for a, b in pairwise(near)]
            met = max(drops) > max(step / 2, 2 * (study.median_error or 0.0))
        begin = low.size
        while begin < high.size and len(found) < MOST_BOUNDARIES:
            last = _last_of_wave(model.tiling, low, begin, high.size, axes)
            if last >= high.size:
                break
            here, there = (_moved(low, axes, size) for size in (last, last + 1))
            found.append(Boundary(
                study.kernel, last, model.tiling.waves(here.m, here.n),
                model.tiling.waves(there.m, there.n),
                1 - _per_cycle(model, there) / _per_cycle(model, here), met,
            ))  # fmt: skip
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
