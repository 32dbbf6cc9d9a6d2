"""Split the gap between the peak rate of a case and its attained rate into losses.

A ladder of quantities leads from the work that the device could have done in the time to the work
of the case. Each loss is the ratio of two neighbouring quantities (rungs), so the product of the
losses is exact, and none counts twice. If a rung is unknown, the two losses beside it are known
together only.

    compute:  peak·T, peak·span, peak·busy, S·R·f·busy, S·R·C_elapsed, S·R·C_active, S·R·C_pipe,
              F_hw, F
    memory:   B₀·T, B₀·span, B₀·busy, B_cal·busy, Q_dram, Q_min

(S SMs, R FLOP a clock and SM, f the SM clock observed, F FLOPs of the model and F_hw counted, C
cycles, Q bytes, B bandwidths of the sheet and as measured.) Where counters are missing, what tiles
and waves predict takes the place of a rung, labelled as modelled; elsewhere it annotates a loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.explain.kernels import KernelShare, counter_names, kernel_shares
from gpuperf.explain.ladder import (
    CLOCK,
    GAPS,
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
from gpuperf.model.metrics import TENSOR
from gpuperf.model.peaks import Ceiling, Peaks
from gpuperf.model.record import Header, Record
from gpuperf.roofline.binding import read_share
from gpuperf.roofline.study import place
from gpuperf.tiles.tiling import sizes_of, tiling_of
from gpuperf.tiles.waves import transpose

LONGEST_S = 1e9  # longest time of a call that is explained, in seconds
LEAST_LOSS = 1e-3  # −log of attained over peak: the causes of a smaller loss have no shares
OPERATIONS_OFF = 0.02  # if more of the model's operations are missing, some were not counted


@dataclass(frozen=True)
class LossBudget:
    """The losses of one record.

    `peak` and `attained` are in FLOP/s (compute) or byte/s (memory), and the `factors` lie between
    them. `memory_share` is the rate of the measured bytes over the bandwidth.
    """

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

    @property
    def overlap(self) -> float:
        """Return how much longer its kernels take in sum than the call, as a share of its time.

        The time of a kernel that starts early (programmatic dependent launch) contains its wait.
        """
        return max(0.0, sum(kernel.share for kernel in self.kernels) - 1)

    def share(self, how: How) -> float | None:
        """Return the share of the loss whose causes are known *how*; None if nothing is lost.

        The difference between counter pass and timed pass is no cause.
        """
        total = -math.log(self.attained / self.peak)
        loss = sum(f.loss for f in self.factors if f.how == how and f.steps != (TIE,))
        return loss / total if total > LEAST_LOSS else None

    @property
    def named(self) -> float | None:
        """Return the share of the loss with measured causes; None if nothing is lost.

        The difference between the passes, and factors above 1, are subtracted as errors; only a
        clock above that of the peak is a true gain.
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
        """Return the factor with the largest loss."""
        return max(self.factors, key=lambda factor: factor.loss)


def explain(record: Record, header: Header) -> LossBudget:
    """Return the loss budget of *record*.

    Raises: UsageError for a record without a time, a cost or a peak; CannotMeasure for a CPU.
    """
    identity = record.case.id
    if header.device.kind == "cpu":
        raise CannotMeasure("this run is from a CPU, and explain needs a GPU", "run it on a GPU")
    samples, cost = record.samples, record.cost
    placed = place(record, header.peaks, header.ceilings)
    if placed is None or samples is None or cost is None:
        reason = record.reason or "the case has no time or no cost"
        raise UsageError(f"{identity} is {record.status}: {reason}", "choose another case")
    if not placed.valid:
        raise UsageError(f"{identity} breaks physics: {placed.caveats[-1].message}", "measure anew")
    peaks, time_s = _basis(record, header), samples.median_s
    if any(moved.channel != "dram" for moved in cost.bytes) or peaks is None:
        why = "; ".join(placed.reasons) or f"no peak of {header.device.name} is known"
        raise UsageError(f"{identity} has no roof: {why}", "`gpuperf calibrate` measures some")
    compute, memory = _bound(record, peaks), peaks.bandwidth
    # An implementation may move many times the compulsory bytes, so its own bytes decide.
    moved = _moved_bytes(record, memory.value * time_s).value if memory else None
    least = {
        "compute": compute[1] / compute[0].rate.value if compute else 0.0,
        "memory": max(cost.dram_bytes, moved or 0.0) / memory.value if memory else 0.0,
    }
    sound = SMALLEST < time_s < LONGEST_S and all(value < LONGEST_S for value in least.values())
    if not sound or not max(least.values()) > 0:
        raise UsageError(f"{identity} has no peak, or impossible numbers", "choose another case")
    if compute and least["compute"] >= least["memory"]:
        budget = _compute(record, header, peaks, compute[0], compute[1])
    else:
        budget = _memory(record, header, peaks)
    through = counted(record).measured
    share = through / time_s / memory.value if memory and through is not None else None
    return replace(budget, memory_share=share, missing=(*budget.missing, *_unknown(record, peaks)))


def _basis(record: Record, header: Header) -> Peaks | None:
    """Return the data sheet if it has the pipe of every matmul, or else measured peaks that do.

    Elementwise work has no rate in most sheets, and is mostly bound by memory.
    """
    cost = record.cost
    matmuls = [flops for flops in cost.flops if flops.kind == "matmul"] if cost else []
    for peaks in (header.peaks, header.ceilings):
        if peaks is not None and all(peaks.ceiling(flops) for flops in matmuls):
            return peaks
    return None


def _unknown(record: Record, peaks: Peaks) -> Iterable[str]:
    for flops in record.cost.flops if record.cost else ():
        if peaks.ceiling(flops) is None:
            yield f"the rate of {flops.kind} operations in {flops.dtype} is unknown"


def _bound(record: Record, peaks: Peaks) -> tuple[Ceiling, float] | None:
    """Return the ceiling of the FLOPs that take longest, and the number of these FLOPs."""
    counts: dict[Ceiling, float] = {}
    for flops in record.cost.flops if record.cost else ():
        ceiling = peaks.ceiling(flops)
        if ceiling is not None and flops.count > 0:
            counts[ceiling] = counts.get(ceiling, 0.0) + flops.count
    return max(counts.items(), key=lambda i: i[1] / i[0].rate.value) if counts else None


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
    # In a call of several kernels, cycles between kernels are the loss `gaps between kernels`.
    in_kernels = None
    if active and elapsed and busy_s:
        in_kernels = elapsed * busy_s / (span_s or busy_s)
    absent |= {TIE} if not active else set()  # without counters there is no counter pass
    done, pipe = _hardware(record, ceiling, flops)
    predicted = _predicted(record, peaks.sm_count)
    ladder = [
        Rung(peak * time_s),
        Rung(_product(peak, span_s)),
        Rung(_product(peak, busy_s)),
        Rung(_product(per_clock, clock_hz, busy_s)),
        Rung(_product(per_clock, in_kernels)),
        Rung(_product(per_clock, active)),
        Rung(_product(per_clock, pipe)),
        Rung(done),
        Rung(flops),
    ]
    if ladder[5].value is None and ladder[3].value and "waves" in predicted:
        busy_share = predicted["waves"] * predicted["sms"] / peaks.sm_count
        ladder[5] = Rung(ladder[3].value * busy_share, "modelled")
    if done is None and "tiles" in predicted and not _are_counted(record, ceiling):
        filled = predicted["tiles"] * predicted.get("depth", 1.0)
        ladder[7] = Rung(flops / filled, "modelled")
    return LossBudget(
        record,
        "compute",
        peak,
        _source(header, peaks, ceiling.rate.condition),
        flops / time_s,
        factors_of("compute", ladder, absent),
        kernel_shares(record, peak, ceiling, per_clock, clock_hz),
        predicted,
        tuple(_missing_compute(record, ladder, ceiling)),
    )


def _memory(record: Record, header: Header, peaks: Peaks) -> LossBudget:
    assert record.cost is not None and peaks.bandwidth is not None  # `explain` requires both
    time_s, span_s, busy_s, absent = _times(record)
    measured = header.ceilings if peaks is header.peaks else None
    best = measured.bandwidth_at(read_share(record.cost)) if measured else None
    peak, least = peaks.bandwidth.value, record.cost.dram_bytes
    moved = _moved_bytes(record, peak * (busy_s or time_s))
    if peaks is not header.peaks:
        absent |= {STEPS["memory"][2]}  # the peak is memory's own best
    ladder = [
        Rung(peak * time_s),
        Rung(_product(peak, span_s)),
        Rung(_product(peak, busy_s)),
        Rung(_product(best, busy_s)),
        moved,
        Rung(least),
    ]
    missing = list(_missing_kernels(record))
    if best is None and peaks is header.peaks:
        why = "the bandwidth of memory was not measured"
        own = header.command[1:2] == ("calibrate",)
        missing.append(f"{why} before this run" if own else f"{why}: run `gpuperf calibrate`")
    if counted(record).unmodelled:
        missing.append("the compulsory bytes are unknown: the case has no model of its bytes")
    elif counted(record).measured is None:
        missing.append("bytes through DRAM were not counted: measure with --counters auto")
    elif moved.value is None:
        missing.append("fewer than the compulsory bytes came from DRAM: cache served the others")
    return LossBudget(
        record,
        "memory",
        peak,
        _source(header, peaks, peaks.bandwidth.condition),
        least / time_s,
        factors_of("memory", ladder, absent),
        kernel_shares(record, peak),
        missing=tuple(missing),
    )


def _moved_bytes(record: Record, most: float) -> Rung:
    """Return the bytes through DRAM: those counted, or else those modelled.

    They are unknown if fewer than the compulsory bytes were counted, or more are modelled than
    *most*, which memory can move in the time: a cache then served part of them.
    """
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
    """Return the primary time, its span, the busy time in it, and the losses that it cannot have.

    A window and a kernel's own record contain no launches. A sustained load counts as one without
    gaps, as its kernels were not traced under load. Span and busy time are None if unknown.
    """
    assert record.samples is not None  # `explain` requires it
    time_s, busy = record.samples.median_s, record.times.get("busy")
    alone = len(record.kernels) == 1 == record.kernels[0].count
    if record.primary in ("busy", "settled") or (record.primary == "window" and alone):
        return time_s, None, time_s, {LAUNCHES, GAPS}
    busy_s = busy.median_s if busy else None
    if record.primary == "window":
        return time_s, time_s, busy_s, {LAUNCHES}
    return time_s, None, busy_s, {GAPS} if alone else set()


def _product(*factors: float | None) -> float | None:
    known = [factor for factor in factors if factor is not None]
    return math.prod(known) if len(known) == len(factors) else None


def _hardware(record: Record, ceiling: Ceiling, flops: float) -> tuple[float | None, float | None]:
    """Return the operations counted on the pipe of *ceiling*, and the pipe's cycles.

    They are None where another pipe did part of the work, or the pipe did other work.
    """
    operations, cycles = (record.counters.get(name) for name in counter_names(ceiling))
    if not operations or operations < (1 - OPERATIONS_OFF) * flops:
        return None, None
    others = [
        record.counters.get(name, 0.0)
        for name in TENSOR
        if ceiling.pipe == "tensor" and name != f"tensor_{ceiling.dtype}"
    ]
    return operations, cycles if max(others, default=0.0) < OPERATIONS_OFF * operations else None


def _are_counted(record: Record, ceiling: Ceiling) -> bool:
    """Return whether the operations of the ceiling's pipe were counted, even if none ran."""
    return counter_names(ceiling)[0] in record.counters


def _predicted(record: Record, sm_count: int) -> dict[str, float]:
    """Return what tiles predict about a matmul; nothing where the orientation of a tile matters and
    is uncertain.

    `tiles`, `waves` and `depth` are the filled parts of the tiles, of the waves on the `sms` that
    clusters leave, and of the K-tiles; `tile_count`, `wave_count` and `steps` their numbers.
    """
    sizes = sizes_of(record)
    if sizes is None or not record.kernels:
        return {}
    tiling, sure, _ = tiling_of([record], sm_count)
    if tiling is None or tiling.streams:
        return {}
    m, n, k = sizes
    if not sure and tiling.tiles(m, n) != transpose(tiling).tiles(m, n):
        return {}
    predicted = {
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
        predicted |= {"depth": tiling.depth_efficiency(k), "steps": steps}
    return predicted


def _source(header: Header, peaks: Peaks, condition: str) -> str:
    origin = "data sheet" if peaks is header.peaks else "measured"
    return f"{origin}, {condition}" if condition else origin


def _missing_kernels(record: Record) -> Iterable[str]:
    if not record.kernels:
        yield "no kernels are recorded: their names and the gaps between them are unknown"


def _missing_compute(record: Record, ladder: Sequence[Rung], ceiling: Ceiling) -> Iterable[str]:
    yield from _missing_kernels(record)
    if ladder[3].value is None:
        yield "the SM clock, the time of its kernels, or the rate per clock is unknown"
    if ladder[7].value is None and _are_counted(record, ceiling):
        yield f"its operations did not all run on the {ceiling.pipe} pipe in {ceiling.dtype}"
    elif ladder[5].value is None or ladder[5].how == "modelled" or ladder[6].value is None:
        operations = "" if ladder[7].how == "measured" and ladder[7].value else " and operations"
        yield f"cycles{operations} were not counted: measure with --counters kernels"
