"""Run `gpuperf bench`: run benchmark scripts unchanged, and print what they time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.files import check_writable, is_regular
from gpuperf.run.session import FAILED
from gpuperf.verb import options as opt
from gpuperf.verb.printing import print_run
from gpuperf.verb.progress import say

UNMEASURED = 3


@opt.takes("precision", "budget", "out", "format", *opt.LOOK)
def bench(
    options: opt.Options,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE… [-- ARGUMENT…]",
            help="Benchmark scripts, as `python FILE ARGUMENT…` runs them.",
        ),
    ],
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            show_default=False,
            help="Time only the calls that this run of the same script lacks, into the same file.",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=1.0, show_default=False, help="End a script after this many seconds."),
    ] = None,
) -> int:
    """Run existing Triton benchmark scripts, timed by gpuperf.

    The callables that a script hands to do_bench, do_bench_cudagraph and perf_report of
    triton.testing, or to bench_gpu_time of flashinfer.testing, are timed by gpuperf, and the script
    gets the milliseconds that it expects (NaN where a call has no time). Each script becomes a run
    file; what it prints goes to stderr. What follows `--` are the arguments of the script.
    """
    from gpuperf.bench.script import Plan, resumed, run_script

    files, words = _checked(options, files)
    plan = Plan(options.out, options.precision, options.budget, timeout, words)
    if resume is not None:
        _refuse_beside_resume(options, files)
        plan = resumed(plan, files[0], resume)
    failed = False
    for file in files:
        try:
            done = run_script(file, plan)
        except CannotMeasure as error:
            say(f"{error}; {error.hint}")
            failed = True
            continue
        say(f"run file: {done.path}")
        if done.failure:
            say(f"{file} {done.failure}; the calls until then were measured")
        print_run(done.run, options.format, None, columns=options.columns, verbose=options.verbose)
        statuses = {record.status for record in done.run.records}
        failed |= bool(done.failure or statuses & FAILED or "ok" not in statuses)
    return UNMEASURED if failed else 0


def _checked(options: opt.Options, typed: list[Path]) -> tuple[list[Path], tuple[str, ...]]:
    """Return the scripts of the *typed* arguments, and the arguments of the scripts.

    Raises: UsageError for what no script can be run with.
    """
    words = tuple(sys.argv[sys.argv.index("--") + 1 :]) if "--" in sys.argv else ()
    files = typed[: len(typed) - len(words)]
    if not files:
        raise UsageError(
            "no script is before `--`", "gpuperf bench bench_softmax.py -- --size 4096"
        )
    for file in files:
        if not is_regular(file):
            raise UsageError(f"there is no script {str(file)!r}", "gpuperf bench bench_softmax.py")
    check_writable(options.out)
    if len(files) > 1 and options.format in (opt.Format.JSON, opt.Format.CSV):
        raise UsageError(
            f"--format {options.format} prints one run, not those of {len(files)} scripts",
            "run them one by one",
        )
    return files, words


def _refuse_beside_resume(options: opt.Options, files: list[Path]) -> None:
    """Refuse what --resume takes from the run, and several scripts. Raises: UsageError."""
    given = [name for name in ("precision", "budget", "out") if name in options.typed]
    if given:
        raise UsageError(
            f"--resume takes its plan from the run, so --{given[0]} cannot be given with it",
            "leave it out",
        )
    if len(files) > 1:
        raise UsageError(f"--resume takes one script, not {len(files)}", "resume them one by one")
