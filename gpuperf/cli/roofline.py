"""`gpuperf roofline`: measure a workload over its sizes, and place it under the roofline."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from gpuperf.cli import options as opt
from gpuperf.cli.printing import print_run, write_charts
from gpuperf.cli.progress import Reporter, say
from gpuperf.errors import CannotMeasure, GpuperfError, UsageError
from gpuperf.model.peaks import Peaks
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Header, Record, Run
from gpuperf.model.workload import Case
from gpuperf.runner.catalogue import find_workload
from gpuperf.runner.ceilings import calibrate, calibration_contract, kept_ceilings
from gpuperf.runner.devices import find_peaks, load_peaks
from gpuperf.runner.plan import default_contract, plan_cases, settle_dtype
from gpuperf.runner.session import (
    FAILED,
    continue_run,
    make_header,
    measure_cases,
    new_run_id,
)
from gpuperf.runner.store import RunWriter
from gpuperf.runner.supervisor import Supervisor

__all__ = ["roofline"]

# What a run that is resumed brings with it; the rest (device, deadline, format) may be given anew.
SETTLED = (
    "op", "sizes", "dtype", "impl", "timer", "precision", "budget", "peaks", "out", "seed",
)  # fmt: skip
TYPED = "COMMANDLINE"


def roofline(
    ctx: typer.Context,
    op: opt.Op = None,
    sizes: opt.Sizes = None,
    dtype: opt.Dtype = None,
    impl: opt.Impl = None,
    device: opt.DeviceName = "auto",
    timer: opt.TimerOption = None,
    precision: opt.Precision = 0.01,
    budget: opt.Budget = 2.0,
    deadline: opt.Deadline = opt.DEFAULT_DEADLINE_S,
    peaks: opt.PeaksFile = None,
    out: opt.Out = Path("gpuperf-runs"),
    format: opt.FormatOption = opt.Format.TABLE,
    resume: opt.Resume = None,
    seed: opt.Seed = 0,
) -> int:
    """Measure OP over its sizes, and show where each lies under the roofline.

    OP may stand first, without --op. Any axis of the workload is an option too: --m 4096
    --k 512,1024.
    """
    user_peaks = load_peaks(peaks) if peaks else None
    with opt.make_supervisor(device, deadline) as supervisor:
        if resume is not None:
            _refuse_beside_resume(ctx)
            run, cases = continue_run(resume, _open(supervisor))
            seed = run.records[0].seed if run.records else seed
            return _measure(supervisor, resume, run.header, cases, run, seed, format)
        words = list(ctx.args)
        if op is None and words and not words[0].startswith("-"):
            op = words.pop(0)
        if op is None:
            raise UsageError("no workload was named", "--op matmul; `gpuperf list` shows them all")
        description = find_workload(op, supervisor.describe)
        axes = opt.axis_options(words, description) | ({} if dtype is None else {"dtype": dtype})
        planned = plan_cases(description, axes, sizes, opt.split(impl))
        run_id = new_run_id("roofline", description.name)
        _check_writable(out)
        opened = _open(supervisor)
        cases = settle_dtype(planned, opened.device)
        contract = default_contract(
            opened.device, timer.value if timer else None, precision, budget
        )
        known, reason = find_peaks(opened.device, user_peaks)
        if reason and opened.device.kind != "cpu":
            say(reason)
        ceilings = kept_ceilings(opened)
        header = make_header(
            run_id, sys.argv, cases, contract, opened, known, reason, ceilings
        )
        if known is None:
            ceilings = _ensure_ceilings(supervisor, header, opened, ceilings)
            header = make_header(
                run_id, sys.argv, cases, contract, opened, known, reason, ceilings
            )
        path = out / f"{run_id}.jsonl"
        return _measure(supervisor, path, header, cases, None, seed, format)


def _refuse_beside_resume(ctx: typer.Context) -> None:
    """The plan and the contract are the run's own. Raises: UsageError."""
    sources = {name: ctx.get_parameter_source(name) for name in SETTLED}
    given = [f"--{name}" for name, source in sources.items() if source and source.name == TYPED]
    given += ctx.args
    if given:
        raise UsageError(
            f"--resume takes its plan from the run, so {given[0]} has no place beside it",
            "leave it out, or begin a new run",
        )


def _open(supervisor: Supervisor) -> Opened:
    opened = supervisor.open()
    facts = opened.device
    if facts.kind == "cpu":
        say(f"no GPU is used: measuring the CPU, {facts.name}, on {facts.sm_count} threads")
    else:
        say(f"measuring {facts.name} ({facts.sm_count} SMs, {facts.memory_bytes / 1e9:.0f} GB)")
    return opened


def _check_writable(out: Path) -> None:
    """Before minutes are spent. Raises: UsageError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".gpuperf-probe"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"nothing can be written to {out}: {error.strerror}", "choose another --out"
        ) from None


def _ensure_ceilings(
    supervisor: Supervisor, header: Header, opened: Opened, kept: Peaks | None
) -> Peaks | None:
    """Measured roofs for the dtypes of the plan, where no data sheet gives them."""
    needed = {str(case.point.get("dtype")) for case in header.plan} & set(opened.device.dtypes)
    have = {ceiling.dtype for ceiling in kept.compute} if kept else set()
    missing = tuple(sorted(needed - have))
    if not missing:
        return kept
    say("no data-sheet peaks: measuring this device's own roofs first")
    contract = calibration_contract(header.contract)
    with Reporter(0) as reporter:
        supervisor.listen = reporter.hear

        def measure(case: Case) -> Record:
            reporter.begin(f"calibrating {case.id}")
            return supervisor.measure("calibration", case, contract, 0)

        ceilings, _ = calibrate(measure, opened, None, missing, lambda c, r: reporter.done(r))
    return ceilings


def _measure(
    supervisor: Supervisor,
    path: Path,
    header: Header,
    cases: Sequence[Case],
    earlier: Run | None,
    seed: int,
    format: opt.Format,
) -> int:
    """Measure, and print what there is, whatever ends the run."""
    records: list[Record] = list(earlier.records) if earlier else []
    ended: BaseException | None = None
    with RunWriter(path) as writer, Reporter(len(cases)) as reporter:
        supervisor.listen = reporter.hear
        writer.resume() if earlier else writer.header(header)

        def keep(record: Record) -> None:
            records.append(record)
            reporter.done(record)

        try:
            measure_cases(supervisor, writer, header, cases, seed, keep, reporter.begin)
        except (GpuperfError, KeyboardInterrupt) as error:
            ended = error
    latest = {record.case.id: record for record in records}
    run = Run(header, tuple(latest.values()))
    if run.records:
        print_run(run, format)
        write_charts(run, path)
    say(f"run file: {path}")
    if isinstance(ended, KeyboardInterrupt):
        say(f"interrupted; the rest: gpuperf roofline --resume {path}")
    if ended is not None:
        raise ended
    return _exit_code(run)


def _exit_code(run: Run) -> int:
    """3 where something is broken, or nothing was measured at all; everything was printed."""
    if not any(record.status == "ok" for record in run.records):
        raise CannotMeasure("nothing was measured", "the table says why")
    failed = [record for record in run.records if record.status in FAILED]
    if failed:
        names = ", ".join(f"{r.case.id} ({r.status})" for r in failed[:3])
        raise CannotMeasure(f"{len(failed)} of {len(run.records)} cases failed: {names}")
    return 0
