"""Profile a program and write its run file, running it once for all passes or once for each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from gpuperf.errors import CannotMeasure, UnknownName
from gpuperf.model.program import ENDED, PASSES, PassName, PassResult
from gpuperf.model.protocol import Profile
from gpuperf.model.record import Record, Run
from gpuperf.profile.assemble import Origin, assemble_run
from gpuperf.profile.program import ProgramRun, run_program
from gpuperf.profile.ranks.meeting import Meeting
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import new_run_id
from gpuperf.units import format_time
from gpuperf.verb.progress import say

STEPS = 10  # the fewest steps of the plain pass
OTHER_STEPS = 24  # steps of all other passes together, unless their budget is spent
# The passes that each choice of --counters leaves out, and the pass that it requires.
LEFT_OUT: Mapping[str, set[PassName]] = {
    "off": {"counters", "kernels"},
    "auto": {"kernels"},
    "require": {"kernels"},
    "kernels": set(),
}
REQUIRED: Mapping[str, PassName] = {"require": "counters", "kernels": "kernels"}


@dataclass(frozen=True)
class Plan:
    """What to profile, in which passes, for how long, and where to write it.

    If `steps` is None the plain pass takes `STEPS` steps, or more if the program runs them. The
    program runs anew for each pass if `repeat`. Its output goes to stderr if `quiet`.
    """

    program: tuple[str, ...]
    module: bool
    warmup: int
    steps: int | None
    budget_s: float
    items: float | None
    repeat: bool
    timeout_s: float | None
    passes: tuple[PassName, ...]
    out: Path
    quiet: bool


def passes_for(counters: str) -> tuple[PassName, ...]:
    """Return the passes that measure what --counters asks for. Raises: UnknownName."""
    if counters not in LEFT_OUT:
        raise UnknownName("counters", counters, list(LEFT_OUT))
    return tuple(name for name in PASSES if name not in LEFT_OUT[counters])


def identity_of(plan: Plan) -> str:
    """Return a new id of a run of *plan*."""
    return new_run_id("profile", Path(plan.program[0]).stem[:40])


def profile_program(plan: Plan, meeting: Meeting | None = None) -> tuple[Run, Path, ProgramRun]:
    """Run the program of *plan* and return its profile, the run file, and how the program ended.

    With a *meeting* the program is one of several ranks, and all but rank 0 write to their shard.
    Raises: CannotMeasure if the program ended before anything could be measured.
    """
    name, steps = plan.program[0], plan.steps or STEPS
    identity = meeting.run if meeting else identity_of(plan)
    rank, world = (meeting.rank, meeting.place.world) if meeting else (0, 1)
    origin = Origin(identity, Path(name).name, plan.warmup, steps, plan.items, rank, world)
    path = meeting.shard(rank) if meeting and rank else plan.out / f"{identity}.jsonl"
    file = ProfileFile(path, origin, plan.budget_s, plan.steps or 0, silent=rank > 0)
    run_it = partial(
        run_program,
        timeout_s=plan.timeout_s,
        stdout=2 if plan.quiet else None,
        waiting=partial(say, f"{name} ended: waiting for its threads and handlers at exit"),
        lost=meeting.lost if meeting else str,
    )
    with tempfile.TemporaryDirectory(prefix="gpuperf-") as folder:
        request = Profile(
            plan.program,
            plan.module,
            plan.warmup,
            steps,
            plan.passes,
            folder,
            plan.budget_s,
            more=plan.steps is None and meeting is None,
            rank=rank,
            world=world,
            ranks=str(meeting.folder.absolute()) if meeting else "",
        )
        program = (
            _run_each_pass(request, run_it, file)
            if plan.repeat
            else run_it(request, heard=file.add_pass)
        )
        if program.opened is None:
            message = program.error or f"it ended with {program.exit_code}"
            cut = program.interrupted or program.exit_code is None
            hint = "it ended before its first step" if cut else "run it without gpuperf first"
            raise CannotMeasure(f"{name} gave nothing to measure: {message}", hint)
        return file.write(program, traced=True), file.path, program


@dataclass
class ProfileFile:
    """The run file of a program, rewritten after each pass.

    The file then has the completed passes even if the program or gpuperf crashes. Traces are read
    once the program has ended. Passes are not reported if *silent*. `asked` is the number of steps
    that the user asked for, or 0.
    """

    path: Path
    origin: Origin
    budget_s: float
    asked: int = 0
    silent: bool = False

    def add_pass(self, program: ProgramRun) -> None:
        """Report the last pass of *program*, and rewrite the file."""
        last = program.passed[-1]
        plain = [p.region for p in program.passed if p.name == "plain"].count(last.region)
        if not self.silent:
            say_pass(last, *((self.budget_s, self.asked) if plain < 2 else (0.0, 0)))
        if program.opened is None:
            return
        try:
            self.write(program, traced=False)
        except Exception as error:  # the program goes on, and the file is written once more
            say(f"the run file is not written yet: {error}")

    def write(self, program: ProgramRun, traced: bool) -> Run:
        """Write the run of *program*, with the kernels of its traces if *traced*, and return it."""
        run = assemble_run(self.origin, program, traced)
        write_run(self.path, run)
        return run


def write_run(path: Path, run: Run) -> None:
    """Write *run* as the file *path*, whole or not at all."""
    fresh = path.with_suffix(".part")
    fresh.unlink(missing_ok=True)
    with RunWriter(fresh, fresh=True) as writer:
        writer.header(run.header)
        for record in run.records:
            writer.record(record)
    fresh.replace(path)


def _run_each_pass(
    request: Profile, run_it: Callable[..., ProgramRun], file: ProfileFile
) -> ProgramRun:
    """Run the program once for each pass of *request*, and return all passes as one run.

    Its exit code and error are those of the first run that failed.
    """
    whole = ProgramRun(exit_code=0)
    for name in request.passes:
        if name == "light" and whole.opened and whole.opened.device.kind == "cpu":
            continue  # the light pass measures waits for a GPU
        folder = Path(request.folder) / name
        folder.mkdir()
        single = msgspec.structs.replace(request, passes=(name,), folder=str(folder))
        program = run_it(
            single, heard=lambda p: say_pass(p.passed[-1], request.budget_s, file.asked)
        )
        whole.passed += program.passed
        whole.opened = whole.opened or program.opened
        whole.steps = whole.steps or program.steps
        if whole.exit_code == 0 and not whole.error:
            whole.exit_code, whole.error = program.exit_code, program.error
        whole.interrupted |= program.interrupted
        if whole.opened is not None:
            file.write(whole, traced=False)
        if program.interrupted:
            break
    return whole


def say_pass(result: PassResult, budget_s: float, asked: int = 0) -> None:
    """Report a pass on stderr: its number of steps, or why it has none.

    After the plain pass, the seconds of the others are estimated, *budget_s* at the most, and fewer
    steps than the user *asked* for are explained.
    """
    if not result.steps:
        if result.name != "plain" or result.reason != ENDED:  # a second plain pass may have none
            say(f"{result.region}: no pass {result.name}: {result.reason}")
        return
    each = ""
    if result.name == "plain":
        each_s = result.wall_s / result.steps
        left_s = min(OTHER_STEPS * each_s, budget_s)
        each = f", {format_time(each_s)} each"
        each += f"; other passes take {format_time(left_s, 2)} or more" if left_s else ""
    fewer = f" of {asked}" if result.name == "plain" and result.steps < asked else ""
    plural = "" if result.steps == 1 and not fewer else "s"
    say(f"{result.region}: {result.name}, {result.steps}{fewer} step{plural}{each}")
    if fewer:
        say("the plain pass ended early: its part of --budget was spent, or the program ended")


def check_counted(run: Run, counters: str) -> None:
    """Raise CannotMeasure where a region lacks the counters that --counters requires."""
    required = REQUIRED.get(counters)
    for record in run.records:
        if required and record.program and not _is_counted(run, record, required):
            doubts = [c.message for c in record.caveats if c.kind == "incomplete"]
            reasons = [
                text
                for text in (*record.program.missing, *doubts)
                if text.startswith(f"{required}:")
            ]
            why = f"{required}: the program ended before that pass, or marks no steps"
            message = f"{record.region} lacks counters, which were required: {(*reasons, why)[0]}"
            hint = "`gpuperf doctor` tries the counters"
            more = "let the program run more steps, each marked with gpuperf.step()"
            raise CannotMeasure(message, hint if reasons else more)


def _is_counted(run: Run, region: Record, required: PassName) -> bool:
    operators = (r for r in run.records if r.kind == "operator" and r.region == region.region)
    counted = required != "kernels" or any(record.counters for record in operators)
    return region.program is not None and required in region.program.steps and counted
