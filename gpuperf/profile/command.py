"""Run `gpuperf profile`: profile a PyTorch script, and print where the time of a step goes."""

from __future__ import annotations

import contextlib
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.files import check_writable
from gpuperf.model.record import Run
from gpuperf.run.store import read_run
from gpuperf.theory.transformer.find import find_model
from gpuperf.theory.transformer.measured import Points, read_points
from gpuperf.theory.transformer.model import Model
from gpuperf.verb import options as opt
from gpuperf.verb.printing import print_changes, print_run, write_charts
from gpuperf.verb.progress import say

if TYPE_CHECKING:
    from gpuperf.profile.program import ProgramRun

FAILED = 3


Program = Annotated[
    list[str],
    typer.Argument(
        metavar="SCRIPT [ARGS]…", help="Script to run, and its arguments, as python takes them."
    ),
]
Module = Annotated[
    bool, typer.Option("-m", help="SCRIPT is a module: gpuperf profile -m pkg.train …")
]
Warmup = Annotated[
    int, typer.Option(min=0, max=10**6, help="Skip this many steps of each region first.")
]
Steps = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=10**6,
        show_default=False,
        help="Exact number of steps to time without a profiler (default: 10, or more if the "
        "program runs them).",
    ),
]
Budget = Annotated[
    float,
    typer.Option(
        min=1.0,
        max=1e6,
        help="Seconds for all passes over a region together; if steps are slow, passes take fewer.",
    ),
]
Items = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        show_default=False,
        help="Items that a step processes, such as images or tokens, for a rate.",
    ),
]
Repeat = Annotated[bool, typer.Option("--repeat", help="Run the program anew for each pass.")]
Timeout = Annotated[
    float | None,
    typer.Option(min=1.0, show_default=False, help="End the program after this many seconds."),
]
Against = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN", show_default=False, help="Show what changed since this earlier profile."
    ),
]
Theory = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        show_default=False,
        help="Compare the parts of a step that decodes a token with their predicted times: the "
        "model's name as of `theory inference`, or the path of its config.json.",
    ),
]
Measured = Annotated[
    str | None,
    typer.Option(
        metavar="RUN,…",
        show_default=False,
        help="With --theory: predict by the measured times in these run files of the workloads "
        "`linear` and `decode`, as `theory inference --measured`.",
    ),
]
Counters = Annotated[
    str,
    typer.Option(
        "--counters",
        help="Hardware counters: off, auto (DRAM bytes of a step where available), require, "
        "kernels (also bytes and tensor operations of each kernel).",
    ),
]


@opt.takes("out", "format", *opt.LOOK)
def profile(
    options: opt.Options,
    program: Program,
    module: Module = False,
    warmup: Warmup = 5,
    steps: Steps = None,
    budget: Budget = 60.0,
    items: Items = None,
    repeat: Repeat = False,
    timeout: Timeout = None,
    against: Against = None,
    theory: Theory = None,
    measured: Measured = None,
    counters: Counters = "auto",
    by: opt.ByOption = opt.By.OPERATORS,
) -> int:
    """Profile a program and rank the changes that save most time.

    Call gpuperf.step() at the end of each training step, or enclose a region in
    `with gpuperf.region("name"):`. Without either, each step of an optimizer counts as a step, or,
    without an optimizer, each forward pass of the outermost module.
    """
    from gpuperf.profile.measure import Plan, passes_for
    from gpuperf.profile.ranks.session import profile_here

    check_writable(options.out)
    model = None if theory is None else find_model(theory)
    points = _read_points(measured, theory)
    earlier = None if against is None else _read_profile(against)
    passes = passes_for(counters)
    if items is not None and not math.isfinite(items):
        raise UsageError(f"--items is {items}", "--items takes a finite number")
    if not module and not Path(program[0]).is_file():
        raise UsageError(f"there is no script {program[0]!r}", "-m runs a module by its name")
    quiet = options.format is not opt.Format.TABLE  # stdout then holds the profile alone
    taking = (warmup, steps, budget, items, repeat, timeout, passes)
    plan = Plan(tuple(program), module, *taking, options.out, quiet)
    with profile_here(plan) as (run, path, ended):
        if run is not None:
            say(f"run file: {path}")
        if ended.error or ended.exit_code:
            say(f"{program[0]}: {ended.error or f'it ended with {ended.exit_code}'}")
        if run is not None:
            if model is None or options.format is not opt.Format.JSON:
                _show(run, earlier, options, by)
            write_charts(run, path)
            flaw = None if model is None else _show_theory(run, model, points, options.format)
            _check(run, ended, counters, flaw)
    if ended.interrupted:
        raise KeyboardInterrupt
    return FAILED if ended.exit_code != 0 else 0


def _check(run: Run, ended: ProgramRun, counters: str, flaw: UsageError | None) -> None:
    """Raise what keeps a program that was not interrupted from its report: counters that *counters*
    requires and *run* lacks, or the *flaw* of its theory."""
    from gpuperf.profile.measure import check_counted

    if not ended.interrupted:
        check_counted(run, counters)
        if flaw is not None and ended.exit_code == 0:
            raise flaw


def _read_points(measured: str | None, theory: str | None) -> Points | None:
    """Return the times in the run files *measured*. Raises: UsageError without a *theory*."""
    if measured is None:
        return None
    if theory is None:
        raise UsageError("--measured needs --theory", "name the model whose steps it predicts")
    return read_points(tuple(path.strip() for path in measured.split(",") if path.strip()))


def _show_theory(
    run: Run, model: Model, points: Points | None, format: opt.Format
) -> UsageError | None:
    """Print the predicted parts of a step beside the measured ones, below the profile; as JSON with
    it, as `theory`. Return the error where the steps are not those of *model*."""
    from gpuperf.profile.breakdown import longest, profiles
    from gpuperf.profile.predicted import predicted_table
    from gpuperf.profile.values import document_of
    from gpuperf.show.data import to_json
    from gpuperf.show.render import render
    from gpuperf.show.screen import put, stdout_screen
    from gpuperf.show.table import Table

    regions, screen, flaw, table = profiles(run), stdout_screen(), None, Table()
    try:
        table = predicted_table(longest(regions), run.header, model, points)
    except UsageError as error:
        flaw = error
    if format is opt.Format.JSON:
        theory = None if flaw else list(table.rows)
        put(to_json({**document_of(run, regions), "theory": theory}, screen.ascii))
    elif format is opt.Format.CSV:
        say("csv has the operators alone: --format table, md and json have the theory")
    elif flaw is None:
        put("\n" + render([table], format.value, screen))
    return flaw


def _read_profile(path: Path) -> Run:
    """Return the run in *path*. Raises: UsageError if it is no profile with a timed region."""
    from gpuperf.profile.breakdown import profiles

    run = read_run(path)
    profiles(run)
    return run


def _show(run: Run, earlier: Run | None, options: opt.Options, by: opt.By) -> None:
    """Print the profile, or what changed since *earlier*.

    Raises: CannotMeasure if no region has a time, or none is in both profiles.
    """
    print_this = partial(
        print_run, run, options.format, by=by, columns=options.columns, verbose=options.verbose
    )
    try:
        if earlier is None:
            print_this()
        else:
            print_changes(earlier, run, options.format)
    except UsageError as error:
        if earlier is not None and options.format is opt.Format.TABLE:
            with contextlib.suppress(UsageError):
                print_this()
        raise CannotMeasure(str(error), error.hint) from None
