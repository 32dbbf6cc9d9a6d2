"""`gpuperf calibrate`: measure this device's own roofs, and keep them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from gpuperf.calibrate.table import render_ceilings
from gpuperf.errors import CannotMeasure, UnknownName, UsageError
from gpuperf.model.contract import Contract, DeviceFacts
from gpuperf.model.peaks import Peaks
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Record
from gpuperf.model.workload import Case
from gpuperf.peaks.find import find_peaks
from gpuperf.peaks.measured import measured_ceilings
from gpuperf.run.ceilings import (
    CALIBRATION_DTYPES,
    calibration_contract,
    calibration_plan,
    kept_ceilings,
)
from gpuperf.run.ceilings import calibrate as measure_ceilings
from gpuperf.run.plan import default_contract
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import make_header, new_run_id
from gpuperf.run.supervisor import Supervisor
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb import options as opt
from gpuperf.verb.measuring import check_writable
from gpuperf.verb.progress import say
from gpuperf.verb.roofs import warn_of_calibration
from gpuperf.verb.session import Session

# What a CPU is asked for: fp16 and int8 run at a crawl on most.
CPU_DTYPES = ("fp32", "fp64", "bf16")


@opt.takes("device", "threads", "dtype", "out", "deadline", "format")
def calibrate(
    options: opt.Options,
    show: Annotated[bool, typer.Option(help="Only show what was measured earlier.")] = False,
    force: Annotated[bool, typer.Option(help="Measure anew what is kept.")] = False,
) -> None:
    """Measure the highest rates that this device reaches.

    Matmul, memory, arithmetic and launch rates are measured and stored for this device. Other
    verbs show them as ceilings beside the peaks of the data sheet.
    """
    if show and force:
        raise UsageError("--show and --force exclude each other", "leave one out")
    wanted = opt.split(options.dtype)
    for name in wanted:
        if name not in CALIBRATION_DTYPES:
            raise UnknownName("dtype", name, CALIBRATION_DTYPES)
    with options.supervisor() as supervisor:
        opened = supervisor.open()
        facts = opened.device
        peaks, _ = find_peaks(facts)
        ceilings = kept_ceilings(opened)
        for name in sorted(set(wanted) - set(facts.dtypes)):
            say(f"{facts.name} does not compute in {name}: it has no such roof")
        if wanted and not set(wanted) & set(facts.dtypes):
            told = f"{facts.name} computes in none of {', '.join(wanted)}"
            raise CannotMeasure(told, "leave --dtype out")
        dtypes = wanted or (CPU_DTYPES if facts.kind == "cpu" else CALIBRATION_DTYPES)
        if show and ceilings is None:
            raise CannotMeasure(f"no roofs are kept for {facts.name}", "run it without --show")
        if not show and (force or _missing(ceilings, facts, dtypes)):
            say(f"measuring the roofs of {facts.name}")
            ceilings = _measure(supervisor, opened, peaks, dtypes, options)
        elif not show:
            say(f"the roofs of {facts.name} are kept from earlier; --force measures them anew")
    assert ceilings is not None
    put(render_ceilings(ceilings, peaks, options.format.value, stdout_screen()))


def _missing(kept: Peaks | None, device: DeviceFacts, dtypes: Sequence[str]) -> bool:
    """Whether a roof is not kept that this command measures."""
    if kept is None:
        return True
    known = {c.dtype for c in kept.compute if c.accumulate}
    ours = {"l1_bandwidth", "l2_bandwidth", "launch_latency"}
    whole = device.kind != "cuda" or ours <= kept.figures.keys()
    return not whole or bool(set(dtypes) & set(device.dtypes) - known)


def _measure(
    supervisor: Supervisor,
    opened: Opened,
    peaks: Peaks | None,
    dtypes: Sequence[str],
    options: opt.Options,
) -> Peaks:
    """Measure the roofs; each record is kept in a run file. Raises: CannotMeasure."""
    facts = opened.device
    contract = calibration_contract(default_contract(facts))
    plan = [case for series in calibration_plan(facts, dtypes, contract) for case, _ in series]
    run = new_run_id("calibrate", facts.kind)
    header = make_header(run, ["gpuperf", *sys.argv[1:]], plan, [contract], opened, peaks)
    check_writable(options.out)
    path = options.out / f"{run}.jsonl"
    with RunWriter(path, fresh=True) as writer:
        session = Session(supervisor, writer, header)
        writer.header(header)
        with session.reporting(0) as reporter:

            def measure(case: Case, contract: Contract) -> Record:
                session.measure(reporter, [(case, contract, 0)])
                return session.records[-1]

            ceilings, records = measure_ceilings(measure, opened, peaks, dtypes, contract, True)
    if isinstance(session.ended, KeyboardInterrupt):
        say(f"run file: {path}; interrupted: what it shows so far is not kept")
        so_far = measured_ceilings(session.records, facts, peaks)
        put(render_ceilings(so_far, peaks, options.format.value, stdout_screen()))
    if session.ended is not None:
        raise session.ended
    warn_of_calibration(records)
    say(f"run file: {path}")
    if not any(record.status == "ok" for record in records):
        raise CannotMeasure("no roof could be measured", records[0].reason)
    return ceilings
