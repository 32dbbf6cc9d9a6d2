"""Determine the cause of a slowdown from a record of base and head, by counters if they have any.

A lower clock, more bytes and more launches are the cause if they account for at least half of the
slowdown, in this order; else another kernel, if the kernels differ; else the lower bandwidth or
compute rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuperf.gate.verdict import Cause
from gpuperf.model.counted import counted
from gpuperf.model.peaks import Peaks
from gpuperf.model.record import Kernel, Record
from gpuperf.roofline.study import Placement, place
from gpuperf.units import format_bytes, format_flop_rate, format_rate

HALF = 0.5  # share of the log slowdown for which a cause must account
LEAST = 0.01  # no cause is determined for a smaller slowdown
LONGEST = 120  # characters of a kernel's name
# Seconds from the end of a kernel to the start of the next in a full queue, on an H200; a record
# whose trace has several kernels measures its own gap.
LAUNCH_GAP_S = 1.2e-6

Figures = dict[str, tuple[Any, Any]]


def cause_of(base: Record, head: Record, peaks: Peaks | None) -> Cause | None:
    """Return the cause of *head*'s slowdown against *base*; None if it is small, or unknown."""
    placed = place(base, peaks, None), place(head, peaks, None)
    if placed[0] is None or placed[1] is None or base.samples is None or head.samples is None:
        return None
    slower = math.log(head.samples.median_s / base.samples.median_s)
    if slower < math.log1p(LEAST):
        return None
    figures = _figures(base, head, (placed[0], placed[1]))
    before, after = (_names(record) for record in (base, head))
    launches = tuple(sum(k.count for k in r.kernels if k.computes) for r in (base, head))
    changed = [f"kernels: {before} → {after}"] if before != after else _relaunched(base, head)
    bytes_share = _share(figures.get("bytes"), slower)
    if _share(figures.get("clock_hz"), slower, falls=True) >= HALF:
        return Cause("lower clock", _sentence(figures, ["clock_hz"], changed), figures)
    if bytes_share >= HALF:
        return Cause("more bytes", _sentence(figures, ["bytes", "launches"], changed), figures)
    if _launch_share(base, head, launches[1] - launches[0]) >= HALF:
        return Cause("more launches", _sentence(figures, ["launches"], changed), figures)
    memory = placed[0].longer == "memory" or not figures.get("flop_per_s")
    kind = "lower bandwidth" if memory else "lower compute rate"
    rate = "byte_per_s" if memory else "flop_per_s"
    if before != after:
        return Cause("another kernel", _sentence(figures, [rate], changed), figures)
    return Cause(kind, _sentence(figures, [rate], changed), figures)


def alike(base: Record, head: Record) -> str:
    """Return a note if both sides launch the same kernels; their arguments may still differ."""
    if not base.kernels or not head.kernels:
        return ""
    if [_launched(k) for k in base.kernels] == [_launched(k) for k in head.kernels]:
        return "same kernels, same launch configuration on both sides"
    return ""


def _figures(base: Record, head: Record, placed: tuple[Placement, Placement]) -> Figures:
    """Return (base, head) of each figure that both sides have and that is not 0."""
    counts = counted(base), counted(head)
    measured = all(count.measured is not None for count in counts)
    moved = [(c.measured if measured else c.modelled) or 0 for c in counts]
    flops = [count.flop_model or 0 for count in counts]
    times = _times(base, head)
    figures: Figures = {
        "bytes": (moved[0], moved[1]),
        "intensity": (flops[0] / moved[0], flops[1] / moved[1]) if all(moved) else (None, None),
        "byte_per_s": (moved[0] / times[0], moved[1] / times[1]),
        "flop_per_s": (placed[0].attained_flop_per_s, placed[1].attained_flop_per_s),
        "mfu": (placed[0].mfu_data_sheet, placed[1].mfu_data_sheet),
        "clock_hz": (_clock(base), _clock(head)),
        "launches": (_launches(base), _launches(head)),
    }
    return {name: both for name, both in figures.items() if all(both)}


def _launches(record: Record) -> int:
    return sum(kernel.count for kernel in record.kernels)


def _times(base: Record, head: Record) -> tuple[float, float]:
    assert base.samples is not None
    assert head.samples is not None
    return base.samples.median_s, head.samples.median_s


def _clock(record: Record) -> float | None:
    return record.samples.clock_hz if record.samples is not None else None


def _share(both: tuple[Any, Any] | None, slower: float, falls: bool = False) -> float:
    """Return the fraction of the log slowdown *slower* for which the growth of a figure, or, with
    *falls*, its decrease from base to head accounts."""
    if both is None:
        return 0.0
    grown = math.log(both[1] / both[0])
    return (-grown if falls else grown) / slower


def _launch_share(base: Record, head: Record, more: int) -> float:
    """Return the fraction of the slowdown for which the gaps of *more* launches account."""
    before_s, after_s = _times(base, head)
    return more * _launch_gap_s(head) / (after_s - before_s)


def _launch_gap_s(record: Record) -> float:
    """Return the mean seconds between two kernels of a call in its trace, else `LAUNCH_GAP_S`."""
    busy, span = record.times.get("busy"), record.times.get("span")
    gaps = _launches(record) - 1
    if busy is None or span is None or gaps < 1:
        return LAUNCH_GAP_S
    return max(0.0, span.median_s - busy.median_s) / gaps


def _sentence(figures: Figures, first: Sequence[str], also: Sequence[str]) -> str:
    """Return the figures that differ as `label before → after`, those of *first* at the front, and
    the sentences *also* after the first figure."""
    ordered = [*first, *(name for name in FORMATS if name not in first)]
    parts = []
    for name in ordered:
        if name in figures:
            label, render = FORMATS[name]
            before, after = map(render, figures[name])
            parts += [f"{label} {before} → {after}"] if before != after else []
    return ", ".join([*parts[:1], *also, *parts[1:]])


FORMATS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "bytes": ("bytes", format_bytes),
    "byte_per_s": ("bandwidth", format_rate),
    "flop_per_s": ("compute rate", format_flop_rate),
    "intensity": ("intensity", lambda v: f"{v:.3g} FLOP/B"),
    "mfu": ("MFU", lambda v: f"{v * 100:.1f} %"),
    "clock_hz": ("clock", lambda v: f"{v / 1e6:.0f} MHz"),
    "launches": ("launches", str),
}


def _names(record: Record) -> str:
    return ", ".join(dict.fromkeys(k.name[:LONGEST] for k in record.kernels))


def _launched(kernel: Kernel) -> tuple[object, ...]:
    launch = kernel.launch
    values = tuple(getattr(launch, name) for name in LAUNCH) if launch is not None else ()
    return (kernel.name, kernel.count, *values)


LAUNCH = ("grid", "block", "cluster", "registers", "shared_bytes")


def _relaunched(base: Record, head: Record) -> list[str]:
    """Return for each kernel what differs in its launch, such as the grid or the registers."""
    sentences = []
    for before, after in zip(base.kernels, head.kernels, strict=False):
        if before.launch is None or after.launch is None or before.launch == after.launch:
            continue
        pairs = [(n, getattr(before.launch, n), getattr(after.launch, n)) for n in LAUNCH]
        parts = [f"{n.replace('_', ' ')} {old} → {new}" for n, old, new in pairs if old != new]
        sentences.append(f"{before.name[:LONGEST]} launched with {', '.join(parts)}")
    return sentences
