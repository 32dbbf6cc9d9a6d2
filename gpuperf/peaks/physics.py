"""Detect measurements that break physics, so that a workload cannot pass with an impossible time.

A case that breaks a rule gets the status `impossible`: its result, its cost or its time is wrong,
and its time is not shown. The rules do not trust the measured process. They forbid

- more FLOPs than the SMs can do at the observed clock;
- compulsory bytes that move faster than DRAM can, after the caches were flushed;
- fewer bytes read from DRAM, by the hardware's counters, than the inputs have, or a quarter of them
  where the implementation declares that it has quantized them before the call;
- more counted bytes than the memory can move in the time;
- FLOPs far above a measured roof, if no data sheet is known.
"""

from __future__ import annotations

from dataclasses import replace

from gpuperf.model.cost import Cost, Work
from gpuperf.model.counted import breaks_bus
from gpuperf.model.peaks import Figure, Peaks
from gpuperf.model.record import Caveat, Record
from gpuperf.peaks.bounds import compute_bound, seconds_at_clock
from gpuperf.units import format_bytes, format_rate, format_time

MARGIN = 0.02  # error of the clock, the timer and a data sheet together
RAISED = 1.5  # factor by which a measured roof or an uncertain figure may be too low
READ = 0.9  # share of the compulsory reads that counters always show
LEAST_CODE = 0.25  # of the bytes of a weight: 4 of 16 bits

HINT = (
    "check that each call computes its result anew from its inputs, and that the cost of the "
    "workload is not too high"
)


def check_physics(record: Record, peaks: Peaks | None, ceilings: Peaks | None) -> Record:
    """Return *record*, with the status `impossible` if it breaks physics under the data sheet
    *peaks* or the measured *ceilings*."""
    if record.kind != "case":
        return record
    caveat = breach(record, peaks, ceilings)
    if caveat is None:
        return record
    return replace(record, status="impossible", reason=caveat.message, hint=caveat.hint)


def breach(record: Record, peaks: Peaks | None, ceilings: Peaks | None) -> Caveat | None:
    """Return a caveat for the first rule that *record* breaks, or `None`."""
    samples, cost = record.samples, record.cost
    if record.status != "ok" or samples is None or cost is None or not samples.median_s > 0:
        return None
    time_s = samples.median_s
    caveat = _above_clock(cost, peaks, time_s, samples.clock_hz) or breaks_bus(record, peaks)
    if record.kind == "case" and caveat is None and _is_cold(record):
        caveat = _above_bandwidth(record, peaks, ceilings, time_s) or _reads_too_little(record)
    if record.kind == "case" and caveat is None:
        caveat = _above_measured(cost, peaks, ceilings, time_s)
    return caveat


def _is_cold(record: Record) -> bool:
    """Whether the caches were flushed before every call."""
    contract, samples = record.contract, record.samples
    cold = contract.cache in ("cold", "cold-dirty") and contract.regime == "burst"
    return cold and samples is not None and samples.calls_per_window == 1


def _above_clock(
    cost: Cost, peaks: Peaks | None, time_s: float, clock_hz: float | None
) -> Caveat | None:
    least_s = seconds_at_clock(cost, peaks, clock_hz)
    if peaks is None or clock_hz is None or not least_s:
        return None
    rates = [c.rate for f in cost.flops if (c := peaks.ceiling(f)) is not None]
    if least_s <= max(map(_most, rates)) * time_s:
        return None
    return Caveat(
        "impossible",
        f"its FLOPs in {format_time(time_s)} are {least_s / time_s:.2f} times what "
        f"{peaks.sm_count} SMs do at the observed clock of {clock_hz / 1e6:.0f} MHz",
        HINT,
    )


def _above_bandwidth(
    record: Record, peaks: Peaks | None, ceilings: Peaks | None, time_s: float
) -> Caveat | None:
    """Check compulsory bytes after a flush; written bytes may stay in the last cache."""
    known = peaks is not None and peaks.bandwidth is not None
    basis = peaks if known else ceilings
    bandwidth = basis.bandwidth if basis else None
    if basis is None or bandwidth is None or (not known and bandwidth.status != "measured"):
        return None
    read, written = _compulsory(record)
    caches = [basis.figures[name].value for name in ("l2", "llc") if name in basis.figures]
    moved = read + (max(0.0, written - max(caches)) if caches else 0.0)
    rate = moved / time_s
    if rate <= _most(bandwidth) * bandwidth.value:
        return None
    kind = "measured" if bandwidth.status == "measured" else "data sheet's"
    return Caveat(
        "impossible",
        f"its compulsory {format_bytes(moved)} through DRAM in {format_time(time_s)} are "
        f"{format_rate(rate)}, {rate / bandwidth.value:.2f} times the {kind} "
        f"{format_rate(bandwidth.value)}",
        HINT,
    )


def _most(figure: Figure) -> float:
    """Return the highest ratio of a correct measurement to *figure*, which may be too low."""
    return 1 + MARGIN if figure.status in ("verified", "derived") else RAISED


def _reads_too_little(record: Record) -> Caveat | None:
    measured = record.counters.get("dram_read_bytes")
    read, _ = _compulsory(record)
    if measured is None:
        return None
    uncertainty = record.counters.get("dram_uncertainty_bytes", 0.0)
    if measured + uncertainty >= READ * read:
        return None
    return Caveat(
        "impossible",
        f"the call did not read its inputs: {format_bytes(max(measured, 0.0))} came from DRAM by "
        f"the hardware's counters, and a call after a flush must read {format_bytes(read)}",
        HINT,
    )


def _above_measured(
    cost: Cost, peaks: Peaks | None, ceilings: Peaks | None, time_s: float
) -> Caveat | None:
    """Check FLOPs whose peak is in no data sheet. Roofs of another dtype and of special functions,
    which a polynomial may replace, are not bounds, nor are uncertain ones, which were measured
    beside other load."""
    if peaks is not None and compute_bound(cost, peaks) is not None:
        return None
    matmuls = Cost(tuple(f for f in cost.flops if f.kind != "special"))
    known = [ceilings.ceiling(f) for f in matmuls.flops] if ceilings else []
    exact = all(
        c is not None and c.dtype == f.dtype and c.rate.status == "measured"
        for c, f in zip(known, matmuls.flops, strict=False)
    )
    bound = compute_bound(matmuls, ceilings) if exact else None
    if bound is None or bound.seconds <= RAISED * time_s:
        return None
    return Caveat(
        "impossible",
        f"its FLOPs in {format_time(time_s)} are {bound.seconds / time_s:.3g} times the measured "
        f"roof of {bound.ceiling.label}",
        f"{HINT}; or measure the roof anew: `gpuperf calibrate --force`",
    )


def _compulsory(record: Record) -> tuple[float, float]:
    """Return the bytes that a call must read from DRAM and must write to it: those of the cost, or
    fewer reads that the implementation declares as its work."""
    read, written = _through_dram(record.cost)
    declared, _ = _through_dram(record.work)
    if 0 < declared < read:  # codes of its weights
        read = max(declared, read * LEAST_CODE)
    return read, written


def _through_dram(model: Cost | Work | None) -> tuple[float, float]:
    moved = [b for b in model.bytes if b.channel == "dram"] if model else []
    return float(sum(b.read for b in moved)), float(sum(b.written for b in moved))
