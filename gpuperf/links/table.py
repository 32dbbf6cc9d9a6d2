"""Render the links as matrices of all ordered pairs, and as a list with sheets and verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    columns = (
        Column("from", left=True, identity=True),
        Column("to", left=True, identity=True),
        Column("by", left=True, identity=True),
        Column("rate", "GB/s"),
        Column("latency"),
        Column("sheet", "GB/s", keep=5),
        Column("of sheet", "%"),
        Column("verdict", left=True, moods=tuple(_mood(cell) for cell in every)),
    )
    return Table(
        fill(columns, [_cells(cell) for cell in every]),
        title=f"links of {run.header.device.name}",
        failures=tuple(cell.failure for cell in every),
        notes=tuple(_notes(run.header.topology)),
        rows=[_row(cell) for cell in every],
        names=tuple(_row(Cell("", "", ""))),
    )


def _mood(cell: Cell) -> Mood:
    return "doubt" if cell.verdict in ("slow", "above the sheet") else ""


def _cells(cell: Cell) -> list[str]:
    both = cell.both and not cell.latency_s
    return [
        cell.source,
        cell.target,
        f"{cell.means}, both ways" if both else cell.means,
        _rate(cell),
        format_time(cell.latency_s) if cell.latency_s else NOTHING,
        format_number(cell.sheet / GIGA) if cell.sheet else NOTHING,
        f"{cell.share * 100:.0f}" if cell.share is not None else NOTHING,
        cell.verdict if cell.latency_s is None else NOTHING,
    ]


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
    for pair in known.pairs:
        yield f"GPU {pair.source} → GPU {pair.target}", pair.words
    for host in known.hosts:
        yield f"GPU {host.gpu} → host", host.words
    if known.gpus == 1:
        yield "Pairs", "there is one GPU, so no link between GPUs was measured"
    yield (
        "Verdict",
        f"as expected: {LEAST * 100:.0f} to {MOST * 100:.0f} % of the sheet, from "
        f"{LEAST_BOTH * 100:.0f} % for both directions of PCIe at once, and from "
        f"{LEAST_KERNEL * 100:.0f} and {LEAST_KERNEL_BOTH * 100:.0f} % for kernels over NVLink; a "
        "sheet's rate is after coding, and for the directions that are busy",
    )
