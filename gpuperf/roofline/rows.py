"""Reduce a run to one plain row a record, for programs.

All figures are in SI units, with the unit in the name; an unknown figure is `None`, and `unknown`
says why. Every record is a row, whatever its status.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpuperf.model.counted import Counted, counted
from gpuperf.model.gang import RankTimes
from gpuperf.model.noise import next_interval
from gpuperf.model.record import Caveat, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.model.text import clean_value
from gpuperf.roofline.energy import energy_row
from gpuperf.roofline.processes import Reduced, reduced
from gpuperf.roofline.speedup import Speedup, key_of, speedups
from gpuperf.roofline.study import Placement, place, raise_ceilings
from gpuperf.show.axes import dtype_of

DIGITS = 12  # significant digits: more than a measurement has, and equal on every platform


@dataclass(frozen=True)
class Entry:
    """A record with its placement under the roofline and all its caveats.

    In a comparison over several `processes`, the record is the one with the median time, and
    `across_s` the 95 % interval of the time over the processes.
    """

    record: Record
    placement: Placement | None
    caveats: tuple[Caveat, ...]
    speedup: Speedup | None = None
    processes: int = 1
    across_s: tuple[float, float] | None = None

    @property
    def valid(self) -> bool:
        """Whether the record breaks no rule of physics."""
        if self.record.status == "impossible":
            return False
        return self.placement is None or self.placement.valid

    @cached_property
    def counted(self) -> Counted:
        """The bytes and operations of the cost, of the model, and of the hardware's counters."""
        return counted(self.record)

    @property
    def next_s(self) -> tuple[float, float] | None:
        """The 95 % interval of another process's median, where noise between processes is known."""
        noise, time = self.record.noise, self.time
        return next_interval(time, noise) if noise and time and self.processes == 1 else None

    @property
    def time(self) -> Samples | None:
        """The primary time of a record that succeeded."""
        samples = self.record.samples
        return samples if self.record.status == "ok" and samples and samples.size else None


_latest: list[tuple[Run, tuple[Entry, ...]]] = []


def entries_of(run: Run) -> tuple[Entry, ...]:
    """Return each record of *run* with its placement, in the run's order; of a comparison, each
    case over its processes. The entries of the latest run are kept for its table and its chart."""
    if not _latest or _latest[0][0] is not run:
        _latest[:] = [(run, _entries(run, reduced(run)))]
    return _latest[0][1]


def entries_of_records(run: Run) -> tuple[Entry, ...]:
    """Return every record of *run* with its placement; of a comparison too, each process alone."""
    return _entries(run, tuple(Reduced(record) for record in run.records))


def _entries(run: Run, results: tuple[Reduced, ...]) -> tuple[Entry, ...]:
    ceilings = raise_ceilings(run.header.ceilings, run.records, run.header.peaks)
    faster = speedups(run.records, run.header.baseline) if run.header.baseline else {}
    placed = []
    for each in results:
        record = each.record
        placement = place(record, run.header.peaks, ceilings)
        doubts = (*record.caveats, *(placement.caveats if placement else ()))
        speedup = faster.get(key_of(record))
        placed.append(
            Entry(
                record,
                placement,
                tuple(dict.fromkeys(doubts)),
                speedup,
                each.processes,
                each.interval_s,
            )
        )
    return tuple(placed)


def rows(run: Run) -> list[dict[str, Any]]:
    """Return one dict a record with the same keys in each, ready for JSON, without NaN."""
    return [row(entry) for entry in entries_of(run)]


def row(entry: Entry) -> dict[str, Any]:
    """Return the row of one record."""
    values = {
        **_identity(entry),
        **_time(entry.time),
        **_elsewhere(entry),
        **_compared(entry.speedup),
        **_rates(entry),
        **_conditions(entry.record),
    }
    for key, value in values.items():
        if isinstance(value, float):
            values[key] = float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
        elif value is not None and not isinstance(value, int):
            values[key] = clean_value(value)
    return values


def _identity(entry: Entry) -> dict[str, Any]:
    record, case = entry.record, entry.record.case
    return {
        "run": record.run,
        "kind": record.kind,
        "case": case.id,
        "op": case.op,
        "implementation": case.implementation,
        "point": dict(case.point),
        "options": dict(case.options),
        "dtype": dtype_of(record),
        "status": record.status,
        "valid": entry.valid,
        "reason": record.reason,
        "hint": record.hint,
        "caveats": [{"kind": c.kind, "message": c.message, "hint": c.hint} for c in entry.caveats],
    }


def _time(samples: Samples | None) -> dict[str, Any]:
    if samples is None:
        return dict.fromkeys(_TIME_KEYS)
    low, high = samples.interval_s
    alone = samples.size < 2  # one sample has no spread
    values = (
        samples.median_s,
        None if alone else max(low, 0.0),
        None if alone else high,
        None if alone else samples.precision,
        samples.spread,
        samples.size,
        samples.effective_size,
        samples.calls_per_window,
    )
    return dict(zip(_TIME_KEYS, values, strict=True))


def _elsewhere(entry: Entry) -> dict[str, Any]:
    """Return the intervals of the time over the run's processes, and of a further process."""
    across, following = entry.across_s, entry.next_s
    return {
        "processes": entry.processes,
        "time_across_processes_low_s": across[0] if across else None,
        "time_across_processes_high_s": across[1] if across else None,
        "time_next_low_s": following[0] if following else None,
        "time_next_high_s": following[1] if following else None,
    }


def _compared(speedup: Speedup | None) -> dict[str, Any]:
    """Return the speed-up, with its interval within one process or, by other keys, over several."""
    alone, several = (speedup, None) if speedup and speedup.processes == 1 else (None, speedup)
    return {
        "speedup": speedup.value if speedup else None,
        "speedup_low": several.low if several else None,
        "speedup_high": several.high if several else None,
        "speedup_one_process_low": alone.low if alone else None,
        "speedup_one_process_high": alone.high if alone else None,
    }


_TIME_KEYS = (
    "time_s",
    "time_low_s",
    "time_high_s",
    "precision",
    "spread",
    "samples",
    "effective_samples",
    "calls_per_window",
)


def _rates(entry: Entry) -> dict[str, Any]:
    placed, cost, work = entry.placement, entry.record.cost, entry.record.work
    figures, samples = entry.counted, entry.time
    moved, time_s = figures.measured, samples.median_s if samples else 0.0
    # The bytes of a profiled kernel are known only where they were counted.
    known = cost is not None and (bool(cost.bytes) or entry.record.kind != "kernel")
    collective = cost is not None and cost.collective > 0 and time_s > 0
    return {
        "algbw_byte_per_s": cost.collective / time_s if cost and collective else None,
        "busbw_byte_per_s": cost.link_bytes / time_s if cost and collective else None,
        "flop": cost.flop_count if cost else None,
        "bytes_compulsory": cost.dram_bytes if cost and known else None,
        "bytes_modelled": work.dram_bytes if work else None,
        "bytes_measured": figures.measured,
        "bytes_measured_uncertainty": figures.uncertainty,
        "bytes_measured_over_compulsory": figures.excess,
        "bytes_l2": figures.l2,
        "bytes_l1": figures.l1,
        "flop_modelled": work.flop_count if work else None,
        "flop_hardware": figures.flop_hardware,
        "flop_per_s": placed.attained_flop_per_s if placed else None,
        "byte_per_s": placed.attained_byte_per_s if placed and known else None,
        "byte_per_s_measured": moved / time_s if time_s > 0 and moved is not None else None,
        "intensity_flop_per_byte": cost.intensity if cost and known else None,
        "intensity_modelled": figures.intensity("modelled"),
        "intensity_measured": figures.intensity("measured"),
        "roof": placed.roof if placed else None,
        "ideal_s": placed.ideal_s if placed else None,
        "attainable_flop_per_s": placed.attainable_flop_per_s if placed else None,
        "fraction_of_attainable": placed.fraction if placed else None,
        "ridge_flop_per_byte": placed.ridge if placed else None,
        "bound_by": placed.limiter if placed else None,
        "pipe": placed.pipe or None if placed else None,
        "mfu_data_sheet": placed.mfu_data_sheet if placed else None,
        "mfu_clock": placed.mfu_clock if placed else None,
        "mfu_measured": placed.mfu_measured if placed else None,
        "unknown": list(dict.fromkeys(placed.reasons)) if placed else [],
    }


def _own_s(times: RankTimes, record: Record) -> float | None:
    """Return a rank's own median of the primary time."""
    samples = times.times.get(record.primary) if record.primary else None
    return samples.median_s if samples else None


def _conditions(record: Record) -> dict[str, Any]:
    telemetry, contract, samples = record.telemetry, record.contract, record.samples
    return {
        "sm_clock_hz": samples.clock_hz if samples else None,
        "power_w": telemetry.power_w if telemetry else None,
        "power_limit_w": telemetry.power_limit_w if telemetry else None,
        "temperature_c": telemetry.temperature_c if telemetry else None,
        **energy_row(record),
        "throttle": list(telemetry.throttle) if telemetry else [],
        "timer": contract.timer,
        "cache": contract.cache,
        "regime": contract.regime,
        "gap_s": contract.gap_s,
        "data": contract.data,
        "stop": record.stop or None,
        "primary": record.primary or None,
        "times": {
            n: s.median_s
            for n, s in record.times.items()
            if record.status != "impossible" and math.isfinite(s.median_s)
        },
        "noise_within": record.noise.within if record.noise else None,
        "noise_between": record.noise.between if record.noise else None,
        "floor_s": record.timer.floor_s,
        "floor_uncertainty_s": record.timer.floor_uncertainty_s,
        "empty_call_s": record.timer.empty_call_s,
        "build_s": record.build_s,
        "first_call_s": record.first_call_s,
        "capture_s": record.capture_s,
        "calls_until_steady": record.calls_until_steady,
        "check_error": record.check.error if record.check else None,
        "check_tolerance": record.check.tolerance if record.check else None,
        "memory_inputs_bytes": record.memory.inputs_bytes if record.memory else None,
        "memory_call_bytes": record.memory.call_bytes if record.memory else None,
        "memory_peak_bytes": record.memory.peak_bytes if record.memory else None,
        "chosen": dict(record.chosen),
        "readings": dict(record.readings),
        "kernels_per_call": sum(k.count for k in record.kernels) or None,
        "kernels": [
            {"name": k.name, "count": k.count, "counters": dict(k.counters)} for k in record.kernels
        ],
        "counters": dict(record.counters),
        "seed": record.seed,
        "pass": record.pass_index,
        "rank": record.rank,
        "world": record.world,
        "ranks": {str(r.rank): _own_s(r, record) for r in record.ranks},
        "started": record.started or None,
    }
