"""Derive the ceilings of a device from measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from gpuperf.model.contract import Contract, DeviceFacts
from gpuperf.model.cost import Flops
from gpuperf.model.peaks import READ_SHARES, Ceiling, Figure, Peaks, Pipe, Sureness
from gpuperf.model.record import Record
from gpuperf.model.samples import Samples

# The figure that an operation measures, and the channel of its bytes.
BANDWIDTHS: Mapping[str, tuple[str, Literal["dram", "l2", "l1", "link", "host"]]] = {
    "copy": ("copy_bandwidth", "dram"),
    "read": ("read_bandwidth", "dram"),
    "write": ("write_bandwidth", "dram"),
    "triad": ("triad_bandwidth", "dram"),
    "l2": ("l2_bandwidth", "l2"),
    "l1": ("l1_bandwidth", "l1"),
    "h2d": ("h2d_bandwidth", "host"),
    "d2h": ("d2h_bandwidth", "host"),
}

# Caveats of a measurement beside other work: its ceilings are uncertain, and bound no result.
SPOILING = ("contended", "shared")


def measured_ceilings(records: Iterable[Record], device: DeviceFacts, known: Peaks | None) -> Peaks:
    """Return the best rate for each pipe, dtype and regime, and the best bandwidths of *records*.

    *known*, the data sheet, names the pipe of a dtype. Without it, fp32, fp64 and everything on a
    CPU count as the vector pipe.
    """
    compute: dict[_Key, Ceiling] = {}
    figures: dict[str, Figure] = {}
    for record in records:
        samples, cost = record.samples, record.cost
        if record.status != "ok" or samples is None or cost is None:
            continue
        alone = not any(caveat.kind in SPOILING for caveat in record.caveats)
        sure: Sureness = "measured" if alone else "uncertain"
        condition = f"{describe_contract(record.contract)}, {record.case.id}"
        if record.case.op in BANDWIDTHS:
            name, channel = BANDWIDTHS[record.case.op]
            moved = sum(b.read + b.written for b in cost.bytes if b.channel == channel)
            figure = _rate(moved, samples, "byte/s", condition, sure)
            if name not in figures or figure.value > figures[name].value:
                figures[name] = figure
            _note_launch(record, figures, condition)
        elif len(cost.flops) == 1:
            flops, regime = cost.flops[0], record.contract.regime
            rate = _rate(flops.count, samples, "FLOP/s", condition, sure)
            function, accurate = _function(record, flops)
            ceiling = Ceiling(
                _pipe(flops, device, known),
                flops.dtype,
                flops.accumulate,
                rate,
                samples.clock_hz,
                regime=regime,
                function=function,
                accurate=accurate,
            )
            key = _key(ceiling)
            if key not in compute or rate.value > compute[key].rate.value:
                compute[key] = ceiling
    bandwidths = [figures[name] for name in READ_SHARES if name in figures]
    best = max(bandwidths, key=lambda figure: figure.value, default=None)
    return Peaks(
        id="measured",
        name=device.name,
        vendor="",
        arch="",
        capability=device.capability,
        names=(device.name,),
        sm_count=device.sm_count,
        compute=tuple(compute.values()),
        figures={"memory_bandwidth": best, **figures} if best else figures,
        sm_count_status="measured",
    )


def _rate(
    amount: int, samples: Samples, unit: str, condition: str, sure: Sureness = "measured"
) -> Figure:
    """Return *amount* over the median, the slowest tenth and the fastest tenth of the samples."""
    slow, fast = samples.quantile_s(0.9), samples.quantile_s(0.1)
    return Figure(
        amount / samples.median_s,
        unit,
        sure,
        "calibrate",
        condition,
        p10=amount / slow,
        p90=amount / fast,
    )


def _note_launch(record: Record, figures: dict[str, Figure], condition: str) -> None:
    """Store the record's wall time of a call in a loop in *figures* if it is the shortest so far.

    This is the time that the host takes for a launch.
    """
    wall = record.times.get("wall")
    if wall is None:
        return
    figure = Figure(
        wall.median_s,
        "s",
        "measured",
        "calibrate",
        f"back to back, {condition}",
        p10=wall.quantile_s(0.1),
        p90=wall.quantile_s(0.9),
    )
    old = figures.get("launch_latency")
    if old is None or figure.value < old.value:
        figures["launch_latency"] = figure


def merge_ceilings(old: Peaks | None, new: Peaks) -> Peaks:
    """Return *new* with the ceilings of *old* that it lacks. A ceiling of one special function
    replaces that of all functions, which older versions measured."""
    if old is None:
        return new
    renewed = {_key(c) for c in new.compute}
    by_function = any(c.function for c in new.compute)
    rest = tuple(
        c
        for c in old.compute
        if _key(c) not in renewed and not (by_function and c.pipe == "special" and not c.function)
    )
    return replace(new, compute=rest + new.compute, figures={**old.figures, **new.figures})


_Key = tuple[str, str, str, str, str, bool]


def _key(ceiling: Ceiling) -> _Key:
    return (
        ceiling.pipe,
        ceiling.dtype,
        ceiling.accumulate,
        ceiling.regime,
        ceiling.function,
        ceiling.accurate,
    )


def _function(record: Record, flops: Flops) -> tuple[str, bool]:
    """Return the special function that *record* measured, and whether it is the accurate one of
    CUDA's library. Older records name the function by an axis only."""
    if flops.kind != "special":
        return "", False
    function = flops.function or str(record.case.point.get("function", ""))
    return function, bool(function) and record.case.implementation == "cuda"


def describe_contract(contract: Contract) -> str:
    """Summarize *contract* in a few words."""
    burst = contract.regime == "burst"
    gap = f" with {contract.gap_s * 1e3:g} ms gaps" if contract.gap_s and burst else ""
    return (
        f"timer {contract.timer}, {contract.cache} cache, {contract.regime}{gap}, "
        f"{contract.data} data"
    )


def _pipe(flops: Flops, device: DeviceFacts, known: Peaks | None) -> Pipe:
    if flops.kind != "matmul":
        return "special" if flops.kind == "special" else "vector"
    ceiling = known.ceiling(flops) if known else None
    if ceiling is not None:
        return ceiling.pipe
    if device.kind == "cpu" or flops.dtype in ("fp32", "fp64"):
        return "vector"
    return "tensor"
