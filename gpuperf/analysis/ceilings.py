"""Which roofs do measurements of matmul and copy show?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpuperf.model.contract import Contract, DeviceFacts
from gpuperf.model.cost import Flops
from gpuperf.model.peaks import Ceiling, Figure, Peaks, Pipe
from gpuperf.model.record import Record

__all__ = ["describe_contract", "measured_ceilings", "merge_ceilings"]


def measured_ceilings(
    records: Iterable[Record], device: DeviceFacts, known: Peaks | None
) -> Peaks:
    """The best rate per dtype and the best bandwidth among *records*.

    *known* (the data sheet, if there is one) names the pipe that serves a dtype; without it
    fp32 and fp64 are taken for the vector pipe, and so is everything on a CPU.
    """
    compute: dict[tuple[str, str], Ceiling] = {}
    figures: dict[str, Figure] = {}
    for record in records:
        samples, cost = record.samples, record.cost
        if record.status != "ok" or samples is None or cost is None:
            continue
        condition = f"{describe_contract(record.contract)}, {record.case.id}"
        if cost.flops:
            flops = cost.flops[0]
            rate = Figure(
                cost.flop_count / samples.median_s, "FLOP/s", "measured", "calibrate", condition
            )
            key = (flops.dtype, flops.accumulate)
            if key not in compute or rate.value > compute[key].rate.value:
                pipe = _pipe(flops, device, known)
                compute[key] = Ceiling(pipe, *key, rate, clock_hz=samples.clock_hz)
        else:
            bandwidth = cost.dram_bytes / samples.median_s
            old = figures.get("memory_bandwidth")
            if old is None or bandwidth > old.value:
                figures["memory_bandwidth"] = Figure(
                    bandwidth, "byte/s", "measured", "calibrate", condition
                )
    return Peaks(
        id="measured",
        name=device.name,
        vendor="",
        arch="",
        capability=device.capability,
        names=(device.name,),
        sm_count=device.sm_count,
        compute=tuple(compute.values()),
        figures=figures,
        sm_count_status="measured",
    )


def merge_ceilings(old: Peaks | None, new: Peaks) -> Peaks:
    """*new* beside what *old* knows and *new* does not."""
    if old is None:
        return new
    fresh = {(c.dtype, c.accumulate) for c in new.compute}
    kept = tuple(c for c in old.compute if (c.dtype, c.accumulate) not in fresh)
    return replace(new, compute=kept + new.compute, figures={**old.figures, **new.figures})


def describe_contract(contract: Contract) -> str:
    """How a time was taken, in a few words."""
    gap = f" with {contract.gap_s * 1e3:g} ms gaps" if contract.gap_s else ""
    return (
        f"timer {contract.timer}, {contract.cache} cache, {contract.regime}{gap}, "
        f"{contract.data} data"
    )


def _pipe(flops: Flops, device: DeviceFacts, known: Peaks | None) -> Pipe:
    ceiling = known.ceiling(flops) if known else None
    if ceiling is not None:
        return ceiling.pipe
    if device.kind == "cpu" or flops.dtype in ("fp32", "fp64"):
        return "vector"
    return "tensor"
