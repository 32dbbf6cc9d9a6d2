"""`gpuperf import`: another tool's file as a run file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import UsageError
from gpuperf.model.contract import Contract, DeviceFacts, Fingerprint
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Run
from gpuperf.peaks.find import find_peaks
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import make_header, new_run_id
from gpuperf.verb.measuring import check_writable
from gpuperf.verb.options import Format, FormatOption, IntensityOption, Out, view
from gpuperf.verb.printing import print_run, write_charts
from gpuperf.verb.progress import say

TRACED = Contract(
    "activity",
    cache="hot",
    regime="sustained",
    gap_s=0.0,
    data="own",
    warmup_calls=0,
    min_samples=1,
    max_samples=1,
    settle_s=0.0,
)
HOST = DeviceFacts("cpu", 0, "the host of the trace", 1, 0, 0)
NO_DEVICE = DeviceFacts("cuda", 0, "a device that the trace does not name", 1, 0, 0)


def import_file(
    file: Annotated[
        Path,
        typer.Argument(
            help="NAME.ncu-rep of Nsight Compute, or a trace of torch.profiler: "
            "NAME.json, NAME.json.gz."
        ),
    ],
    out: Out = Path("gpuperf-runs"),
    format: FormatOption = Format.TABLE,
    intensity: IntensityOption = "compulsory",
    warmup: Annotated[
        int, typer.Option(min=0, max=10**6, help="Steps of a trace that do not count.")
    ] = 0,
) -> None:
    """Import an Nsight Compute report or a torch.profiler trace.

    The kernels of the report become a run file, and are shown under the roofline. A report does
    not say what its kernels had to compute, so bytes and FLOPs are those that the hardware counted:
    collect it with `ncu --set full --clock-control none -o NAME …`. In a trace they follow from the
    shapes of the operators, which profile(record_shapes=True) records.
    """
    bytes_of = view(intensity)
    traced = file.name.endswith((".json", ".json.gz"))
    if not traced and file.suffix != ".ncu-rep":
        raise UsageError(
            f"{str(file)!r} is neither a report of Nsight Compute nor a trace by its name",
            "NAME.ncu-rep, NAME.json or NAME.json.gz",
        )
    check_writable(out)
    run, path = _traced(file, warmup, out) if traced else _report(file, out)
    with RunWriter(path, fresh=True) as writer:
        writer.header(run.header)
        for record in run.records:
            writer.record(record)
    say(f"run file: {path}")
    print_run(run, format, None if traced else bytes_of)
    write_charts(run, path, None if traced else bytes_of)


def _report(file: Path, out: Path) -> tuple[Run, Path]:
    """A report of Nsight Compute."""
    from gpuperf.importing.ncu import CONTRACT, read_report

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
    header = make_header(run, command, cases, [CONTRACT], opened, peaks, reason)
    return Run(header, found.records), out / f"{run}.jsonl"


def _traced(file: Path, warmup: int, out: Path) -> tuple[Run, Path]:
    """A trace of torch.profiler, as a profile of one region."""
    from gpuperf.profile.records import RegionPasses, region_records
    from gpuperf.profile.trace.kineto import read_trace
    from gpuperf.profile.trace.steps import steps_of

    timeline = read_trace(file, lambda size: say(f"{file}: read {size >> 20:,} MiB of text"))
    if timeline.cut:
        say(f"{file} is cut short: what there is was read")
    if not timeline.shapes:
        say(f"{file} has no shapes, so no FLOPs are known: profile(record_shapes=True)")
    used = timeline.active_devices
    device = next((d for d in timeline.devices if used and d.index == used[0]), None)
    device = device or (NO_DEVICE if used else HOST)
    region, windows = steps_of(timeline, warmup)
    run = new_run_id("import", "trace")
    fingerprint = Fingerprint(hard={"product": device.name})
    told = RegionPasses(
        run,
        region,
        file.name,
        TRACED,
        fingerprint,
        (),
        timeline,
        tuple(windows),
        total=len(windows),
        exit_code=None,
        cuda=bool(used),
    )
    records = region_records(told)
    peaks, reason = find_peaks(device)
    command = ["gpuperf", *sys.argv[1:]]
    opened = Opened(device, fingerprint)
    header = make_header(run, command, [records[0].case], [TRACED], opened, peaks, reason)
    return Run(replace(header, study="profile"), records), out / f"{run}.jsonl"
