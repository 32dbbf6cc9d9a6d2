"""Read only those fields of a record that a comparison needs.

This halves the time and the memory that a run of ten thousand cases takes.
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
    other_load: float | None = None


class RecordSummary(msgspec.Struct, gc=False):
    """A record without the fields that a comparison does not need, named as in `Record`."""

    run: str
    case: Case
    contract: Contract
    status: str
    reason: str = ""
    fingerprint: _Fingerprint = msgspec.field(default_factory=_Fingerprint)
    times: dict[str, msgspec.Raw] = {}  # not decoded, and emptied once `samples` is decoded
    primary: str = ""
    samples: _Samples | None = None
    telemetry: _Telemetry | None = None
    noise: Noise | None = None
    pass_index: int = 0
    rank: int = 0

    def __post_init__(self) -> None:
        primary = self.times.get(self.primary)
        self.samples = None if primary is None else decode(bytes(primary), _Samples)
        self.times = {}

    @property
    def key(self) -> tuple[str, str, Contract, int, int]:
        """The same key as that of the `Record`."""
        return (self.run, self.case.id, self.contract, self.pass_index, self.rank)

    @property
    def median_s(self) -> float | None:
        """The median of the primary time; None if the case has none. Raises: ValueError for samples
        that are empty or not finite."""
        if self.status != "ok" or self.samples is None:
            return None
        return Samples(self.samples.values_s, tick_s=self.samples.tick_s).median_s

    @property
    def hard(self) -> Mapping[str, str | int | float | bool | None]:
        """The hard facts of the fingerprint."""
        return self.fingerprint.hard


@dataclass(frozen=True)
class RunSummary:
    """A run with summaries of its records; `whole` reads the full records."""

    header: Header
    records: tuple[RecordSummary, ...]
    problems: tuple[str, ...]
    whole: Callable[[], Run]


def summarize(run: Run) -> RunSummary:
    """Return the summary of *run*."""
    return RunSummary(run.header, tuple(map(_summarize, run.records)), run.problems, lambda: run)


def _summarize(record: Record) -> RecordSummary:
    telemetry = record.telemetry
    return RecordSummary(
        record.run,
        record.case,
        record.contract,
        record.status,
        record.reason,
        _Fingerprint(dict(record.fingerprint.hard)),
        {name: msgspec.Raw(encode(samples)) for name, samples in record.times.items()},
        record.primary,
        telemetry=_Telemetry(telemetry.throttle, telemetry.other_processes, telemetry.other_load)
        if telemetry
        else None,
        noise=record.noise,
        pass_index=record.pass_index,
        rank=record.rank,
    )
