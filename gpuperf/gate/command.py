"""Run the commands of `gpuperf gate`: ab, compare, calibrate, selftest and check."""

from __future__ import annotations

import gc
import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.files import check_writable, is_regular
from gpuperf.gate.baseline import Shelf
from gpuperf.gate.calibration import add_gate, gate_of
from gpuperf.gate.compare import compare_runs
from gpuperf.gate.formats import GateFormat
from gpuperf.gate.output import print_report, write_outputs
from gpuperf.gate.plan import read_plan, write_plan
from gpuperf.gate.prime import LONGEST
from gpuperf.gate.project import load_project
from gpuperf.gate.request import TARGET, Sources, plan_of
from gpuperf.gate.rule import Rule
from gpuperf.gate.run import forecast, run_gate
from gpuperf.gate.selfgate import calibration_of, calibration_table, gate_itself
from gpuperf.gate.stored import SESSION
from gpuperf.gate.verdict import exit_code, read_report, recheck, write_report
from gpuperf.run.store import NAMES, read_summary
from gpuperf.run.suite import load_suite
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb import options as opt
from gpuperf.verb.parse import seconds
from gpuperf.verb.progress import say

gate = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

STORED_TARGET = 0.1  # slowdown that a comparison of two stored runs must be able to detect
SHORTEST_COMMIT = 7  # digits of a commit's short name
SELFTEST = 0.05  # slowdown of one case that the test of the gate must detect

Base = Annotated[str, typer.Option(help="Commit to compare with.", show_default=False)]
Head = Annotated[str, typer.Option(help="Commit, or folder of a worktree.")]
BasePython = Annotated[
    str, typer.Option(help="Python interpreter to compare with, not a commit.", show_default=False)
]
HeadPython = Annotated[
    str, typer.Option(help="Python interpreter that is gated, in this folder.", show_default=False)
]
Setup = Annotated[
    str,
    typer.Option(help="Shell command to run in the worktree of each commit.", show_default=False),
]
Dirty = Annotated[bool, typer.Option("--dirty", help="Measure changes that are not committed.")]
ProjectSuite = Annotated[
    str | None,
    typer.Option(
        help="Suite: a file, or ci, quick, full, screen; by default that of gpuperf.toml.",
        show_default=False,
    ),
]
SuiteName = Annotated[str, typer.Option(help="Suite: ci, quick, full, screen, or a file.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Only forecast the cases, the minutes and the detectable slowdowns."
    ),
]
Target = Annotated[
    float | None,
    typer.Option(
        min=1e-4,
        max=1.0,
        help="Slowdown that must be detectable in every case (0.05: 5 %); adds pairs as needed.",
        show_default=f"{TARGET:g}",
    ),
]
Minutes = Annotated[
    float | None, typer.Option(min=0.0, help="Stop after this many minutes.", show_default=False)
]
MinEffect = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Slowdown that is tolerated (0.01: 1 %).")
]
AbsFloor = Annotated[
    str | None,
    typer.Option(help="Slowdown that is tolerated, as a time: 200ns.", show_default=False),
]
ScreenPairs = Annotated[
    int, typer.Option(min=2, max=1000, help="Pairs of processes that screen all cases.")
]
ConfirmPairs = Annotated[
    int, typer.Option(min=2, max=1000, help="Further pairs for cases that looked slower.")
]
OrderSeed = Annotated[
    int | None,
    typer.Option(
        min=0, max=2**31 - 1, help="Random seed for the order of processes.", show_default="drawn"
    ),
]
ResumeGate = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Continue the gate in this folder.", show_default=False),
]
Overrule = Annotated[
    str,
    typer.Option(
        metavar="REASON",
        help="Reason why an earlier gate that regressed does not count.",
        show_default=False,
    ),
]
FormatOfGate = Annotated[GateFormat, typer.Option("--format", help="Format of the output.")]


@gate.command("ab")
@opt.takes("device", "out", "deadline", "verbose")
def gate_ab(
    options: opt.Options,
    base: Base = "",
    head: Head = ".",
    base_python: BasePython = "",
    head_python: HeadPython = "",
    setup: Setup = "",
    dirty: Dirty = False,
    suite: ProjectSuite = None,
    dry_run: DryRun = False,
    target_mde: Target = None,
    budget: Minutes = None,
    min_effect: MinEffect = 0.01,
    abs_floor: AbsFloor = None,
    screen_pairs: ScreenPairs = 6,
    confirm_pairs: ConfirmPairs = 20,
    seed: OrderSeed = None,
    resume: ResumeGate = None,
    overrule: Overrule = "",
    format: FormatOfGate = GateFormat.TABLE,
) -> int:
    """Gate a change: is any case of a suite slower on HEAD than on BASE?

    gpuperf.toml and the suite are taken from the base, where it has them. Exit codes: 0 passed, 1
    regressed, 3 not comparable, 4 inconclusive, contaminated or incomplete.
    """
    check_writable(options.out)
    sources = Sources(base, head, base_python, head_python, setup, dirty)
    floor_s = seconds("abs-floor", abs_floor)
    fit = target_mde is not None
    if resume is not None:
        new = (sources != Sources(), suite, fit, abs_floor, seed is not None)
        if any(new) or options.device != "auto":
            raise UsageError("a gate is resumed as it was begun", "give --resume FOLDER alone")
        folder, plan = resume, read_plan(resume)
    else:
        order = int.from_bytes(os.urandom(3)) if seed is None else seed
        rule = Rule(screen_pairs, confirm_pairs, margin=min_effect, floor_s=floor_s, seed=order)
        plan = plan_of(sources, suite, rule, target_mde, options.device, options.out)
        folder = options.out / plan.id
    if dry_run:
        table = forecast(plan, options.deadline, fit)
        kind = format.value if format.value in ("json", "md") else "table"
        put(render([table], kind, stdout_screen()))
        return 0
    if resume is None:
        folder.mkdir(parents=True)
        write_plan(plan, folder)
        say(f"gate: {folder}; if interrupted, continue it with --resume {folder}")
    budget_s = None if budget is None else 60 * budget
    try:
        report = run_gate(plan, folder, options.deadline, budget_s, fit, overrule)
    except KeyboardInterrupt:
        again = shlex.join(("gpuperf", "gate", "ab", "--resume", str(folder)))
        say(f"interrupted; to go on: {again}")
        raise
    write_outputs(report, folder)
    print_report(report, format, options.verbose)
    return exit_code(report)


@gate.command("compare")
@opt.takes("verbose")
def gate_compare(
    options: opt.Options,
    baseline: Annotated[
        str, typer.Argument(metavar="BASELINE", help="A run file, or the name of a baseline.")
    ],
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="A run file.")],
    min_effect: MinEffect = SESSION,
    abs_floor: AbsFloor = None,
    target_mde: Annotated[
        float | None,
        typer.Option(
            min=1e-4,
            max=1.0,
            help="Slowdown that must be detectable in every case (0.1: 10 %).",
            show_default=f"{STORED_TARGET:g}",
        ),
    ] = None,
    folder: opt.Baselines = opt.BASELINES,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the verdict.", show_default=False)
    ] = None,
    format: FormatOfGate = GateFormat.TABLE,
) -> int:
    """Judge a stored run against another: `gpuperf run --suite ci --passes 10` makes one.

    Refused unless contract, GPU, power limit and workload versions agree; advice only across hosts.
    """
    head = read_summary(candidate)
    if is_regular(baseline):
        base = read_summary(baseline)
    elif baseline.endswith(NAMES):
        raise CannotMeasure(f"there is no baseline {baseline[:200]}", "`gpuperf run` makes one")
    else:
        _, base = Shelf(folder).find(baseline, head.header)
    gc.freeze()  # keep the garbage collector from searching two large runs again and again
    project = load_project(Path())
    rule = Rule(margin=min_effect, floor_s=seconds("abs-floor", abs_floor))
    of_pairs = project.target or 0.0
    target = target_mde or max(of_pairs, STORED_TARGET)
    report = compare_runs(base, head, rule, target, project, (baseline, candidate.name))
    if out is not None:
        write_report(report, out / "verdict.json")
        write_outputs(report, out)
    print_report(report, format, options.verbose)
    return exit_code(report)


@gate.command("calibrate")
@opt.takes("device", "out", "deadline", "format")
def gate_calibrate(
    options: opt.Options,
    suite: SuiteName = "ci",
    gates: Annotated[
        int, typer.Option(min=0, max=1000, help="Number of gates of this code against itself.")
    ] = 1,
    injected: Annotated[
        int, typer.Option(min=0, max=1000, help="Number of gates with one case slowed down.")
    ] = 0,
    slower: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="Slowdown of that case (0.03: 3 %).")
    ] = 0.03,
    case: Annotated[str, typer.Option(help="Id of the case that is slowed down.")] = LONGEST,
    resampled: Annotated[
        int, typer.Option(min=0, max=100_000, help="Number of gates drawn from real processes.")
    ] = 1000,
) -> int:
    """Measure how often a gate regresses on this device for unchanged code, and for a slowdown.

    Gates accumulate over nights, with those in --out, and every gate's report quotes their rates.
    Further gates are resampled from the processes of all of them.
    """
    check_writable(options.out)
    chosen, rule = load_suite(suite), Rule()
    opened = None
    if gates or injected:
        with options.supervisor() as supervisor:
            opened = supervisor.open()
    for share in (*[0.0] * gates, *[slower] * injected):
        report = gate_itself(
            chosen, {case: share} if share else {}, options.device, options.out, options.deadline
        )
        gate = gate_of(report)
        if gate is None:
            say("this gate does not count, as it came to no verdict")
        elif opened is not None:
            add_gate(opened, rule, gate)
    calibration = calibration_of(options.out, chosen.name, rule, opened, resampled)
    table = calibration_table(calibration)
    put(render([table], options.format.value, stdout_screen()))
    return 0


@gate.command("selftest")
@opt.takes("device", "out", "deadline")
def gate_selftest(options: opt.Options, suite: SuiteName = "quick") -> int:
    """Test that the gate works here: it passes unchanged code, and detects a slowdown of 5 %."""
    check_writable(options.out)
    chosen = load_suite(suite)
    stages: tuple[tuple[dict[str, float], str], ...] = (
        ({}, "passed"),
        ({LONGEST: SELFTEST}, "regressed"),
    )
    for slower, outcome in stages:
        report = gate_itself(chosen, slower, options.device, options.out, options.deadline)
        red = {c.case for c in report.cases if c.judged.verdict == "REGRESSED"}
        if red != set(report.slowed) or report.outcome != outcome:
            why = report.reasons[0] if report.reasons else "no slowdown was detected"
            raise CannotMeasure(
                f"the gate should have {outcome}, and is {report.outcome}: {why}",
                "`gpuperf doctor` detects disturbances; noise that hides 5 % is too much",
            )
        say(f"{outcome}, as expected")
    return 0


@gate.command("check")
@opt.takes("verbose")
def gate_check(
    options: opt.Options,
    verdict: Annotated[Path, typer.Argument(metavar="VERDICT", help="A gate's verdict.json.")],
    commit: Annotated[
        str | None,
        typer.Option(
            help="Commit that the head of the gate must be, in 7 digits or more.",
            show_default=False,
        ),
    ] = None,
    format: FormatOfGate = GateFormat.TABLE,
) -> int:
    """Judge the times in a verdict again, and exit with the code of the gate.

    Fails if the file is no verdict, or if its verdict does not follow from its times.
    """
    report = recheck(read_report(verdict))
    if commit is not None and not _is_commit(commit, report.head.commit):
        judged = report.head.commit[:40] or "no commit"
        raise CannotMeasure(
            f"the verdict is on {judged}, and not on {commit!r}", "gate this commit"
        )
    print_report(report, format, options.verbose)
    return exit_code(report)


def _is_commit(given: str, judged: str) -> bool:
    """Return whether *given*, at least the seven digits that git shows, names the *judged* one."""
    return len(given) >= SHORTEST_COMMIT and judged.startswith(given.lower())
