"""Choose the points, roofs and words of a roofline chart of a run.

The chart for print and the plot for the terminal draw the same `Scene`. Rates are in FLOP/s and
byte/s. Operations without any FLOPs have no place under a roofline; where a run holds nothing else,
the scene is of bandwidth over bytes per call, under the DRAM roof.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpuperf.errors import UsageError
from gpuperf.model.record import Record, Run
from gpuperf.model.text import shorten
from gpuperf.roofline.caption import PROFILED, profiled, run_roofs
from gpuperf.roofline.rows import Entry, entries_of
from gpuperf.roofline.series import (
    CACHES,
    DRAM,
    KINDS,
    LONGEST,
    Dot,
    Series,
    bytes_known,
    dots_of,
    in_range,
    series_of,
)
from gpuperf.roofline.study import Roof
from gpuperf.roofline.table import byte_rate_unit, flop_unit
from gpuperf.show.axes import Axes, dtype_of
from gpuperf.show.contract import contracts_text
from gpuperf.show.view import HINTS, LACKING, View


@dataclass(frozen=True)
class Scene:
    """The content of a chart. `unit` is (factor, name) of the y axis; a bandwidth scene has only
    memory roofs, drawn level, and `l2_bytes`."""

    kind: Literal["roofline", "bandwidth"]
    title: str
    subtitle: str
    unit: tuple[float, str]
    series: tuple[Series, ...]
    roofs: tuple[Roof, ...]
    missing: str = ""
    l2_bytes: float | None = None
    clocks: dict[str, float] = field(default_factory=dict)
    view: View = "compulsory"

    @property
    def dots(self) -> list[Dot]:
        return [dot for series in self.series for dot in series.dots]

    @property
    def doubts(self) -> tuple[str, ...]:
        """The reasons why points are hollow, each once."""
        return tuple(dict.fromkeys(d for dot in self.dots for d in dot.doubts))

    def clock(self, roof: Roof) -> float | None:
        """Return the clock in hertz that a compute roof is stated at, if known: that of the data
        sheet, or the one that the power limit allows."""
        stated = roof.origin == "data sheet" and roof.kind == "compute"
        return self.clocks.get(roof.label) if stated else roof.clock_hz

    def ridges(self) -> list[tuple[float, float]]:
        """Return (FLOP/byte, FLOP/s) where each compute roof meets the memory roof of the same
        origin, of the measured roofs only where there is no data sheet."""
        for origin in ("data sheet", "measured"):
            own = [r for r in self.roofs if r.origin == origin]
            memory = next((r.value for r in own if r.kind == "memory"), None)
            compute = dict.fromkeys(r.value for r in own if r.kind == "compute")
            if memory and compute:
                return [(value / memory, value) for value in compute]
        return []

    def limits(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the ends of both axes, y in the scene's unit, around all points and roofs."""
        dots, scale = self.dots, self.unit[0]
        starts = [d.start for d in dots if d.start]
        xs = [*(d.x for d in dots), *(x for x, _ in starts)]
        x0, x1 = min(xs) / 2.5, max(xs) * 2.5
        if self.kind == "bandwidth":
            edges = [self.l2_bytes] if self.l2_bytes else []
            x0, x1 = min([x0, *(e / 3 for e in edges)]), max([x1, *(e * 3 for e in edges)])
        for ridge, _ in self.ridges():
            x0, x1 = min(x0, ridge / 4), max(x1, ridge * 4)
        tops = [r.value for r in self.roofs if r.kind == "compute" or self.kind == "bandwidth"]
        tops += [d.high if d.high is not None else d.y for d in dots] + [y for _, y in starts]
        memory = [r.value for r in self.roofs if r.kind == "memory" and self.kind == "roofline"]
        if memory and not any(r.kind == "compute" for r in self.roofs):
            tops.append(max(memory) * max(xs))
        y1 = max(tops) * 1.9
        lowest = min([*(d.low for d in dots), *(y for _, y in starts)])
        y0 = min(lowest / 2, y1 / (40 if self.kind == "roofline" else 12))
        return (x0, x1), (y0 / scale, y1 / scale)

    def ends(self, roof: Roof) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the two ends of *roof*, y in the scene's unit, cut at its ridge and the frame."""
        (x0, x1), (y0, y1) = self.limits()
        value = roof.value / self.unit[0]
        own = [r for r in self.roofs if r.origin == roof.origin]
        if self.kind == "bandwidth":
            return (x0, value), (x1, value)
        if roof.kind == "memory":
            top = max((r.value for r in own if r.kind == "compute"), default=math.inf)
            end = min(x1, top / roof.value, y1 / value)
            start = min(max(x0, y0 / value), end)
            return (start, start * value), (end, end * value)
        every = own if roof.origin != "power limit" else self.roofs
        memory = max((r.value for r in every if r.kind == "memory"), default=None)
        start = min(max(x0, roof.value / memory), x1) if memory else x0
        return (start, value), (x1, value)

    def labelled(self, most: int) -> list[Dot]:
        """Return at most *most* points to label: the fastest of each size and intensity.

        In a hierarchy the points of a size have one height: the right one, of DRAM, is labelled.
        """
        best: dict[tuple[float, str], Dot] = {}
        named = [series for series in self.series if series.level in ("", DRAM)]
        dots = [dot for series in named for dot in series.dots if dot.label]
        for dot in dots:
            key = (dot.x, dot.label)
            if key not in best or dot.y > best[key].y:
                best[key] = dot
        dots = sorted(best.values(), key=lambda d: (d.x, d.y, d.label))
        if len(dots) <= most:
            return dots
        last = len(dots) - 1
        picks = dict.fromkeys(round(i * last / (most - 1)) for i in range(most))
        return [dots[i] for i in picks]


def scene(run: Run, view: View = "compulsory") -> Scene:
    """Return the scene of *run*, its x axis by the bytes of *view*.

    `both` has arrows from the compulsory to the measured bytes, `hierarchy` a point for DRAM, one
    for L2, and one for L1 where the loads go through it.

    Raises: UsageError when nothing in it can be drawn.
    """
    every = entries_of(run)
    shown, roofline = _select(run, every, view)
    axes = Axes([e.record for e in shown], run.header.main)
    series = series_of(shown, axes, roofline, view, run.header.baseline)
    levels = dict.fromkeys(s.level for s in series)
    roofs = _shown_roofs(run, levels, roofline)
    lacks = (_missing(every, shown, roofline, view), _unroofed(levels, roofs))
    l2 = run.header.device.l2_bytes
    return Scene(
        kind="roofline" if roofline else "bandwidth",
        title=chart_title(run, axes, [e.record for e in shown]),
        subtitle=PROFILED
        if profiled(shown)
        else contracts_text([run.header.contract, *run.header.variants]),
        unit=flop_unit(run, every) if roofline else byte_rate_unit(every),
        series=series,
        view=view,
        roofs=roofs,
        missing=", ".join(filter(None, lacks)),
        l2_bytes=None if roofline or not l2 or not in_range(l2) else l2,
        clocks=_clocks(run),
    )


def _select(run: Run, entries: Sequence[Entry], view: View) -> tuple[list[Entry], bool]:
    """Return the records that *view* can draw, and whether in a roofline.

    Raises: UsageError for none.
    """
    placed = [e for e in entries if e.placement]
    if not placed:
        raise UsageError(
            f"run {run.header.run!r} has nothing to draw: no record has a time and a cost",
            f"its records: {_counts(entries)}" if entries else "it has no records",
        )
    flops = [e for e in placed if e.placement and e.placement.attained_flop_per_s > 0]
    compared = bool(run.header.baseline)  # its implementations differ in their bytes
    roofline = bool(flops) and (compared or not _one_intensity(flops))
    shown = flops if flops else placed
    if view == "hierarchy":
        roofline = True
    shown = [e for e in shown if bytes_known(e, view)]
    if not shown:
        raise UsageError(f"run {run.header.run!r} has no {LACKING.get(view, view)}", HINTS[view])
    shown = [e for e in shown if dots_of(e, roofline, view)]
    if not shown:
        raise UsageError(
            f"run {run.header.run!r} has nothing to draw: no record has both bytes and FLOPs "
            "that are known and in range",
            "--format json shows which figures are known",
        )
    return shown, roofline


def _shown_roofs(run: Run, levels: Collection[str], roofline: bool) -> tuple[Roof, ...]:
    lines = run_roofs(run)
    shown = lines if roofline else tuple(r for r in lines if r.kind == "memory")
    return tuple(r for r in (*shown, *_cache_roofs(run, levels)) if in_range(r.value))


def _cache_roofs(run: Run, levels: Collection[str]) -> Iterator[Roof]:
    """Yield the measured bandwidths of the caches among *levels*; data sheets have none."""
    figures = run.header.ceilings.figures if run.header.ceilings else {}
    for level, key in CACHES.items():
        if level in levels and key in figures:
            yield Roof("memory", level, figures[key].value, "measured", figures[key])


def _one_intensity(entries: Sequence[Entry]) -> bool:
    """Whether all sizes have one intensity under the memory roof, where a chart of bandwidth over
    bytes shows more than a roofline."""
    placements = [e.placement for e in entries if e.placement]
    intensities = [p.intensity for p in placements]
    level = max(intensities) < 1.01 * min(intensities)
    return len(entries) > 1 and level and all(p.longer in ("memory", "latency") for p in placements)


def _counts(entries: Iterable[Entry]) -> str:
    counts = Counter(e.record.status for e in entries)
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def _missing(entries: Sequence[Entry], shown: Sequence[Entry], roofline: bool, view: View) -> str:
    drawn = {id(e) for e in shown}
    left = [e for e in entries if id(e) not in drawn]
    counts = Counter(
        e.record.status if e.record.status != "ok" else _lack(e, roofline, view) for e in left
    )
    return ", ".join(f"{count} {why}" for why, count in counts.items())


def _unroofed(levels: Iterable[str], roofs: Sequence[Roof]) -> str:
    known = {roof.label for roof in roofs}
    bare = [level for level in levels if level in CACHES and level not in known]
    return f"the roof of {' and '.join(bare)} (gpuperf calibrate measures it)" if bare else ""


def _lack(entry: Entry, roofline: bool, view: View) -> str:
    if entry.placement is None:
        return "without a time"
    if not bytes_known(entry, view):
        return f"without {LACKING.get(view, view).split(':')[0]}"
    # Where some records have FLOPs, those without are not drawn.
    if not entry.placement.attained_flop_per_s and (roofline or dots_of(entry, roofline, view)):
        return "without FLOPs"
    return "out of range" if entry.counted.bytes_of(KINDS[view]) else "without bytes"


def _clocks(run: Run) -> dict[str, float]:
    """Return the clock that each data-sheet roof is stated at, by its label."""
    ceilings = run.header.peaks.compute if run.header.peaks else ()
    return {f"{c.dtype} {c.pipe}": c.clock_hz for c in ceilings if c.clock_hz}


def chart_title(run: Run, axes: Axes, shown: Sequence[Record]) -> str:
    """Return `matmul on NVIDIA H200: bf16, 128 to 8192`."""
    ops = [shorten(op, LONGEST) for op in axes.ops]
    op = " and ".join(ops) if len(ops) <= 2 else f"{len(ops)} operations"
    dtypes = list(dict.fromkeys(d for r in shown if (d := dtype_of(r))))
    ordered = sorted(shown, key=axes.order) if len(ops) == 1 else []
    sizes = list(dict.fromkeys(axes.brief(r) for r in ordered))
    extent = ""
    if sizes and len(sizes[0]) + len(sizes[-1]) < LONGEST:
        extent = axes.prefix() + (sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}")
    about = ", ".join(filter(None, (" and ".join(dtypes) if len(dtypes) < 4 else "", extent)))
    device = shorten(run.header.device.name, LONGEST)
    return f"{op} on {device}: {about}" if about else f"{op} on {device}"
