"""Advise what to change first about the largest loss of a budget, and annotate each loss."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gpuperf.explain.ladder import TIE
from gpuperf.explain.study import LossBudget
from gpuperf.model.counted import counted
from gpuperf.model.record import Record
from gpuperf.tiles.alignment import HARD, alignment_of
from gpuperf.tiles.names import main_kernel, parse_name
from gpuperf.tiles.tiling import sizes_of
from gpuperf.units import DTYPES, format_bytes, format_time, itemsize

SLIGHT = 0.02  # loss over the rate before it, below which there is no advice
FEW_STEPS = 64  # K-tiles of an SM: below it, filling and draining the pipeline takes a visible part
SHORT_S = 30e-6  # in a kernel this short, start and end take about half of the time
FULL_WAVES = 0.9  # share of the waves' places from which on waves count as full
BUSY_MEMORY = 0.5  # share of the bandwidth in use from which on the advice names memory
MUCH = 0.3  # share of the time in other kernels from which on the advice names them
LONGEST_NAME = 60


def advise(budget: LossBudget) -> str:
    """Return what to do about the largest loss."""
    largest = budget.largest
    if largest.value > 1 - SLIGHT:
        return "nothing to gain: each loss is under 2 %"
    if largest.how == "remainder":
        return _advise_remainder(budget)
    return ADVICE[largest.steps[0]](budget)


def _advise_remainder(budget: LossBudget) -> str:
    """Return advice on several losses that cannot be separated, from alignment, waves and time."""
    divides, steps = _divides(budget.record), budget.largest.steps
    if "feeding" in steps and divides is not None and divides < HARD:
        return _feeding(budget)
    if "ramp and tail" in steps and budget.predicted.get("waves", 1.0) < FULL_WAVES:
        return _ramp(budget)
    samples = budget.record.samples
    if "keeping memory busy" in steps and samples is not None and samples.median_s < SHORT_S:
        return _busy_memory(budget)
    why = f": {budget.missing[0]}" if budget.missing else ""
    return f"unknown: {budget.largest.name} cannot be separated{why}"


def note(budget: LossBudget, step: str) -> str:
    """Return what explains the loss *step*, from tiles, waves, alignment and telemetry; or nothing.

    *step* is one of the losses in `STEPS`.
    """
    find = NOTES.get(step)
    return find(budget) if find else ""


def _clock(budget: LossBudget) -> str:
    why = f" ({_throttle(budget.record)})" if _throttle(budget.record) else ""
    return (
        f"the card lowers its clock{why}: only less work, or work that draws less power, runs "
        "faster"
    )


def _ramp(budget: LossBudget) -> str:
    at = budget.predicted
    if not at:
        return (
            "SMs are idle at the start and the end: use more and smaller programs, a persistent "
            "kernel, or more work in one launch"
        )
    tiles, waves = int(at["tile_count"]), int(at["wave_count"])
    if at["waves"] < FULL_WAVES:
        return (
            f"{tiles} tiles of {at['rows']:.0f}×{at['columns']:.0f} fill {at['waves'] * 100:.0f} % "
            f"of {_waves(waves)}: a size at the end of a wave, a smaller tile or split-K uses the "
            "idle SMs (`gpuperf waves` shows the sizes)"
        )
    return (
        f"{_waves(waves)} of tiles is short compared with the start and the end of a kernel: batch "
        "products, or make them larger"
        if waves == 1
        else f"{_waves(waves)} of tiles begin and end at different times on different SMs: fewer, "
        "longer ones, or a persistent kernel, keep them together"
    )


def _feeding(budget: LossBudget) -> str:
    record = budget.record
    others = [kernel for kernel in budget.kernels if kernel.of_peak == 0]
    # Where kernels overlap, a part of their times may be a wait for the others.
    share = sum(kernel.share for kernel in others) - budget.overlap
    if share > MUCH:
        return (
            f"{share * 100:.0f} % of the time is in kernels without these operations, most of it "
            f"in {others[0].name[:LONGEST_NAME]}: fuse them into the kernels that have them"
        )
    divides = _divides(record)
    if divides is not None and divides < HARD:
        dtype = str(record.case.point.get("dtype", ""))
        return (
            f"rows are aligned to {divides} bytes only, so loads are that narrow: pad n and k to "
            f"multiples of {HARD // itemsize(dtype)} elements (`gpuperf alignment --suggest`)"
        )
    steps = budget.predicted.get("steps", 0) * budget.predicted.get("wave_count", 0)
    if 0 < steps < FEW_STEPS:
        return (
            f"an SM has only {steps:.0f} K-tiles for which it fills and drains its pipeline: batch "
            "products, or make them larger"
        )
    busy = budget.memory_share
    if busy is not None and busy > BUSY_MEMORY:
        return (
            f"the pipe waits for memory, which is {busy * 100:.0f} % busy: larger tiles, and a "
            "launch order that reuses L2, need fewer bytes"
        )
    if sizes_of(record) is None:
        return (
            "the pipe waits for its operands, or for the work between its products: load further "
            "ahead, and overlap the two, as warp-specialised kernels do"
        )
    return "the pipe waits for its operands: use more stages or larger tiles, load further ahead"


def _path(budget: LossBudget) -> str:
    name = main_kernel(budget.record)
    named = parse_name(name)
    if named is not None and 0 < named.align * _itemsize(budget.record) < HARD:
        return (
            "its kernel has instructions of an older, slower kind, to which a library falls back "
            "for rows that are not aligned: pad them"
        )
    return (
        "its instructions use only part of the pipe's rate: use larger ones of the newest kind "
        "(wgmma on Hopper), and fewer other instructions between them"
    )


def _padding(budget: LossBudget) -> str:
    at = budget.predicted
    if at and at["tiles"] * at.get("depth", 1.0) < 1 - SLIGHT:
        return (
            f"tiles of {at['rows']:.0f}×{at['columns']:.0f} reach over the edges: sizes that are "
            "their multiples waste nothing"
        )
    return "the hardware does more FLOPs than the model: recomputation, or tiles over the edges"


def _busy_memory(budget: LossBudget) -> str:
    samples = budget.record.samples
    if samples is not None and samples.median_s < SHORT_S:
        least = budget.record.cost.dram_bytes if budget.record.cost else 0
        return (
            f"{format_bytes(least)} take {format_time(least / budget.peak)} at full bandwidth, and "
            "a kernel takes a few microseconds to start and end: batch or fuse small operations"
        )
    return "too few bytes are in flight: use wider loads, more of them ahead, or more programs"


def _extra(budget: LossBudget) -> str:
    figures = counted(budget.record)
    basis, moved = "it moves", figures.measured
    if moved is None:
        basis, moved = "by its model it moves", figures.modelled
    excess = moved / figures.compulsory if moved and figures.compulsory else 1.0
    return (
        f"{basis} {excess:.2g} times the bytes that it must: fuse kernels that pass data through "
        "DRAM, or keep the data in L2"
    )


def _launches(budget: LossBudget) -> str:
    if budget.record.capture_s is not None:
        return "a CUDA graph launches it already: use larger kernels, or several calls in a graph"
    return "the host launches too slowly: use CUDA graphs or larger kernels"


def _gaps(budget: LossBudget) -> str:
    count = sum(kernel.count for kernel in budget.record.kernels)
    graph = "" if budget.record.capture_s is not None else ", or launch them as a CUDA graph"
    return f"{count} kernels with gaps between them: fuse them{graph}"


ADVICE: Mapping[str, Callable[[LossBudget], str]] = {
    "launches": _launches,
    "gaps between kernels": _gaps,
    "clock": _clock,
    TIE: lambda budget: (
        "the counter pass and the timed pass differ: measure again, on an idle machine"
    ),
    "ramp and tail": _ramp,
    "feeding": _feeding,
    "instruction path": _path,
    "padding": _padding,
    "memory's own best": lambda budget: (
        "memory does not reach the bandwidth of its data sheet in any kernel: little is left to "
        "gain"
    ),
    "keeping memory busy": _busy_memory,
    "extra bytes": _extra,
}


def _waves_note(budget: LossBudget) -> str:
    at = budget.predicted
    if not at:
        return ""
    return (
        f"{at['tile_count']:,.0f} tiles on {at['sms']:.0f} usable SMs: "
        f"{_waves(int(at['wave_count']))}, {at['waves'] * 100:.1f} % full"
    )


def _feeding_note(budget: LossBudget) -> str:
    divides = _divides(budget.record)
    at = budget.predicted
    words = [f"rows aligned to {divides} B"] if divides else []
    if "steps" in at:
        words.append(f"{at['steps'] * at['wave_count']:,.0f} K-tiles an SM")
    return ", ".join(words)


def _padding_note(budget: LossBudget) -> str:
    at = budget.predicted
    if not at:
        return ""
    depth = f", K-tiles {at['depth'] * 100:.1f} %" if "depth" in at else ""
    return f"tiles {at['rows']:.0f}×{at['columns']:.0f} are {at['tiles'] * 100:.1f} % filled{depth}"


def _path_note(budget: LossBudget) -> str:
    """Return the kernel's name if there is one kernel: it names the instructions."""
    names = [k.name for k in budget.record.kernels if k.computes]
    if len(names) != 1:
        return ""
    template = re.search(r"<(\w+)>", names[0])
    return template[1] if template else names[0]


def _clock_note(budget: LossBudget) -> str:
    clock = budget.record.samples.clock_hz if budget.record.samples else None
    throttle = _throttle(budget.record)
    return f"{clock / 1e6:,.0f} MHz" + (f", {throttle}" if throttle else "") if clock else ""


def _bytes_note(budget: LossBudget) -> str:
    figures = counted(budget.record)
    if figures.measured is None or not figures.compulsory:
        return ""
    return f"{format_bytes(figures.measured)} measured, {format_bytes(figures.compulsory)} needed"


NOTES: Mapping[str, Callable[[LossBudget], str]] = {
    "clock": _clock_note,
    "ramp and tail": _waves_note,
    "feeding": _feeding_note,
    "instruction path": _path_note,
    "padding": _padding_note,
    "extra bytes": _bytes_note,
}


def _throttle(record: Record) -> str:
    return ", ".join(record.telemetry.throttle)[:LONGEST_NAME] if record.telemetry else ""


def _waves(count: int) -> str:
    return f"{count} wave{'s' if count > 1 else ''}"


def _itemsize(record: Record) -> int:
    dtype = str(record.case.point.get("dtype", ""))
    return itemsize(dtype) if dtype in DTYPES else 0


def _divides(record: Record) -> int | None:
    """Return the bytes to which each row of a matmul is aligned; None for other operations."""
    sizes, dtype = sizes_of(record), str(record.case.point.get("dtype", ""))
    if sizes is None or dtype not in DTYPES:
        return None
    return min(alignment_of(length, dtype) for length in sizes[1:])
