"""What does a comparison need of a record: a time, what it was taken under, what disturbed it?

A run of ten thousand cases is read in half the time so, and held in half the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from gpuperf.model.codec import decode, encode
from gpuperf.model.contract import Contract
from gpuperf.model.record import Header, Noise, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case


class _Fingerprint(msgspec.Struct, gc=False):
    hard: dict[str, str | int | float | bool | None] = {}


class _Samples(msgspec.Struct, gc=False):
    values_s: tuple[float, ...]
    tick_s: float = 0.0


class _Telemetry(msgspec.Struct, gc=False):
    throttle: tuple[str, ...] = ()
    other_processes: int | None = None


class RecordSummary(msgspec.Struct, gc=False):
    """A record without the fields that a comparison does not need, named as in `Record`."""

    run: str
    case: Case
    contract: Contract
    status: str
    reason: str = ""
    fingerprint: _Fingerprint = msgspec.field(default_factory=_Fingerprint)
    times: dict[str, msgspec.Raw] = {}  # not read, and gone once the primary ones were
    primary: str = ""
    samples: _Samples | None = None
    telemetry: _Telemetry | None = None
    noise: Noise | None = None
    pass_index: int = 0
    rank: int = 0

    def __post_init__(self) -> None:
        own = self.times.get(self.primary)
        self.samples = None if own is None else decode(bytes(own), _Samples)
        self.times = {}

    @property
    def key(self) -> tuple[str, str, Contract, int, int]:
        """As that of a `Record`."""
        return (self.run, self.case.id, self.contract, self.pass_index, self.rank)

    @property
    def median_s(self) -> float | None:
        """The median of the primary time; None where the case has none. Raises: ValueError for
        samples that are none."""
        found = self.samples
        if self.status != "ok" or found is None:
            return None
        return Samples(found.values_s, tick_s=found.tick_s).median_s

    @property
    def hard(self) -> Mapping[str, str | int | float | bool | None]:
        """The hard facts that it was taken on."""
        return self.fingerprint.hard


@dataclass(frozen=True)
class RunSummary:
    """A run in brief; `whole` reads it again with everything."""

    header: Header
    records: tuple[RecordSummary, ...]
    problems: tuple[str, ...]
    whole: Callable[[], Run]


def summarize(run: Run) -> RunSummary:
    """*run* in brief."""
    return RunSummary(run.header, tuple(map(_brief, run.records)), run.problems, lambda: run)


def _brief(record: Record) -> RecordSummary:
    seen = record.telemetry
    return RecordSummary(
        record.run,
        record.case,
        record.contract,
        record.status,
        record.reason,
        _Fingerprint(dict(record.fingerprint.hard)),
        {name: msgspec.Raw(encode(samples)) for name, samples in record.times.items()},
        record.primary,
        telemetry=_Telemetry(seen.throttle, seen.other_processes) if seen else None,
        noise=record.noise,
        pass_index=record.pass_index,
        rank=record.rank,
    )
