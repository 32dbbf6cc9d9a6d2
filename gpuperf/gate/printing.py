"""What the gate's verbs do around a gate: progress, and what is written and printed of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.files import write_atomically
from gpuperf.gate.ab import gate_ab
from gpuperf.gate.forecast import fitted, foreseen, kept_pace, minutes
from gpuperf.gate.plan import GatePlan, write_plan
from gpuperf.gate.prime import Asked, Primed, close_all, describe_sides
from gpuperf.gate.sides import Commits, Label, Side, interpreters, worktrees
from gpuperf.gate.table import GateFormat, render_gate
from gpuperf.gate.verdict import GateReport
from gpuperf.model.record import Record
from gpuperf.model.text import clean
from gpuperf.run.cache import fetch, keep, key_of
from gpuperf.run.launcher import LocalLauncher
from gpuperf.run.noise import kept_noise
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.show.text import to_ascii
from gpuperf.verb.progress import Reporter, say


class Progress:
    """A gate's progress: a bar a stage on a terminal, a line a stage without one."""

    def __init__(self) -> None:
        self._reporter: Reporter | None = None
        self._live = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._reporter is not None:
            self._reporter.__exit__(None, None, None)
            self._reporter = None

    def say(self, text: str) -> None:
        """A sentence."""
        say(text)

    def stage(self, name: str, records: int) -> None:
        """The next *records* records are of this stage."""
        self._end()
        if self._live:
            self._reporter = Reporter(records).__enter__()
            self._stage = name
        else:
            say(name)

    def begin(self, case: str) -> None:
        """The next case."""
        if self._reporter is not None:
            self._reporter.begin(f"{self._stage}: {case}")

    def hear(self, phase: str, samples: int) -> None:
        """A sign of life of the case."""
        if self._reporter is not None:
            self._reporter.show_phase(phase, samples)

    def done(self, label: Label, record: Record) -> None:
        """A case was measured."""
        if self._reporter is not None:
            self._reporter.done(record)


@contextlib.contextmanager
def sides_of(plan: GatePlan, folder: Path) -> Iterator[tuple[Side, Side]]:
    """Both sides of *plan*, prepared under *folder*. Raises: UsageError, CannotMeasure."""
    if not plan.base_commit:
        yield interpreters(plan.base_python, plan.head_python, folder / "caches")
        return
    top = Path(plan.top)
    commits = Commits(top, plan.base, plan.head, plan.base_commit, plan.head_commit)
    with worktrees(commits, folder, plan.setup, say) as sides:
        yield sides


def launchers_of(sides: Sequence[Side]) -> Mapping[Label, LocalLauncher]:
    """Of workers at each side."""
    debug = bool(os.environ.get("GPUPERF_DEBUG"))
    return {side.label: LocalLauncher(debug, side.place, ahead=True) for side in sides}


def run_gate(
    plan: GatePlan,
    folder: Path,
    deadline_s: float,
    budget_s: float | None = None,
    fit: bool = False,
    overruled: str = "",
) -> GateReport:
    """The report of *plan*, in *folder*; *fit* to the target by more confirming pairs."""
    for source in sorted({e.op for e in plan.suite.entries if set(e.op) & set("/.:")}):
        say(f"the suite names the workload {source}: it is loaded from each side")
    with sides_of(plan, folder) as sides, Progress() as progress:
        launchers = launchers_of(sides)
        fresh = not (folder / "base.jsonl").exists()
        if fresh and (fit or budget_s is not None):
            primed = _described(plan, folder, launchers, deadline_s)
            if fit:
                plan = _fitted(plan, primed)
                write_plan(plan, folder)
            _refuse_over_budget(plan, primed, budget_s)
        key = key_of(plan.trees, plan.suite, plan.device)
        before = (fetch("gates", key, str) or "") if plan.base_commit else ""
        asked = Asked(
            plan,
            folder,
            ("gpuperf", *sys.argv[1:]),
            deadline_s,
            budget_s,
            earlier=before,
            overruled=overruled,
        )
        repository = Path(plan.top) if plan.base_commit else None
        report = gate_ab(asked, sides, launchers, progress, repository)
        if plan.base_commit and (before != "regressed" or overruled):
            keep("gates", key, report.outcome)
    return report


def _described(
    plan: GatePlan, folder: Path, launchers: Mapping[Label, LocalLauncher], deadline_s: float
) -> Primed:
    primed, supervisors = describe_sides(Asked(plan, folder, deadline_s=deadline_s), launchers)
    close_all(supervisors)
    return primed


def _fitted(plan: GatePlan, primed: Primed) -> GatePlan:
    """*plan* with the pairs that its target takes."""
    noise = kept_noise(primed.opened["base"], primed.contract)
    margins = plan.project.margins_of(primed.fit)
    rule = fitted(primed.fit, noise, plan.rule, margins, plan.target)
    seen = foreseen(primed.fit, noise, rule, margins)
    blind = [name for name, least in seen.items() if least is not None and least > plan.target]
    if blind:
        more = f", and {len(blind) - 1} more" if len(blind) > 1 else ""
        say(f"{blind[0]} is too noisy for {plan.target * 100:g} %{more}")
    if rule.confirm_pairs > plan.rule.confirm_pairs:
        say(f"{rule.confirm_pairs} confirming pairs, to see {plan.target * 100:g} %")
    return replace(plan, rule=rule)


def _refuse_over_budget(plan: GatePlan, primed: Primed, budget_s: float | None) -> None:
    pace = kept_pace(primed.opened["base"], primed.fit)
    if budget_s is not None and pace is not None:
        wanted = minutes(pace, plan.rule)
        if 60 * wanted > budget_s:
            raise UsageError(
                f"the gate takes about {wanted:.1f} min, and its budget is {budget_s / 60:g}",
                "a smaller suite, fewer pairs, or more minutes",
            )


def tell_forecast(plan: GatePlan, deadline_s: float, fit: bool, format: GateFormat) -> None:
    """Print what *plan* would measure, for how long, and what it could see."""
    folder = Path(tempfile.mkdtemp(prefix="gpuperf-"))
    try:
        with sides_of(plan, folder) as sides:
            primed = _described(plan, folder, launchers_of(sides), deadline_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    plan.project.refuse_unmatched(primed.named)
    plan = _fitted(plan, primed) if fit else plan
    plan.rule.refuse_unreachable(len(primed.fit))
    opened, rule = primed.opened["base"], plan.rule
    noise = kept_noise(opened, primed.contract)
    seen = foreseen(primed.fit, noise, rule, plan.project.margins_of(primed.fit))
    rows = [
        {"case": clean(name), "detectable": least, "why_not": ""} for name, least in seen.items()
    ]
    rows += [
        {"case": clean(name), "detectable": None, "why_not": clean(why)}
        for name, why in primed.unfit.items()
    ]
    cells = [[str(row["case"]), _share(row["detectable"]), str(row["why_not"])] for row in rows]
    pace = kept_pace(opened, primed.fit)
    how_long = f"about {minutes(pace, rule):.1f} min" if pace else "unknown before a first gate"
    notes = (
        f"{2 * rule.screen_pairs} passes of {len(primed.fit)} cases and {len(primed.sentinels)} "
        f"sentinels, {2 * rule.confirm_pairs} of the suspicious: {how_long}",
        "detectable: the slowdown found with a probability of 0.95, by the noise that earlier "
        "processes saw here",
        "cases that neither side can run here are found, and left out, when the gate begins",
    )
    kind = format.value if format.value in ("json", "md") else "table"
    columns = (
        Column("case", left=True, wrap=24),
        Column("detectable"),
        Column("not comparable", left=True, wrap=24),
    )
    table = Table(fill(columns, cells), notes=notes_of(*notes), rows=rows)
    put(render([table], kind, stdout_screen()))


def _share(value: object) -> str:
    return f"{value * 100:.2f} %" if isinstance(value, float) else "unknown"


def print_report(report: GateReport, format: GateFormat) -> None:
    """To stdout, in what its encoding has."""
    text = render_gate(report, format)
    if stdout_screen().ascii:
        text = to_ascii(text)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the verdict stands, whoever reads it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_outputs(report: GateReport, folder: Path) -> None:
    """Beside the verdict: markdown, JUnit, and a chart; one that fails costs no verdict."""
    for kind, name in ((GateFormat.MD, "report.md"), (GateFormat.JUNIT, "junit.xml")):
        try:
            write_atomically(folder / name, render_gate(report, kind))
        except (OSError, ValueError) as error:
            say(f"no {name} was written: {getattr(error, 'strerror', None) or error}")
    try:
        from gpuperf.gate.chart import draw_pairs

        draw_pairs(report, [folder / "pairs.png", folder / "pairs.svg"])
    except (OSError, ValueError, UsageError) as error:
        say(f"no chart was written: {error}")
    say(f"verdict: {folder / 'verdict.json'}")
