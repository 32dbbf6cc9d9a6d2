"""Merge the runs of the ranks of a distributed program into one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpuperf.model.record import Caveat, Record, Run
from gpuperf.profile.ranks.meeting import ranks_text

MISSING_RANK = "missing-rank"  # kinds of caveats
OTHER_STEPS = "other-steps"
NO_GROUP = "no-group"


def merge(runs: Mapping[int, Run], absent: Mapping[int, str], world: int) -> Run:
    """Return the run of all *runs* by rank, of *world* ranks, with the caveats that follow from
    comparing them on the regions of the first one; *absent* says why ranks are missing."""
    first = min(runs)
    header = replace(
        runs[first].header,
        world=world,
        devices=tuple(run.header.devices[0] for run in runs.values()),
    )
    records: list[Record] = []
    for rank, run in runs.items():
        for record in run.records:
            if rank == first and record.kind == "region":
                peers = _peers(runs, record)
                caveats = (*_caveats(record, peers, absent, world), *record.caveats)
                record = replace(record, caveats=caveats)
            records.append(record)
    return Run(header, tuple(records))


def _peers(runs: Mapping[int, Run], region: Record) -> dict[int, Record]:
    """Return the records of the same region as *region*, by rank."""
    return {
        record.rank: record
        for run in runs.values()
        for record in run.records
        if record.kind == "region" and record.region == region.region
    }


def _caveats(
    region: Record, peers: Mapping[int, Record], absent: Mapping[int, str], world: int
) -> Iterator[Caveat]:
    for rank in range(world):
        if rank not in peers:
            reason = absent.get(rank, f"its program had no region {region.region!r}")
            yield Caveat(
                MISSING_RANK,
                f"rank {rank} of {world} is missing: {reason}",
                "the other ranks were measured until then",
            )
    programs = {rank: record.program for rank, record in peers.items() if record.program}
    totals = {rank: program.total for rank, program in programs.items() if program.total}
    if len(set(totals.values())) > 1:
        yield Caveat(
            OTHER_STEPS,
            f"the ranks ran different numbers of steps: {_by_value(totals)}",
            "ranks are compared by the steps that all of them traced",
        )
    traced = {
        rank: f"{program.first.get('trace', 0) + 1} to "
        f"{program.first.get('trace', 0) + program.steps['trace']}"
        for rank, program in programs.items()
        if "trace" in program.steps
    }
    if len(set(traced.values())) > 1:
        yield Caveat(
            OTHER_STEPS,
            f"the ranks traced different steps: {_by_value(traced)}",
            "ranks are compared by the steps that all of them traced",
        )
    if programs and not any(program.backend for program in programs.values()):
        yield Caveat(
            NO_GROUP,
            f"WORLD_SIZE is {world}, but no process group was initialised: each rank ran alone",
            "call torch.distributed.init_process_group",
        )


def _by_value(values: Mapping[int, object]) -> str:
    """Return `12 (rank 0), 20 (ranks 1, 2)`."""
    ranks: dict[object, list[int]] = {}
    for rank, value in values.items():
        ranks.setdefault(value, []).append(rank)
    return ", ".join(f"{value} ({ranks_text(own)})" for value, own in ranks.items())
