"""Make the columns of a table that show the rates of collectives.

The rates are those of nccl-tests: algbw is the whole array over the time, busbw the bytes that a
rank sends in a ring over the time, which is comparable with the rate of one direction of its link.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuperf.model.record import Record, Run
from gpuperf.model.text import shorten
from gpuperf.model.times import TIMES
from gpuperf.roofline.rows import Entry, row
from gpuperf.show.table import ALWAYS, Column, Note
from gpuperf.units import format_number, format_time

NOTHING = "–"
GIGA = 1e9
LONGEST = 60  # characters of the names of hosts
# Each sample has one time of the gang; a median of extremes is not an extreme of medians.
RANKS = (
    "ranks: medians of each rank's own times; the gang's, of the rank that counts in each sample, "
    "may be outside"
)


def gang_notes(run: Run) -> Iterable[Note]:
    """Yield what the time of a gang is; nothing for a run of one process."""
    header = run.header
    names = dict.fromkeys(record.primary for record in run.records if record.primary)
    if header.world > 1:
        kind = "processes" if header.device.kind == "cpu" else "GPUs"
        meaning = "; ".join(f"{name}: {TIMES[name]}" for name in names if name in TIMES)
        hosts = list(dict.fromkeys(header.hosts))
        spread = f" on {shorten(' and '.join(hosts), LONGEST)}" if len(hosts) > 1 else ""
        yield "Gang", f"{header.world} {kind}{spread}" + (f"; {meaning}" if meaning else "")
        if meaning:
            yield "Gang", RANKS


def is_collective(record: Record) -> bool:
    """Return whether *record* is of a collective."""
    return record.cost is not None and record.cost.collective > 0


def collective_columns(entries: Sequence[Entry]) -> Iterable[Column]:
    """Yield the columns of collectives: their rates, the time as launched by the host, what NCCL
    chose, and each rank's own time. Yield nothing if *entries* has none."""
    if not any(is_collective(entry.record) for entry in entries):
        return
    for name in ("algbw", "busbw"):
        yield Column(name, "GB/s", tuple(_rate(entry, name) for entry in entries), ALWAYS)
    if any(entry.record.primary == "wire" for entry in entries):
        yield Column("eager", "median", tuple(_eager(entry) for entry in entries), 8)
    yield Column("by", "NCCL's log", tuple(_chosen(entry.record) for entry in entries), 8)
    yield Column("ranks", "least, most", tuple(_ranks(entry) for entry in entries), 4)


def _rate(entry: Entry, name: str) -> str:
    value = row(entry)[f"{name}_byte_per_s"]
    return NOTHING if value is None else format_number(value / GIGA)


def _eager(entry: Entry) -> str:
    samples = entry.record.times.get("eager")
    return format_time(samples.median_s) if samples and entry.time else NOTHING


def _chosen(record: Record) -> str:
    """Return `RING LL 16 channels`, as far as NCCL's log says it."""
    chosen = record.chosen
    words = [str(chosen[name]) for name in ("algorithm", "protocol") if name in chosen]
    words += [f"{chosen['channels']} channels"] if "channels" in chosen else []
    return " ".join(words) or NOTHING


def _ranks(entry: Entry) -> str:
    """Return the least and the greatest of the ranks' own medians."""
    name = entry.record.primary
    own = [r.times[name].median_s for r in entry.record.ranks if name and name in r.times]
    if not own or entry.time is None:
        return NOTHING
    return f"{format_time(min(own))}, {format_time(max(own))}"
