"""`gpuperf import`: another tool's file as a run file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.cli.measuring import check_writable
from gpuperf.cli.options import Format, FormatOption, IntensityOption, Out, view
from gpuperf.cli.printing import print_run, write_charts
from gpuperf.cli.progress import say
from gpuperf.errors import UsageError
from gpuperf.model.contract import Fingerprint
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Run
from gpuperf.runner.devices import find_peaks
from gpuperf.runner.session import make_header, new_run_id
from gpuperf.runner.store import RunWriter

__all__ = ["import_file"]


def import_file(
    file: Annotated[Path, typer.Argument(help="A report of Nsight Compute: NAME.ncu-rep.")],
    out: Out = Path("gpuperf-runs"),
    format: FormatOption = Format.TABLE,
    intensity: IntensityOption = "compulsory",
) -> None:
    """Make a run file of a report that exists: its kernels under the roofline.

    Of kernels nobody says what they had to do, so bytes and FLOPs are those that the hardware
    counted. Collect them with `ncu --set full --clock-control none -o NAME …`.
    """
    from gpuperf.importers.ncu import CONTRACT, read_report

    bytes_of = view(intensity)
    check_writable(out)
    run = new_run_id("import", "ncu")
    found = read_report(file, run)
    if found.skipped:
        say(f"{found.skipped} kernels have no duration in the report, and are left out")
    if not found.records:
        raise UsageError(f"no kernel in {file} has a duration", "collect it with ncu --set full")
    peaks, reason = find_peaks(found.device)
    opened = Opened(found.device, Fingerprint(hard={"product": found.device.name}))
    cases = [record.case for record in found.records]
    command = ["gpuperf", *sys.argv[1:]]
    header = make_header(run, command, cases, [CONTRACT], opened, peaks, reason, None, 0)
    path = out / f"{run}.jsonl"
    with RunWriter(path) as writer:
        writer.header(header)
        for record in found.records:
            writer.record(record)
    say(f"run file: {path}")
    imported = Run(header, found.records)
    print_run(imported, format, bytes_of)
    write_charts(imported, path, bytes_of)
