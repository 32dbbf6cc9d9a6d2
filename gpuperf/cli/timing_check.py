"""`gpuperf timing-check`: every timer on the same kernels, against the hardware's own record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.cli import options as opt
from gpuperf.cli.measuring import check_writable, planned_cases
from gpuperf.cli.printing import print_run, write_charts
from gpuperf.cli.progress import Reporter, say
from gpuperf.errors import CannotMeasure, GpuperfError, UsageError
from gpuperf.model.record import Header, Record, Run
from gpuperf.runner.devices import find_peaks
from gpuperf.runner.plan import default_contract
from gpuperf.runner.session import make_header, new_run_id
from gpuperf.runner.store import RunWriter
from gpuperf.runner.supervisor import Supervisor
from gpuperf.runner.timing import keep_noise, measure_nvbench, measure_passes, timing_cases

__all__ = ["timing_check"]


def timing_check(
    ctx: typer.Context,
    op: opt.Op = None,
    sizes: opt.Sizes = None,
    dtype: opt.Dtype = None,
    impl: opt.Impl = None,
    device: opt.DeviceName = "auto",
    processes: Annotated[
        int, typer.Option(min=1, max=200, help="Fresh processes; 3 and more show the scatter.")
    ] = 3,
    default_only: Annotated[
        bool, typer.Option("--default-only", help="Only the default timer: scatter, no bias.")
    ] = False,
    precision: opt.Precision = 0.005,
    out: opt.Out = Path("gpuperf-runs"),
    deadline: opt.Deadline = opt.DEFAULT_DEADLINE_S,
    seed: opt.Seed = 0,
    format: opt.FormatOption = opt.Format.TABLE,
) -> None:
    """Hold every timer against CUPTI on the same kernels, in several fresh processes.

    Beside ours: Triton's do_bench, and nvbench where cuda-bench is installed. The scatter of each
    case is kept for this device. Cases: a set from 1 µs to 1.4 ms, or those of OP.
    """
    with opt.make_supervisor(device, deadline) as supervisor:
        opened = supervisor.open()
        if opened.device.kind != "cuda":
            raise CannotMeasure(
                f"{opened.device.name} has no CUPTI to hold timers against", "run it on a GPU"
            )
        if op is None and not ctx.args and (sizes or dtype or impl):
            raise UsageError("--sizes, --dtype and --impl need an OP", "for example matmul")
        cases = timing_cases()
        if op is not None or ctx.args:
            cases = planned_cases(supervisor, opened, op, ctx.args, sizes, dtype, impl)
        contract = default_contract(opened.device, precision=precision, budget_s=1.0)
        peaks, reason = find_peaks(opened.device)
        run = new_run_id("timing-check", opened.device.kind)
        header = make_header(
            run,
            ["gpuperf", *sys.argv[1:]],
            cases,
            [contract],
            opened,
            peaks,
            reason,
            None,
            seed,
            study="timing-check",
        )
        check_writable(out)
        path = out / f"{run}.jsonl"
        records, ended = _measure(supervisor, header, path, processes, default_only)
    say(f"run file: {path}")
    keep_noise(opened, contract, records)
    found = Run(header, tuple(records))
    print_run(found, format)
    write_charts(found, path)
    if ended is not None:
        raise ended


def _measure(
    supervisor: Supervisor, header: Header, path: Path, processes: int, default_only: bool
) -> tuple[list[Record], BaseException | None]:
    """Every case of the plan in each process, and by nvbench in one more; kept as they come. The
    records, and what ended it early."""
    run, cases, contract, seed = header.run, header.plan, header.contract, header.seed
    records: list[Record] = []
    with RunWriter(path, fresh=True) as writer, Reporter(processes * len(cases)) as reporter:
        supervisor.listen = reporter.hear
        writer.header(header)

        def hear(record: Record) -> None:
            records.append(record)
            writer.record(record)
            reporter.done(record)

        try:
            measure_passes(
                supervisor, run, cases, contract, processes, seed, not default_only, hear,
                reporter.begin,
            )  # fmt: skip
            if not default_only:
                reporter.begin("nvbench")
                _measure_nvbench(supervisor, header, processes, hear)
        except (GpuperfError, KeyboardInterrupt) as error:
            return records, error
    return records, None


def _measure_nvbench(
    supervisor: Supervisor, header: Header, index: int, hear: Callable[[Record], None]
) -> None:
    """By nvbench, where it is installed."""
    try:
        measure_nvbench(
            supervisor, header.run, header.plan, header.contract, index, header.seed, hear
        )
    except CannotMeasure as error:
        say(f"{error}; {error.hint}")
