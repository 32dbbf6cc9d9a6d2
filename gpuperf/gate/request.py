"""Make the plan of a gate from the options of the command line and the project's settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.gate.plan import GatePlan
from gpuperf.gate.project import FILE, Project, load_project, parse_project
from gpuperf.gate.rule import Rule
from gpuperf.gate.sides import Commits, interpreters, is_gpuperf, resolve, show
from gpuperf.run.session import new_run_id
from gpuperf.run.suite import Suite, load_suite, parse_suite
from gpuperf.verb.progress import say

TARGET = 0.05  # in three of six gates of unchanged code on an H200 a case could hide 3 %, never 4 %
SAME = "compare two different ones; `gpuperf gate calibrate` measures a side against itself"


@dataclass(frozen=True)
class Sources:
    """The sides that the user names: two commits, or two interpreters."""

    base: str = ""
    head: str = "."
    base_python: str = ""
    head_python: str = ""
    setup: str = ""
    dirty: bool = False

    def commits(self) -> Commits | None:
        """Resolve the commits; return None for two interpreters. Raises: UsageError."""
        if self.base and (self.base_python or self.head_python):
            hint = "give --base, or --base-python and --head-python"
            raise UsageError("commits and interpreters exclude each other", hint)
        if self.base:
            return resolve(self.base, self.head, self.dirty)
        if not (self.base_python or self.head_python):
            raise UsageError("there is nothing to compare with", "name a commit: --base main")
        if not (self.base_python and self.head_python):
            lacking = "--head-python" if self.base_python else "--base-python"
            raise UsageError("an interpreter has nothing to compare with", f"give {lacking}")
        if self.setup or self.dirty or self.head != ".":
            raise UsageError("--setup, --dirty and --head need commits", "add --base main")
        return None


def plan_of(
    sources: Sources,
    suite: str | None,
    rule: Rule,
    target: float | None,
    device: str = "auto",
    out: Path = Path(),
) -> GatePlan:
    """Return a new plan, with the project's settings and suite of the base commit, if it has them.

    Raises: UsageError if both sides are the same, or cannot be resolved.
    """
    commits = sources.commits()
    if commits is None:
        interpreters(sources.base_python, sources.head_python, out)  # raises for a wrong path
        if sources.base_python == sources.head_python:
            raise UsageError("both sides are the same interpreter", SAME)
    notes: list[str] = []
    project, chosen = _judged_by(commits, suite, notes)
    plan = GatePlan(
        new_run_id("gate", chosen.name),
        chosen,
        project,
        rule,
        rule.seed,
        target or project.target or TARGET,
        notes=tuple(notes),
        base_python=sources.base_python,
        head_python=sources.head_python,
        setup=sources.setup,
        device=device,
    )
    if commits is None:
        return plan
    trees = commits.trees
    if trees[0] == trees[1]:
        raise UsageError(f"{commits.base} and {commits.head} hold the same files", SAME)
    return replace(plan, **{**vars(commits), "top": str(commits.top)}, trees=trees)


def _judged_by(
    commits: Commits | None, suite: str | None, notes: list[str]
) -> tuple[Project, Suite]:
    """Return the project's settings and the suite, those of the base if it has them, so that a
    change cannot widen its own margins or drop a case. Adds *notes* on files of the head."""
    if commits is None:
        project = load_project(Path())
        return project, load_suite(suite or project.suite or "ci")
    text = show(commits, commits.base_commit, str(commits.top / FILE))
    if text is None:
        project = load_project(commits.top)
        if project != Project():
            notes.append(f"the base has no {FILE}: that of the head is used")
    else:
        with _of_base(commits):
            project = parse_project(text)
    name = suite or _own_suite(commits, project)
    if not name.endswith(".toml"):
        if not is_gpuperf(commits.top):
            notes.append(
                f"the suite {name} measures gpuperf's own kernels: a change here is seen only in "
                "what these import"
            )
            say(notes[-1])
        return project, load_suite(name)
    text = show(commits, commits.base_commit, name)
    if text is None:
        notes.append(f"the base has no {Path(name).name}: that of the head is used")
        return project, load_suite(name)
    with _of_base(commits):
        return project, parse_suite(text, Path(name).stem)


def _own_suite(commits: Commits, project: Project) -> str:
    """Return the suite that the project names.

    Raises: UsageError for a repository without one: a gate of gpuperf's own kernels would pass
    whatever changed.
    """
    if project.suite:
        inside = commits.top / project.suite
        return str(inside) if project.suite.endswith(".toml") else project.suite
    if is_gpuperf(commits.top):
        return "ci"
    raise UsageError(
        f"{commits.top.name} names no suite, and gpuperf's own kernels do not change with it",
        f'write suite = "bench.toml" into {FILE}, and schema = 1, then [[case]] with '
        'op = "./my_kernel.py" into bench.toml; or give --suite ci to measure gpuperf\'s kernels',
    )


@contextlib.contextmanager
def _of_base(commits: Commits) -> Iterator[None]:
    """Add the commit to an error in a file of the base: the head's file may be correct."""
    try:
        yield
    except UsageError as error:
        message = f"in the base {commits.base} ({commits.base_commit[:10]}): {error}"
        raise UsageError(message, error.hint) from None
