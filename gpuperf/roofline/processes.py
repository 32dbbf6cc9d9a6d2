"""Reduce the records of one case in several fresh processes to one row.

The row shows the record whose time is the median of its processes, so that all its figures come
from one measurement; the interval of the time is that over the processes. A case that
failed in one process failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpuperf.model.record import NO_COUNTERS, Caveat, Record, Run
from gpuperf.roofline.speedup import Key, center, key_of

FEWER = "fewer-processes"  # kind of the caveat on a case that some processes did not measure
RESUME = "gpuperf roofline --resume RUN measures in the others"
AGAIN = "a new run in as many processes narrows the interval"
FINDINGS = ("oom", "skipped")  # results of a case; every other status but `ok` is a failure


@dataclass(frozen=True)
class Reduced:
    """One case over its processes: the record to show, how many processes timed it, and the 95 %
    interval of its time over them, where there are at least two."""

    record: Record
    processes: int = 1
    interval_s: tuple[float, float] | None = None


class Asked(NamedTuple):
    """How many processes were to measure a case, and what to do if fewer did."""

    processes: int
    hint: str


def reduced(run: Run) -> tuple[Reduced, ...]:
    """Return a `Reduced` for each case of a run of several processes, or for each record."""
    header = run.header
    if header.baseline:
        return reduce_processes(run.records, header.processes)
    processes = max((record.pass_index + 1 for record in run.records), default=1)
    if processes > 1 and not header.study:
        return reduce_processes(run.records, processes, AGAIN)
    return tuple(Reduced(record) for record in run.records)


def reduce_processes(
    records: Iterable[Record], asked: int, hint: str = RESUME
) -> tuple[Reduced, ...]:
    """Return each case of *records* once, in the order of its first record; *asked* processes were
    to measure it, and *hint* says what to do if fewer did."""
    groups: dict[Key, list[Record]] = {}
    for record in records:
        groups.setdefault(key_of(record), []).append(record)
    return tuple(_reduced(group, Asked(asked, hint)) for group in groups.values())


def _reduced(group: Sequence[Record], asked: Asked) -> Reduced:
    if len(group) == 1:
        return Reduced(_with_caveats(group[0], group, asked))
    failed = sorted((r for r in group if r.status != "ok"), key=lambda r: r.status in FINDINGS)
    if failed:
        return Reduced(_with_caveats(_located(failed[0], group), group, asked), len(group))
    times = [samples.median_s for r in group if (samples := r.samples) is not None]
    if len(times) < len(group):
        lacking = next(r for r in group if r.samples is None)
        return Reduced(_with_caveats(lacking, group, asked), len(group))
    # Of an even number, the slower of the two middle ones: no figure may beat the median.
    middle = sorted(zip(times, range(len(group)), strict=True))[len(group) // 2][1]
    record = _with_caveats(_complete(group[middle], group), group, asked)
    interval_s = center(times)[1:] if min(times) > 0 else None
    return Reduced(record, len(group), interval_s)


def _located(record: Record, group: Sequence[Record]) -> Record:
    """Return *record* with its process in the reason, unless all failed in the same way."""
    if all(r.status == record.status for r in group):
        return record
    where = f"in process {record.pass_index + 1}"
    return replace(record, reason=f"{where}: {record.reason}" if record.reason else where)


def _complete(record: Record, group: Sequence[Record]) -> Record:
    """Return *record* with the counters and the energy of the process that read them, and the
    largest error."""
    if record.energy is None:
        record = replace(record, energy=next((r.energy for r in group if r.energy), None))
    checks = [r.check for r in group if r.check is not None]
    if checks:
        record = replace(record, check=max(checks, key=lambda check: check.error))
    counted = next((r for r in group if r.counters), record)
    if record.counters or counted is record:
        return record
    if [(k.name, k.count) for k in counted.kernels] == [(k.name, k.count) for k in record.kernels]:
        return replace(record, counters=counted.counters, kernels=counted.kernels)
    process = counted.pass_index + 1
    doubt = Caveat(
        NO_COUNTERS,
        f"process {process} counted the bytes of other kernels than those that are shown",
        "--processes 1 shows the kernels that were counted",
    )
    return replace(record, caveats=(*record.caveats, doubt))


def _with_caveats(record: Record, group: Sequence[Record], asked: Asked) -> Record:
    """Return *record* with the caveats of all processes in *group*, and one if processes lack."""
    doubts = {caveat.kind: caveat for r in (*group, record) for caveat in r.caveats}
    kinds = {caveat.kind for caveat in record.caveats}
    others = tuple(caveat for kind, caveat in doubts.items() if kind not in kinds)
    caveats = (*record.caveats, *others)
    if len(group) < asked.processes:
        share = f"{len(group)} of {asked.processes} processes"
        fewer = f"{share} measured the case, so its interval is wider"
        caveats += (Caveat(FEWER, fewer, asked.hint),)
    return replace(record, caveats=caveats)
