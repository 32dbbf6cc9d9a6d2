"""What every measuring verb does between its options and its report: plan, roofs, run, file."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuperf.errors import CannotMeasure, GpuperfError, UnknownName, UsageError
from gpuperf.model.contract import Contract, Counting, DeviceFacts
from gpuperf.model.peaks import lint
from gpuperf.model.protocol import Opened
from gpuperf.model.record import NO_COUNTERS, Header, Noise, Record, Run
from gpuperf.model.workload import Case, Description
from gpuperf.peaks.find import find_peaks, load_peaks
from gpuperf.run.catalogue import BUILTIN, find_workload
from gpuperf.run.ceilings import kept_ceilings
from gpuperf.run.ncu import find_ncu
from gpuperf.run.noise import keep_noise, kept_noise, shuffled_passes
from gpuperf.run.plan import (
    Conditions,
    plan_cases,
    plan_comparison,
    plan_contracts,
    plan_counting,
    settle_dtype,
)
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import FAILED, Planned, make_header, new_run_id, planned, unfinished
from gpuperf.run.store import read_run
from gpuperf.run.suite import Suite, plan_suite
from gpuperf.run.supervisor import Supervisor
from gpuperf.show.view import View
from gpuperf.verb.options import Options, axis_options, split
from gpuperf.verb.printing import print_run, write_charts
from gpuperf.verb.progress import say
from gpuperf.verb.roofs import measured_roofs
from gpuperf.verb.session import Session


@dataclass(frozen=True)
class Request:
    """What the user asked a measuring verb for, and the conditions under which to measure."""

    verb: str
    options: Options
    conditions: Conditions
    view: View = "compulsory"
    baseline: str | None = None
    study: str = ""
    asked: tuple[int, ...] = ()
    refuse: Callable[[Sequence[Case], DeviceFacts], None] | None = None
    processes: int = 1


@dataclass(frozen=True)
class Outcome:
    """What was measured, where it is kept, and what ended it early, if anything did."""

    run: Run
    path: Path
    ended: BaseException | None = None


def measure_new(supervisor: Supervisor, request: Request) -> Outcome:
    """Measure what *request* asks for into a new run file. Raises: UsageError, CannotMeasure."""
    if request.options.peaks:
        load_peaks(request.options.peaks)  # before anything is started
    compared = request.verb == "compare"
    description, drawn = _drawn(supervisor, request.options, compared)
    baseline = ""
    if compared:
        drawn, baseline = plan_comparison(drawn, request.baseline, description)
        if len({case.implementation for case in drawn}) == 1:
            say(f"{baseline} is compared with nothing: no other implementation is asked for")
    check_writable(request.options.out)
    opened = _open(supervisor)
    if request.refuse:
        request.refuse(drawn, opened.device)
    cases = settle_dtype(drawn, description, opened.device)
    main = [axis.name for axis in description.axes if axis.main]
    return _begin(supervisor, request, opened, cases, description.name, main, baseline)


def measure_suite(supervisor: Supervisor, suite: Suite, request: Request) -> Outcome:
    """Measure the cases of *suite* into a new run file. Raises: UsageError, CannotMeasure."""
    if request.options.peaks:
        load_peaks(request.options.peaks)  # before anything is started
    for source in sorted({entry.op for entry in suite.entries if set(entry.op) & set("/.:")}):
        say(f"the suite names the workload {source}: it is loaded from here")
    check_writable(request.options.out)
    opened = _open(supervisor)
    cases = plan_suite(suite, supervisor.describe, opened.device)
    return _begin(supervisor, request, opened, cases, suite.name)


def measure_again(supervisor: Supervisor, outcome: Outcome, passes: int) -> Outcome:
    """*outcome*, and its cases in so many more fresh processes, in the same file; what they scatter
    is kept for this device."""
    header = outcome.run.header
    with RunWriter(outcome.path) as writer:
        session = Session(supervisor, writer, header, list(outcome.run.records))
        with session.reporting(passes * len(header.plan)) as reporter:
            session.measure(reporter, shuffled_passes(header, passes, first=1), fresh=True)
    keep_noise(supervisor.open(), header.contract, session.records)
    return replace(outcome, ended=session.ended)


def _begin(
    supervisor: Supervisor,
    request: Request,
    opened: Opened,
    cases: Sequence[Case],
    name: str,
    main: Sequence[str] = (),
    baseline: str = "",
) -> Outcome:
    """Measure *cases* into a new run file, under what *request* asks for."""
    user_peaks = load_peaks(request.options.peaks) if request.options.peaks else None
    contracts = plan_contracts(opened.device, request.conditions)
    _refuse_view(request.view, request.conditions.counting, opened.device)
    counting = plan_counting(opened.device, request.conditions.counting)
    if counting == "ncu":
        find_ncu()  # before minutes are spent
    peaks, reason = find_peaks(opened.device, user_peaks)
    if reason and (user_peaks or opened.device.kind != "cpu"):
        say(reason)
    for complaint in lint(user_peaks) if user_peaks else ():
        say(f"{request.options.peaks}: {complaint}")
    ceilings = kept_ceilings(opened)
    if peaks is None:
        ceilings = measured_roofs(supervisor, opened, cases, contracts[0])
    supervisor.peaks, supervisor.ceilings = peaks, ceilings
    command, run_id = ["gpuperf", *sys.argv[1:]], new_run_id(request.verb, name)
    header = make_header(
        run_id, command, cases, contracts, opened, peaks, reason, ceilings, request.options.seed
    )
    header = replace(
        header,
        counting=counting,
        baseline=baseline,
        main=tuple(main),
        study=request.study,
        asked=request.asked,
        processes=request.processes,
    )
    with RunWriter(request.options.out / f"{run_id}.jsonl", fresh=True) as writer:
        return _measure(supervisor, writer, Run(header, ()), planned(header))


def refuse_one_size(cases: Sequence[Case], example: str) -> None:
    """Refuse a sweep of a single size. Raises: UsageError with *example* as its hint."""
    points = [[v for v in case.point.values() if isinstance(v, int)] for case in cases]
    if len({tuple(point) for point in points}) < 2:
        raise UsageError("one size is no sweep: there is nothing to compare", example)


def refuse_axis(supervisor: Supervisor, op: str | None, words: Sequence[str], axis: str) -> None:
    """Raises: UnknownName where the workload has no *axis* of sizes."""
    description = find_workload(_workload_name(op, words)[0], supervisor.describe)
    sizes = [a.name for a in description.axes if not isinstance(a.default, str)]
    if axis not in sizes:
        raise UnknownName(f"axis of {description.name}", axis, sizes)


def _refuse_view(view: View, counting: Counting, device: DeviceFacts) -> None:
    """A chart by bytes that will not be measured is refused before minutes are spent."""
    if view in ("compulsory", "modelled"):
        return
    if device.kind != "cuda":
        raise CannotMeasure(
            f"--intensity {view} needs hardware counters, which gpuperf reads on NVIDIA GPUs only",
            "--intensity compulsory",
        )
    if view in ("measured", "both") and counting == "off":
        raise UsageError(f"--intensity {view} needs hardware counters", "--counters auto")
    if view == "hierarchy" and counting not in ("kernels", "ncu"):
        raise UsageError("--intensity hierarchy needs each kernel's counters", "--counters kernels")


def measure_rest(supervisor: Supervisor, path: Path) -> Outcome:
    """Measure what the run in *path* still lacks, into the same file."""
    read_run(path)  # what is no run is not opened for writing
    with RunWriter(path) as writer:
        run = read_run(path)  # again: no other process writes to it from now on
        for source in sorted({case.source for case in run.header.plan} - {BUILTIN}):
            say(f"the run names workloads of {source}: they are loaded from here")
        opened = _open(supervisor)
        plan = unfinished(run, opened)
        supervisor.peaks, supervisor.ceilings = run.header.peaks, run.header.ceilings
        then, now = run.header.fingerprint.soft, opened.fingerprint.soft
        for name in sorted(k for k in then.keys() | now.keys() if then.get(k) != now.get(k)):
            say(f"{name} was {then.get(name)} when the run began, and is {now.get(name)}")
        return _measure(supervisor, writer, run, plan, resumed=True)


def report(outcome: Outcome, options: Options, view: View | None = None) -> int:
    """Print *outcome*, write its charts, and return the exit code, or raise what is broken."""
    if outcome.run.records:
        print_run(
            outcome.run, options.format, view, columns=options.columns, verbose=options.verbose
        )
        write_charts(outcome.run, outcome.path, view)
    return exit_code(outcome)


def exit_code(outcome: Outcome) -> int:
    """0, or an error that says what is broken, after everything was printed."""
    if outcome.ended is not None:
        raise outcome.ended
    records = outcome.run.records
    if not any(record.status == "ok" for record in records):
        raise CannotMeasure("nothing was measured", "the table says why")
    if outcome.run.header.counting not in ("off", "auto"):
        lacking = [c for r in records for c in r.caveats if c.kind == NO_COUNTERS]
        if lacking:
            told = f"{len(lacking)} of {len(records)} cases have no counters, which were required"
            raise CannotMeasure(told, lacking[0].hint)
    failed = [record for record in records if record.status in FAILED]
    if failed:
        names = dict.fromkeys(f"{r.case.id} ({r.status})" for r in failed)
        cases = len({(r.case.id, r.contract) for r in records})
        lost = len({(r.case.id, r.contract) for r in failed})
        told = ", ".join(list(names)[:3])
        raise CannotMeasure(f"{lost} of {cases} cases failed: {told}")
    return 0


def planned_cases(supervisor: Supervisor, opened: Opened, options: Options) -> tuple[Case, ...]:
    """The cases that a command line asks for on the opened device. Raises: UsageError."""
    description, drawn = _drawn(supervisor, options)
    return settle_dtype(drawn, description, opened.device)


def _drawn(
    supervisor: Supervisor, options: Options, every: bool = False
) -> tuple[Description, tuple[Case, ...]]:
    """The workload and its cases; *every* implementation unless some are named, or the workload's
    standard ones."""
    op, words = _workload_name(options.op, options.words)
    description = find_workload(op, supervisor.describe)
    axes = axis_options(words, description)
    _say_of_sizes(description, axes, options.sizes)
    if options.dtype is not None:
        axes["dtype"] = options.dtype
    chosen = split(options.impl)
    if every and not chosen:
        same = description.implementations[0].computes
        chosen = tuple(i.name for i in description.implementations if i.computes == same)
        for left in (i for i in description.implementations if i.computes != same):
            say(f"{left.name} is left out: it computes {left.computes or 'the formula'}")
    return description, plan_cases(description, axes, options.sizes, chosen)


def _say_of_sizes(description: Description, axes: Mapping[str, str], sizes: str | None) -> None:
    """Which axes --sizes sets, where another option sets some of them itself."""
    main = [axis.name for axis in description.axes if axis.main]
    own = [name for name in main if name in axes]
    if sizes is not None and own and len(own) < len(main):
        rest = " and ".join(f"--{name}" for name in main if name not in own)
        say(f"--sizes sets {rest} alone: --{', --'.join(own)} is given itself")


def _workload_name(op: str | None, given: Sequence[str]) -> tuple[str, list[str]]:
    """The workload, given by --op or as the first word, and the other words."""
    words = list(given)
    if op is not None:
        return op, words
    if words and not words[0].startswith("-"):
        return words[0], words[1:]
    raise UsageError("no workload was named", "--op matmul; `gpuperf list` shows them all")


def _open(supervisor: Supervisor) -> Opened:
    opened = supervisor.open()
    facts = opened.device
    if facts.kind == "cpu":
        say(f"no GPU is used: measuring the CPU, {facts.name}, on {facts.sm_count} threads")
    else:
        say(f"measuring {facts.name} ({facts.sm_count} SMs, {facts.memory_bytes / 1e9:.0f} GB)")
    return opened


def check_writable(out: Path) -> None:
    """Before minutes are spent. Raises: UsageError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle, probe = tempfile.mkstemp(prefix=".gpuperf-", dir=out)
        os.close(handle)
        Path(probe).unlink()
    except OSError as error:
        raise UsageError(
            f"nothing can be written to {out}: {error.strerror}", "choose another --out"
        ) from None


def _measure(
    supervisor: Supervisor,
    writer: RunWriter,
    run: Run,
    plan: Sequence[Planned],
    resumed: bool = False,
) -> Outcome:
    """Measure *plan* into *writer*; whatever ends it, what was measured is in the outcome."""
    opened = supervisor.open()

    def noise(case: Case, contract: Contract) -> Noise | None:
        return kept_noise(opened, contract).get(case.id)

    session = Session(supervisor, writer, run.header, list(run.records))
    with session.reporting(len(plan), [entry[1] for entry in plan]) as reporter:
        writer.resume() if resumed else writer.header(run.header)
        session.measure(reporter, plan, noise)
    try:
        writer.verify()
    except GpuperfError as lost:
        say(str(lost))
        session.ended = session.ended or lost
    path = writer.path
    say(f"run file: {path}")
    if isinstance(session.ended, KeyboardInterrupt):
        say(f"interrupted; the rest: gpuperf roofline --resume {path}")
    latest = {(r.case.id, r.contract, r.pass_index): r for r in session.records}
    return Outcome(_of_header(run.header, latest), path, session.ended)


def _of_header(header: Header, latest: dict[tuple[str, Contract, int], Record]) -> Run:
    """The run with its records in the order of the plan."""
    keys = [(case.id, contract, index) for case, contract, index in planned(header)]
    return Run(header, tuple(latest[key] for key in keys if key in latest))
