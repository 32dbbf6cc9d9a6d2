"""Why is a case slower: more bytes, lower bandwidth, lower compute rate, more launches, lower
clock, or another kernel?

Two records of it, one of each side, with counters where there are any. What accounts for at least
half of the slowdown is its cause; the first of the list that does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from gpuperf.gate.verdict import Cause, Value
from gpuperf.model.counted import counted
from gpuperf.model.peaks import Peaks
from gpuperf.model.record import Kernel, Record
from gpuperf.roofline.study import Placement, place
from gpuperf.units import format_bytes, format_flop_rate, format_rate

HALF = 0.5  # of the slowdown, as logarithms
SEEN = 0.01  # a slowdown below this has no cause to find
LONGEST = 120  # characters of a kernel's name
# Seconds from a kernel's end to the next one's start in a queue that is full, on an H200; a record
# whose trace has several kernels measures its own.
LAUNCH_GAP_S = 1.2e-6

Figures = dict[str, tuple[Value, Value]]


def cause_of(base: Record, head: Record, peaks: Peaks | None) -> Cause | None:
    """What makes *head* slower than *base*, as far as their records tell."""
    placed = place(base, peaks, None), place(head, peaks, None)
    if placed[0] is None or placed[1] is None or base.samples is None or head.samples is None:
        return None
    slower = math.log(head.samples.median_s / base.samples.median_s)
    if slower < math.log1p(SEEN):
        return None
    figures = _figures(base, head, (placed[0], placed[1]))
    before, after = (_names(record) for record in (base, head))
    launches = tuple(sum(k.count for k in r.kernels if k.computes) for r in (base, head))
    changed = [f"kernels: {before} → {after}"] if before != after else _relaunched(base, head)
    bytes_share = _share(figures.get("bytes"), slower)
    if _share(figures.get("clock_hz"), slower, falls=True) >= HALF:
        return Cause("lower clock", _told(figures, ["clock_hz"], changed), figures)
    if bytes_share >= HALF:
        return Cause("more bytes", _told(figures, ["bytes", "launches"], changed), figures)
    if _launch_share(base, head, launches[1] - launches[0]) >= HALF:
        return Cause("more launches", _told(figures, ["launches"], changed), figures)
    memory = placed[0].longer == "memory" or not figures.get("flop_per_s")
    kind = "lower bandwidth" if memory else "lower compute rate"
    rate = "byte_per_s" if memory else "flop_per_s"
    if before != after:
        return Cause("another kernel", _told(figures, [rate], changed), figures)
    return Cause(kind, _told(figures, [rate], changed), figures)


def alike(base: Record, head: Record) -> str:
    """A word on whether both sides launch the same: no verdict, arguments may differ."""
    if not base.kernels or not head.kernels:
        return ""
    if [_launched(k) for k in base.kernels] == [_launched(k) for k in head.kernels]:
        return "same kernels, same launch configuration on both sides"
    return ""


def _figures(base: Record, head: Record, placed: tuple[Placement, Placement]) -> Figures:
    """Before and after, of what both tell."""
    counts = counted(base), counted(head)
    moved = [c.measured for c in counts]
    if None in moved:
        moved = [c.modelled for c in counts]
    operations = [c.flop_model for c in counts]
    found: Figures = {
        "bytes": (moved[0], moved[1]),
        "intensity": _each(lambda i: (operations[i] or 0) / (moved[i] or 0)),
        "byte_per_s": _each(lambda i: (moved[i] or 0) / _time(base, head)[i]),
        "flop_per_s": (placed[0].attained_flop_per_s, placed[1].attained_flop_per_s),
        "mfu": (placed[0].mfu_data_sheet, placed[1].mfu_data_sheet),
        "clock_hz": (_clock(base), _clock(head)),
        "launches": (
            sum(k.count for k in base.kernels) or None,
            sum(k.count for k in head.kernels) or None,
        ),
    }
    return {name: both for name, both in found.items() if all(both)}


def _each(value: object) -> tuple[Value, Value]:
    assert callable(value)
    try:
        return float(value(0)), float(value(1))
    except ZeroDivisionError:
        return None, None


def _time(base: Record, head: Record) -> tuple[float, float]:
    assert base.samples is not None
    assert head.samples is not None
    return base.samples.median_s, head.samples.median_s


def _clock(record: Record) -> float | None:
    return record.samples.clock_hz if record.samples is not None else None


def _share(both: tuple[Value, Value] | None, slower: float, falls: bool = False) -> float:
    """How much of the slowdown a figure that grew (or *falls*) accounts for."""
    if both is None or not isinstance(both[0], int | float) or not isinstance(both[1], int | float):
        return 0.0
    grown = math.log(both[1] / both[0])
    return (-grown if falls else grown) / slower


def _launch_share(base: Record, head: Record, more: int) -> float:
    """How much of the slowdown *more* launches account for, by the gap from kernel to kernel."""
    before_s, after_s = _time(base, head)
    return more * _launch_gap_s(head) / (after_s - before_s)


def _launch_gap_s(record: Record) -> float:
    """The mean gap between two kernels of a call as the trace has it, or `LAUNCH_GAP_S`."""
    busy, span = record.times.get("busy"), record.times.get("span")
    gaps = sum(kernel.count for kernel in record.kernels) - 1
    if busy is None or span is None or gaps < 1:
        return LAUNCH_GAP_S
    return max(0.0, span.median_s - busy.median_s) / gaps


def _told(figures: Mapping[str, tuple[Value, Value]], first: list[str], also: list[str]) -> str:
    """The figures in words, those that name the cause first."""
    ordered = [*first, *(name for name in FORMATS if name not in first)]
    told = [
        (LABELS[name], *(FORMATS[name](value) for value in figures[name]))
        for name in ordered
        if name in figures
    ]
    parts = [f"{name} {before} → {after}" for name, before, after in told if before != after]
    return ", ".join([*parts[:1], *also, *parts[1:]])


FORMATS = {
    "bytes": lambda v: format_bytes(v),
    "byte_per_s": lambda v: format_rate(v),
    "flop_per_s": lambda v: format_flop_rate(v),
    "intensity": lambda v: f"{v:.3g} FLOP/B",
    "mfu": lambda v: f"{v * 100:.1f} %",
    "clock_hz": lambda v: f"{v / 1e6:.0f} MHz",
    "launches": lambda v: f"{v}",
}
LABELS = {
    "bytes": "bytes",
    "byte_per_s": "bandwidth",
    "flop_per_s": "compute rate",
    "intensity": "intensity",
    "mfu": "MFU",
    "clock_hz": "clock",
    "launches": "launches",
}


def _names(record: Record) -> str:
    return ", ".join(dict.fromkeys(k.name[:LONGEST] for k in record.kernels))


def _launched(kernel: Kernel) -> tuple[object, ...]:
    launch = kernel.launch
    if launch is None:
        return (kernel.name, kernel.count)
    return (
        kernel.name,
        kernel.count,
        launch.grid,
        launch.block,
        launch.cluster,
        launch.registers,
        launch.shared_bytes,
    )


def _relaunched(base: Record, head: Record) -> list[str]:
    """How kernels of the same names are launched otherwise."""
    told = []
    for one, other in zip(base.kernels, head.kernels, strict=False):
        if one.launch is None or other.launch is None or one.launch == other.launch:
            continue
        parts = [
            f"{name} {getattr(one.launch, field)} → {getattr(other.launch, field)}"
            for name, field in (
                ("grid", "grid"),
                ("block", "block"),
                ("cluster", "cluster"),
                ("registers", "registers"),
                ("shared bytes", "shared_bytes"),
            )
            if getattr(one.launch, field) != getattr(other.launch, field)
        ]
        told.append(f"{one.name[:LONGEST]} launched with {', '.join(parts)}")
    return told
