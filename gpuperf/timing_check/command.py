"""Run `gpuperf timing-check`: compare each timer with CUPTI on the same kernels."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.files import check_writable
from gpuperf.model.record import Header, Record, Run
from gpuperf.peaks.find import find_peaks
from gpuperf.run.noise import keep_noise, shuffled_passes
from gpuperf.run.plan import default_contract
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import make_header, new_run_id
from gpuperf.run.supervisor import Supervisor
from gpuperf.timing_check.cases import measure_nvbench, timing_cases
from gpuperf.verb import options as opt
from gpuperf.verb.measuring import planned_cases
from gpuperf.verb.printing import print_run, write_charts
from gpuperf.verb.progress import say
from gpuperf.verb.session import Session


@opt.takes(*opt.CASES, "device", "precision", "out", "deadline", "seed", "format", precision=0.005)
def timing_check(
    options: opt.Options,
    processes: Annotated[
        int,
        typer.Option(
            min=1, max=200, help="Number of processes to measure in; 3 or more show the scatter."
        ),
    ] = 3,
    default_only: Annotated[
        bool,
        typer.Option(
            "--default-only", help="Use the default timer alone: this shows scatter, and no bias."
        ),
    ] = False,
) -> None:
    """Check every timer against CUPTI in several processes.

    Triton's do_bench is checked too, and nvbench where cuda-bench is installed. The scatter of
    each case is stored for this device. Without OP, a set of cases from 1 µs to 1.4 ms is
    measured.
    """
    with options.supervisor(processes) as supervisor:
        opened = supervisor.open()
        if opened.device.kind != "cuda":
            raise CannotMeasure(
                f"{opened.device.name} has no CUPTI to compare timers with", "run it on a GPU"
            )
        named = options.op is not None or options.words
        if not named and (options.sizes or options.dtype or options.impl):
            raise UsageError(
                "--sizes, --dtype and --impl need a workload", "for example --op matmul"
            )
        cases = timing_cases()
        if named:
            cases = planned_cases(supervisor, opened, options)
        contract = default_contract(opened.device, precision=options.precision, budget_s=1.0)
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
            seed=options.seed,
        )
        header = replace(header, study="timing-check")
        check_writable(options.out)
        path = options.out / f"{run}.jsonl"
        records, ended = _measure(supervisor, header, path, processes, default_only)
    say(f"run file: {path}")
    keep_noise(opened, contract, records)
    measured = Run(header, tuple(records))
    print_run(measured, options.format)
    write_charts(measured, path)
    if ended is not None:
        raise ended


def _measure(
    supervisor: Supervisor, header: Header, path: Path, processes: int, default_only: bool
) -> tuple[list[Record], BaseException | None]:
    """Measure every case of the plan in each process, and by nvbench in one more.

    Return the records, and the error that ended the measurement early, if any.
    """
    with RunWriter(path, fresh=True) as writer:
        session = Session(supervisor, writer, header)
        writer.header(header)
        with session.reporting(processes * len(header.plan)) as reporter:
            schedule = shuffled_passes(header, processes)
            session.measure(reporter, schedule, every=not default_only, fresh=True)
            if not default_only:
                reporter.begin("nvbench")
                try:
                    for record in measure_nvbench(supervisor, header, processes):
                        session.add(reporter, record)
                except CannotMeasure as error:
                    say(f"{error}; {error.hint}")
    return session.records, session.ended
