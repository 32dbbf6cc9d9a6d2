"""Render the links as matrices of all ordered pairs, and as a list with sheets and verdicts."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuperf.links.study import (
    HOST,
    LEAST,
    LEAST_BOTH,
    LEAST_KERNEL,
    LEAST_KERNEL_BOTH,
    MOST,
    Cell,
    cells,
)
from gpuperf.model.record import Run
from gpuperf.model.topology import Topology
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Mood, Note, Table, fill
from gpuperf.units import format_number, format_time

GIGA = 1e9
PAIR = 2  # GPUs up to which each link has a row
ALIKE = 0.1  # links of one kind that are further from their median have rows of their own
NOTHING = "–"


def render_links(run: Run, format: str, screen: Screen = WIDE) -> str:
    """Render the links as table, json, csv or md."""
    every = cells(run)
    if format in ("json", "csv"):
        return render([_list(run, every)], format, screen)
    return render([*_matrices(every), _list(run, every)], format, screen)


def _matrices(every: Sequence[Cell]) -> Iterator[Table]:
    """Yield a matrix for each means and number of directions, of GPUs by GPUs."""
    between = [c for c in every if HOST not in (c.source, c.target) and c.latency_s is None]
    for means, both in dict.fromkeys((c.means, c.both) for c in between if c.rate is not None):
        chosen = [c for c in between if (c.means, c.both) == (means, both)]
        names = sorted({end for c in chosen for end in (c.source, c.target)})
        rates = {(c.source, c.target): c for c in chosen}
        columns = [Column("GB/s", "from \\ to", tuple(names), left=True, identity=True)]
        for target in names:
            column = (rates.get((source, target)) for source in names)
            columns.append(Column(target, "", tuple(_rate(c) for c in column)))
        way = "both directions at once, their sum" if both else "one direction"
        way += (
            " (by the source)"
            if "write" in means
            else " (by the target)"
            if "read" in means
            else ""
        )
        yield Table(tuple(columns), title=f"{means}, {way}")


def _list(run: Run, every: Sequence[Cell]) -> Table:
    groups = list(_groups(every))
    columns = (
        Column("from", left=True, identity=True),
        Column("to", left=True, identity=True),
        Column("by", left=True, identity=True),
        Column("rate", "GB/s"),
        Column("latency"),
        Column("sheet", "GB/s", keep=5),
        Column("of sheet", "%"),
        Column("verdict", left=True, moods=tuple(_mood(group.cells[0]) for group in groups)),
    )
    return Table(
        fill(columns, [_cells(group) for group in groups]),
        title=f"links of {run.header.device.name}",
        failures=tuple(group.cells[0].failure for group in groups),
        notes=tuple(_notes(run.header.topology)),
        rows=[_row(cell) for cell in every],
        names=tuple(_row(Cell("", "", ""))),
    )


@dataclass(frozen=True)
class _Group:
    """Links of one kind that are alike, which take one row, `whole` if there are no others."""

    cells: tuple[Cell, ...]
    whole: bool = True

    def end(self, name: str, other: str) -> str:
        """Return the end *name* of a link as its row has it, whose other end is *other*."""
        if len(self.cells) == 1 or name == HOST:
            return name
        if not self.whole:
            return "others"
        return "every GPU" if other == HOST or name == self.cells[0].source else "every other"


def _groups(every: Sequence[Cell]) -> Iterator[_Group]:
    """Yield the rows of *every* link: of more than two GPUs, alike links have one."""
    if len({end for cell in every for end in (cell.source, cell.target)} - {HOST}) <= PAIR:
        yield from (_Group((cell,)) for cell in every)
        return
    kinds: dict[object, list[Cell]] = {}
    for cell in every:
        hosts = cell.source == HOST, cell.target == HOST
        kinds.setdefault((hosts, cell.means, cell.both), []).append(cell)
    for kind in kinds.values():
        common = Counter(map(_said, kind)).most_common(1)[0][0]
        values = [cell.rate or cell.latency_s or 0.0 for cell in kind if _said(cell) == common]
        middle = statistics.median(values)
        alike: list[Cell] = []
        odd: list[Cell] = []
        for cell in kind:
            off = abs((cell.rate or cell.latency_s or 0.0) - middle)
            (odd if _said(cell) != common or off > ALIKE * middle else alike).append(cell)
        if alike:
            yield _Group(tuple(alike), not odd)
        yield from (_Group((cell,)) for cell in odd)


def _said(cell: Cell) -> tuple[object, ...]:
    return cell.verdict, cell.failure, cell.sheet


def _mood(cell: Cell) -> Mood:
    return "doubt" if cell.verdict in ("slow", "above the sheet") else ""


def _cells(group: _Group) -> list[str]:
    cell = group.cells[0]
    both = cell.both and not cell.latency_s
    latencies = [c.latency_s for c in group.cells if c.latency_s]
    shares = [c.share * 100 for c in group.cells if c.share is not None]
    rates = [c.rate / GIGA for c in group.cells if c.rate is not None]
    return [
        group.end(cell.source, cell.target),
        group.end(cell.target, cell.source),
        f"{cell.means}, both ways" if both else cell.means,
        _span(rates, format_number),
        _span(latencies, lambda latency_s: format_time(latency_s, 3)),
        format_number(cell.sheet / GIGA) if cell.sheet else NOTHING,
        _span(shares, lambda share: f"{share:.0f}"),
        cell.verdict if cell.latency_s is None else NOTHING,
    ]


def _span(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Return the least and the largest of *values*, or one if they look alike; a unit that both
    have is written once, as `797 to 853 ns`."""
    if not values:
        return NOTHING
    low, high = text(min(values)), text(max(values))
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def _rate(cell: Cell | None) -> str:
    return NOTHING if cell is None or cell.rate is None else format_number(cell.rate / GIGA)


def _row(cell: Cell) -> dict[str, Any]:
    return {
        "from": cell.source,
        "to": cell.target,
        "by": cell.means,
        "both": cell.both,
        "byte_per_s": cell.rate,
        "latency_s": cell.latency_s,
        "sheet_byte_per_s": cell.sheet,
        "fraction_of_sheet": cell.share,
        "verdict": cell.verdict,
        "failure": cell.failure,
    }


def _notes(topology: Topology | None) -> Iterator[Note]:
    """Yield the topology in words, and what the verdicts mean."""
    known = topology or Topology()
    yield from _words({f"GPU {p.source} → GPU {p.target}": p.words for p in known.pairs}, "Pairs")
    yield from _words({f"GPU {h.gpu} → host": h.words for h in known.hosts}, "Host")
    if known.gpus == 1:
        yield "Pairs", "there is one GPU, so no link between GPUs was measured"
    yield (
        "Verdict",
        f"as expected: {LEAST * 100:.0f} to {MOST * 100:.0f} % of the sheet, from "
        f"{LEAST_BOTH * 100:.0f} % for both directions of PCIe at once, and from "
        f"{LEAST_KERNEL * 100:.0f} and {LEAST_KERNEL_BOTH * 100:.0f} % for kernels over NVLink; a "
        "sheet's rate is after coding, and for the directions that are busy",
    )


def _words(by_link: Mapping[str, str], all_of_them: str) -> Iterator[Note]:
    """Yield the words of each link, or once if they are those of more than two."""
    if len(by_link) > PAIR and len(set(by_link.values())) == 1:
        yield all_of_them, f"each: {next(iter(by_link.values()))}"
        return
    yield from by_link.items()
