"""Run the commands of `gpuperf judge`: a file, check and selftest."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gpuperf.errors import UsageError
from gpuperf.judge.corpus import read_corpus
from gpuperf.judge.evidence import Forbidden
from gpuperf.judge.isolation import container_command
from gpuperf.judge.reading import read_task
from gpuperf.judge.run import Sitting
from gpuperf.judge.selftest import SelfTest, rates_table
from gpuperf.judge.settings import Settings
from gpuperf.judge.table import verdict_table
from gpuperf.judge.verdict import Verdict, exit_code, read_verdict, recheck, write_verdict
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb import options as opt
from gpuperf.verb import parse
from gpuperf.verb.progress import say

NOTHING_JUDGED = 3  # exit code
FILE, CORPUS = "file", Path("tests/cheats/judged")


class JudgeGroup(TyperGroup):
    """The group of commands, in which a file's name stands for the command `file`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `file` before words that begin with no command and are no call for help."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = [FILE, *args]
        return super().parse_args(ctx, args)


judge = typer.Typer(cls=JudgeGroup, no_args_is_help=True, rich_markup_mode=None)


class TaskFormat(StrEnum):
    """Format of a task and its submission."""

    AUTO = "auto"
    KERNELBENCH = "kernelbench"
    GPUMODE = "gpumode"
    FLASHINFER = "flashinfer"
    GPUPERF = "gpuperf"


class Isolation(StrEnum):
    """Isolation of the submission from the rest of the system."""

    PROCESS = "process"
    SANDBOX = "sandbox"
    CONTAINER = "container"


class Forbid(StrEnum):
    """Whose kernels a submission may not spend its time in."""

    LIBRARY = "library"


Forbidding = Annotated[
    Forbid | None,
    typer.Option(
        help="Doubt a submission whose time is in kernels of a library.", show_default=False
    ),
]
Processes = Annotated[
    int, typer.Option(min=1, max=50, help="Number of processes of the submission.")
]


@judge.command(FILE)
@opt.takes("device", "deadline", "verbose", deadline=60.0)
def judge_one(
    options: opt.Options,
    submission: Annotated[
        Path, typer.Argument(metavar="SUBMISSION", help="File of the submitted kernel.")
    ],
    against: Annotated[
        Path, typer.Option(help="Task: a reference, a definition, or a folder with task.yml.")
    ],
    task_format: Annotated[
        TaskFormat, typer.Option("--format", help="Format of the task and the submission.")
    ] = TaskFormat.AUTO,
    isolation: Annotated[
        Isolation, typer.Option(help="Isolation of the submission: see the guide.")
    ] = Isolation.PROCESS,
    processes: Processes = 3,
    cases: Annotated[
        int, typer.Option(min=1, max=1000, help="Judge at most this many cases of the task.")
    ] = 8,
    point: Annotated[
        str, typer.Option(help="Point of a Workload: m=64,dtype=fp32.", show_default=False)
    ] = "",
    compiled: Annotated[bool, typer.Option(help="Time torch.compile of the reference too.")] = True,
    forbid: Forbidding = None,
    out: Annotated[Path, typer.Option(help="File for the verdict.")] = Path("verdict.json"),
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Append flashinfer-bench traces to this file.", show_default=False
        ),
    ] = None,
    json: opt.AsJson = False,
) -> int:
    """Judge SUBMISSION against a reference; `gpuperf judge SUBMISSION` is short for this.

    Exit codes: 0 valid, 1 wrong or cheat, 3 nothing could be judged, 4 suspect or inconclusive.
    """
    if isolation is Isolation.CONTAINER:
        put(container_command(submission, against, sys.argv[1:]) + "\n")
        say("nothing was judged: run this command, with an image that has gpuperf")
        return NOTHING_JUDGED
    task = read_task(against, task_format.value, cases, point)
    settings = Settings(
        isolation.value,
        processes,
        options.deadline,
        bool(os.environ.get("GPUPERF_DEBUG")),
        compiled=compiled,
        device=options.device,
        forbid=_forbidden(forbid, options.device),
    )
    with Sitting(against, task, settings) as sitting:
        verdict = sitting.judge(submission, say)
    write_verdict(verdict, out)
    say(f"verdict: {out}")
    if trace is not None:
        from gpuperf.judge.formats.flashinfer import append_traces

        append_traces(verdict, task, submission, trace)
    return _print(verdict, opt.Format.JSON if json else opt.Format.TABLE, options.verbose)


@judge.command("check")
@opt.takes("verbose")
def judge_check(
    options: opt.Options,
    verdict: Annotated[Path, typer.Argument(metavar="VERDICT", help="A verdict of the judge.")],
    format: opt.FormatOption = opt.Format.TABLE,
) -> int:
    """Judge the evidence in a verdict again, and exit with the code of the judgement.

    Fails if the file is no verdict, or if its status or score does not follow from its evidence.
    """
    return _print(recheck(read_verdict(verdict)), format, options.verbose)


@judge.command("selftest")
@opt.takes("device", "deadline", "format", device="cpu", deadline=30.0)
def judge_selftest(
    options: opt.Options,
    corpus: Annotated[
        Path, typer.Option(help="Folder of known cheats and honest kernels.")
    ] = CORPUS,
    only: Annotated[
        str, typer.Option(help="Judge submissions whose names contain this.", show_default=False)
    ] = "",
    processes: Processes = 1,
    isolation: Annotated[
        Isolation, typer.Option(help="Isolation of the submissions: see the guide.")
    ] = Isolation.PROCESS,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.1, help="Begin no submission after this time.", show_default=False),
    ] = None,
    kept: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of outcomes, to which this sitting adds its own.",
            show_default=False,
        ),
    ] = None,
    part: Annotated[
        str,
        typer.Option(
            metavar="I/N",
            help="Judge only part I (from 0) of N, so that N GPUs share the work and one file.",
        ),
    ] = "0/1",
) -> int:
    """Judge known cheats and honest kernels, and print how often the judge is wrong.

    Exit codes: 0 no cheat is valid and no honest kernel is accused, 3 otherwise.
    """
    if isolation is Isolation.CONTAINER:
        raise UsageError("the test of the judge runs in no container", "--isolation sandbox")
    samples = read_corpus(corpus, only)
    settings = Settings(
        isolation.value,
        processes,
        options.deadline,
        started="forked" if options.device != "cpu" else "spawned",
        device=options.device,
    )
    budget_s = 60 * minutes if minutes else float("inf")
    test = SelfTest(samples, settings, say, budget_s, kept, parse.part(part))
    outcomes, able = test.run(), len(test.able)
    table = rates_table(outcomes, len(samples) - able, able - len(outcomes))
    put(render([table], options.format.value, stdout_screen()))
    return NOTHING_JUDGED if any(outcome.mistaken for outcome in outcomes) else 0


def _forbidden(forbid: Forbid | None, device: str) -> Forbidden:
    if forbid and device == "cpu":
        raise UsageError("--forbid library needs a GPU, which records kernels", "--device cuda:0")
    return "library" if forbid else ""


def _print(verdict: Verdict, format: opt.Format, verbose: bool) -> int:
    put(render([verdict_table(verdict, verbose)], format.value, stdout_screen()))
    return exit_code(verdict)
