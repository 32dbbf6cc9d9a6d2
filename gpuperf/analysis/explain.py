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
from itertools import pairwise
from typing import Literal, NamedTuple

from gpuperf.analysis.counted import counted
from gpuperf.analysis.roofline import place
from gpuperf.analysis.tiling import sizes_of, tiling_of
from gpuperf.errors import UsageError
from gpuperf.model.metrics import NOT_KERNELS
from gpuperf.model.peaks import Ceiling, Peaks
from gpuperf.model.record import Header, Kernel, Record

__all__ = ["STEPS", "TIE", "Explained", "Factor", "How", "KernelShare", "explain"]

How = Literal["measured", "modelled", "remainder"]
Chain = Literal["compute", "memory"]

LARGEST = 1e40  # a stranger's file may hold any number

# What each step is, in the order of its chain.
STEPS: Mapping[Chain, tuple[str, ...]] = {
    "compute": (
        "launches", "gaps between kernels", "clock", "counter pass", "ramp and tail", "feeding",
        "instruction path", "padding",
    ),
    "memory": (
        "launches", "gaps between kernels", "memory's own best", "keeping memory busy",
        "extra bytes",
    ),
}  # fmt: skip
TIE = "counter pass"  # how the pass that counted differs from the one that was timed: no cause


class Rung(NamedTuple):
    """A quantity of the ladder and how it is known; None where it is not."""

    value: float | None
    how: How = "measured"


@dataclass(frozen=True)
class Factor:
    """One step: what is left of the rung before it, and which of `STEPS` it takes at once."""

    steps: tuple[str, ...]
    value: float
    how: How

    @property
    def name(self) -> str:
        """Its steps in words."""
        return ", ".join(self.steps)

    @property
    def loss(self) -> float:
        """−log of the factor: losses add up."""
        return -math.log(self.value)


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
class Explained:
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

    @property
    def named(self) -> float | None:
        """The share of the loss on named causes; None where nothing is lost."""
        total = -math.log(self.attained / self.peak)
        unnamed = sum(abs(f.loss) for f in self.factors if f.how == "remainder" or TIE in f.steps)
        return max(0.0, 1 - unnamed / total) if total > 1e-3 else None

    @property
    def largest(self) -> Factor:
        """The factor that costs most."""
        return max(self.factors, key=lambda factor: factor.loss)


def explain(record: Record, header: Header) -> Explained:
    """Raises: UsageError for what has no time, no cost, no peak, or is of a CPU."""
    identity = record.case.id
    if header.device.kind == "cpu":
        raise UsageError("this run is of a CPU: explain is of kernels of a GPU", "run it on a GPU")
    peaks, samples = header.peaks or header.ceilings, record.samples
    placed = place(record, header.peaks, header.ceilings)
    if placed is None or samples is None or record.cost is None:
        reason = record.reason or "it has no time or no cost"
        raise UsageError(f"{identity} is {record.status}: {reason}", "choose another case")
    if peaks is None:
        raise UsageError(f"no peak of {header.device.name} is known", "`gpuperf calibrate`")
    time_s = samples.median_s
    compute, memory = _bound(record, peaks), peaks.bandwidth
    least = {
        "compute": compute[1] / compute[0].rate.value if compute else 0.0,
        "memory": record.cost.dram_bytes / memory.value if memory else 0.0,
    }
    if not max(least.values()) > 0 or not math.isfinite(time_s):
        raise UsageError(f"no peak is known for {identity}", "; ".join(placed.reasons))
    if compute and least["compute"] >= least["memory"]:
        told = _compute(record, header, peaks, compute[0], compute[1])
    else:
        told = _memory(record, header, peaks)
    moved = counted(record).measured
    share = moved / time_s / memory.value if memory and moved is not None else None
    return replace(told, memory_share=share)


def _bound(record: Record, peaks: Peaks) -> tuple[Ceiling, float] | None:
    """The ceiling over the FLOPs that take longest, and how many they are."""
    found: dict[Ceiling, float] = {}
    for flops in record.cost.flops if record.cost else ():
        ceiling = peaks.ceiling(flops)
        if ceiling is not None and flops.count > 0:
            key = next((c for c in found if c == ceiling), ceiling)
            found[key] = found.get(key, 0.0) + flops.count
    if not found:
        return None
    return max(found.items(), key=lambda item: item[1] / item[0].rate.value)


def _compute(
    record: Record, header: Header, peaks: Peaks, ceiling: Ceiling, flops: float
) -> Explained:
    peak, counters = ceiling.rate.value, record.counters
    time_s, span_s, busy_s = _times(record)
    rate = ceiling.flop_per_clock_per_sm
    per_clock = peaks.sm_count * rate if rate else None
    clock_hz = record.samples.clock_hz if record.samples else None
    elapsed = counters.get("elapsed_cycles")
    in_kernels = elapsed * busy_s / span_s if elapsed and busy_s and span_s else None
    done, pipe = _hardware(record, ceiling, flops)
    predicted = _predicted(record, peaks.sm_count)
    ladder = [
        Rung(peak * time_s), Rung(_times_of(peak, span_s)), Rung(_times_of(peak, busy_s)),
        Rung(_times_of(per_clock, clock_hz, busy_s)), Rung(_times_of(per_clock, in_kernels)),
        Rung(_times_of(per_clock, counters.get("active_cycles"))),
        Rung(_times_of(per_clock, pipe)), Rung(done), Rung(flops),
    ]  # fmt: skip
    if ladder[5].value is None and ladder[3].value and "waves" in predicted:
        ladder[5] = Rung(ladder[3].value * predicted["waves"], "modelled")
    if done is None and "tiles" in predicted:
        filled = predicted["tiles"] * predicted.get("depth", 1.0)
        ladder[7] = Rung(flops / filled, "modelled")
    return Explained(
        record, "compute", peak, _source(header, ceiling.rate.condition), flops / time_s,
        _factors("compute", ladder), _shares(record, peak, ceiling, per_clock, clock_hz),
        predicted, tuple(_missing(record, ladder, "compute")),
    )  # fmt: skip


def _memory(record: Record, header: Header, peaks: Peaks) -> Explained:
    assert record.cost is not None and peaks.bandwidth is not None  # `explain` saw both
    sheet, best = peaks.bandwidth.value, header.ceilings.bandwidth if header.ceilings else None
    time_s, span_s, busy_s = _times(record)
    figures, least = counted(record), record.cost.dram_bytes
    moved = Rung(figures.measured or None)
    if moved.value is None and figures.modelled:
        moved = Rung(figures.modelled, "modelled")
    own = best.value if best and header.peaks else None
    ladder = [
        Rung(sheet * time_s), Rung(_times_of(sheet, span_s)), Rung(_times_of(sheet, busy_s)),
        Rung(_times_of(own, busy_s)), moved, Rung(least),
    ]  # fmt: skip
    return Explained(
        record, "memory", sheet, _source(header, peaks.bandwidth.condition), least / time_s,
        _factors("memory", ladder), _shares(record, sheet),
        missing=tuple(_missing(record, ladder, "memory")),
    )  # fmt: skip


def _factors(chain: Chain, ladder: Sequence[Rung]) -> tuple[Factor, ...]:
    """The steps between rungs that are known. The first and the last one always are."""
    known = [
        (place, rung) for place, rung in enumerate(ladder)
        if rung.value is not None and 0 < rung.value < LARGEST
    ]  # fmt: skip
    found = []
    for (start, above), (end, below) in pairwise(known):
        assert above.value is not None and below.value is not None  # for mypy
        steps = STEPS[chain][start:end]
        if len(steps) > 1:
            steps = tuple(step for step in steps if step != TIE)
        # From a model to the asked work, which is exact, the step is the model's; to any other rung
        # it is also what the model missed.
        last = end == len(ladder) - 1
        how: How = "modelled" if "modelled" in (above.how, below.how) else "measured"
        if len(steps) > 1 or (above.how == "modelled" and not last):
            how = "remainder"
        found.append(Factor(steps, below.value / above.value, how))
    return tuple(found)


def _times(record: Record) -> tuple[float, float | None, float | None]:
    """The time that counts, and of it that of the span and of the kernels, gaps left out."""
    assert record.samples is not None  # `explain` saw it
    time_s = record.samples.median_s
    busy, span = record.times.get("busy"), record.times.get("span")
    if record.primary in ("busy", "window"):
        span_s: float | None = time_s
    else:
        span_s = span.median_s if span else None
    alone = record.primary == "busy" or len(record.kernels) == 1 == record.kernels[0].count
    return time_s, span_s, span_s if alone else busy.median_s if busy else None


def _times_of(*factors: float | None) -> float | None:
    """Their product, where all are known."""
    known = [factor for factor in factors if factor is not None]
    return math.prod(known) if len(known) == len(factors) else None


def _hardware(
    record: Record, ceiling: Ceiling, flops: float
) -> tuple[float | None, float | None]:
    """Operations that were counted on the pipe of *ceiling*, and the pipe's cycles."""
    counters = record.counters
    done, cycles = (counters.get(name) for name in _names(ceiling))
    if not done or done < flops / 2:
        return None, None  # another pipe did the work
    return done, cycles


def _names(ceiling: Ceiling) -> tuple[str, str]:
    """Of the counters of its pipe: operations, and cycles."""
    if ceiling.pipe == "tensor":
        return f"tensor_{ceiling.dtype}", "tensor_cycles"
    return f"{ceiling.dtype}_flops", "fp64_cycles" if ceiling.dtype == "fp64" else "fma_cycles"


def _predicted(record: Record, sm_count: int) -> dict[str, float]:
    """What tiles predict of a matmul: the filled part of tiles, of waves and, where their depth is
    known, of K-tiles; and how many tiles, waves and K-tiles of a tile there are."""
    sizes = sizes_of(record)
    if sizes is None or not record.kernels:
        return {}
    tiling, _, _ = tiling_of([record], sm_count)
    if tiling is None or tiling.streams:
        return {}
    m, n, k = sizes
    found = {
        "tiles": tiling.tile_efficiency(m, n),
        "waves": tiling.tiles(m, n) / (tiling.waves(m, n) * sm_count),
        "tile_count": tiling.tiles(m, n), "wave_count": tiling.waves(m, n),
        "rows": tiling.rows, "columns": tiling.columns, "sms": tiling.sms,
    }  # fmt: skip
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
    names = [kernel for kernel in record.kernels if not kernel.name.startswith(NOT_KERNELS)]
    if len(names) < 2:
        return ()
    time_s, found = _times(record)[0], []
    for kernel in record.kernels:
        seconds, counts = kernel.time_s, kernel.counters
        if not seconds or not 0 < seconds < LARGEST:
            continue
        cycles = counts.get(_names(ceiling)[1]) if ceiling else None
        done = counts.get(_names(ceiling)[0]) if ceiling else _moved(kernel)
        share = KernelShare(
            kernel.name, kernel.count, seconds / time_s,
            done / (seconds * peak) if done is not None else None,
            cycles / (clock_hz * seconds) if cycles and clock_hz else None,
            done / (cycles * per_clock) if cycles and per_clock and done else None,
        )  # fmt: skip
        found.append(share)
    return tuple(sorted(found, key=lambda share: -share.share))


def _moved(kernel: Kernel) -> float | None:
    """Its bytes through DRAM."""
    read, written = (kernel.counters.get(f"dram_{way}_bytes") for way in ("read", "written"))
    return None if read is None or written is None else read + written


def _source(header: Header, condition: str) -> str:
    origin = "data sheet" if header.peaks else "measured"
    return f"{origin}, {condition}" if condition else origin


def _missing(record: Record, ladder: Sequence[Rung], chain: Chain) -> Iterable[str]:
    """What would tell more steps apart."""
    if not record.kernels:
        yield "no kernels are recorded: what is between them, and which they are, is unknown"
    if chain == "memory":
        if ladder[3].value is None:
            yield "the bandwidth that memory reaches was not measured: `gpuperf calibrate`"
        if ladder[4].how == "modelled" or ladder[4].value is None:
            yield "its bytes were not counted: measure with --counters auto"
        return
    if ladder[3].value is None:
        yield "the SM clock, or the rate per clock, is unknown"
    if None in (ladder[5].value, ladder[6].value) or ladder[5].how == "modelled":
        yield "cycles and operations were not counted: measure with --counters kernels"
