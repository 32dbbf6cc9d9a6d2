"""`gpuperf gate ab`: two commits, or two interpreters, in pairs of fresh processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import UsageError
from gpuperf.gate.plan import GatePlan, read_plan, write_plan
from gpuperf.gate.printing import print_report, run_gate, tell_forecast, write_outputs
from gpuperf.gate.project import FILE, Project, load_project, parse_project
from gpuperf.gate.rule import Rule
from gpuperf.gate.sides import Commits, interpreters, is_gpuperf, resolve, show
from gpuperf.gate.table import GateFormat
from gpuperf.gate.verdict import exit_code
from gpuperf.run.session import new_run_id
from gpuperf.run.suite import Suite, load_suite, parse_suite
from gpuperf.verb import options as opt
from gpuperf.verb.measuring import check_writable
from gpuperf.verb.parse import seconds
from gpuperf.verb.progress import say

TARGET = 0.05  # of unchanged gates on an H200 some case in three of six could hide 3 %, none 4 %
SAME = "`gpuperf gate calibrate` measures a side against itself"


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
        str | None,
        typer.Option(help="A file, or ci, quick, full; else gpuperf.toml's.", show_default=False),
    ] = None,
    device: opt.DeviceName = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell cases, minutes, and what could be seen.")
    ] = False,
    target_mde: Annotated[
        float | None,
        typer.Option(
            min=1e-4,
            max=1.0,
            help="Slowdown that must be detectable in every case.",
            show_default=f"{TARGET:g}",
        ),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0.0, help="Minutes, at most.", show_default=False)
    ] = None,
    min_effect: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Slowdown that is not worth a word.")
    ] = 0.01,
    abs_floor: Annotated[
        str | None, typer.Option(help="The same as a time, for example 200ns.", show_default=False)
    ] = None,
    screen_pairs: Annotated[int, typer.Option(min=2, max=1000, help="Pairs of all cases.")] = 6,
    confirm_pairs: Annotated[
        int, typer.Option(min=2, max=1000, help="Pairs of the suspicious cases.")
    ] = 20,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**31 - 1, help="Of the order.", show_default="drawn")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Go on with a gate.", show_default=False)
    ] = None,
    overrule: Annotated[
        str, typer.Option(metavar="REASON", help="Why an earlier red gate does not count.")
    ] = "",
    out: opt.Out = Path("gpuperf-runs"),
    deadline: opt.Deadline = opt.DEFAULT_DEADLINE_S,
    format: Annotated[GateFormat, typer.Option(help="How to print.")] = GateFormat.TABLE,
) -> int:
    """Gate a change: is any case of a suite slower on HEAD than on BASE?

    The base's gpuperf.toml and suite count, where it has them. Exit codes: 0 passed, 1 regressed,
    3 not comparable, 4 inconclusive, contaminated or incomplete.
    """
    check_writable(out)
    if resume is not None:
        given = (base, base_python, head_python, setup, dirty, suite, target_mde, abs_floor)
        if any(given) or seed is not None or device != "auto":
            raise UsageError("a gate is resumed as it was begun", "--resume FOLDER alone")
        folder, plan = resume, read_plan(resume)
    else:
        rule = Rule(
            screen_pairs=screen_pairs,
            confirm_pairs=confirm_pairs,
            margin=min_effect,
            floor_s=seconds("abs-floor", abs_floor),
            seed=int.from_bytes(os.urandom(3)) if seed is None else seed,
        )
        commits = _commits(base, head, base_python, head_python, setup, dirty)
        if base_python and head_python:
            interpreters(base_python, head_python, out)  # refuses what is no program
            if base_python == head_python:
                raise UsageError("both sides are the same interpreter", SAME)
        plan = _plan(commits, suite, rule, target_mde)
        plan = replace(
            plan,
            base_python=base_python or "",
            head_python=head_python or "",
            setup=setup,
            device=device,
        )
        folder = out / plan.id
    if dry_run:
        tell_forecast(plan, deadline, fit=target_mde is not None, format=format)
        return 0
    if resume is None:
        folder.mkdir(parents=True)
        write_plan(plan, folder)
        say(f"gate: {folder}; interrupted, it goes on with --resume {folder}")
    budget_s = None if budget is None else 60 * budget
    report = run_gate(plan, folder, deadline, budget_s, target_mde is not None, overrule)
    write_outputs(report, folder)
    print_report(report, format)
    return exit_code(report)


def _plan(commits: Commits | None, suite: str | None, rule: Rule, target: float | None) -> GatePlan:
    """A new plan, judged as the base has it. Raises: UsageError where both sides are the same."""
    notes: list[str] = []
    project, chosen = _judged_by(commits, suite, notes)
    target = target or project.target or TARGET
    identity = new_run_id("gate", chosen.name)
    plan = GatePlan(identity, chosen, project, rule, rule.seed, target, notes=tuple(notes))
    if commits is None:
        return plan
    trees = commits.trees
    if trees[0] == trees[1]:
        raise UsageError(f"{commits.base} and {commits.head} hold the same files", SAME)
    return replace(
        plan,
        base=commits.base,
        head=commits.head,
        base_commit=commits.base_commit,
        head_commit=commits.head_commit,
        top=str(commits.top),
        trees=trees,
    )


def _commits(
    base: str | None,
    head: str,
    base_python: str | None,
    head_python: str | None,
    setup: str,
    dirty: bool,
) -> Commits | None:
    """The commits; None where two interpreters are asked for. Raises: UsageError."""
    if base is not None and (base_python or head_python):
        raise UsageError("commits and interpreters exclude each other", "--base, or --base-python")
    if base is not None:
        return resolve(base, head, dirty)
    if base_python is None or head_python is None:
        raise UsageError("there is nothing to compare with", "--base main")
    if setup or dirty or head != ".":
        raise UsageError("--setup, --dirty and --head are of commits", "--base main")
    return None


def _judged_by(
    commits: Commits | None, suite: str | None, notes: list[str]
) -> tuple[Project, Suite]:
    """The project's own file and the suite: those of the base where it has them, so that a change
    cannot widen its own margins or drop a case."""
    if commits is None:
        project = load_project(Path())
        return project, load_suite(suite or project.suite or "ci")
    text = show(commits, commits.base_commit, str(commits.top / FILE))
    if text is None:
        project = load_project(commits.top)
        if project != Project():
            notes.append(f"the base has no {FILE}: the head's own counts")
    else:
        with _of_base(commits):
            project = parse_project(text)
    name = suite or _own_suite(commits, project)
    if not name.endswith(".toml") and not is_gpuperf(commits.top):
        notes.append(
            f"the suite {name} measures gpuperf's own kernels: of a change here it sees what these "
            "import, and nothing else"
        )
        say(notes[-1])
    known = show(commits, commits.base_commit, name) if name.endswith(".toml") else None
    if known is not None:
        with _of_base(commits):
            return project, parse_suite(known, Path(name).stem)
    if name.endswith(".toml"):
        notes.append(f"the base has no {Path(name).name}: the one that is here counts")
    return project, load_suite(name)


def _own_suite(commits: Commits, project: Project) -> str:
    """The suite that the project names. Raises: UsageError for a repository without one: a gate of
    gpuperf's own kernels would pass whatever changed."""
    if project.suite:
        inside = commits.top / project.suite
        return str(inside) if project.suite.endswith(".toml") else project.suite
    if is_gpuperf(commits.top):
        return "ci"
    raise UsageError(
        f"{commits.top.name} names no suite, and gpuperf's own kernels do not change with it",
        f'write suite = "bench.toml" into {FILE}, and schema = 1, then [[case]] with '
        'op = "./my_kernel.py" into bench.toml; or --suite ci, where gpuperf\'s kernels are meant',
    )


@contextlib.contextmanager
def _of_base(commits: Commits) -> Iterator[None]:
    """Say of an error in a file that it is in the base's, which the head may have mended."""
    try:
        yield
    except UsageError as error:
        told = f"in the base {commits.base} ({commits.base_commit[:10]}): {error}"
        raise UsageError(told, error.hint) from None
