"""Run `gpuperf import`: make a run file from a file of another profiler or benchmark."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import UsageError
from gpuperf.files import check_writable
from gpuperf.importing.results import NO_INDEX, begins_as_results
from gpuperf.model.contract import Contract, DeviceFacts, Fingerprint
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Run
from gpuperf.peaks.find import find_peaks
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import make_header, new_run_id
from gpuperf.verb import options as opt
from gpuperf.verb.parse import parse_view
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
            metavar="FILE",
            help="Nsight Compute report (NAME.ncu-rep), torch.profiler trace (NAME.json or "
            "NAME.json.gz), or JSON of pytest-benchmark or NVBench.",
        ),
    ],
    out: opt.Out = opt.RUNS,
    format: opt.FormatOption = opt.Format.TABLE,
    intensity: opt.IntensityOption = "compulsory",
    warmup: Annotated[
        int,
        typer.Option(min=0, max=10**6, help="Number of training steps to skip at a trace's start."),
    ] = 0,
    device_index: Annotated[
        int | None,
        typer.Option(min=0, max=1023, help="Device of an NVBench file that has several."),
    ] = None,
) -> None:
    """Import an Nsight Compute report, a torch.profiler trace, or benchmark results.

    The kernels of the report become a run file, and are shown under the roofline. A report does
    not say what its kernels had to compute, so bytes and FLOPs are those that the hardware counted:
    collect it with `ncu --set full --clock-control none -o NAME …`. In a trace they follow from the
    shapes of the operators, which profile(record_shapes=True) records. The JSON of pytest-benchmark
    or NVBench has times alone: the gate compares them only with times of the same tool.
    """
    view = parse_view(intensity)
    traced = file.name.endswith((".json", ".json.gz"))
    if not traced and file.suffix != ".ncu-rep":
        raise UsageError(
            f"{str(file)!r} has the name of neither a report of Nsight Compute nor a trace",
            "NAME.ncu-rep, NAME.json or NAME.json.gz",
        )
    check_writable(out)
    results = traced and begins_as_results(file)
    if device_index is not None and not results:
        raise UsageError(f"{str(file)!r} is no file of NVBench", NO_INDEX)
    if results:
        run, path = _results(file, out, device_index)
    else:
        run, path = _traced(file, warmup, out) if traced else _report(file, out)
    with RunWriter(path, fresh=True) as writer:
        writer.header(run.header)
        for record in run.records:
            writer.record(record)
    say(f"run file: {path}")
    plain = traced and not results
    print_run(run, format, None if plain else view)
    if not results:  # times without bytes or FLOPs have no place under a roofline
        write_charts(run, path, None if plain else view)


def _report(file: Path, out: Path) -> tuple[Run, Path]:
    """Return the run of an Nsight Compute report, and the path in *out* of its run file."""
    from gpuperf.importing.ncu import CONTRACT, read_report

    run = new_run_id("import", "ncu")
    report = read_report(file, run)
    if report.skipped:
        say(f"{report.skipped} kernels have no duration in the report, and are left out")
    if not report.records:
        raise UsageError(f"no kernel in {file} has a duration", "collect it with ncu --set full")
    peaks, reason = find_peaks(report.device)
    opened = Opened(report.device, Fingerprint(hard={"product": report.device.name}))
    cases = [record.case for record in report.records]
    command = ["gpuperf", *sys.argv[1:]]
    header = make_header(run, command, cases, [CONTRACT], opened, peaks, reason)
    return Run(header, report.records), out / f"{run}.jsonl"


def _results(file: Path, out: Path, device_index: int | None) -> tuple[Run, Path]:
    """Return the run of a result file of another benchmark, and the path in *out* of its run
    file."""
    from gpuperf.importing.results import read_results

    run = new_run_id("import", "results")
    results = read_results(file, run, device_index)
    if results.left_out:
        say(f"{file}: {results.left_out}")
    opened = Opened(results.device, results.fingerprint)
    reason = f"a result file of {results.tool} has neither bytes nor FLOPs"
    cases = [record.case for record in results.records]
    command = ["gpuperf", *sys.argv[1:]]
    header = make_header(run, command, cases, [results.contract], opened, None, reason)
    return Run(header, results.records), out / f"{run}.jsonl"


def _traced(file: Path, warmup: int, out: Path) -> tuple[Run, Path]:
    """Return a profile of one region from a torch.profiler trace, after *warmup* steps, and the
    path of the run file to write in *out*."""
    from gpuperf.profile.passes import RegionPasses
    from gpuperf.profile.records import region_records
    from gpuperf.profile.trace.kineto import read_trace
    from gpuperf.profile.trace.steps import steps_of

    timeline = read_trace(file, lambda size: say(f"{file}: read {size >> 20:,} MiB of text"))
    if timeline.cut:
        say(f"{file} is cut short; the rest was read")
    if not timeline.shapes:
        say(f"{file} has no shapes, so FLOPs are unknown: profile(record_shapes=True) records them")
    used = timeline.active_devices
    device = next((d for d in timeline.devices if used and d.index == used[0]), None)
    device = device or (NO_DEVICE if used else HOST)
    region, windows = steps_of(timeline, warmup)
    run = new_run_id("import", "trace")
    fingerprint = Fingerprint(hard={"product": device.name})
    passes = RegionPasses(
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
    records = region_records(passes)
    peaks, reason = find_peaks(device)
    command = ["gpuperf", *sys.argv[1:]]
    opened = Opened(device, fingerprint)
    header = make_header(run, command, [records[0].case], [TRACED], opened, peaks, reason)
    return Run(replace(header, study="profile"), records), out / f"{run}.jsonl"
