"""Run a planned gate: prepare its sides, add pairs to reach its target, and store its outcome."""

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
from gpuperf.gate.ab import gate_ab
from gpuperf.gate.forecast import fitted, foreseen, minutes, stored_pace
from gpuperf.gate.plan import GatePlan, write_plan
from gpuperf.gate.prime import GateRequest, PrimedSides, close_all, describe_sides
from gpuperf.gate.progress import GateProgress
from gpuperf.gate.sides import Commits, Label, Side, interpreters, worktrees
from gpuperf.gate.verdict import GateReport
from gpuperf.run.cache import fetch, keep, key_of
from gpuperf.run.catalogue import BUILTIN
from gpuperf.run.forking import launching, may_have_gpu
from gpuperf.run.launcher import Launcher, LocalLauncher
from gpuperf.run.noise import kept_noise
from gpuperf.show.figure import import_ahead
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.verb.progress import say

WITHOUT_CODE = (
    "no case names a file of this repository: the gate is refused unless workloads of gpuperf run "
    'its code; a suite names your own by its file: op = "./bench/mine.py"'
)


@contextlib.contextmanager
def sides_of(plan: GatePlan, folder: Path) -> Iterator[tuple[Side, Side]]:
    """Prepare both sides of *plan* under *folder*, and remove their worktrees at the end.

    Raises: UsageError, CannotMeasure.
    """
    if not plan.base_commit:
        yield interpreters(plan.base_python, plan.head_python, folder / "caches")
        return
    top = Path(plan.top)
    commits = Commits(top, plan.base, plan.head, plan.base_commit, plan.head_commit)
    with worktrees(commits, folder, plan.setup, say) as sides:
        yield sides


@contextlib.contextmanager
def _launchers(sides: Sequence[Side], device: str) -> Iterator[Mapping[Label, Launcher]]:
    """Provide launchers for the workers of *sides* on *device*. Raises: UsageError."""
    debug = bool(os.environ.get("GPUPERF_DEBUG"))
    local = [LocalLauncher(debug, side.place, ahead=may_have_gpu(device)) for side in sides]
    with launching(local, device, say, import_ahead) as launchers:
        yield {side.label: launcher for side, launcher in zip(sides, launchers, strict=True)}


def run_gate(
    plan: GatePlan,
    folder: Path,
    deadline_s: float,
    budget_s: float | None = None,
    fit: bool = False,
    overruled: str = "",
) -> GateReport:
    """Run the gate of *plan* in *folder*, within *budget_s* seconds, and return its report.

    With *fit*, confirming pairs are added until the target is detectable. *deadline_s* is the
    longest silence of a case, *overruled* the reason why an earlier regression does not count.
    """
    for source in sorted({e.op for e in plan.suite.entries if set(e.op) & set("/.:")}):
        say(f"the suite names the workload {source}: it is loaded from each side")
    with (
        sides_of(plan, folder) as sides,
        GateProgress() as progress,
        _launchers(sides, plan.device) as launchers,
    ):
        fresh = not (folder / "base.jsonl").exists()
        if fresh and (fit or budget_s is not None):
            primed = _described(plan, folder, launchers, deadline_s)
            if fit:
                plan = _fitted(plan, primed)
                write_plan(plan, folder)
            _refuse_over_budget(plan, primed, budget_s)
        key = key_of(plan.trees, plan.suite, plan.device)
        earlier = (fetch("gates", key, str) or "") if plan.base_commit else ""
        command = ("gpuperf", *sys.argv[1:])
        request = GateRequest(plan, folder, command, deadline_s, budget_s, earlier, overruled)
        repository = Path(plan.top) if plan.base_commit else None
        report = gate_ab(request, sides, launchers, progress, repository)
        if plan.base_commit and (earlier != "regressed" or overruled):
            keep("gates", key, report.outcome)
    return report


def _described(
    plan: GatePlan, folder: Path, launchers: Mapping[Label, Launcher], deadline_s: float
) -> PrimedSides:
    request = GateRequest(plan, folder, deadline_s=deadline_s)
    primed, supervisors = describe_sides(request, launchers)
    close_all(supervisors)
    return primed


def _fitted(plan: GatePlan, primed: PrimedSides) -> GatePlan:
    """Return *plan* with enough confirming pairs for its target; report too noisy cases."""
    noise = kept_noise(primed.opened["base"], primed.contract)
    margins = plan.project.margins_of(primed.fit)
    rule = fitted(primed.fit, noise, plan.rule, margins, plan.target)
    detectable = foreseen(primed.fit, noise, rule, margins)
    noisy = [name for name, least in detectable.items() if least and least > plan.target]
    if noisy:
        more = f", and {len(noisy) - 1} more" if len(noisy) > 1 else ""
        say(f"{noisy[0]} is too noisy for {plan.target * 100:g} %{more}")
    if rule.confirm_pairs > plan.rule.confirm_pairs:
        say(f"{rule.confirm_pairs} confirming pairs, to detect {plan.target * 100:g} %")
    return replace(plan, rule=rule)


def _refuse_over_budget(plan: GatePlan, primed: PrimedSides, budget_s: float | None) -> None:
    pace = stored_pace(primed.opened["base"], primed.fit)
    if budget_s is not None and pace is not None:
        wanted = minutes(pace, plan.rule)
        if 60 * wanted > budget_s:
            raise UsageError(
                f"the gate takes about {wanted:.1f} min, and its budget is {budget_s / 60:g}",
                "choose a smaller suite, fewer pairs, or a larger --budget",
            )


def forecast(plan: GatePlan, deadline_s: float, fit: bool) -> Table:
    """Return a table of the cases of *plan* with the slowdown that each would detect, and a note on
    the minutes; with *fit*, for as many pairs as the target needs."""
    folder = Path(tempfile.mkdtemp(prefix="gpuperf-"))
    try:
        with sides_of(plan, folder) as sides, _launchers(sides, plan.device) as launchers:
            primed = _described(plan, folder, launchers, deadline_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    plan.project.refuse_unmatched(primed.named)
    plan = _fitted(plan, primed) if fit else plan
    plan.rule.refuse_unreachable(len(primed.fit))
    opened, rule, margins = primed.opened["base"], plan.rule, plan.project.margins_of(primed.fit)
    detectable = foreseen(primed.fit, kept_noise(opened, primed.contract), rule, margins)
    values = [(name, least, "") for name, least in detectable.items()]
    values += [(name, None, why) for name, why in primed.unfit.items()]
    pace = stored_pace(opened, primed.fit)
    how_long = f"about {minutes(pace, rule):.1f} min" if pace else "unknown before a first gate"
    own = [case.source for case in primed.cases["head"].values() if case.source != BUILTIN]
    notes = (
        *((WITHOUT_CODE,) if plan.base_commit and not own else ()),
        f"{2 * rule.screen_pairs} processes of {_number(primed.fit, 'case')} and "
        f"{_number(primed.sentinels, 'sentinel')}, up to {2 * rule.confirm_pairs} of the "
        f"suspicious: {how_long}",
        "detectable: the slowdown that is detected with a probability of 0.95, by the noise of "
        "earlier processes here",
        "cases that neither side can run here are left out when the gate begins",
    )
    columns = (
        Column("case", left=True, wrap=24),
        Column("detectable"),
        Column("not comparable", left=True, wrap=24),
    )
    cells = [(name, f"{v * 100:.2f} %" if v else "unknown", why) for name, v, why in values]
    rows = [{"case": name, "detectable": v, "why_not": why} for name, v, why in values]
    return Table(fill(columns, cells), notes=notes_of(*notes), rows=rows)


def _number(things: Sequence[object], name: str) -> str:
    """Write the number of *things*: `1 case`, `2 cases`."""
    return f"{len(things)} {name}{'s' * (len(things) != 1)}"
