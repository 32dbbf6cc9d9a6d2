"""Where does a record lie in a chart, and which records belong together?

In a roofline scene a point is (FLOP/byte, FLOP/s), in a bandwidth scene (bytes, byte/s): there its
bytes move it in both directions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpuperf.model.contract import Contract
from gpuperf.model.counted import LITTLE, OPERATIONS_OFF, Intensity
from gpuperf.model.text import clean, shorten
from gpuperf.roofline.rows import Entry
from gpuperf.roofline.speedup import Key, key_of, same_case
from gpuperf.show.axes import Axes, dtype_of, implementation_of
from gpuperf.show.view import View

LONGEST = 44  # characters of a series' name

# The bytes that a view draws, of DRAM.
KINDS: dict[View, Intensity] = {
    "compulsory": "compulsory",
    "modelled": "modelled",
    "measured": "measured",
    "both": "measured",
    "hierarchy": "measured",
}

# Of a hierarchy: what a byte figure of a level is called.
DRAM = "DRAM"
LEVELS: dict[str, Intensity] = {DRAM: "measured", "L2": "l2", "L1": "l1"}
CACHES = {"L2": "l2_bandwidth", "L1": "l1_bandwidth"}  # and what `calibrate` calls their roofs

INVALID = "invalid (beyond physics)"

# Caveats that make a point say something else than "so fast is this on this device".
_DOUBTS = ("cache-resident",)

# SI units. No device is near either end, and between them every axis can be drawn.
_LEAST, _MOST = 1e-15, 1e25


@dataclass(frozen=True)
class Dot:
    """One record: where it lies, its 95 % interval upwards and down, and why it is doubtful.

    `start` is the point where an arrow to it begins, if one is drawn. `span` is, of a point for
    DRAM in a hierarchy, the least and the greatest x of its record, by the bytes of all levels.
    """

    x: float
    y: float
    low: float
    high: float | None
    label: str = ""
    doubts: tuple[str, ...] = ()
    start: tuple[float, float] | None = None
    span: tuple[float, float] | None = None


@dataclass(frozen=True)
class Series:
    """The records of one implementation in one dtype under one contract, in order of size; of a
    hierarchy by their bytes through `level`. `group` counts these, all levels as one."""

    label: str
    dots: tuple[Dot, ...]
    joined: bool = True
    level: str = ""
    group: int = 0

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


def in_range(*values: float) -> bool:
    """Whether *values* are such that a chart has a place for them; infinity and NaN are not."""
    return all(_LEAST <= value <= _MOST for value in values)


def bytes_known(entry: Entry, view: View) -> bool:
    """Whether the bytes of *view* are known of *entry*."""
    figures = entry.counted
    if view == "compulsory":
        return True
    if view == "modelled":
        return figures.modelled is not None
    if view == "hierarchy" and not figures.l2:
        return False
    return bool(figures.measured and figures.measured > LITTLE)


def dots_of(entry: Entry, roofline: bool, view: View) -> dict[str, Dot]:
    """The points of *entry* by level, without labels; none where one of them is out of range."""
    dots = {}
    for level, kind in (LEVELS if view == "hierarchy" else {"": KINDS[view]}).items():
        figure = entry.counted.bytes_of(kind)
        if not figure:
            continue
        dot = _dot(entry, figure, roofline, view)
        if dot is None:
            return {}
        dots[level] = dot
    if DRAM in dots:
        xs = [dot.x for dot in dots.values()]
        dots[DRAM] = replace(dots[DRAM], span=(min(xs), max(xs)))
    return dots


def _dot(entry: Entry, figure: float, roofline: bool, view: View) -> Dot | None:
    """The point of *entry* by *figure* bytes; `None` where that is out of range."""
    placed, samples, cost = entry.placement, entry.record.samples, entry.record.cost
    if placed is None or samples is None or cost is None:
        return None
    flops = cost.flop_count if roofline else None
    low_s, high_s = samples.interval_s
    x, y = _place(flops, figure, samples.median_s)
    low = _place(flops, figure, high_s)[1]
    high = _place(flops, figure, low_s)[1] if low_s > 0 else math.inf
    start = None
    if view == "both" and cost.dram_bytes:
        start = _place(flops, cost.dram_bytes, samples.median_s)
    if not in_range(x, y, low, *(start or ())):
        return None
    kinds = {c.kind for c in entry.caveats}
    doubts = [] if entry.valid else [INVALID]
    doubts += [kind for kind in _DOUBTS if kind in kinds]
    doubts += ["latency-bound"] if placed.limiter == "latency" else []
    return Dot(x, y, low, high if in_range(high) else None, "", tuple(doubts), start)


def _place(flops: float | None, amount: float, time_s: float) -> tuple[float, float]:
    """The point of *amount* bytes in *time_s*: in a roofline, if *flops* are given."""
    if flops is None:
        return amount, amount / time_s
    return flops / amount, flops / time_s


def _naive(
    shown: Sequence[Entry], baseline: str, roofline: bool, view: View
) -> dict[Key, tuple[float, float]]:
    """Where the baseline of each case lies."""
    found = {}
    for entry in shown:
        if entry.record.case.implementation == baseline:
            for dot in dots_of(entry, roofline, view).values():
                found[same_case(entry.record)] = (dot.x, dot.y)
    return found


def _ends(shown: Sequence[Entry], baseline: str, axes: Axes) -> dict[Key, str]:
    """What a comparison labels, by `key_of`: of each case the baseline and the fastest; by their
    names where there is one case, else by its size."""
    cases: dict[Key, list[Entry]] = {}
    for entry in shown:
        cases.setdefault(same_case(entry.record), []).append(entry)
    labels = {}
    for found in cases.values():
        fastest = min(found, key=lambda e: e.time.median_s if e.time else math.inf)
        for entry in found:
            if entry is fastest or entry.record.case.implementation == baseline:
                name = shorten(implementation_of(entry.record, False), 24)
                labels[key_of(entry.record)] = _label(entry, axes) if len(cases) > 1 else name
    return labels


def series_of(
    shown: Sequence[Entry], axes: Axes, roofline: bool, view: View, baseline: str = ""
) -> tuple[Series, ...]:
    """The series of *shown*, each of which has points; of a hierarchy one for each level. Arrows
    lead from a comparison's *baseline* to the others."""
    from_baseline = baseline and view not in ("both", "hierarchy")  # which have marks of their own
    naive = _naive(shown, baseline, roofline, view) if from_baseline else {}
    labels = _ends(shown, baseline, axes) if baseline else {}
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    by_contract = conditions(shown)
    for entry in shown:
        kernel = entry.record.kind == "kernel"
        name = "kernels" if kernel else implementation_of(entry.record, len(axes.ops) > 1)
        told = by_contract[entry.record.contract]
        groups.setdefault((name, dtype_of(entry.record), told), []).append(entry)
    series = []
    for number, ((name, dtype, told), group) in enumerate(groups.items()):
        group.sort(key=lambda e: axes.order(e.record))
        label = " ".join(filter(None, (shorten(name, LONGEST), dtype, told)))
        levels: dict[str, list[Dot]] = {}
        for entry in group:
            for level, dot in dots_of(entry, roofline, view).items():
                told = labels.get(key_of(entry.record), "") if baseline else _label(entry, axes)
                if naive and entry.record.case.implementation != baseline:
                    dot = replace(dot, start=naive.get(same_case(entry.record)))
                levels.setdefault(level, []).append(replace(dot, label=told))
        # In a hierarchy the levels of one record belong together, not the sizes of one level.
        joined = group[0].record.kind != "kernel" and view != "hierarchy"
        joined = joined and not (baseline and axes.named)  # nor forwards and backwards
        for level, dots in levels.items():
            told = f"{label}, {level} bytes" if level else label
            series.append(Series(told, tuple(dots), joined, level, number))
    return tuple(series)


def _label(entry: Entry, axes: Axes) -> str:
    record = entry.record
    brief = clean(record.case.op) if record.kind == "kernel" else axes.brief(record)
    more = entry.counted.flop_excess
    padded = f" ({more:.2f}× ops)" if more and more > 1 + OPERATIONS_OFF else ""
    return shorten(brief, 24) + padded + ("" if entry.valid else " (invalid)")


def conditions(shown: Sequence[Entry]) -> dict[Contract, str]:
    """Of each contract what tells it from the others: `cold`, `hot, zeros`."""
    contracts = list(dict.fromkeys(e.record.contract for e in shown))
    told: dict[Contract, list[str]] = {contract: [] for contract in contracts}
    for fact in ("timer", "regime", "cache", "data"):
        if len({getattr(contract, fact) for contract in contracts}) > 1:
            for contract in contracts:
                told[contract].append(clean(str(getattr(contract, fact))))
    return {contract: ", ".join(words) for contract, words in told.items()}
