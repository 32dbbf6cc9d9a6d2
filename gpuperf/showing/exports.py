"""Write a run in the file formats of other tools; one module makes each format.

To add a format, write a module with a function `export(run)` that returns an `Exported`, and add it
to `EXPORTS`: `gpuperf show RUN --format NAME` and its help read this list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gpuperf.errors import CannotMeasure
from gpuperf.model.record import Record, Run
from gpuperf.roofline.rows import Entry, entries_of_records
from gpuperf.show.data import to_json
from gpuperf.show.screen import stdout_screen
from gpuperf.verb.options import Format
from gpuperf.verb.verb import load


@dataclass(frozen=True)
class Export:
    """A format of another tool: its name, a line of help, and the function that makes it."""

    name: str
    help: str
    function: str


@dataclass(frozen=True)
class Exported:
    """A JSON document, and the records that its format cannot hold."""

    document: Any
    left_out: tuple[Record, ...] = ()


EXPORTS: dict[str, Export] = {
    export.name: export
    for export in (
        Export(
            "pytorch-v3",
            "PyTorch's OSS benchmark database, version 3",
            "gpuperf.showing.pytorch_v3:export",
        ),
        Export("nvbench", "JSON of NVBench", "gpuperf.showing.nvbench:export"),
        Export(
            "pytest-benchmark",
            "JSON of pytest-benchmark",
            "gpuperf.showing.pytest_benchmark:export",
        ),
    )
}

if TYPE_CHECKING:
    ShowFormat = StrEnum
else:
    ShowFormat = StrEnum(
        "ShowFormat", {name.upper(): name for name in (*(f.value for f in Format), *EXPORTS)}
    )


def export_text(run: Run, name: str) -> tuple[str, str]:
    """Return *run* as JSON in the format *name*, and a sentence on the records that it lacks.

    Raises: CannotMeasure if no record has a place in the format.
    """
    exported = load(EXPORTS[name].function)(run)
    why = counted_statuses(exported.left_out)
    if len(exported.left_out) == len(run.records):
        raise CannotMeasure(
            f"run {run.header.run} has no time that {name} can hold: {why or 'no records'}",
            "gpuperf show RUN --format json has every record",
        )
    count = len(exported.left_out)
    are = "records have no time and are" if count > 1 else "record has no time and is"
    lacks = f"{count} {are} left out, since {name} has times alone: {why}" if count else ""
    return to_json(exported.document, stdout_screen().ascii), lacks


def counted_statuses(records: Iterable[Record]) -> str:
    """Return `3 oom, 1 wrong`; an `ok` record without samples is `1 without samples`."""
    names = ("without samples" if r.status == "ok" else r.status for r in records)
    return ", ".join(f"{count} {name}" for name, count in Counter(names).items())


def timed_entries(run: Run) -> tuple[list[Entry], tuple[Record, ...]]:
    """Return the records of *run* that have a valid time, each placed, and the others."""
    entries = entries_of_records(run)
    timed = [entry for entry in entries if entry.time is not None]
    return timed, tuple(entry.record for entry in entries if entry.time is None)


def facts_of(record: Record) -> dict[str, str]:
    """Return the conditions and the doubts of *record* as texts by name."""
    contract = record.contract
    facts = {
        "case": record.case.id,
        "timer": str(contract.timer),
        "time": str(record.primary),
        "cache": contract.cache,
        "regime": contract.regime,
        "data": contract.data,
        "caveats": ", ".join(dict.fromkeys(caveat.kind for caveat in record.caveats)),
    }
    return {name: value for name, value in facts.items() if value}
