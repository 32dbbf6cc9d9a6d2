"""Draw a sweep of collectives: the rate over a rank's link against the bytes of the whole array.

Each collective has a panel, with a solid line for the time on the wire and a dashed one for that of
calls which the host launches. Where NCCL's log names another algorithm or protocol from one size to
the next, a mark between the two names both: such a step is a choice, and not the link.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.model.record import Record, Run
from gpuperf.model.text import shorten
from gpuperf.roofline.collectives import is_collective
from gpuperf.roofline.series import conditions, in_range
from gpuperf.show.contract import contracts_text, note
from gpuperf.show.figure import (
    COLOURS,
    FAINT,
    INK,
    MARKERS,
    SMALL,
    Frame,
    decades,
    figure,
    plain_bytes,
    plain_number,
    tick_values,
)

HEIGHT, COLUMNS = 2.9, 2  # inches of a panel; panels beside each other
GIGA, LONGEST = 1e9, 40
MOST_DECADES = 3.3  # of an axis, up to which ticks are also at 2 and 5
SIZE, RANKS = "bytes", "world"  # coordinates of every collective


@dataclass(frozen=True)
class Line:
    """The points of one implementation of a collective: the bytes, and the byte/s of a rank's link
    by the primary time and by the host's launches (empty where that was not measured)."""

    op: str
    label: str
    sizes: tuple[int, ...]
    wire: tuple[float, ...]
    eager: tuple[float, ...]
    chosen: tuple[str, ...]

    def steps(self) -> Iterator[tuple[float, str]]:
        """Yield the size between two points, and what NCCL chose before and after it."""
        known = [(size, text) for size, text in zip(self.sizes, self.chosen, strict=True) if text]
        for (low, before), (high, after) in pairwise(known):
            if before != after:
                yield math.sqrt(low * high), f"{before} → {after}"


def is_sweep(run: Run) -> bool:
    """Return whether *run* has times of collectives of two sizes or more, and of nothing else."""
    timed = _timed(run)
    sizes = {record.case.point.get(SIZE) for record in timed}
    return all(map(is_collective, run.records)) and len(sizes) > 1


def draw_busbw(run: Run, paths: str | Path | Iterable[str | Path]) -> None:
    """Draw the sweep *run* to each of *paths*. Raises: UsageError where nothing can be drawn."""
    lines = lines_of(run)
    if not lines:
        raise UsageError(
            f"run {run.header.run!r} has no time of a collective", "the table says why"
        )
    ops = list(dict.fromkeys(line.op for line in lines))
    title = f"{ops[0] if len(ops) == 1 else 'collectives'} on {run.header.device.name}"
    contract = contracts_text([run.header.contract, *run.header.variants])
    read = f"{run.header.world} ranks; rate of a rank's link in one direction; {contract}"
    with figure(paths, shorten(title, 90), [read], [note(run, "")]) as frame:
        _draw(frame, run, ops, lines)


def lines_of(run: Run) -> tuple[Line, ...]:
    """Return the lines of *run* in its order, each by its sizes."""
    groups: dict[tuple[str, str], list[Record]] = {}
    timed = _timed(run)
    varied, by_contract = _varied(timed), conditions(record.contract for record in timed)
    for record in timed:
        point = record.case.point
        further = [f"{axis.replace('_', ' ')} {point[axis]}" for axis in varied if axis in point]
        names = (record.case.implementation, *further, by_contract[record.contract])
        label = ", ".join(filter(None, names))
        groups.setdefault((record.case.op, shorten(label, LONGEST)), []).append(record)
    return tuple(_line(op, label, records) for (op, label), records in groups.items())


def _timed(run: Run) -> list[Record]:
    """Return the records that have a place in the chart: a number of bytes, and a rate."""
    return [record for record in run.records if is_collective(record) and _has_place(record)]


def _has_place(record: Record) -> bool:
    size, rate = record.case.point.get(SIZE), _rate(record, record.primary)
    if record.status != "ok" or not isinstance(size, int) or rate is None:
        return False
    return in_range(size, rate)


def _varied(records: Sequence[Record]) -> list[str]:
    """Return the axes, other than the bytes, that have several values in one collective."""
    values: dict[tuple[str, str], set[Any]] = {}
    for record in records:
        for axis, value in record.case.point.items():
            values.setdefault((record.case.op, axis), set()).add(value)
    several = (axis for (_, axis), own in values.items() if len(own) > 1)
    return [axis for axis in dict.fromkeys(several) if axis not in (SIZE, RANKS)]


def _line(op: str, label: str, records: Sequence[Record]) -> Line:
    ordered = sorted(records, key=lambda record: int(record.case.point[SIZE]))
    eager = [_rate(record, "eager") for record in ordered if record.primary != "eager"]
    known = [rate for rate in eager if rate is not None and in_range(rate)]
    return Line(
        op,
        label,
        tuple(int(record.case.point[SIZE]) for record in ordered),
        tuple(_rate(record, record.primary) or math.nan for record in ordered),
        tuple(known) if len(known) == len(ordered) else (),
        tuple(_chosen(record) for record in ordered),
    )


def _rate(record: Record, name: str) -> float | None:
    """Return the byte/s of a rank's link by the time *name*; None where that was not measured."""
    samples = record.times.get(name)  # type: ignore[call-overload]
    if samples is None or record.cost is None or samples.median_s <= 0:
        return None
    return float(record.cost.link_bytes) / float(samples.median_s)


def _chosen(record: Record) -> str:
    known = (record.chosen.get(name) for name in ("algorithm", "protocol"))
    return " ".join(str(word) for word in known if word)


def _draw(frame: Frame, run: Run, ops: Sequence[str], lines: Sequence[Line]) -> None:
    from matplotlib.lines import Line2D

    labels = list(dict.fromkeys(line.label for line in lines))
    looks = {label: _look(i) for i, label in enumerate(labels)}
    handles = [Line2D([], [], label=label, **look) for label, look in looks.items()]
    dashed = Line2D([], [], color=INK, linestyle="--", label="dashed: launched by the host")
    frame.legend([*handles, *([dashed] if any(line.eager for line in lines) else [])])
    columns = min(COLUMNS, len(ops))
    panels = frame.stack(*[HEIGHT] * math.ceil(len(ops) / columns), columns=columns)
    link = _link(run)
    for panel, op in zip(panels, ops, strict=False):
        _draw_panel(panel, op, [line for line in lines if line.op == op], looks, link)
    for panel in panels[len(ops) :]:
        panel.set_axis_off()
    frame.fit()


def _look(index: int) -> dict[str, Any]:
    colour = COLOURS[index % len(COLOURS)]
    return {"color": colour, "marker": MARKERS[index % len(MARKERS)], "markersize": 5.0}


def _link(run: Run) -> float | None:
    """Return the byte/s of one direction of the link by its sheet; None if it is unknown."""
    figure = run.header.peaks.figures.get("link_bandwidth") if run.header.peaks else None
    return figure.value / 2 if figure else None


def _draw_panel(
    panel: Any, op: str, lines: Sequence[Line], looks: dict[str, dict[str, Any]], link: float | None
) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    for line in lines:
        wire = [rate / GIGA for rate in line.wire]
        panel.plot(line.sizes, wire, linewidth=1.5, **looks[line.label])
        if line.eager:
            eager = [rate / GIGA for rate in line.eager]
            panel.plot(
                line.sizes, eager, linewidth=1.0, linestyle="--", color=looks[line.label]["color"]
            )
    rates = [rate / GIGA for line in lines for rate in (*line.wire, *line.eager)]
    top = max(rates + ([link / GIGA] if link else [])) * 6
    low, high = min(min(line.sizes) for line in lines), max(max(line.sizes) for line in lines)
    _scale(panel, (low / 1.6, high * 1.6), (min(rates) / 1.6, top))
    if link:
        panel.axhline(link / GIGA, color=FAINT, linewidth=0.9, linestyle=":")
        words = f"link, one direction: {link / GIGA:g} GB/s"
        panel.text(low, link / GIGA * 1.08, words, fontsize=SMALL, color=FAINT, va="bottom")
    steps = dict.fromkeys(step for line in lines for step in line.steps())
    for place, (size, text) in enumerate(sorted(steps)):
        panel.axvline(size, color=FAINT, linewidth=0.7)
        height = 0.03 + 0.07 * (place % 4)
        panel.text(
            size,
            height,
            f" {text}",
            transform=panel.get_xaxis_transform(),
            fontsize=SMALL,
            color=INK,
        )
    panel.set_title(f"{op}: busbw in GB/s", loc="left", fontsize=10.5, color=INK)
    panel.set_xlabel("bytes of the whole array", fontsize=9)


def _scale(panel: Any, xs: tuple[float, float], ys: tuple[float, float]) -> None:
    """Set the ends and the ticks of both axes."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

    panel.set_xlim(*xs)
    panel.set_ylim(*ys)
    for axis, ends, text in ((panel.xaxis, xs, plain_bytes), (panel.yaxis, ys, plain_number)):
        ticks = tick_values(*ends, (1, 2, 5) if decades(*ends) <= MOST_DECADES else (1,))
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(FixedFormatter([text(tick) for tick in ticks]))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    panel.grid(linewidth=0.6)
    panel.tick_params(labelsize=9)
