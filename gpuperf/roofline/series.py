"""Place records as dots of a chart, and group them into series.

In a roofline scene a point is (FLOP/byte, FLOP/s), in a bandwidth scene (bytes, byte/s).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from gpuperf.model.contract import Contract
from gpuperf.model.counted import LITTLE, OPERATIONS_OFF, Intensity
from gpuperf.model.record import Record
from gpuperf.model.text import shorten
from gpuperf.roofline.rows import Entry
from gpuperf.roofline.speedup import Key, key_of, same_case
from gpuperf.show.axes import Axes, dtype_of, implementation_of
from gpuperf.show.view import View

LONGEST = 44  # characters of a series' name

# The kind of DRAM bytes that each view draws.
KINDS: dict[View, Intensity] = {
    "compulsory": "compulsory",
    "modelled": "modelled",
    "measured": "measured",
    "both": "measured",
    "hierarchy": "measured",
}

# The levels of a hierarchy, with the bytes through each.
DRAM = "DRAM"
LEVELS: dict[str, Intensity] = {DRAM: "measured", "L2": "l2", "L1": "l1"}
CACHES = {"L2": "l2_bandwidth", "L1": "l1_bandwidth"}  # with the figures of their roofs

INVALID = "invalid (beyond physics)"

# Caveats that make a point hollow.
_DOUBTS = ("cache-resident",)

# Ends of what a chart can draw, in SI units; no device is near either end.
_LEAST, _MOST = 1e-15, 1e25


@dataclass(frozen=True)
class Dot:
    """The place of one record, the ends of its 95 % interval, over processes where there are
    several, and its doubts.

    `start` is where an arrow to the dot begins, if one is drawn, and `record` what the dot shows.
    In a hierarchy the dot for DRAM has the `span` of its record: the least and the greatest x over
    all levels. A line joins dots of one `variant`.
    """

    x: float
    y: float
    low: float
    high: float | None
    label: str = ""
    doubts: tuple[str, ...] = ()
    start: tuple[float, float] | None = None
    span: tuple[float, float] | None = None
    record: Record | None = field(default=None, compare=False, repr=False)
    variant: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """The records of one implementation in one dtype under one contract, in order of variant and
    size.

    In a hierarchy there is a series for the bytes through each `level`, all with one `group`.
    """

    label: str
    dots: tuple[Dot, ...]
    joined: bool = True
    level: str = ""
    group: int = 0

    def stretches(self) -> Iterator[list[Dot]]:
        """Yield the points to join with lines, those of a variant; a point that breaks physics is
        not joined."""
        if not self.joined:
            return
        part: list[Dot] = []
        for dot in self.dots:
            if part and (INVALID in dot.doubts or dot.variant != part[0].variant):
                yield part
                part = []
            if INVALID not in dot.doubts:
                part.append(dot)
        if part:
            yield part


def in_range(*values: float) -> bool:
    """Whether a chart has a place for all *values*, which infinity and NaN have not."""
    return all(_LEAST <= value <= _MOST for value in values)


def bytes_known(entry: Entry, view: View) -> bool:
    """Whether *entry* has the bytes that *view* draws."""
    figures = entry.counted
    if view == "compulsory":
        return True
    if view == "modelled":
        return figures.modelled is not None
    if view == "hierarchy" and not figures.l2:
        return False
    return bool(figures.measured and figures.measured > LITTLE)


def dots_of(entry: Entry, roofline: bool, view: View) -> dict[str, Dot]:
    """Return the points of *entry* by level, without labels; none where one is out of range."""
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
    """Return the point of *entry* for *figure* bytes of a call; `None` if it is out of range."""
    placed, samples, cost = entry.placement, entry.record.samples, entry.record.cost
    if placed is None or samples is None or cost is None:
        return None
    flops = cost.flop_count if roofline else None
    low_s, high_s = entry.across_s or samples.interval_s
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
    """Return the point (x, y) of a call: under a roofline if *flops* are given, else by bandwidth.

    The call moves *amount* bytes in *time_s*.
    """
    if flops is None:
        return amount, amount / time_s
    return flops / amount, flops / time_s


def _baselines(
    shown: Sequence[Entry], baseline: str, roofline: bool, view: View
) -> dict[Key, tuple[float, float]]:
    places = {}
    for entry in shown:
        if entry.record.case.implementation == baseline:
            for dot in dots_of(entry, roofline, view).values():
                places[same_case(entry.record)] = (dot.x, dot.y)
    return places


def _compared_labels(shown: Sequence[Entry], baseline: str, axes: Axes) -> dict[Key, str]:
    """Return the labels of a comparison by `key_of`: the baseline and the fastest of each case, by
    size, or by name where there is one case."""
    cases: dict[Key, list[Entry]] = {}
    for entry in shown:
        cases.setdefault(same_case(entry.record), []).append(entry)
    labels = {}
    for group in cases.values():
        fastest = min(group, key=lambda e: e.time.median_s if e.time else math.inf)
        for entry in group:
            if entry is fastest or entry.record.case.implementation == baseline:
                name = shorten(implementation_of(entry.record, False), 24)
                labels[key_of(entry.record)] = _label(entry, axes) if len(cases) > 1 else name
    return labels


def series_of(
    shown: Sequence[Entry], axes: Axes, roofline: bool, view: View, baseline: str = ""
) -> tuple[Series, ...]:
    """Return the series of *shown*, in a hierarchy one for each level.

    Arrows lead from the *baseline* of a comparison to the other implementations.
    """
    # The views `both` and `hierarchy` draw arrows and lines of their own.
    from_baseline = baseline and view not in ("both", "hierarchy")
    naive = _baselines(shown, baseline, roofline, view) if from_baseline else {}
    labels = _compared_labels(shown, baseline, axes) if baseline else {}
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    by_contract = conditions(e.record.contract for e in shown)
    for entry in shown:
        kernel = entry.record.kind == "kernel"
        name = "kernels" if kernel else implementation_of(entry.record, len(axes.ops) > 1)
        key = (name, dtype_of(entry.record), by_contract[entry.record.contract])
        groups.setdefault(key, []).append(entry)
    series = []
    for number, ((name, dtype, contract), group) in enumerate(groups.items()):
        group.sort(key=lambda e: (axes.variant(e.record), axes.order(e.record)))
        label = " ".join(filter(None, (shorten(name, LONGEST), dtype, contract)))
        levels: dict[str, list[Dot]] = {}
        for entry in group:
            for level, dot in dots_of(entry, roofline, view).items():
                text = labels.get(key_of(entry.record), "") if baseline else _label(entry, axes)
                if naive and entry.record.case.implementation != baseline:
                    dot = replace(dot, start=naive.get(same_case(entry.record)))
                variant = axes.variant(entry.record)
                dot = replace(dot, label=text, record=entry.record, variant=variant)
                levels.setdefault(level, []).append(dot)
        # In a hierarchy the levels of one record belong together, not the sizes of one level.
        joined = group[0].record.kind != "kernel" and view != "hierarchy"
        joined = joined and not (baseline and axes.named)  # arrows and many lines hide each other
        for level, dots in levels.items():
            name = f"{label}, {level} bytes" if level else label
            series.append(Series(name, tuple(dots), joined, level, number))
    return tuple(series)


def _label(entry: Entry, axes: Axes) -> str:
    record = entry.record
    brief = record.case.op if record.kind == "kernel" else axes.brief(record)
    more = entry.counted.flop_excess
    padded = f" ({more:.2f}× ops)" if more and more > 1 + OPERATIONS_OFF else ""
    return shorten(brief, 24) + padded + ("" if entry.valid else " (invalid)")


def conditions(every: Iterable[Contract]) -> dict[Contract, str]:
    """Return the facts in which each contract differs from the others: `cold`, `hot, zeros`."""
    contracts = list(dict.fromkeys(every))
    facts: dict[Contract, list[str]] = {contract: [] for contract in contracts}
    for fact in ("timer", "regime", "cache", "data"):
        if len({getattr(contract, fact) for contract in contracts}) > 1:
            for contract in contracts:
                facts[contract].append(str(getattr(contract, fact)))
    return {contract: ", ".join(words) for contract, words in facts.items()}
