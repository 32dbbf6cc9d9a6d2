"""Which points, roofs and words does a roofline chart of a run show?

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

from gpuperf.analysis.counted import LITTLE, Intensity
from gpuperf.analysis.roofline import Roof
from gpuperf.errors import UsageError
from gpuperf.model.contract import Contract
from gpuperf.model.record import Run
from gpuperf.report.axes import Axes, dtype_of, implementation_of
from gpuperf.report.caption import PROFILED, contracts_text, profiled, run_roofs
from gpuperf.report.rows import Entry, entries
from gpuperf.report.sheet import byte_rate_unit, flop_unit
from gpuperf.report.text import clean, shorten
from gpuperf.report.view import HINTS, LACKING, View

__all__ = ["INVALID", "Dot", "Scene", "Series", "scene"]

LONGEST = 44  # characters of a series' name

# The bytes that a view draws, of DRAM.
KINDS: dict[View, Intensity] = {
    "compulsory": "compulsory", "modelled": "modelled", "measured": "measured",
    "both": "measured", "hierarchy": "measured",
}  # fmt: skip

# Of a hierarchy: what a byte figure of a level is called.
LEVELS: dict[str, Intensity] = {"DRAM": "measured", "L2": "l2", "L1": "l1"}
CACHES = {"L2": "l2_bandwidth", "L1": "l1_bandwidth"}  # and what `calibrate` calls their roofs

INVALID = "invalid (beyond physics)"

# Caveats that make a point say something else than "so fast is this on this device".
_DOUBTS = ("cache-resident",)


@dataclass(frozen=True)
class Dot:
    """One record: where it lies, its 95 % interval upwards and down, and why it is doubtful.

    `start` is where an arrow to it begins, on the x axis, if one is drawn.
    """

    x: float
    y: float
    low: float
    high: float | None
    label: str
    doubts: tuple[str, ...] = ()
    start: float | None = None


@dataclass(frozen=True)
class Series:
    """The records of one implementation in one dtype under one contract, in order of size; of a
    hierarchy by their bytes through `level`."""

    label: str
    dots: tuple[Dot, ...]
    joined: bool = True
    level: str = ""

    def stretches(self) -> Iterator[list[Dot]]:
        """The points to join: a point that breaks physics joins nothing."""
        if not self.joined:
            return
        part: list[Dot] = []
        for dot in self.dots:
            if INVALID not in dot.doubts:
                part.append(dot)
            elif part:
                yield part
                part = []
        if part:
            yield part


@dataclass(frozen=True)
class Scene:
    """What to draw. `unit` is (factor, name) of the y axis; a bandwidth scene has only `l2_bytes`
    and memory roofs, drawn level."""

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
        """All points."""
        return [dot for series in self.series for dot in series.dots]

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why points are hollow, each reason once."""
        return tuple(dict.fromkeys(d for dot in self.dots for d in dot.doubts))

    def clock(self, roof: Roof) -> float | None:
        """The clock in hertz that a data-sheet compute roof is stated at, if known."""
        stated = roof.origin == "data sheet" and roof.kind == "compute"
        return self.clocks.get(roof.label) if stated else None

    def ridges(self) -> list[tuple[float, float]]:
        """(FLOP/byte, FLOP/s) where each compute roof meets the memory roof of the same origin;
        of the measured roofs only where there is no data sheet."""
        for origin in ("data sheet", "measured"):
            own = [r for r in self.roofs if r.origin == origin]
            memory = next((r.value for r in own if r.kind == "memory"), None)
            compute = dict.fromkeys(r.value for r in own if r.kind == "compute")
            if memory and compute:
                return [(value / memory, value) for value in compute]
        return []

    def limits(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The ends of both axes, y in the scene's unit: points and roofs fill the frame."""
        dots, scale = self.dots, self.unit[0]
        xs = [x for d in dots for x in (d.x, d.start) if x is not None]
        x0, x1 = min(xs) / 2.5, max(xs) * 2.5
        if self.kind == "bandwidth":
            edges = [self.l2_bytes] if self.l2_bytes else []
            x0, x1 = min([x0, *(e / 3 for e in edges)]), max([x1, *(e * 3 for e in edges)])
        for ridge, _ in self.ridges():
            x0, x1 = min(x0, ridge / 4), max(x1, ridge * 4)
        tops = [r.value for r in self.roofs if r.kind == "compute" or self.kind == "bandwidth"]
        tops += [d.high if d.high is not None else d.y for d in dots]
        memory = [r.value for r in self.roofs if r.kind == "memory" and self.kind == "roofline"]
        if memory and not any(r.kind == "compute" for r in self.roofs):
            tops.append(max(memory) * max(xs))
        y1 = max(tops) * 1.9
        y0 = min(min(d.low for d in dots) / 2, y1 / (40 if self.kind == "roofline" else 12))
        return (x0, x1), (y0 / scale, y1 / scale)

    def ends(self, roof: Roof) -> tuple[tuple[float, float], tuple[float, float]]:
        """The two ends of *roof*, y in the scene's unit, cut at its ridge and at the frame."""
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
        memory = max((r.value for r in own if r.kind == "memory"), default=None)
        start = min(max(x0, roof.value / memory), x1) if memory else x0
        return (start, value), (x1, value)

    def labelled(self, most: int) -> list[Dot]:
        """The points to label: of those with one size and intensity the fastest, at most *most*.

        In a hierarchy a size has points at one height: that of DRAM, right, has the label."""
        best: dict[tuple[float, str], Dot] = {}
        named = [series for series in self.series if series.level in ("", "DRAM")]
        dots = [dot for series in named for dot in series.dots]
        for dot in dots:
            key = (dot.x, dot.label)
            if key not in best or dot.y > best[key].y:
                best[key] = dot
        kept = sorted(best.values(), key=lambda d: (d.x, d.y, d.label))
        if len(kept) <= most:
            return kept
        last = len(kept) - 1
        picks = dict.fromkeys(round(i * last / (most - 1)) for i in range(most))
        return [kept[i] for i in picks]


def scene(run: Run, view: View = "compulsory") -> Scene:
    """The scene of *run*, its x axis by the bytes of *view*: `both` has arrows from the compulsory
    to the measured, `hierarchy` a point for DRAM, one for L2, and one for L1 where the loads go
    through it.

    Raises: UsageError when nothing in it can be drawn.
    """
    found = entries(run)
    placed = [e for e in found if e.placement]
    if not placed:
        raise UsageError(
            f"run {clean(run.header.run)!r} has nothing to draw: no record has a time and a cost",
            f"its records: {_counts(found)}" if found else "it has no records",
        )
    flops = [e for e in placed if e.placement and e.placement.attained_flop_per_s > 0]
    roofline = bool(flops) and not _one_intensity(flops)
    shown = flops if flops else placed
    if view == "hierarchy":
        roofline = True
    shown = [e for e in shown if _has(e, view)]
    if not shown:
        raise UsageError(
            f"run {clean(run.header.run)!r} has no {LACKING.get(view, view)}",
            HINTS[view],
        )  # fmt: skip
    axes = Axes([e.record for e in shown])
    series = _series(shown, axes, roofline, view)
    if not series:
        raise UsageError(
            f"run {clean(run.header.run)!r} has nothing to draw: of no record both bytes and FLOPs "
            "are known",
            "--format json has what is known",
        )
    levels = dict.fromkeys(s.level for s in series)
    roofs = _shown_roofs(run, levels, roofline)
    return Scene(
        kind="roofline" if roofline else "bandwidth",
        title=_title(run, axes, shown),
        subtitle=PROFILED
        if profiled(shown)
        else contracts_text([run.header.contract, *run.header.variants]),
        unit=flop_unit(run, found) if roofline else byte_rate_unit(found),
        series=series,
        view=view,
        roofs=roofs,
        missing=", ".join(filter(None, (_missing(found, shown, view), _unroofed(levels, roofs)))),
        l2_bytes=None if roofline else run.header.device.l2_bytes,
        clocks=_clocks(run),
    )


def _has(entry: Entry, view: View) -> bool:
    """Whether the bytes of *view* are known of *entry*."""
    figures = entry.counted
    if view == "compulsory":
        return True
    if view == "modelled":
        return figures.modelled is not None
    if view == "hierarchy" and not figures.l2:
        return False
    return bool(figures.measured and figures.measured > LITTLE)


def _shown_roofs(run: Run, levels: Collection[str], roofline: bool) -> tuple[Roof, ...]:
    lines = run_roofs(run)
    shown = lines if roofline else tuple(r for r in lines if r.kind == "memory")
    return (*shown, *_cache_roofs(run, levels))


def _cache_roofs(run: Run, levels: Collection[str]) -> Iterator[Roof]:
    """The bandwidths of the caches among *levels* as they were measured: data sheets give none."""
    figures = run.header.ceilings.figures if run.header.ceilings else {}
    for level, key in CACHES.items():
        if level in levels and key in figures:
            yield Roof("memory", level, figures[key].value, "measured", figures[key])


def _one_intensity(found: Sequence[Entry]) -> bool:
    """Whether every size lies on one vertical under the memory roof: a roofline tells little then,
    and bandwidth against bytes tells it all."""
    placements = [e.placement for e in found if e.placement]
    intensities = [p.intensity for p in placements]
    level = max(intensities) < 1.01 * min(intensities)
    return len(found) > 1 and level and all(p.limiter in ("memory", "latency") for p in placements)


def _counts(found: Iterable[Entry]) -> str:
    counts = Counter(e.record.status for e in found)
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def _missing(found: Sequence[Entry], shown: Sequence[Entry], view: View) -> str:
    """What of the run is not in the scene."""
    drawn = {e.record.key for e in shown}
    left = [e for e in found if e.record.key not in drawn]
    counts = Counter(e.record.status if e.record.status != "ok" else _lack(e, view) for e in left)
    return ", ".join(f"{count} {why}" for why, count in counts.items())


def _unroofed(levels: Iterable[str], roofs: Sequence[Roof]) -> str:
    """The caches among *levels* that have no roof."""
    known = {roof.label for roof in roofs}
    bare = [level for level in levels if level in CACHES and level not in known]
    return f"the roof of {' and '.join(bare)} (gpuperf calibrate measures it)" if bare else ""


def _lack(entry: Entry, view: View) -> str:
    if entry.placement is None:
        return "without a time"
    if not entry.placement.attained_flop_per_s:
        return "without FLOPs"
    return f"without {LACKING.get(view, view).split(':')[0]}"


def _clocks(run: Run) -> dict[str, float]:
    """The clock that each data-sheet roof is stated at, by the label of the roof."""
    ceilings = run.header.peaks.compute if run.header.peaks else ()
    return {f"{c.dtype} {c.pipe}": c.clock_hz for c in ceilings if c.clock_hz}


def _title(run: Run, axes: Axes, shown: Sequence[Entry]) -> str:
    """`matmul on NVIDIA H200: bf16, 128 to 8192`."""
    ops = [shorten(clean(op), LONGEST) for op in axes.ops]
    op = " and ".join(ops) if len(ops) <= 2 else f"{len(ops)} operations"
    dtypes = list(dict.fromkeys(d for e in shown if (d := dtype_of(e.record))))
    ordered = sorted((e.record for e in shown), key=axes.order) if len(ops) == 1 else []
    sizes = list(dict.fromkeys(axes.brief(r) for r in ordered))
    extent = ""
    if sizes and len(sizes[0]) + len(sizes[-1]) < LONGEST:
        extent = axes.prefix() + (sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}")
    about = ", ".join(filter(None, (" and ".join(dtypes) if len(dtypes) < 4 else "", extent)))
    device = shorten(clean(run.header.device.name), LONGEST)
    return f"{op} on {device}: {about}" if about else f"{op} on {device}"


def _series(
    shown: Sequence[Entry], axes: Axes, roofline: bool, view: View
) -> tuple[Series, ...]:
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    conditions = _conditions(shown)
    for entry in shown:
        kernel = entry.record.kind == "kernel"
        name = "kernels" if kernel else implementation_of(entry.record, len(axes.ops) > 1)
        told = conditions[entry.record.contract]
        groups.setdefault((name, dtype_of(entry.record), told), []).append(entry)
    series = []
    for (name, dtype, told), group in groups.items():
        group.sort(key=lambda e: axes.order(e.record))
        label = " ".join(filter(None, (shorten(name, LONGEST), dtype, told)))
        joined = group[0].record.kind != "kernel"
        for level in LEVELS if view == "hierarchy" else ("",):
            dots = tuple(dot for e in group if (dot := _dot(e, axes, roofline, view, level)))
            if dots:
                told = f"{label}, {level} bytes" if level else label
                series.append(Series(told, dots, joined, level))
    return tuple(series)


def _conditions(shown: Sequence[Entry]) -> dict[Contract, str]:
    """Of each contract what tells it from the others: `cold`, `hot, zeros`."""
    contracts = list(dict.fromkeys(e.record.contract for e in shown))
    told: dict[Contract, list[str]] = {contract: [] for contract in contracts}
    for fact in ("timer", "regime", "cache", "data"):
        if len({getattr(contract, fact) for contract in contracts}) > 1:
            for contract in contracts:
                told[contract].append(clean(str(getattr(contract, fact))))
    return {contract: ", ".join(words) for contract, words in told.items()}


def _dot(entry: Entry, axes: Axes, roofline: bool, view: View, level: str) -> Dot | None:
    placed, samples, cost = entry.placement, entry.record.samples, entry.record.cost
    if placed is None or samples is None or cost is None:
        return None
    moved = entry.counted.bytes_of(LEVELS.get(level, KINDS[view]))
    if not moved or moved <= 0:
        return None
    amount = cost.flop_count if roofline else moved
    x = amount / moved if roofline else moved
    if amount <= 0 or x <= 0:
        return None
    start = None
    if view == "both" and cost.dram_bytes:
        start = amount / cost.dram_bytes if roofline else float(cost.dram_bytes)
    low_s, high_s = samples.interval_s
    kinds = {c.kind for c in entry.caveats}
    doubts = [] if entry.valid else [INVALID]
    doubts += [kind for kind in _DOUBTS if kind in kinds]
    doubts += ["latency-bound"] if placed.limiter == "latency" else []
    high = amount / low_s if low_s > 0 else None
    record = entry.record
    brief = clean(record.case.op) if record.kind == "kernel" else axes.brief(record)
    label = shorten(brief, 24) + ("" if entry.valid else " (invalid)")
    return Dot(x, amount / samples.median_s, amount / high_s, high, label, tuple(doubts), start)
