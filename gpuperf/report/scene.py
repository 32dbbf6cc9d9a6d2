"""Which points, roofs and words does a roofline chart of a run show?

The chart for print and the plot for the terminal draw the same `Scene`. Rates are in FLOP/s and
byte/s. Operations without any FLOPs have no place under a roofline; where a run holds nothing else,
the scene is of bandwidth over bytes per call, under the DRAM roof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpuperf.analysis.roofline import Roof
from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.report.axes import Axes, dtype_of, implementation_of
from gpuperf.report.caption import contract_text, run_roofs
from gpuperf.report.rows import Entry, entries
from gpuperf.report.sheet import byte_rate_unit, flop_unit
from gpuperf.report.text import clean, shorten

__all__ = ["Dot", "Scene", "Series", "scene"]

LONGEST = 44  # characters of a series' name

# Caveats that make a point say something else than "so fast is this on this device".
_DOUBTS = ("cache-resident", "launch-bound")


@dataclass(frozen=True)
class Dot:
    """One record: where it lies, its 95 % interval upwards and down, and why it is doubtful."""

    x: float
    y: float
    low: float
    high: float | None
    label: str
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """The records of one implementation in one dtype, in order of size."""

    label: str
    dots: tuple[Dot, ...]


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

    @property
    def dots(self) -> list[Dot]:
        """All points."""
        return [dot for series in self.series for dot in series.dots]

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why points are hollow, each reason once."""
        return tuple(dict.fromkeys(d for dot in self.dots for d in dot.doubts))

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


def scene(run: Run) -> Scene:
    """The scene of *run*. Raises: UsageError when nothing in it can be drawn."""
    found = entries(run)
    placed = [e for e in found if e.placement]
    if not placed:
        raise UsageError(
            f"run {clean(run.header.run)!r} has nothing to draw: no record has a time and a cost",
            f"its records: {_counts(found)}" if found else "it has no records",
        )
    flops = [e for e in placed if e.placement and e.placement.attained_flop_per_s > 0]
    shown, kind = (flops, "roofline") if flops else (placed, "bandwidth")
    axes = Axes([e.record for e in shown])
    lines = run_roofs(run)
    return Scene(
        kind="roofline" if kind == "roofline" else "bandwidth",
        title=_title(run, axes, shown),
        subtitle=contract_text(run.header.contract),
        unit=flop_unit(run, found) if flops else byte_rate_unit(found),
        series=_series(shown, axes, kind == "roofline"),
        roofs=lines if flops else tuple(r for r in lines if r.kind == "memory"),
        missing=_missing(found, shown),
        l2_bytes=None if flops else run.header.device.l2_bytes,
        clocks=_clocks(run),
    )


def _counts(found: Iterable[Entry]) -> str:
    counts = Counter(e.record.status for e in found)
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def _missing(found: Sequence[Entry], shown: Sequence[Entry]) -> str:
    """What of the run is not in the scene."""
    left = [e for e in found if e not in shown]
    counts = Counter(
        e.record.status if e.record.status != "ok" else "without FLOPs" if e.time else "without time"
        for e in left
    )
    return ", ".join(f"{count} {why}" for why, count in counts.items())


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
    sizes = list(dict.fromkeys(axes.size(r) for r in ordered))
    extent = ""
    if sizes and len(sizes[0]) + len(sizes[-1]) < LONGEST:
        extent = axes.prefix() + (sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}")
    about = ", ".join(filter(None, (" and ".join(dtypes) if len(dtypes) < 4 else "", extent)))
    device = shorten(clean(run.header.device.name), LONGEST)
    return f"{op} on {device}: {about}" if about else f"{op} on {device}"


def _series(shown: Sequence[Entry], axes: Axes, roofline: bool) -> tuple[Series, ...]:
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in shown:
        name = implementation_of(entry.record, len(axes.ops) > 1)
        groups.setdefault((name, dtype_of(entry.record)), []).append(entry)
    series = []
    for (name, dtype), group in groups.items():
        group.sort(key=lambda e: axes.order(e.record))
        dots = tuple(dot for e in group if (dot := _dot(e, axes, roofline)))
        if dots:
            series.append(Series(f"{shorten(name, LONGEST)} {dtype}".strip(), dots))
    return tuple(series)


def _dot(entry: Entry, axes: Axes, roofline: bool) -> Dot | None:
    placed, samples, cost = entry.placement, entry.record.samples, entry.record.cost
    if placed is None or samples is None or cost is None:
        return None
    amount = cost.flop_count if roofline else cost.dram_bytes
    x = placed.intensity if roofline else float(cost.dram_bytes)
    if amount <= 0 or x <= 0:
        return None
    low_s, high_s = samples.interval_s
    kinds = {c.kind for c in entry.caveats}
    doubts = [] if entry.valid else ["invalid: above what physics allows"]
    doubts += [kind for kind in _DOUBTS if kind in kinds]
    doubts += ["latency-bound"] if placed.limiter == "latency" else []
    high = amount / low_s if low_s > 0 else None
    # An operation among several has a size with its axes' names: too long for a label.
    label = axes.size(entry.record) if len(axes.ops) == 1 else axes.brief(entry.record)
    return Dot(x, amount / samples.median_s, amount / high_s, high, shorten(label, 24), tuple(doubts))
