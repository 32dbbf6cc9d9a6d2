"""Run `gpuperf calibrate`: measure this device's roofs and store them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from gpuperf.calibrate.table import render_ceilings
from gpuperf.errors import CannotMeasure, UnknownName, UsageError
from gpuperf.files import check_writable
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.peaks import Peaks
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Record
from gpuperf.peaks.find import find_peaks
from gpuperf.peaks.measured import measured_ceilings
from gpuperf.run.ceilings import (
    CALIBRATION_DTYPES,
    calibration_contract,
    calibration_plan,
    kept_ceilings,
)
from gpuperf.run.plan import default_contract
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import make_header, new_run_id
from gpuperf.run.supervisor import Supervisor
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb import options as opt
from gpuperf.verb.parse import split
from gpuperf.verb.progress import say
from gpuperf.verb.roofs import measure_roofs
from gpuperf.verb.session import Session

# The dtypes that are measured on a CPU; most are very slow in fp16 and int8.
CPU_DTYPES = ("fp32", "fp64", "bf16")


@opt.takes("device", "threads", "dtype", "out", "deadline", "format")
def calibrate(
    options: opt.Options,
    show: Annotated[
        bool, typer.Option("--show", help="Show the stored rates, and measure nothing.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Measure rates again that are stored.")
    ] = False,
) -> None:
    """Measure the highest rates that this device reaches.

    Matmul, memory, arithmetic and launch rates are measured and stored for this device. Other
    verbs show them as ceilings beside the peaks of the data sheet.
    """
    if show and force:
        raise UsageError("--show and --force exclude each other", "leave one out")
    wanted = split(options.dtype)
    for name in wanted:
        if name not in CALIBRATION_DTYPES:
            raise UnknownName("dtype", name, CALIBRATION_DTYPES)
    with options.supervisor() as supervisor:
        opened = supervisor.open()
        facts = opened.device
        peaks, _ = find_peaks(facts)
        ceilings = kept_ceilings(opened)
        for name in sorted(set(wanted) - set(facts.dtypes)):
            say(f"{facts.name} does not compute in {name}, so {name} has no roof")
        if wanted and not set(wanted) & set(facts.dtypes):
            names = ", ".join(wanted)
            raise CannotMeasure(f"{facts.name} computes in none of {names}", "leave --dtype out")
        dtypes = wanted or (CPU_DTYPES if facts.kind == "cpu" else CALIBRATION_DTYPES)
        if show and ceilings is None:
            raise CannotMeasure(f"no roofs are stored for {facts.name}", "run it without --show")
        if not show and (force or _missing(ceilings, facts, dtypes)):
            say(f"measuring the roofs of {facts.name}")
            ceilings = _measure(supervisor, opened, peaks, dtypes, options)
        elif not show:
            say(f"the roofs of {facts.name} are stored already; --force measures them again")
    assert ceilings is not None
    put(render_ceilings(ceilings, peaks, options.format.value, stdout_screen()))


def _missing(stored: Peaks | None, device: DeviceFacts, dtypes: Sequence[str]) -> bool:
    """Return whether this command measures a roof that is not *stored*."""
    if stored is None:
        return True
    known = {c.dtype for c in stored.compute if c.accumulate}
    on_gpus = {"l1_bandwidth", "l2_bandwidth", "launch_latency"}
    complete = device.kind != "cuda" or on_gpus <= stored.figures.keys()
    return not complete or bool(set(dtypes) & set(device.dtypes) - known)


def _measure(
    supervisor: Supervisor,
    opened: Opened,
    peaks: Peaks | None,
    dtypes: Sequence[str],
    options: opt.Options,
) -> Peaks:
    """Measure the roofs, with each record in a run file. Raises: CannotMeasure."""
    facts = opened.device
    contract = calibration_contract(default_contract(facts))
    plan = [case for series in calibration_plan(facts, dtypes, contract) for case, _ in series]
    run = new_run_id("calibrate", facts.kind)
    header = make_header(run, ["gpuperf", *sys.argv[1:]], plan, [contract], opened, peaks)
    check_writable(options.out)
    path = options.out / f"{run}.jsonl"
    records: list[Record] = []
    try:
        with RunWriter(path, fresh=True) as writer:
            writer.header(header)
            session = Session(supervisor, writer, header, records)
            roofs = measure_roofs(session, opened, peaks, dtypes, sustained=True)
    except KeyboardInterrupt:
        say(f"run file: {path}; interrupted: the roofs measured so far are not stored")
        so_far = measured_ceilings(records, facts, peaks)
        put(render_ceilings(so_far, peaks, options.format.value, stdout_screen()))
        raise
    say(f"run file: {path}")
    if not any(record.status == "ok" for record in records):
        raise CannotMeasure("no roof could be measured", records[0].reason)
    return roofs
