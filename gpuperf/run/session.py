"""Measure the cases of a schedule and write each record: the loop of every run file.

The gate has another loop for its pairs (gate/schedule.py), since two sides take turns in it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import get_args

import gpuperf
from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.model.contract import Contract, Counting, Fingerprint
from gpuperf.model.peaks import Peaks
from gpuperf.model.protocol import Measure, Opened
from gpuperf.model.record import NO_COUNTERS, Header, Noise, Record, Run, Status, without_counters
from gpuperf.model.workload import Case
from gpuperf.peaks.physics import check_physics
from gpuperf.run.ncu import Ncu, find_ncu, with_ncu
from gpuperf.run.runfile import RunWriter
from gpuperf.run.supervisor import Supervisor

# Every status but `ok`, `oom` and `skipped`, which are results of a sweep.
FAILED = frozenset(get_args(Status)) - {"ok", "oom", "skipped"}
# --resume measures these again, since the case may not be why the worker ended.
UNFINISHED = ("crashed", "timeout")

OnRecord = Callable[[Record], None]

# A case, its contract, and the number of the process.
PlannedCase = tuple[Case, Contract, int]


def new_run_id(verb: str, op: str) -> str:
    """Make an id of the time, the verb, the workload, and six letters that make it unique."""
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
    """Make the first line of a new run; fields that only some verbs set have their defaults."""
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
        world=max(1, len(opened.devices)),
        devices=opened.devices or (opened.device.index,),
        started=opened.started,
        hosts=opened.hosts,
        tuning=opened.tuning,
    )


def measure_cases(
    supervisor: Supervisor,
    writer: RunWriter | None,
    header: Header,
    plan: Iterable[PlannedCase],
    on_record: OnRecord,
    on_begin: Callable[[str], None] = lambda case: None,
    noise: Callable[[Case, Contract], Noise | None] = lambda case, contract: None,
    every: bool = False,
    fresh: bool = False,
) -> None:
    """Measure the cases of *plan* in turn, and write each record as it comes, if to a *writer*.

    Each process of the plan is a new worker; the first one is the open worker, unless *fresh*. With
    *every*, each case is measured by every timer.
    """
    by_ncu = Ncu(find_ncu(), supervisor.deadline_s) if header.counting == "ncu" else None
    process = -1 if fresh else None
    for case, contract, index in plan:
        if process not in (None, index):
            supervisor.renew()
        process = index
        later = f"process {index + 1}: " if index else ""
        on_begin((process_text(header, index) or later) + case.id)
        # A call moves the same bytes in every process, so only the first one counts them.
        counting: Counting = "off" if by_ncu or index else header.counting
        record = supervisor.measure(
            header.run,
            case,
            contract,
            header.seed,
            every=every,
            counting=counting,
            quantity=header.expected.experiment.y if header.expected else "",
            energy=header.energy and not index and contract.regime == "sustained",
        )
        try:
            if by_ncu is not None and not index and record.status == "ok":
                record = _counted(record, by_ncu, header)
        finally:
            record = replace(record, noise=noise(case, contract), pass_index=index)
            try:
                if writer is not None:
                    writer.record(record)  # first, so that what is shown is in the file
            finally:
                on_record(record)  # even when the disk is full, or Ctrl-C came just now


def _counted(record: Record, ncu: Ncu, header: Header) -> Record:
    """Add the counters of Nsight Compute to *record*, or the caveat that says why it has none."""
    request = Measure(record.run, record.case, record.contract, record.seed)
    try:
        kernels = ncu.count(request, f"cuda:{header.device.index}")
    except CannotMeasure as error:
        return without_counters(record, str(error), error.hint)
    return check_physics(with_ncu(record, kernels), header.peaks, header.ceilings)


def _is_unfinished(record: Record, header: Header) -> bool:
    """Return whether --resume measures the case again: it was cut off, or lacks counters."""
    lacks = any(caveat.kind == NO_COUNTERS for caveat in record.caveats)
    return record.status in UNFINISHED or (header.counting not in ("off", "auto") and lacks)


def process_text(header: Header, index: int) -> str:
    """Write `process 2 of 3: ` for a run with several processes, and nothing otherwise."""
    return f"process {index + 1} of {header.processes}: " if header.processes > 1 else ""


def schedule_of(header: Header) -> tuple[PlannedCase, ...]:
    """Plan each case under each contract once in each process.

    Every second process has the reverse order, so that a case that comes first in one comes last in
    the next (ABBA). An experiment may ask for another cache state at a point.
    """
    contracts = (header.contract, *header.variants)
    points = header.expected.points if header.expected else ()
    caches = {point.case: point.cache for point in points if point.cache}
    once = [
        (case, replace(contract, cache=caches[case.id]) if case.id in caches else contract)
        for case in header.plan
        for contract in contracts
    ]
    return tuple(
        (case, contract, index)
        for index in range(header.processes)
        for case, contract in (reversed(once) if index % 2 else once)
    )


def refuse_other_device(header: Header, fingerprint: Fingerprint) -> None:
    """Refuse to continue a run on another device. Raises: CannotMeasure."""
    before, now = header.fingerprint.hard, fingerprint.hard
    differing = sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k))
    if differing:
        why = ", ".join(f"{k} was {before.get(k)!r} and is {now.get(k)!r}" for k in differing)
        raise CannotMeasure(f"this run cannot be resumed here: {why}", "begin a new run")


def rest_of_schedule(run: Run, opened: Opened) -> tuple[PlannedCase, ...]:
    """Return the part of a run's plan that is not measured yet.

    Raises: UsageError for a run without a plan; CannotMeasure on another device.
    """
    if run.header.plan == ():
        raise UsageError(f"run {run.header.run} has no plan to resume")
    refuse_other_device(run.header, opened.fingerprint)
    done = {
        (r.case.id, r.contract, r.pass_index)
        for r in run.records
        if not _is_unfinished(r, run.header)
    }
    return tuple(
        (case, contract, index)
        for case, contract, index in schedule_of(run.header)
        if (case.id, contract, index) not in done
    )
