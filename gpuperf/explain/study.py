"""Where did the time go, from the peak of the data sheet to what was attained?

A ladder of quantities leads from what the machine could have done in the time to what was asked of
it, and each step is the ratio of two neighbours, so the product of the steps is exact and no loss
counts twice. A rung that is unknown makes one step of two.

    compute:  peak·T, peak·span, peak·busy, S·R·f·busy, S·R·C_elapsed, S·R·C_active, S·R·C_pipe,
              F_hw, F
    memory:   B₀·T, B₀·span, B₀·busy, B_cal·busy, Q_dram, Q_min

(S SMs, R FLOP a clock and SM, f the SM clock observed, F FLOPs of the model and F_hw counted, C
cycles, Q bytes, B bandwidths of the sheet and as measured.) What tiles and waves predict annotates
a step; only where counters are missing does it stand in for a rung, and says that it is modelled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuperf.errors import UsageError
from gpuperf.explain.ladder import (
    CLOCK,
    GAPS,
    LARGEST,
    LAUNCHES,
    SMALLEST,
    STEPS,
    TIE,
    Chain,
    Factor,
    How,
    Rung,
    factors_of,
)
from gpuperf.model.counted import counted
from gpuperf.model.metrics import TENSOR, moved_bytes
from gpuperf.model.peaks import Ceiling, Peaks
from gpuperf.model.record import Header, Record
from gpuperf.roofline.binding import read_share
from gpuperf.roofline.study import place
from gpuperf.tiles.tiling import sizes_of, tiling_of
from gpuperf.tiles.waves import transpose

LONGEST_S = 1e9  # of one call
LEAST_LOSS = 1e-3  # as a log ratio: of less there are no parts
OPERATIONS_OFF = 0.02  # of the model's: fewer than that less were not all counted


@dataclass(frozen=True)
class KernelShare:
    """One kernel of a call of several: its share of the time; what its operations (in the memory
    chain, its bytes) are of the peak while it ran; and of that the use of the pipe at the clock
    observed, and the rate of its instructions. None where that is unknown."""

    name: str
    count: int
    share: float
    of_peak: float | None
    pipe: float | None = None
    path: float | None = None


@dataclass(frozen=True)
class LossBudget:
    """The loss budget of one record: `peak` and `attained` in FLOP/s (compute) or byte/s (memory),
    and the factors between them; `memory_share` is what the bytes measured are of the bandwidth."""

    record: Record
    chain: Chain
    peak: float
    peak_source: str
    attained: float
    factors: tuple[Factor, ...]
    kernels: tuple[KernelShare, ...] = ()
    predicted: Mapping[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    memory_share: float | None = None

    def share(self, how: How) -> float | None:
        """The part of the loss on causes known so; None where nothing is lost. The tie is none."""
        total = -math.log(self.attained / self.peak)
        found = sum(f.loss for f in self.factors if f.how == how and f.steps != (TIE,))
        return found / total if total > LEAST_LOSS else None

    @property
    def named(self) -> float | None:
        """The part of the loss on measured causes, less what the tie is off and what steps gain.

        Only a clock can be above the peak's. None as in `share`.
        """
        measured = self.share("measured")
        if measured is None:
            return None
        total = -math.log(self.attained / self.peak)
        off = sum(abs(f.loss) for f in self.factors if f.steps == (TIE,))
        off += sum(max(0.0, -f.loss) for f in self.factors if f.steps not in ((TIE,), (CLOCK,)))
        return max(0.0, min(measured, 1 - off / total))

    @property
    def largest(self) -> Factor:
        """The factor that costs most."""
        return max(self.factors, key=lambda factor: factor.loss)


def explain(record: Record, header: Header) -> LossBudget:
    """Raises: UsageError for what has no time, no cost, no peak, or is of a CPU."""
    identity = record.case.id
    if header.device.kind == "cpu":
        raise UsageError("this run is of a CPU: explain is of kernels of a GPU", "run it on a GPU")
    samples, cost = record.samples, record.cost
    placed = place(record, header.peaks, header.ceilings)
    if placed is None or samples is None or cost is None:
        reason = record.reason or "it has no time or no cost"
        raise UsageError(f"{identity} is {record.status}: {reason}", "choose another case")
    if not placed.valid:
        raise UsageError(f"{identity} breaks physics: {placed.caveats[-1].message}", "measure anew")
    peaks, time_s = _basis(record, header), samples.median_s
    if any(moved.channel != "dram" for moved in cost.bytes) or peaks is None:
        why = "; ".join(placed.reasons) or f"no peak of {header.device.name} is known"
        raise UsageError(f"{identity} has no roof: {why}", "`gpuperf calibrate` measures some")
    compute, memory = _bound(record, peaks), peaks.bandwidth
    # What the implementation moves decides, where that is known: it may be many times the least.
    moved = _moved_bytes(record, memory.value * time_s).value if memory else None
    least = {
        "compute": compute[1] / compute[0].rate.value if compute else 0.0,
        "memory": max(cost.dram_bytes, moved or 0.0) / memory.value if memory else 0.0,
    }
    sound = SMALLEST < time_s < LONGEST_S and all(value < LONGEST_S for value in least.values())
    if not sound or not max(least.values()) > 0:
        raise UsageError(f"{identity} has no peak, or no sound numbers", "choose another case")
    if compute and least["compute"] >= least["memory"]:
        told = _compute(record, header, peaks, compute[0], compute[1])
    else:
        told = _memory(record, header, peaks)
    through = counted(record).measured
    share = through / time_s / memory.value if memory and through is not None else None
    return replace(told, memory_share=share, missing=(*told.missing, *_unknown(record, peaks)))


def _basis(record: Record, header: Header) -> Peaks | None:
    """The data sheet where it knows the pipe of every matmul, else what was measured, if that does.

    Elementwise work has no rate in most sheets, and is mostly bound by memory.
    """
    cost = record.cost
    matmuls = [flops for flops in cost.flops if flops.kind == "matmul"] if cost else []
    for peaks in (header.peaks, header.ceilings):
        if peaks is not None and all(peaks.ceiling(flops) for flops in matmuls):
            return peaks
    return None


def _unknown(record: Record, peaks: Peaks) -> Iterable[str]:
    """The operations that no roof is known of, or that are not those that are explained."""
    for flops in record.cost.flops if record.cost else ():
        if peaks.ceiling(flops) is None:
            yield f"no rate is known of {flops.kind} operations in {flops.dtype}"


def _bound(record: Record, peaks: Peaks) -> tuple[Ceiling, float] | None:
    """The ceiling over the FLOPs that take longest, and how many they are."""
    found: dict[Ceiling, float] = {}
    for flops in record.cost.flops if record.cost else ():
        ceiling = peaks.ceiling(flops)
        if ceiling is not None and flops.count > 0:
            found[ceiling] = found.get(ceiling, 0.0) + flops.count
    return max(found.items(), key=lambda i: i[1] / i[0].rate.value) if found else None


def _compute(
    record: Record, header: Header, peaks: Peaks, ceiling: Ceiling, flops: float
) -> LossBudget:
    peak, counters = ceiling.rate.value, record.counters
    time_s, span_s, busy_s, absent = _times(record)
    rate = ceiling.flop_per_clock_per_sm
    per_clock = peaks.sm_count * rate if rate else None
    clock_hz = record.samples.clock_hz if record.samples else None
    elapsed = counters.get("elapsed_cycles")
    active = counters.get("active_cycles")
    # Of a call of several kernels the cycles between them are the gaps', which have their own step.
    in_kernels = None
    if active and elapsed and busy_s:
        in_kernels = elapsed * busy_s / (span_s or busy_s)
    absent |= {TIE} if not active else set()  # nothing was counted that it would tie
    done, pipe = _hardware(record, ceiling, flops)
    predicted = _predicted(record, peaks.sm_count)
    ladder = [
        Rung(peak * time_s),
        Rung(_times_of(peak, span_s)),
        Rung(_times_of(peak, busy_s)),
        Rung(_times_of(per_clock, clock_hz, busy_s)),
        Rung(_times_of(per_clock, in_kernels)),
        Rung(_times_of(per_clock, active)),
        Rung(_times_of(per_clock, pipe)),
        Rung(done),
        Rung(flops),
    ]
    if ladder[5].value is None and ladder[3].value and "waves" in predicted:
        busy_share = predicted["waves"] * predicted["sms"] / peaks.sm_count
        ladder[5] = Rung(ladder[3].value * busy_share, "modelled")
    if done is None and "tiles" in predicted and not _names_counted(record, ceiling):
        filled = predicted["tiles"] * predicted.get("depth", 1.0)
        ladder[7] = Rung(flops / filled, "modelled")
    return LossBudget(
        record,
        "compute",
        peak,
        _source(header, peaks, ceiling.rate.condition),
        flops / time_s,
        factors_of("compute", ladder, absent),
        _shares(record, peak, ceiling, per_clock, clock_hz),
        predicted,
        tuple(_missing_compute(record, ladder, ceiling)),
    )


def _memory(record: Record, header: Header, peaks: Peaks) -> LossBudget:
    assert record.cost is not None and peaks.bandwidth is not None  # `explain` saw both
    time_s, span_s, busy_s, absent = _times(record)
    measured = header.ceilings if peaks is header.peaks else None
    best = measured.bandwidth_at(read_share(record.cost)) if measured else None
    peak, least = peaks.bandwidth.value, record.cost.dram_bytes
    moved = _moved_bytes(record, peak * (busy_s or time_s))
    if peaks is not header.peaks:
        absent |= {STEPS["memory"][2]}  # the peak is memory's own best
    ladder = [
        Rung(peak * time_s),
        Rung(_times_of(peak, span_s)),
        Rung(_times_of(peak, busy_s)),
        Rung(_times_of(best, busy_s)),
        moved,
        Rung(least),
    ]
    missing = list(_missing_kernels(record))
    if best is None and peaks is header.peaks:
        missing.append("the bandwidth that memory reaches was not measured: `gpuperf calibrate`")
    if counted(record).unmodelled:
        missing.append("what it had to move is unknown: its bytes are those that were counted")
    elif counted(record).measured is None:
        missing.append("its bytes were not counted: measure with --counters auto")
    elif moved.value is None:
        missing.append("fewer bytes came from DRAM than it must move: the rest came from cache")
    return LossBudget(
        record,
        "memory",
        peak,
        _source(header, peaks, peaks.bandwidth.condition),
        least / time_s,
        factors_of("memory", ladder, absent),
        _shares(record, peak),
        missing=tuple(missing),
    )


def _moved_bytes(record: Record, most: float) -> Rung:
    """Those through DRAM, which can move *most* in the time; unknown where the cache served part of
    what is compulsory, or of what the model says."""
    figures = counted(record)
    least, unsure = figures.compulsory or 0.0, figures.uncertainty or 0.0
    if figures.unmodelled:
        return Rung(None)
    if figures.measured is None:
        modelled = figures.modelled or 0.0
        return Rung(modelled if modelled <= most else None, "modelled")
    short = figures.measured + unsure < (1 - OPERATIONS_OFF) * least
    return Rung(None if short else figures.measured)


def _times(record: Record) -> tuple[float, float | None, float | None, set[str]]:
    """The time that counts; of it that of the span and that of the kernels, gaps left out, where
    they are known; and the steps that this time has not.

    A window and a kernel's own record have no launches in them, and a sustained load is taken for
    one without gaps: its kernels were not traced under load.
    """
    assert record.samples is not None  # `explain` saw it
    time_s, busy = record.samples.median_s, record.times.get("busy")
    alone = len(record.kernels) == 1 == record.kernels[0].count
    if record.primary in ("busy", "settled") or (record.primary == "window" and alone):
        return time_s, None, time_s, {LAUNCHES, GAPS}
    busy_s = busy.median_s if busy else None
    if record.primary == "window":
        return time_s, time_s, busy_s, {LAUNCHES}
    return time_s, None, busy_s, {GAPS} if alone else set()


def _times_of(*factors: float | None) -> float | None:
    """Their product, where all are known."""
    known = [factor for factor in factors if factor is not None]
    return math.prod(known) if len(known) == len(factors) else None


def _hardware(record: Record, ceiling: Ceiling, flops: float) -> tuple[float | None, float | None]:
    """Operations that were counted on the pipe of *ceiling*, and the pipe's cycles; None where
    another pipe did part of the work, or the pipe other work."""
    operations, cycles = (record.counters.get(name) for name in _names(ceiling))
    if not operations or operations < (1 - OPERATIONS_OFF) * flops:
        return None, None
    others = [
        record.counters.get(name, 0.0)
        for name in TENSOR
        if ceiling.pipe == "tensor" and name != f"tensor_{ceiling.dtype}"
    ]
    return operations, cycles if max(others, default=0.0) < OPERATIONS_OFF * operations else None


def _names_counted(record: Record, ceiling: Ceiling) -> bool:
    """Whether the operations of its pipe were counted, however few they were."""
    return _names(ceiling)[0] in record.counters


def _names(ceiling: Ceiling) -> tuple[str, str]:
    """Of the counters of its pipe: operations, and cycles."""
    if ceiling.pipe == "tensor":
        return f"tensor_{ceiling.dtype}", "tensor_cycles"
    return f"{ceiling.dtype}_flops", "fp64_cycles" if ceiling.dtype == "fp64" else "fma_cycles"


def _predicted(record: Record, sm_count: int) -> dict[str, float]:
    """What tiles predict of a matmul: the filled part of tiles, of waves on the `sms` that clusters
    leave, and, where their depth is known, of K-tiles; and how many tiles, waves and K-tiles of a
    tile there are. Nothing where it matters which way a tile lies and that is not sure."""
    sizes = sizes_of(record)
    if sizes is None or not record.kernels:
        return {}
    tiling, sure, _ = tiling_of([record], sm_count)
    if tiling is None or tiling.streams:
        return {}
    m, n, k = sizes
    if not sure and tiling.tiles(m, n) != transpose(tiling).tiles(m, n):
        return {}
    found = {
        "tiles": tiling.tile_efficiency(m, n),
        "waves": tiling.wave_efficiency(m, n),
        "tile_count": tiling.tiles(m, n),
        "wave_count": tiling.waves(m, n),
        "rows": tiling.rows,
        "columns": tiling.columns,
        "sms": tiling.sms,
    }
    if tiling.depth > 1:  # 1 stands for unknown
        steps = -(-tiling.steps(k) // tiling.splits)
        found |= {"depth": tiling.depth_efficiency(k), "steps": steps}
    return found


def _shares(
    record: Record,
    peak: float,
    ceiling: Ceiling | None = None,
    per_clock: float | None = None,
    clock_hz: float | None = None,
) -> tuple[KernelShare, ...]:
    """Each kernel of a call of several, by its share of the time; of memory without a *ceiling*."""
    names = [kernel for kernel in record.kernels if kernel.computes]
    if len(names) < 2:
        return ()
    assert record.samples is not None  # `explain` saw it
    time_s, found = record.samples.median_s, []
    for kernel in record.kernels:
        seconds, counts = kernel.time_s, kernel.counters
        if not seconds or not SMALLEST < seconds < LARGEST:
            continue
        cycles = counts.get(_names(ceiling)[1]) if ceiling else None
        done = counts.get(_names(ceiling)[0]) if ceiling else moved_bytes(counts)
        share = KernelShare(
            kernel.name,
            kernel.count,
            seconds / time_s,
            done / (seconds * peak) if done is not None else None,
            cycles / (clock_hz * seconds) if cycles and clock_hz and clock_hz > 1 else None,
            done / (cycles * per_clock) if cycles and per_clock and done else None,
        )
        found.append(share)
    return tuple(sorted(found, key=lambda share: -share.share))


def _source(header: Header, peaks: Peaks, condition: str) -> str:
    origin = "data sheet" if peaks is header.peaks else "measured"
    return f"{origin}, {condition}" if condition else origin


def _missing_kernels(record: Record) -> Iterable[str]:
    if not record.kernels:
        yield "no kernels are recorded: what is between them, and which they are, is unknown"


def _missing_compute(record: Record, ladder: Sequence[Rung], ceiling: Ceiling) -> Iterable[str]:
    """What would tell more steps apart."""
    yield from _missing_kernels(record)
    if ladder[3].value is None:
        yield "the SM clock, the time of its kernels, or the rate per clock is unknown"
    if ladder[7].value is None and _names_counted(record, ceiling):
        yield f"its operations did not all run on the {ceiling.pipe} pipe in {ceiling.dtype}"
    elif ladder[5].value is None or ladder[5].how == "modelled" or ladder[6].value is None:
        counted_too = "" if ladder[7].how == "measured" and ladder[7].value else " and operations"
        yield f"cycles{counted_too} were not counted: measure with --counters kernels"
