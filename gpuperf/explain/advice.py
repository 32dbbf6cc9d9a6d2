"""What is worth changing first? A sentence on the step of the loss budget that costs most."""

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

SLIGHT = 0.02  # of the peak: less than that is no loss worth a word
FEW_STEPS = 64  # K-tiles of an SM, in which filling and draining its pipeline shows
SHORT_S = 30e-6  # a kernel so short is half start and end
FULL_WAVES, BUSY_MEMORY, MUCH = 0.9, 0.5, 0.3  # shares
LONGEST_NAME = 60


def advise(told: LossBudget) -> str:
    """What to do about the largest loss."""
    largest = told.largest
    if largest.value > 1 - SLIGHT:
        return "nothing to gain: each step is within 2 % of what the one before allows"
    if largest.how == "remainder":
        return _untold(told)
    return ADVICE[largest.steps[0]](told)


def _untold(told: LossBudget) -> str:
    """What can be said of steps that are not told apart: what other evidence there is."""
    divides, steps = _divides(told.record), told.largest.steps
    if "feeding" in steps and divides is not None and divides < HARD:
        return _feeding(told)
    if "ramp and tail" in steps and told.predicted.get("waves", 1.0) < FULL_WAVES:
        return _ramp(told)
    samples = told.record.samples
    if "keeping memory busy" in steps and samples is not None and samples.median_s < SHORT_S:
        return _busy_memory(told)
    why = f": {told.missing[0]}" if told.missing else ""
    return f"unknown: {told.largest.name} cannot be told apart{why}"


def note(told: LossBudget, step: str) -> str:
    """What explains *step*, from tiles, waves, alignment, telemetry; empty where nothing does."""
    find = NOTES.get(step)
    return find(told) if find else ""


def _clock(told: LossBudget) -> str:
    why = f" ({_throttle(told.record)})" if _throttle(told.record) else ""
    return (
        f"the card holds its clock down{why}: only less work, or work that takes less power, is "
        "faster"
    )


def _ramp(told: LossBudget) -> str:
    at = told.predicted
    if not at:
        return (
            "SMs stand idle at the start and the end: more and smaller programs, a persistent "
            "kernel, or more work in one launch"
        )
    tiles, waves = int(at["tile_count"]), int(at["wave_count"])
    if at["waves"] < FULL_WAVES:
        return (
            f"{tiles} tiles of {at['rows']:.0f}×{at['columns']:.0f} fill {at['waves'] * 100:.0f} % "
            f"of {_waves(waves)}: a size at the end of a wave, a smaller tile or split-K uses the "
            "SMs that are left (`gpuperf waves`)"
        )
    return (
        f"{_waves(waves)} of tiles is short beside the start and the end of a kernel: batch "
        "products, or make them larger"
        if waves == 1
        else f"{_waves(waves)} of tiles begin and end at different times on different SMs: fewer, "
        "longer ones, or a persistent kernel, keep them together"
    )


def _feeding(told: LossBudget) -> str:
    record = told.record
    others = [kernel for kernel in told.kernels if kernel.of_peak == 0]
    share = sum(kernel.share for kernel in others)
    if share > MUCH:
        return (
            f"{share * 100:.0f} % of the time is in kernels that do none of these operations, most "
            f"in {others[0].name[:LONGEST_NAME]}: fuse them into the ones that do"
        )
    divides = _divides(record)
    if divides is not None and divides < HARD:
        dtype = str(record.case.point.get("dtype", ""))
        return (
            f"rows are aligned to {divides} bytes only, and loads are that narrow: pad n and k to "
            f"multiples of {HARD // itemsize(dtype)} elements (`gpuperf alignment --suggest`)"
        )
    steps = told.predicted.get("steps", 0) * told.predicted.get("wave_count", 0)
    if 0 < steps < FEW_STEPS:
        return (
            f"an SM has {steps:.0f} K-tiles to do, and fills and drains its pipeline for them: "
            "batch products, or make them larger"
        )
    busy = told.memory_share
    if busy is not None and busy > BUSY_MEMORY:
        return (
            f"the pipe waits for memory, which is {busy * 100:.0f} % busy: larger tiles and a "
            "launch order that reuses L2 need fewer bytes"
        )
    if sizes_of(record) is None:
        return (
            "the pipe waits for its operands, or for what is done between its products: loads "
            "further ahead, and the two overlapped, as warp-specialised kernels do"
        )
    return "the pipe waits for its operands: more stages, larger tiles, loads further ahead"


def _path(told: LossBudget) -> str:
    name = main_kernel(told.record)
    named = parse_name(name)
    if named is not None and 0 < named.align * _itemsize(told.record) < HARD:
        return (
            "its kernel's instructions are of an older, slower kind, which a library falls back to "
            "for rows that are not aligned: pad them"
        )
    return (
        "its instructions use only part of the pipe's rate: larger ones of the newest kind (wgmma "
        "on Hopper), or fewer beside them that do not count"
    )


def _padding(told: LossBudget) -> str:
    at = told.predicted
    if at and at["tiles"] * at.get("depth", 1.0) < 1 - SLIGHT:
        return (
            f"tiles of {at['rows']:.0f}×{at['columns']:.0f} reach over the edges: sizes that are "
            "their multiples waste nothing"
        )
    return "the hardware does more than the model asks: recomputation, or tiles over the edges"


def _busy_memory(told: LossBudget) -> str:
    samples = told.record.samples
    if samples is not None and samples.median_s < SHORT_S:
        least = told.record.cost.dram_bytes if told.record.cost else 0
        return (
            f"{format_bytes(least)} take {format_time(least / told.peak)} at full bandwidth, and a "
            "kernel takes some microseconds to start and end: batch or fuse small operations"
        )
    return "too few bytes are in flight: wider loads, more of them ahead, more programs"


def _extra(told: LossBudget) -> str:
    figures = counted(told.record)
    who, moved = "it moves", figures.measured
    if moved is None:
        who, moved = "by its model it moves", figures.modelled
    excess = moved / figures.compulsory if moved and figures.compulsory else 1.0
    return (
        f"{who} {excess:.2g} times the bytes that it must: fuse what writes and reads again, or "
        "keep it in L2"
    )


ADVICE: Mapping[str, Callable[[LossBudget], str]] = {
    "launches": lambda told: "the host launches too slowly: CUDA graphs, or fewer, larger kernels",
    "gaps between kernels": lambda told: (
        f"{sum(k.count for k in told.record.kernels)} kernels with gaps between them: fuse them, "
        "or launch them as a CUDA graph"
    ),
    "clock": _clock,
    TIE: lambda told: (
        "the pass that counted took another time than the one that was timed: measure again, on a "
        "machine with nothing else to do"
    ),
    "ramp and tail": _ramp,
    "feeding": _feeding,
    "instruction path": _path,
    "padding": _padding,
    "memory's own best": lambda told: (
        "memory does not reach its data sheet's bandwidth, whatever is asked of it: little is left "
        "to gain"
    ),
    "keeping memory busy": _busy_memory,
    "extra bytes": _extra,
}


def _waves_note(told: LossBudget) -> str:
    at = told.predicted
    if not at:
        return ""
    return (
        f"{at['tile_count']:,.0f} tiles on {at['sms']:.0f} usable SMs: "
        f"{_waves(int(at['wave_count']))}, {at['waves'] * 100:.1f} % full"
    )


def _feeding_note(told: LossBudget) -> str:
    divides = _divides(told.record)
    at = told.predicted
    words = [f"rows aligned to {divides} B"] if divides else []
    if "steps" in at:
        words.append(f"{at['steps'] * at['wave_count']:,.0f} K-tiles an SM")
    return ", ".join(words)


def _padding_note(told: LossBudget) -> str:
    at = told.predicted
    if not at:
        return ""
    depth = f", K-tiles {at['depth'] * 100:.1f} %" if "depth" in at else ""
    return f"tiles {at['rows']:.0f}×{at['columns']:.0f} are {at['tiles'] * 100:.1f} % filled{depth}"


def _path_note(told: LossBudget) -> str:
    """The kernel, where there is one: its name tells the instructions."""
    names = [k.name for k in told.record.kernels if k.computes]
    template = re.search(r"<(\w+)>", names[0]) if len(names) == 1 else None
    return (template[1] if template else names[0]) if len(names) == 1 else ""


def _clock_note(told: LossBudget) -> str:
    clock = told.record.samples.clock_hz if told.record.samples else None
    throttle = _throttle(told.record)
    return f"{clock / 1e6:,.0f} MHz" + (f", {throttle}" if throttle else "") if clock else ""


def _bytes_note(told: LossBudget) -> str:
    figures = counted(told.record)
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
    """The bytes that every row of a matmul is aligned to; None of what is no matmul."""
    sizes, dtype = sizes_of(record), str(record.case.point.get("dtype", ""))
    if sizes is None or dtype not in DTYPES:
        return None
    return min(alignment_of(length, dtype) for length in sizes[1:])
