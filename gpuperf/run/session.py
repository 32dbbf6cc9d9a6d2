"""Measure what a schedule asks for, and write each record: the loop of every run file.

A gate's pairs have a loop of their own (gate/schedule.py), since two sides take turns in it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import gpuperf
from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.model.contract import Contract, Counting
from gpuperf.model.peaks import Peaks
from gpuperf.model.protocol import Measure, Opened
from gpuperf.model.record import NO_COUNTERS, Header, Noise, Record, Run, without_counters
from gpuperf.model.workload import Case
from gpuperf.peaks.physics import check_physics
from gpuperf.run.ncu import Ncu, find_ncu, with_ncu
from gpuperf.run.runfile import RunWriter
from gpuperf.run.supervisor import Supervisor

# In a sweep these say that something is broken; `oom` and `skipped` are findings.
FAILED = (
    "wrong",
    "error",
    "crashed",
    "timeout",
    "cannot-block",
    "no-work",
    "host-only",
    "side-stream",
    "impossible",
)
# On --resume these are measured again: the worker's end may have had nothing to do with the case.
UNFINISHED = ("crashed", "timeout")

OnRecord = Callable[[Record], None]

# A case, how it is measured, and in which of the processes.
Planned = tuple[Case, Contract, int]


def new_run_id(verb: str, op: str) -> str:
    """Time, verb and workload, and six letters that make it unique."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{stamp}-{verb}-{op}-{secrets.token_hex(3)}"


def make_header(
    run: str,
    command: Sequence[str],
    cases: Sequence[Case],
    contracts: Sequence[Contract],
    opened: Opened,
    peaks: Peaks | None = None,
    peaks_reason: str = "",
    ceilings: Peaks | None = None,
    seed: int = 0,
) -> Header:
    """The first line of a new run; what only some runs have is left at its default."""
    return Header(
        run=run,
        created=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        command=tuple(command),
        plan=tuple(cases),
        contract=contracts[0],
        variants=tuple(contracts[1:]),
        device=opened.device,
        fingerprint=opened.fingerprint,
        peaks=peaks,
        peaks_reason=peaks_reason,
        ceilings=ceilings,
        seed=seed,
        gpuperf=gpuperf.__version__,
        devices=(opened.device.index,),
    )


def measure_cases(
    supervisor: Supervisor,
    writer: RunWriter,
    header: Header,
    plan: Iterable[Planned],
    on_record: OnRecord,
    on_begin: Callable[[str], None] = lambda case: None,
    noise: Callable[[Case, Contract], Noise | None] = lambda case, contract: None,
    every: bool = False,
    fresh: bool = False,
) -> None:
    """Measure what *plan* asks for next and write each record as it comes.

    Each process of the plan is a fresh worker, but for the first, which is the open one unless
    *fresh* asks for another; *every* takes each case by every timer. What is interrupted stays
    written.
    """
    by_ncu = Ncu(find_ncu(), supervisor.deadline_s) if header.counting == "ncu" else None
    process = -1 if fresh else None
    for case, contract, index in plan:
        if process not in (None, index):
            supervisor.renew()
        process = index
        later = f"process {index + 1}: " if index else ""
        on_begin((process_text(header, index) or later) + case.id)
        # What a call moves is no matter of the process: the first one counts it.
        counting: Counting = "off" if by_ncu or index else header.counting
        record = supervisor.measure(
            header.run, case, contract, header.seed, every=every, counting=counting
        )
        try:
            if by_ncu is not None and not index and record.status == "ok":
                record = _counted(record, by_ncu, header)
        finally:
            record = replace(record, noise=noise(case, contract), pass_index=index)
            try:
                on_record(record)  # first, so that a full disk does not hide what was measured
            finally:
                writer.record(record)  # even when Ctrl-C comes just now


def _counted(record: Record, ncu: Ncu, header: Header) -> Record:
    """*record* with the counters of Nsight Compute, or why there are none."""
    request = Measure(record.run, record.case, record.contract, record.seed)
    try:
        found = ncu.count(request, f"cuda:{header.device.index}")
    except CannotMeasure as error:
        return without_counters(record, str(error), error.hint)
    return check_physics(with_ncu(record, found), header.peaks, header.ceilings)


def _is_unfinished(record: Record, header: Header) -> bool:
    """Whether a resumed run measures it again: counters that were required may be there now."""
    lacks = any(caveat.kind == NO_COUNTERS for caveat in record.caveats)
    return record.status in UNFINISHED or (header.counting not in ("off", "auto") and lacks)


def process_text(header: Header, index: int) -> str:
    """`process 2 of 3: `, where a run has several."""
    return f"process {index + 1} of {header.processes}: " if header.processes > 1 else ""


def planned(header: Header) -> tuple[Planned, ...]:
    """Each case of the plan under each contract, the contracts of one case together; once in each
    process, and the whole order turned in every second one, so that what comes first in one comes
    last in the next (ABBA)."""
    contracts = (header.contract, *header.variants)
    once = [(case, contract) for case in header.plan for contract in contracts]
    return tuple(
        (case, contract, index)
        for index in range(header.processes)
        for case, contract in (reversed(once) if index % 2 else once)
    )


def unfinished(run: Run, opened: Opened) -> tuple[Planned, ...]:
    """What of the run's plan is still to be measured, on the device it began on.

    Raises: UsageError without a plan; CannotMeasure when this is another device.
    """
    if run.header.plan == ():
        raise UsageError(f"run {run.header.run} has no plan to resume")
    theirs, ours = run.header.fingerprint.hard, opened.fingerprint.hard
    differing = sorted(k for k in theirs.keys() | ours.keys() if theirs.get(k) != ours.get(k))
    if differing:
        told = ", ".join(f"{k} was {theirs.get(k)!r} and is {ours.get(k)!r}" for k in differing)
        raise CannotMeasure(f"this run cannot be resumed here: {told}", "begin a new run")
    done = {
        (r.case.id, r.contract, r.pass_index)
        for r in run.records
        if not _is_unfinished(r, run.header)
    }
    return tuple(
        (case, contract, index)
        for case, contract, index in planned(run.header)
        if (case.id, contract, index) not in done
    )
