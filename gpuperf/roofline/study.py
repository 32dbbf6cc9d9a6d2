"""Place records under the roofline: intensity, attained and attainable rates, limits, MFUs.

The model is Williams, Waterman and Patterson's (CACM 52(4), 2009): an operation takes at least the
time of its bytes through DRAM and at least the time of its FLOPs on the pipe that serves them.
Everything here follows from those two times, so an operation of several kinds of FLOPs needs no
special case, and one without FLOPs (a copy) has a place too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from gpuperf.model.contract import Data
from gpuperf.model.cost import Cost, Flops
from gpuperf.model.counted import cross_check
from gpuperf.model.peaks import Ceiling, Figure, Peaks
from gpuperf.model.record import Caveat, Header, Record
from gpuperf.peaks.bounds import Bound, compute_bound, seconds_at_clock
from gpuperf.peaks.physics import RAISED, breach
from gpuperf.roofline.binding import ABOVE_ROOF, Limiter, busiest
from gpuperf.units import format_number

CHANNELS = {"l2": "L2", "l1": "L1", "link": "the link between GPUs", "host": "the link to the host"}
Origin = Literal["data sheet", "measured", "power limit"]
NO_BYTES = "its bytes through DRAM are unknown"
POWER_CAP = "power cap"  # the reason for throttling, by `measure/telemetry.py`
LEFT = 0.1  # share of the bytes that may stay in the L2, above which the bandwidth seems too high


@dataclass(frozen=True)
class Placement:
    """A record under the roofline, in SI units and fractions; `None` with a reason where unknown.

    `roof` says which ceilings `attainable_flop_per_s`, `fraction` and `longer` refer to. `longer`
    is the resource that the algorithm needs longest, and `limiter` the one that limits this
    implementation. The three MFUs are relative to the rate of the data sheet, that at the SM clock
    observed, and the measured ceiling. `valid` is false if the record breaks physics. `intensity`
    is 0 if no bytes are known.
    """

    intensity: float
    attained_flop_per_s: float
    attained_byte_per_s: float
    roof: Literal["data sheet", "measured", "none"]
    ideal_s: float | None = None
    attainable_flop_per_s: float | None = None
    fraction: float | None = None
    ridge: float | None = None
    longer: Limiter = "unknown"
    limiter: Limiter = "unknown"
    pipe: str = ""
    mfu_data_sheet: float | None = None
    mfu_clock: float | None = None
    mfu_measured: float | None = None
    clock_hz: float | None = None
    reasons: tuple[str, ...] = ()
    caveats: tuple[Caveat, ...] = ()
    valid: bool = True


@dataclass(frozen=True)
class Roof:
    """One line of the chart: `value` in FLOP/s (compute) or byte/s (memory), at `clock_hz` where
    the power limit sets the clock."""

    kind: Literal["compute", "memory"]
    label: str
    value: float
    origin: Origin
    figure: Figure
    dtype: str = ""
    clock_hz: float | None = None


def place(record: Record, peaks: Peaks | None, ceilings: Peaks | None) -> Placement | None:
    """Place *record* under *peaks* (the data sheet), or else under *ceilings* (measured).

    Return `None` where the record has no time or no cost.
    """
    samples, cost = record.samples, record.cost
    if record.status != "ok" or samples is None or cost is None or samples.median_s <= 0:
        return None
    time_s, clock_hz = samples.median_s, samples.clock_hz
    sheet, best = compute_bound(cost, peaks), compute_bound(cost, ceilings)
    # The data sheet, unless it lacks a rate for the cost that the measured ceilings have.
    by_sheet = peaks is not None and (sheet is not None or best is None)
    basis, bound = (peaks, sheet) if by_sheet else (ceilings, best)
    at_clock = seconds_at_clock(cost, peaks, clock_hz)
    placed = Placement(
        intensity=cost.intensity,
        attained_flop_per_s=cost.flop_count / time_s,
        attained_byte_per_s=cost.dram_bytes / time_s,
        roof="none" if basis is None else "data sheet" if by_sheet else "measured",
        pipe=bound.ceiling.pipe if bound else "",
        mfu_data_sheet=sheet.seconds / time_s if sheet else None,
        mfu_clock=at_clock / time_s if at_clock else None,
        mfu_measured=best.seconds / time_s if best else None,
        clock_hz=clock_hz,
        reasons=tuple(_reasons(cost, peaks, ceilings, clock_hz)),
    )
    if _lacks_bytes(record):
        placed = replace(placed, reasons=(*placed.reasons, NO_BYTES))
    elif basis is not None:
        placed = _under(placed, cost, basis, bound, time_s, record.timer.empty_call_s)
        placed = _limited(placed, record, peaks, ceilings)
    measured = basis if not by_sheet else None
    placed = _doubts(placed, cost, measured, peaks, record.contract.data)
    impossible = breach(record, peaks, ceilings)
    more = (*cross_check(record), *([impossible] if impossible else []))
    return replace(placed, caveats=(*placed.caveats, *more), valid=impossible is None)


def _under(
    placed: Placement,
    cost: Cost,
    basis: Peaks,
    bound: Bound | None,
    time_s: float,
    empty_call_s: float,
) -> Placement:
    """Return *placed* with ideal time, attainable rate, fraction, ridge point and limiter."""
    bandwidth = basis.bandwidth
    if bandwidth is None or (bound is None and cost.flops) or _elsewhere(cost):
        return placed
    memory_s = cost.dram_bytes / bandwidth.value
    compute_s = bound.seconds if bound else 0.0
    ideal_s = max(memory_s, compute_s)
    longer: Limiter = "memory"
    if bound is not None and compute_s > memory_s:
        longer = "special function" if bound.ceiling.pipe == "special" else "compute"
    if ideal_s < empty_call_s:
        longer = "latency"
    ridge = cost.flop_count / compute_s / bandwidth.value if compute_s else None
    return replace(
        placed,
        ideal_s=ideal_s,
        attainable_flop_per_s=cost.flop_count / ideal_s if cost.flops and ideal_s else None,
        fraction=ideal_s / time_s,
        ridge=ridge,
        longer=longer,
        limiter=longer,
    )


def _limited(
    placed: Placement, record: Record, peaks: Peaks | None, ceilings: Peaks | None
) -> Placement:
    """Return *placed* with the limiter of the implementation.

    The operators of a profiled step keep the limiters of their algorithms. No call is faster than
    an empty one, so latency stays.
    """
    if placed.longer in ("unknown", "latency") or record.kind not in ("case", "kernel"):
        return placed
    most = busiest(record, peaks, ceilings)
    pipe = most.pipe if most.limiter == "compute" else placed.pipe
    return replace(placed, limiter=most.limiter, pipe=pipe)


def _lacks_bytes(record: Record) -> bool:
    """Whether the bytes of a profiled kernel were not counted; a case has those of its cost."""
    return record.kind == "kernel" and record.cost is not None and not record.cost.bytes


def _elsewhere(cost: Cost) -> tuple[str, ...]:
    """Return the channels other than DRAM that *cost* needs, which have no roof."""
    return tuple(sorted({b.channel for b in cost.bytes if b.channel != "dram"}))


def _reasons(
    cost: Cost, peaks: Peaks | None, ceilings: Peaks | None, clock_hz: float | None
) -> Iterable[str]:
    if peaks is None and ceilings is None and (cost.flops or cost.dram_bytes):
        yield "no ceilings are known for this device; `gpuperf calibrate` measures them"
    for flops in cost.flops:
        for known, name in ((peaks, "data-sheet"), (ceilings, "measured")):
            if known is not None and known.ceiling(flops) is None:
                why = (
                    ""
                    if flops.kind != "special"
                    else (": `gpuperf calibrate --force` measures sine and exponential in fp32")
                )
                yield f"no {name} peak is known for {flops.kind} in {flops.dtype}{why}"
    basis, name = (peaks, "data-sheet") if peaks is not None else (ceilings, "measured")
    if basis is not None and basis.bandwidth is None:
        yield f"no {name} memory bandwidth is known"
    for channel in _elsewhere(cost):
        yield f"no roof is known for its bytes through {CHANNELS.get(channel, channel)}"
    if peaks is not None and not clock_hz:
        yield "the SM clock was not observed"
    elif compute_bound(cost, peaks) and not seconds_at_clock(cost, peaks, clock_hz):
        yield "no rate per clock is known"


def _doubts(
    placed: Placement, cost: Cost, measured: Peaks | None, peaks: Peaks | None, data: Data
) -> Placement:
    """Return *placed* with its caveats; *measured* are its roofs unless a data sheet has them."""
    caveats: list[Caveat] = []
    if measured is not None and placed.fraction is not None and placed.fraction > ABOVE_ROOF:
        caveats.append(
            Caveat(
                "above-roof",
                f"the rate is {placed.fraction * 100:.0f} % of a measured roof: the roof was "
                "measured too low, bytes came from cache, or the cost is overstated",
                "run `gpuperf calibrate` on the idle machine",
            )
        )
    l2 = peaks.figures.get("l2") if peaks else None
    written = sum(b.written for b in cost.bytes if b.channel == "dram")
    if l2 and placed.longer == "memory" and min(written, l2.value) > LEFT * cost.dram_bytes:
        caveats.append(
            Caveat(
                "writes-in-cache",
                f"up to {min(written, l2.value) / 1e6:.3g} MB that the call wrote may still be in "
                "L2, not in DRAM",
                "measure sizes that write many times the L2",
            )
        )
    if data not in ("randn", "own") and placed.mfu_measured is not None and placed.mfu_measured > 1:
        caveats.append(
            Caveat(
                "other-data",
                f"the MFU is {placed.mfu_measured * 100:.0f} % of a roof that was measured with "
                f"random data: {data} draws less power, and so runs at a higher clock",
                "measure with --data randn, as the roofs were",
            )
        )
    bandwidth = peaks.bandwidth if peaks else None
    if bandwidth and placed.attained_byte_per_s > bandwidth.value:
        caveats.append(
            Caveat(
                "cache-resident",
                "the compulsory bytes moved faster than DRAM can: part of them stayed in cache",
                "measure a working set several times the L2, or read this as a cache figure",
            )
        )
    return replace(placed, caveats=tuple(caveats))


def raise_ceilings(
    ceilings: Peaks | None, records: Iterable[Record], peaks: Peaks | None = None
) -> Peaks | None:
    """Return measured *ceilings*, raised to records of the run that beat the calibration.

    A measured roof is the best rate measured, so no point may lie above it. A record that breaks
    physics (by the data sheet in *peaks*) raises nothing, nor does one far above the calibration:
    its cost or the calibration is wrong, and `place` adds a caveat.
    """
    if ceilings is None:
        return None
    raised = list(ceilings.compute)
    for record in records:
        cost, samples = record.cost, record.samples
        if record.status != "ok" or cost is None or len(cost.flops) != 1 or samples is None:
            continue
        if record.contract.data != "randn":  # zeros need less power, and so run faster
            continue
        ceiling = ceilings.ceiling(cost.flops[0])
        rate = cost.flop_count / samples.median_s if samples.median_s > 0 else 0.0
        for i, old in enumerate(raised):
            same = ceiling is not None and _name(old) == _name(ceiling) and old.regime == "burst"
            better = old.rate.value < rate < RAISED * old.rate.value
            if same and better and _is_valid(record, peaks):
                source = f"best of this run: {record.case.id}"
                higher = replace(old.rate, value=rate, source=source, condition="")
                raised[i] = replace(old, rate=higher)
    return replace(ceilings, compute=tuple(raised))


def _is_valid(record: Record, peaks: Peaks | None) -> bool:
    placed = place(record, peaks, None)
    return placed is not None and placed.valid


def _name(ceiling: Ceiling) -> tuple[str, str, str]:
    return (ceiling.pipe, ceiling.dtype, ceiling.accumulate)


def roofs(header: Header, records: Iterable[Record]) -> tuple[Roof, ...]:
    """Return the roofs that the records of one run need: data sheet first, then measured."""
    records = list(records)
    needed: dict[Flops, None] = {}
    for record in records:
        for flops in record.cost.flops if record.cost else ():
            needed[replace(flops, count=0)] = None
    lines: list[Roof] = []
    measured = raise_ceilings(header.ceilings, records, header.peaks)
    origins: tuple[tuple[Peaks | None, Origin], ...] = (
        (header.peaks, "data sheet"),
        (measured, "measured"),
    )
    for peaks, origin in origins:
        if peaks is None:
            continue
        if peaks.bandwidth:
            lines.append(Roof("memory", "DRAM", peaks.bandwidth.value, origin, peaks.bandwidth))
        for ceiling in dict.fromkeys(c for f in needed if (c := peaks.ceiling(f))):
            label = f"{ceiling.dtype} {ceiling.pipe}"
            rate = ceiling.rate
            lines.append(Roof("compute", label, rate.value, origin, rate, ceiling.dtype))
    return (*lines, *power_roofs(header.peaks, records))


def power_roofs(peaks: Peaks | None, records: Iterable[Record]) -> tuple[Roof, ...]:
    """Return the compute roofs at the clocks that the power limit allowed under sustained loads.

    One for each pipe and dtype: at the clock of the record with the highest rate.
    """
    best: dict[Ceiling, tuple[float, Record]] = {}
    for record in records:
        ceiling, samples = _capped(record, peaks), record.samples
        if ceiling is not None and samples is not None and record.cost is not None:
            rate = record.cost.flop_count / samples.median_s
            if rate > best.get(ceiling, (0.0, record))[0]:
                best[ceiling] = (rate, record)
    return tuple(_power_roof(peaks, c, r) for c, (_, r) in best.items() if peaks is not None)


def _capped(record: Record, peaks: Peaks | None) -> Ceiling | None:
    """Return the ceiling of the FLOPs of *record*, if the power limit held its clock down."""
    samples, cost, telemetry = record.samples, record.cost, record.telemetry
    if record.status != "ok" or record.contract.regime != "sustained" or samples is None:
        return None
    if telemetry is None or POWER_CAP not in telemetry.throttle or not samples.clock_hz:
        return None
    bound = compute_bound(cost, peaks) if cost else None
    return bound.ceiling if bound and bound.ceiling.flop_per_clock_per_sm else None


def _power_roof(peaks: Peaks, ceiling: Ceiling, record: Record) -> Roof:
    samples, telemetry = record.samples, record.telemetry
    assert samples is not None
    assert samples.clock_hz
    assert telemetry is not None
    value = peaks.sm_count * (ceiling.flop_per_clock_per_sm or 0.0) * samples.clock_hz
    limit_w = telemetry.power_limit_w
    limit = f"{format_number(limit_w)} W" if limit_w else "the power limit"
    condition = f"at {samples.clock_hz / 1e6:.0f} MHz, which {limit} allows under {record.case.id}"
    figure = Figure(value, "FLOP/s", "derived", "SMs × rate × SM clock observed", condition)
    label = f"{ceiling.dtype} {ceiling.pipe}"
    return Roof("compute", label, value, "power limit", figure, ceiling.dtype, samples.clock_hz)
