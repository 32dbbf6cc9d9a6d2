"""Gate a change in pairs of fresh processes (`gpuperf gate ab`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import UsageError
from gpuperf.gate.formats import GateFormat
from gpuperf.gate.output import print_report, write_outputs
from gpuperf.gate.plan import read_plan, write_plan
from gpuperf.gate.request import TARGET, Sources, plan_of
from gpuperf.gate.rule import Rule
from gpuperf.gate.run import forecast, run_gate
from gpuperf.gate.verdict import exit_code
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb import options as opt
from gpuperf.verb.measuring import check_writable
from gpuperf.verb.parse import seconds
from gpuperf.verb.progress import say

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
SuiteName = Annotated[
    str | None,
    typer.Option(
        help="Suite: a file, or ci, quick, full; by default that of gpuperf.toml.",
        show_default=False,
    ),
]
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


@opt.takes("device", "out", "deadline", "verbose")
def gate_ab(
    options: opt.Options,
    base: Base = "",
    head: Head = ".",
    base_python: BasePython = "",
    head_python: HeadPython = "",
    setup: Setup = "",
    dirty: Dirty = False,
    suite: SuiteName = None,
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
    report = run_gate(plan, folder, options.deadline, budget_s, fit, overrule)
    write_outputs(report, folder)
    print_report(report, format, options.verbose)
    return exit_code(report)
