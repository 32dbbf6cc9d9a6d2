"""Combine the answers of a gang's ranks to one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from gpuperf.model.protocol import Failed, FromWorker, Hello, Measured, Opened, RunnableCases
from gpuperf.model.record import Record

# Statuses of a rank whose case did not end as planned, the gravest first; a wrong result of one
# rank may end the call of another by an error.
GRAVE = ("wrong", "impossible", "oom", "error")
KEPT = ("ok", "skipped")  # after these the ranks are still in step, if all of them say the same


def has_failed(answer: FromWorker) -> bool:
    """Return whether *answer* ends the case, whatever the other ranks answer."""
    if isinstance(answer, Measured):
        return answer.record.status != "ok"
    return isinstance(answer, Failed)


def combined(answers: Mapping[int, FromWorker], world: int) -> FromWorker:
    """Return the one answer of *world* ranks, from the *answers* of those that gave one.

    An error of any rank is the answer of all, with the rank in its message.
    """
    in_order = [answers[rank] for rank in sorted(answers)]
    failed = {rank: a for rank, a in answers.items() if isinstance(a, Failed)}
    if failed:
        return _combined_failures(failed, world)
    odd = [a for a in in_order if type(a) is not type(in_order[0])]
    if odd:
        return Failed("cannot-measure", f"one rank answered {type(odd[0]).__name__} alone")
    head = in_order[0]
    if isinstance(head, Measured):
        return _combined_records(
            {r: a for r, a in answers.items() if isinstance(a, Measured)}, world
        )
    if isinstance(head, Opened):
        return _combined_devices([a for a in in_order if isinstance(a, Opened)])
    if isinstance(head, RunnableCases):
        indexes = [set(a.indexes) for a in in_order if isinstance(a, RunnableCases)]
        return RunnableCases(tuple(sorted(set.intersection(*indexes))))
    if isinstance(head, Hello):
        return next(
            (a for a in in_order if isinstance(a, Hello) and a.protocol != head.protocol), head
        )
    return head


def named(ranks: Iterable[int]) -> str:
    """Return `rank 1`, or `ranks 0 and 2`."""
    texts = [str(rank) for rank in sorted(ranks)]
    if len(texts) == 1:
        return f"rank {texts[0]}"
    return f"ranks {', '.join(texts[:-1])} and {texts[-1]}"


def _combined_failures(failed: Mapping[int, Failed], world: int) -> Failed:
    first = failed[min(failed)]
    same = [rank for rank, each in failed.items() if each.message == first.message]
    if len(same) == world:
        return first
    return msgspec.structs.replace(first, message=f"{named(same)}: {first.message}")


def _combined_devices(opened: Sequence[Opened]) -> FromWorker:
    """Return the first rank's answer with the indexes of all devices, which must be alike, and
    their hosts."""
    first = opened[0]
    for rank, other in enumerate(opened):
        if other.device.name != first.device.name:
            return Failed(
                "cannot-measure",
                f"rank {rank} has {other.device.name}, and rank 0 {first.device.name}",
                "CUDA_VISIBLE_DEVICES chooses GPUs of one kind",
            )
    indexes = tuple(each.device.index for each in opened)
    hosts = tuple(host for each in opened for host in each.hosts)
    return msgspec.structs.replace(first, devices=indexes, hosts=hosts)


def _combined_records(answers: Mapping[int, Measured], world: int) -> Measured:
    """Return one record of all ranks: their times, or the status of the rank that failed."""
    records = {rank: answer.record for rank, answer in answers.items()}
    changed = next((a.changed for a in answers.values() if a.changed), "")
    failed = [rank for rank, record in records.items() if record.status != "ok"]
    if not failed:
        return Measured(_whole(records), changed)
    failed.sort(key=lambda rank: _gravity(records[rank]))
    record = records[failed[0]]
    alike = [r for r in failed if (records[r].status, records[r].reason) == _end(record)]
    every = len(alike) == world
    reason = record.reason if every else f"{named(alike)}: {record.reason}"
    whole = replace(_whole(records, failed[0]), reason=reason)
    apart = "" if every and record.status in KEPT else f"the case ended {record.status} on a rank"
    return Measured(whole, changed or apart)


def _gravity(record: Record) -> int:
    return GRAVE.index(record.status) if record.status in GRAVE else len(GRAVE)


def _end(record: Record) -> tuple[str, str]:
    return record.status, record.reason


def _whole(records: Mapping[int, Record], rank: int = 0) -> Record:
    """Return the record of *rank* as that of the gang, with the times of each rank."""
    ranks = tuple(times for r in sorted(records) for times in records[r].ranks)
    return replace(records[rank], ranks=ranks)
