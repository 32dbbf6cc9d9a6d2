"""`gpuperf profile`: any PyTorch program under the roofline."""

from __future__ import annotations

import contextlib
import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from gpuperf.errors import CannotMeasure, UnknownName, UsageError
from gpuperf.model.contract import Contract
from gpuperf.model.program import ENDED, PASSES, WHOLE, PassName, PassResult
from gpuperf.model.protocol import Opened, Profile
from gpuperf.model.record import Header, Record, Run
from gpuperf.model.timeline import Timeline
from gpuperf.peaks.find import find_peaks
from gpuperf.profile.program import ProgramRun, run_program
from gpuperf.run.ceilings import kept_ceilings
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import make_header, new_run_id
from gpuperf.run.store import read_run
from gpuperf.units import format_time
from gpuperf.verb import options as opt
from gpuperf.verb.measuring import check_writable
from gpuperf.verb.printing import print_changes, print_run, write_charts
from gpuperf.verb.progress import say

FAILED = 3
STEPS = 10  # of the plain pass, at the least
OTHER_STEPS = 24  # of all other passes, unless their time is over
# What must have been counted, by what was asked for.
REQUIRED: dict[str, PassName] = {"require": "counters", "kernels": "kernels"}


def profile(
    program: Annotated[
        list[str], typer.Argument(metavar="SCRIPT [ARGS]…", help="What python would be given.")
    ],
    module: Annotated[
        bool, typer.Option("-m", help="SCRIPT is a module: gpuperf profile -m pkg.train …")
    ] = False,
    warmup: Annotated[
        int, typer.Option(min=0, max=10**6, help="Steps of a region that go by first.")
    ] = 5,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10**6,
            show_default=False,
            help="Steps that the plain pass takes, exactly (default: 10, and more where the "
            "program has them).",
        ),
    ] = None,
    budget: Annotated[
        float,
        typer.Option(
            min=1.0,
            max=1e6,
            help="Seconds that the passes over a region may take: of slow steps they take fewer.",
        ),
    ] = 60.0,
    items: Annotated[
        float | None,
        typer.Option(min=0.0, help="Items of a step: images, tokens.", show_default=False),
    ] = None,
    repeat: Annotated[
        bool, typer.Option("--repeat", help="Run the program anew for each pass.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=1.0, help="End the program after so many seconds.", show_default=False),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="An earlier profile: what changed?", show_default=False),
    ] = None,
    counters: Annotated[
        str,
        typer.Option(
            "--counters",
            help="Hardware counters: off, auto (DRAM bytes of a step, where they can be had), "
            "require, kernels (also what each kernel moved and did).",
        ),
    ] = "auto",
    by: opt.ByOption = opt.By.OPERATORS,
    out: opt.Out = Path("gpuperf-runs"),
    format: opt.FormatOption = opt.Format.TABLE,
) -> int:
    """Profile a program and rank the changes that save most time.

    Call gpuperf.step() at the end of each training step, or enclose a region in
    `with gpuperf.region("name"):`. Without either, each step of an optimizer counts as a step, or,
    without an optimizer, each forward pass of the outermost module.
    """
    check_writable(out)
    earlier = None if against is None else _earlier(against)
    passes = _passes(counters)
    more, steps = steps is None, steps or STEPS
    if items is not None and not math.isfinite(items):
        raise UsageError("so many items are none", "--items takes a finite number")
    if not module and not Path(program[0]).is_file():
        raise UsageError(f"there is no script {program[0]!r}", "-m runs a module by its name")
    identity = new_run_id("profile", Path(program[0]).stem[:40])
    kept = _Kept(
        out / f"{identity}.jsonl", identity, Path(program[0]).name, warmup, steps, items, budget
    )
    quiet = format is not opt.Format.TABLE  # then stdout is for the profile alone
    waiting = partial(say, f"{program[0]} ended: its threads and handlers at exit have time")
    run_it = partial(run_program, timeout_s=timeout, stdout=2 if quiet else None, waiting=waiting)
    with tempfile.TemporaryDirectory(prefix="gpuperf-") as folder:
        request = Profile(tuple(program), module, warmup, steps, passes, folder, budget, more)
        ran = _repeated(request, run_it, kept) if repeat else run_it(request, heard=kept.heard)
        if ran.opened is None:
            told = ran.error or f"it ended with {ran.exit_code}"
            cut = ran.interrupted or ran.exit_code is None
            hint = "it ended before its first step" if cut else "does it run?"
            raise CannotMeasure(f"{program[0]} gave nothing to measure: {told}", hint)
        run = kept.write(ran, traced=True)
    say(f"run file: {kept.path}")
    if ran.error:
        say(f"{program[0]}: {ran.error}")
    _show(run, earlier, format, by)
    write_charts(run, kept.path)
    if ran.interrupted:
        raise KeyboardInterrupt
    if counters in REQUIRED:
        _check_counted(run, REQUIRED[counters])
    return FAILED if ran.exit_code != 0 else 0


def _passes(counters: str) -> tuple[PassName, ...]:
    """Those that take what is asked for. Raises: UnknownName."""
    left_out = {
        "off": {"counters", "kernels"},
        "auto": {"kernels"},
        "require": {"kernels"},
        "kernels": set[str](),
    }
    if counters not in left_out:
        raise UnknownName("counters", counters, list(left_out))
    return tuple(name for name in PASSES if name not in left_out[counters])


def _check_counted(run: Run, name: PassName) -> None:
    """Raises: CannotMeasure where a region has not the counters that were asked for."""
    for record in run.records:
        program = record.program
        if program is None:
            continue
        own = [r for r in run.records if r.kind == "operator" and r.region == record.region]
        if name in program.steps and (name != "kernels" or any(r.counters for r in own)):
            continue
        doubts = [doubt.message for doubt in record.caveats if doubt.kind == "incomplete"]
        told = [t for t in (*program.missing, *doubts) if t.startswith(f"{name}:")]
        why = told[0] if told else f"{name}: the program ended before it, or marks no steps"
        hint = "`gpuperf doctor` tries the counters" if told else "more rounds, gpuperf.step()"
        raise CannotMeasure(f"{record.region} lacks counters, which were required: {why}", hint)


def _earlier(path: Path) -> Run:
    """A profile to compare with. Raises: UsageError for another run."""
    from gpuperf.profile.breakdown import profiles

    run = read_run(path)
    profiles(run)
    return run


def _show(run: Run, earlier: Run | None, format: opt.Format, by: opt.By) -> None:
    """Raises: CannotMeasure where there is nothing to show."""
    try:
        if earlier is None:
            print_run(run, format, by=by)
        else:
            print_changes(earlier, run, format)
    except UsageError as error:
        if earlier is not None and format is opt.Format.TABLE:
            with contextlib.suppress(UsageError):
                print_run(run, format, by=by)
        raise CannotMeasure(str(error), error.hint) from None


@dataclass
class _Kept:
    """The run file of a program, written anew with each pass that comes: what was found stays,
    whatever happens to the program or to us. Traces are read when it has ended."""

    path: Path
    identity: str
    script: str
    warmup: int
    steps: int
    items: float | None
    budget_s: float

    def heard(self, ran: ProgramRun) -> None:
        """A pass came: the last one in *ran*."""
        again = [p.region for p in ran.passed if p.name == "plain"].count(ran.passed[-1].region)
        _tell(ran.passed[-1], self.budget_s if again < 2 else 0.0)
        if ran.opened is None:
            return
        try:
            self.write(ran, traced=False)
        except Exception as error:  # the program goes on, and the file is written once more
            say(f"not written yet: {error}")

    def write(self, ran: ProgramRun, traced: bool) -> Run:
        """All that *ran* brought, with what its traces tell if they are to be read by now."""
        assert ran.opened is not None
        contract = _contract(ran.opened, self.warmup, self.steps)
        records = _records(self, contract, ran, traced)
        run = Run(_header(self.identity, ran.opened, contract, records), records)
        fresh = self.path.with_suffix(".part")
        fresh.unlink(missing_ok=True)
        with RunWriter(fresh, fresh=True) as writer:
            writer.header(run.header)
            for record in records:
                writer.record(record)
        fresh.replace(self.path)
        return run


def _repeated(request: Profile, run_it: Callable[..., ProgramRun], kept: _Kept) -> ProgramRun:
    """A run of the program for each pass; the first that fails says how it ended."""
    whole: ProgramRun | None = None
    for name in request.passes:
        if name == "light" and whole and whole.opened and whole.opened.device.kind == "cpu":
            continue  # no GPU is waited for
        folder = Path(request.folder) / name
        folder.mkdir()
        own = msgspec.structs.replace(request, passes=(name,), folder=str(folder))
        ran = run_it(own, heard=lambda ran: _tell(ran.passed[-1], request.budget_s))
        if whole is None:
            whole = ran
        else:
            whole.passed += ran.passed
            whole.opened = whole.opened or ran.opened
            if whole.exit_code == 0 and not whole.error:
                whole.exit_code, whole.error = ran.exit_code, ran.error
            whole.interrupted |= ran.interrupted
        if whole.opened is not None:
            kept.write(whole, traced=False)
        if ran.interrupted:
            break
    assert whole is not None
    return whole


def _tell(passed: PassResult, budget_s: float) -> None:
    if not passed.steps and passed.name == "plain" and passed.reason == ENDED:
        return  # a second plain pass that the program had no step for
    if not passed.steps:
        say(f"{passed.region}: no pass {passed.name}: {passed.reason}")
        return
    each = ""
    if passed.name == "plain":
        each_s = passed.wall_s / passed.steps
        left_s = min(OTHER_STEPS * each_s, budget_s)
        each = f", {format_time(each_s)} each"
        each += f"; other passes take {format_time(left_s, 2)} or more" if left_s else ""
    plural = "" if passed.steps == 1 else "s"
    say(f"{passed.region}: {passed.name}, {passed.steps} step{plural}{each}")


def _contract(opened: Opened, warmup: int, steps: int) -> Contract:
    """How the plain pass takes its time."""
    return Contract(
        "wall" if opened.device.kind == "cpu" else "events",
        cache="hot",
        regime="sustained",
        gap_s=0.0,
        data="own",
        warmup_calls=warmup,
        min_samples=steps,
        max_samples=steps,
        settle_s=0.0,
    )


def _records(kept: _Kept, contract: Contract, ran: ProgramRun, traced: bool) -> tuple[Record, ...]:
    """Region by region; a trace that cannot be read costs its own pass alone."""
    from gpuperf.profile.records import RegionPasses, region_records
    from gpuperf.profile.trace.steps import StepWindow, region_name, steps_of

    assert ran.opened is not None
    found: list[Record] = []
    for region in dict.fromkeys(passed.region for passed in ran.passed):
        own = [passed for passed in ran.passed if passed.region == region]
        timelines: dict[PassName, Timeline] = {}
        if traced:
            timelines, own = _timelines(own)
        timeline = timelines.get("trace")
        windows: tuple[StepWindow, ...] = ()
        name = region
        if timeline is not None and region == WHOLE:
            name, found_windows = steps_of(timeline, by_marks=False)
            windows = tuple(found_windows)
            name = region_name(name, timeline, any(passed.cut for passed in own))
            own = [replace(p, region=name, steps=len(windows)) for p in own]
        told = RegionPasses(
            kept.identity,
            name,
            kept.script,
            contract,
            ran.opened.fingerprint,
            tuple(own),
            timeline,
            windows,
            total=ran.steps.get(region, 0),
            exit_code=ran.exit_code,
            error=ran.error,
            items=kept.items,
            cuda=ran.opened.device.kind != "cpu",
            light=timelines.get("light"),
            device=None if ran.opened.device.kind == "cpu" else ran.opened.device.index,
        )
        found += region_records(told)
    return tuple(found)


def _timelines(passes: list[PassResult]) -> tuple[dict[PassName, Timeline], list[PassResult]]:
    """What the traces among *passes* tell, and they, without those that cannot be read."""
    from gpuperf.profile.trace.kineto import read_trace

    found: dict[PassName, Timeline] = {}
    told = []
    for passed in passes:
        if passed.trace:
            try:
                found[passed.name] = read_trace(Path(passed.trace))
            except UsageError as error:
                passed = replace(passed, steps=0, reason=f"its trace cannot be read: {error}")
        told.append(passed)
    return found, told


def _header(
    identity: str, opened: Opened, contract: Contract, records: tuple[Record, ...]
) -> Header:
    peaks, reason = find_peaks(opened.device)
    cases = [record.case for record in records if record.kind == "region"]
    command, ceilings = ["gpuperf", *sys.argv[1:]], kept_ceilings(opened)
    header = make_header(identity, command, cases, [contract], opened, peaks, reason, ceilings)
    return replace(header, study="profile")
