"""`gpuperf calibrate`: measure this device's own roofs, and keep them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gpuperf.cli import options as opt
from gpuperf.cli.measuring import warn_of_calibration
from gpuperf.cli.progress import Reporter, say
from gpuperf.errors import CannotMeasure, UnknownName
from gpuperf.model.record import Record
from gpuperf.model.workload import Case
from gpuperf.report.ceilings import render_ceilings
from gpuperf.runner.ceilings import (
    CALIBRATION_DTYPES,
    calibration_contract,
    kept_ceilings,
)
from gpuperf.runner.ceilings import (
    calibrate as measure_ceilings,
)
from gpuperf.runner.devices import find_peaks
from gpuperf.runner.plan import default_contract

__all__ = ["calibrate"]

# What a CPU is asked for: fp16 and int8 run at a crawl on most.
CPU_DTYPES = ("fp32", "fp64", "bf16")


def calibrate(
    device: opt.DeviceName = "auto",
    dtype: opt.Dtype = None,
    show: Annotated[bool, typer.Option(help="Only show what was measured earlier.")] = False,
    deadline: opt.Deadline = opt.DEFAULT_DEADLINE_S,
    format: opt.FormatOption = opt.Format.TABLE,
) -> None:
    """Measure the best matmul per dtype and the copy bandwidth; kept as this device's roofs."""
    for name in opt.split(dtype):
        if name not in CALIBRATION_DTYPES:
            raise UnknownName("dtype", name, CALIBRATION_DTYPES)
    with opt.make_supervisor(device, deadline) as supervisor:
        opened = supervisor.open()
        facts = opened.device
        peaks, _ = find_peaks(facts)
        ceilings = kept_ceilings(opened)
        if not show:
            default = CPU_DTYPES if facts.kind == "cpu" else CALIBRATION_DTYPES
            contract = calibration_contract(default_contract(facts))
            say(f"measuring the roofs of {facts.name}")
            with Reporter(0) as reporter:
                supervisor.listen = reporter.hear

                def measure(case: Case) -> Record:
                    reporter.begin(case.id)
                    return supervisor.measure("calibration", case, contract, 0)

                dtypes = opt.split(dtype) or default
                ceilings, records = measure_ceilings(
                    measure, opened, peaks, dtypes, lambda c, r: reporter.done(r)
                )
            warn_of_calibration(records)
            if not any(record.status == "ok" for record in records):
                raise CannotMeasure("no roof could be measured", records[0].reason)
    if ceilings is None:
        raise CannotMeasure(f"no roofs are kept for {facts.name}", "run it without --show")
    sys.stdout.write(render_ceilings(ceilings, peaks, format.value))
