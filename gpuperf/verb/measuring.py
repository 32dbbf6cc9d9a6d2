"""Plan, measure and report the cases that a measuring verb is given, in one run file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from gpuperf.errors import CannotMeasure, GpuperfError, UnknownName, UsageError
from gpuperf.files import check_writable
from gpuperf.model.contract import Contract, Counting, DeviceFacts
from gpuperf.model.experiment import Predictions
from gpuperf.model.peaks import Peaks, lint
from gpuperf.model.protocol import Opened
from gpuperf.model.record import NO_COUNTERS, Header, Noise, Run
from gpuperf.model.workload import Case, Description
from gpuperf.peaks.find import find_peaks, load_peaks
from gpuperf.run.catalogue import BUILTIN, find_workload
from gpuperf.run.ceilings import kept_ceilings
from gpuperf.run.forking import WAY
from gpuperf.run.ncu import find_ncu
from gpuperf.run.noise import keep_noise, kept_noise, shuffled_passes
from gpuperf.run.plan import (
    Conditions,
    plan_cases,
    plan_comparison,
    plan_contracts,
    plan_counting,
    plan_gang,
    settle_dtype,
)
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import (
    FAILED,
    PlannedCase,
    make_header,
    new_run_id,
    rest_of_schedule,
    schedule_of,
)
from gpuperf.run.store import read_run
from gpuperf.run.suite import Suite, plan_suite
from gpuperf.run.supervisor import Supervisor
from gpuperf.show.view import View
from gpuperf.verb.options import Options
from gpuperf.verb.parse import axis_options, split
from gpuperf.verb.printing import print_run, write_charts
from gpuperf.verb.progress import say
from gpuperf.verb.roofs import measured_roofs
from gpuperf.verb.session import Session


@dataclass(frozen=True)
class Request:
    """The options and conditions of a measuring verb, and fields of the run's header.

    `refuse(cases, device)` raises for cases that the verb cannot take. `predict(peaks, ceilings)`
    predicts the measurements of an experiment from what is known of the device.
    """

    verb: str
    options: Options
    conditions: Conditions
    view: View = "compulsory"
    baseline: str | None = None
    study: str = ""
    asked: tuple[int, ...] = ()
    refuse: Callable[[Sequence[Case], DeviceFacts], None] | None = None
    processes: int = 1
    predict: Callable[[Peaks | None, Peaks | None], Predictions] | None = None


@dataclass(frozen=True)
class Outcome:
    """A measured run, its file, and the error that ended it early, if there was one."""

    run: Run
    path: Path
    ended: BaseException | None = None


def measure_new(supervisor: Supervisor, request: Request) -> Outcome:
    """Measure what *request* asks for into a new run file. Raises: UsageError, CannotMeasure."""
    if request.options.peaks:
        load_peaks(request.options.peaks)  # raises before a worker starts
    compared = request.verb == "compare"
    description, cases = _find_cases(supervisor, request.options, compared)
    baseline = ""
    if compared:
        cases, baseline = plan_comparison(cases, request.baseline, description)
        if len({case.implementation for case in cases}) == 1:
            say(f"only {baseline} is measured: --impl names no other implementation to compare")
    check_writable(request.options.out)
    opened = _open(supervisor)
    if request.refuse:
        request.refuse(cases, opened.device)
    cases = settle_dtype(cases, description, opened.device)
    main = [axis.name for axis in description.axes if axis.main]
    chosen = {case.implementation for case in cases if compared and description.steps}
    steps = tuple(i.name for i in description.implementations if i.name in chosen)
    return _begin(supervisor, request, opened, cases, description.name, main, baseline, steps)


def measure_suite(supervisor: Supervisor, suite: Suite, request: Request) -> Outcome:
    """Measure the cases of *suite* into a new run file. Raises: UsageError, CannotMeasure."""
    if request.options.peaks:
        load_peaks(request.options.peaks)  # raises before a worker starts
    for source in sorted({entry.op for entry in suite.entries if set(entry.op) & set("/.:")}):
        say(f"the suite loads code of its own: the workload {source}")
    check_writable(request.options.out)
    opened = _open(supervisor)
    world = request.options.gpus
    cases = plan_suite(suite, supervisor.describe, opened.device, world=world)
    return _begin(supervisor, request, opened, cases, suite.name)


def measure_planned(
    supervisor: Supervisor, request: Request, cases: Sequence[Case], name: str
) -> Outcome:
    """Measure *cases* that the verb planned itself into a new run file, named after *name*.

    Raises: UsageError, CannotMeasure.
    """
    check_writable(request.options.out)
    return _begin(supervisor, request, supervisor.open(), cases, name)


def measure_again(supervisor: Supervisor, outcome: Outcome, passes: int) -> Outcome:
    """Measure the cases of *outcome* in *passes* more processes, and add them to it and its file.

    The noise of each case is stored for this device.
    """
    header = outcome.run.header
    with RunWriter(outcome.path) as writer:
        session = Session(supervisor, writer, header, list(outcome.run.records))
        with session.reporting(passes * len(header.plan)) as reporter:
            session.measure(reporter, shuffled_passes(header, passes, first=1), fresh=True)
    keep_noise(supervisor.open(), header.contract, session.records)
    return replace(outcome, run=Run(header, tuple(session.records)), ended=session.ended)


def _begin(
    supervisor: Supervisor,
    request: Request,
    opened: Opened,
    cases: Sequence[Case],
    name: str,
    main: Sequence[str] = (),
    baseline: str = "",
    steps: tuple[str, ...] = (),
) -> Outcome:
    user_peaks = load_peaks(request.options.peaks) if request.options.peaks else None
    conditions, in_gang = request.conditions, bool(opened.devices)
    if in_gang:
        conditions = plan_gang(opened.device, conditions)
    contracts = plan_contracts(opened.device, conditions)
    _refuse_view(request.view, conditions.counting, opened.device)
    counting = plan_counting(opened.device, conditions.counting)
    if counting == "ncu":
        find_ncu()  # raises before anything is measured
    peaks, reason = find_peaks(opened.device, user_peaks)
    if reason and (user_peaks or opened.device.kind != "cpu"):
        say(reason)
    for complaint in lint(user_peaks) if user_peaks else ():
        say(f"{request.options.peaks}: {complaint}")
    ceilings = kept_ceilings(opened)
    if peaks is None and not in_gang:
        ceilings = measured_roofs(supervisor, opened, cases, contracts[0])
    supervisor.peaks, supervisor.ceilings = peaks, ceilings
    expected = request.predict(peaks, ceilings) if request.predict else None
    command, run_id = ["gpuperf", *sys.argv[1:]], new_run_id(request.verb, name)
    header = make_header(
        run_id, command, cases, contracts, opened, peaks, reason, ceilings, request.options.seed
    )
    header = replace(
        header,
        counting=counting,
        energy=conditions.energy,
        baseline=baseline,
        main=tuple(main),
        study=request.study,
        asked=request.asked,
        processes=request.processes,
        expected=expected,
        steps=steps,
    )
    with RunWriter(request.options.out / f"{run_id}.jsonl", fresh=True) as writer:
        return _measure(supervisor, writer, Run(header, ()), schedule_of(header))


def refuse_one_size(cases: Sequence[Case], example: str) -> None:
    """Refuse a sweep of a single size. Raises: UsageError with *example* as its hint."""
    points = [[v for v in case.point.values() if isinstance(v, int)] for case in cases]
    if len({tuple(point) for point in points}) < 2:
        raise UsageError("this verb compares sizes, and only one is given", example)


def refuse_axis(supervisor: Supervisor, op: str | None, words: Sequence[str], axis: str) -> None:
    """Refuse an *axis* of sizes that the workload lacks. Raises: UnknownName."""
    description = find_workload(_workload_name(op, words)[0], supervisor.describe)
    sizes = [a.name for a in description.axes if not isinstance(a.default, str)]
    if axis not in sizes:
        raise UnknownName(f"axis of {description.name}", axis, sizes)


def _refuse_view(view: View, counting: Counting, device: DeviceFacts) -> None:
    """Refuse a chart by bytes that will not be measured. Raises: CannotMeasure, UsageError."""
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
    """Measure the cases that the run in *path* lacks, into the same file."""
    read_run(path)  # raises before a file that is not a run is opened for writing
    with RunWriter(path) as writer:
        run = read_run(path)  # again, since no other process writes to it from now on
        for source in sorted({case.source for case in run.header.plan} - {BUILTIN}):
            say(f"the run loads code of its own: the workloads of {source}")
        opened = _open(supervisor)
        plan = rest_of_schedule(run, opened)
        supervisor.peaks, supervisor.ceilings = run.header.peaks, run.header.ceilings
        before, now = run.header.fingerprint.soft, opened.fingerprint.soft
        for name in sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k)):
            say(f"{name} was {before.get(name)} when the run began, and is {now.get(name)} now")
        if run.header.started != opened.started:
            say(f"processes were {run.header.started} when the run began: {WAY} chooses it")
        return _measure(supervisor, writer, run, plan, resumed=True)


def report(outcome: Outcome, options: Options, view: View | None = None) -> int:
    """Print *outcome*, write its charts, and return the exit code. Raises: as `exit_code`."""
    if outcome.run.records:
        try:
            print_run(
                outcome.run, options.format, view, columns=options.columns, verbose=options.verbose
            )
        except UnknownName:  # of a column: what was measured is shown nevertheless
            print_run(outcome.run, options.format, view, verbose=options.verbose)
            raise
        finally:  # also where no column has a name that was given
            write_charts(outcome.run, outcome.path, view)
    return exit_code(outcome)


def exit_code(outcome: Outcome) -> int:
    """Return 0. Raises: the error that ended the run early; CannotMeasure where cases failed."""
    if outcome.ended is not None:
        raise outcome.ended
    records = outcome.run.records
    if not any(record.status == "ok" for record in records):
        raise CannotMeasure("nothing was measured", "the table says why")
    if outcome.run.header.counting not in ("off", "auto"):
        lacking = [c for r in records for c in r.caveats if c.kind == NO_COUNTERS]
        if lacking:
            count = f"{len(lacking)} of {len(records)} cases"
            raise CannotMeasure(
                f"{count} have no counters, and --counters requires them", lacking[0].hint
            )
    failed = [record for record in records if record.status in FAILED]
    if failed:
        names = dict.fromkeys(f"{r.case.id} ({r.status})" for r in failed)
        cases = len({(r.case.id, r.contract) for r in records})
        lost = len({(r.case.id, r.contract) for r in failed})
        raise CannotMeasure(f"{lost} of {cases} cases failed: {', '.join(list(names)[:3])}")
    return 0


def planned_cases(supervisor: Supervisor, opened: Opened, options: Options) -> tuple[Case, ...]:
    """Plan the cases of a command line on the opened device. Raises: UsageError."""
    description, cases = _find_cases(supervisor, options)
    return settle_dtype(cases, description, opened.device)


def _find_cases(
    supervisor: Supervisor, options: Options, compared: bool = False
) -> tuple[Description, tuple[Case, ...]]:
    """Return the workload and its cases.

    Where no implementation is named, the cases are of the workload's standard ones; where they are
    *compared*, of all that compute the same.
    """
    op, words = _workload_name(options.op, options.words)
    description = find_workload(op, supervisor.describe)
    axes = axis_options(words, description)
    _say_of_sizes(description, axes, options.sizes)
    if options.dtype is not None:
        axes["dtype"] = options.dtype
    chosen = split(options.impl)
    if compared and not chosen:
        same = description.implementations[0].computes
        chosen = tuple(i.name for i in description.implementations if i.computes == same)
        for other in (i for i in description.implementations if i.computes != same):
            say(f"{other.name} is left out: it computes {other.computes or 'the formula'}")
    return description, plan_cases(description, axes, options.sizes, chosen, options.gpus)


def _say_of_sizes(description: Description, axes: Mapping[str, str], sizes: str | None) -> None:
    """Say which axes --sizes sets, where some of the main axes have options of their own."""
    main = [axis.name for axis in description.axes if axis.main]
    given = [name for name in main if name in axes]
    if sizes is not None and given and len(given) < len(main):
        rest = " and ".join(f"--{name}" for name in main if name not in given)
        say(f"--sizes sets only {rest}, since --{', --'.join(given)} is given")


def _workload_name(op: str | None, words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the workload's name, from --op or the first of *words*, and the remaining words."""
    if op is not None:
        return op, list(words)
    if words and not words[0].startswith("-"):
        return words[0], list(words[1:])
    raise UsageError("no workload was named", "--op matmul; `gpuperf list` shows them all")


def _open(supervisor: Supervisor) -> Opened:
    opened = supervisor.open()
    facts = opened.device
    if opened.devices:
        kind = "processes" if facts.kind == "cpu" else "GPUs"
        hosts = len(set(opened.hosts))
        spread = f" on {hosts} hosts" if hosts > 1 else ""
        say(f"measuring {len(opened.devices)} {kind}{spread} as one: {facts.name}")
    elif facts.kind == "cpu":
        say(f"measuring the CPU {facts.name} with {facts.sm_count} threads; no GPU is used")
    else:
        say(f"measuring {facts.name} ({facts.sm_count} SMs, {facts.memory_bytes / 1e9:.0f} GB)")
    return opened


def _resume_command(header: Header, path: Path) -> str:
    """Return the command that measures the missing cases of a run: with the options that chose its
    device, which the run file does not choose."""
    words = ["gpuperf", "roofline", "--resume", str(path)]
    for option, value in pairwise((*header.command, "")):
        name, joined, _ = option.partition("=")
        if name in ("--device", "--threads"):
            words += [option] if joined else [option, value]
    return shlex.join(words)


def _measure(
    supervisor: Supervisor,
    writer: RunWriter,
    run: Run,
    plan: Sequence[PlannedCase],
    resumed: bool = False,
) -> Outcome:
    """Measure *plan* into *writer*; if an error ends it, the outcome has the records so far."""
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
        say(f"interrupted; to measure the missing cases: {_resume_command(run.header, path)}")
    latest = {(r.case.id, r.contract, r.pass_index): r for r in session.records}
    order = [(case.id, contract, index) for case, contract, index in schedule_of(run.header)]
    records = tuple(latest[key] for key in order if key in latest)
    return Outcome(Run(run.header, records), path, session.ended)
