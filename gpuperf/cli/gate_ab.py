"""`gpuperf gate ab`: two commits, or two interpreters, in pairs of fresh processes."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.cli import options as opt
from gpuperf.cli.gating import Progress, print_report, write_outputs
from gpuperf.cli.measuring import check_writable
from gpuperf.errors import UsageError
from gpuperf.gate.ab import gate_ab as run_gate
from gpuperf.gate.prime import Asked
from gpuperf.gate.project import load_project
from gpuperf.gate.rule import Rule
from gpuperf.gate.sides import Side, interpreters, worktrees
from gpuperf.gate.verdict import exit_code
from gpuperf.report.gate import GateFormat
from gpuperf.runner.launcher import LocalLauncher
from gpuperf.runner.session import new_run_id
from gpuperf.runner.suite import load_suite

__all__ = ["gate_ab"]


def gate_ab(
    base: Annotated[str | None, typer.Option(help="Commit to compare with.")] = None,
    head: Annotated[str, typer.Option(help="Commit, or folder of a worktree.")] = ".",
    base_python: Annotated[
        str | None, typer.Option("--base-python", help="In place of commits: an interpreter…")
    ] = None,
    head_python: Annotated[
        str | None, typer.Option("--head-python", help="…and another one, in the same folder.")
    ] = None,
    setup: Annotated[str, typer.Option(help="Shell command that sets a worktree up.")] = "",
    dirty: Annotated[
        bool, typer.Option("--dirty", help="Measure changes that are not committed.")
    ] = False,
    suite: Annotated[
        str | None, typer.Option(help="ci, quick, full, or a file; else that of gpuperf.toml, ci.")
    ] = None,
    device: opt.DeviceName = "auto",
    screen_pairs: Annotated[int, typer.Option(min=2, max=1000, help="Pairs of all cases.")] = 6,
    confirm_pairs: Annotated[
        int, typer.Option(min=2, max=1000, help="Pairs of the suspicious cases.")
    ] = 20,
    min_effect: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Slowdown that is not worth a word.")
    ] = 0.01,
    abs_floor: Annotated[
        str | None, typer.Option(help="The same in seconds, for example 200ns.")
    ] = None,
    out: opt.Out = Path("gpuperf-runs"),
    deadline: opt.Deadline = opt.DEFAULT_DEADLINE_S,
    seed: Annotated[int | None, typer.Option(min=0, max=2**31 - 1, help="Of the order.")] = None,
    format: Annotated[GateFormat, typer.Option(help="How to print.")] = GateFormat.TABLE,
) -> int:
    """Gate a change: is any case of a suite slower on HEAD than on BASE?"""
    drawn = int.from_bytes(os.urandom(3)) if seed is None else seed
    rule = Rule(
        screen_pairs=screen_pairs, confirm_pairs=confirm_pairs, margin=min_effect,
        floor_s=opt.seconds("abs-floor", abs_floor), seed=drawn,
    )  # fmt: skip
    check_writable(out)
    identity = new_run_id("gate", suite or "project")
    folder = out / identity.replace("/", "-")
    folder.mkdir(parents=True)
    with _sides(base, head, base_python, head_python, setup, dirty, folder) as sides:
        root = Path(sides[0].place.folder)
        project = load_project(root)
        asked = Asked(
            identity, load_suite(suite or project.suite or "ci"), rule, folder,
            ("gpuperf", *sys.argv[1:]), project, device, deadline, drawn,
        )  # fmt: skip
        debug = bool(os.environ.get("GPUPERF_DEBUG"))
        launchers = {s.label: LocalLauncher(debug, s.place, ahead=True) for s in sides}
        with Progress() as progress:
            began = time.monotonic()
            report = run_gate(asked, sides, launchers, progress, Path() if base else None)
            progress.say(f"{report.pairs} pairs in {time.monotonic() - began:.0f} s")
    write_outputs(report, folder)
    print_report(report, format)
    return exit_code(report)


@contextlib.contextmanager
def _sides(
    base: str | None,
    head: str,
    base_python: str | None,
    head_python: str | None,
    setup: str,
    dirty: bool,
    folder: Path,
) -> Iterator[tuple[Side, Side]]:
    """Both sides, prepared. Raises: UsageError, CannotMeasure."""
    if base is not None and (base_python or head_python):
        raise UsageError("commits and interpreters exclude each other", "--base, or --base-python")
    if base is not None:
        with worktrees(base, head, folder, setup, dirty) as sides:
            yield sides
        return
    if base_python is None or head_python is None:
        raise UsageError("there is nothing to compare with", "--base main")
    if setup:
        raise UsageError("--setup is of commits", "leave it out, or --base main")
    yield interpreters(base_python, head_python, folder / "caches")
