"""`gpuperf gate calibrate` and `selftest`: how often is the gate wrong on this machine?"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.gate.ab import LONGEST
from gpuperf.gate.calibration import (
    Calibration,
    add_gate,
    bound,
    gate_of,
    keep_calibration,
    kept,
    pool_of,
    quote,
    resample,
)
from gpuperf.gate.plan import GatePlan
from gpuperf.gate.printing import run_gate, write_outputs
from gpuperf.gate.project import Project
from gpuperf.gate.rule import Rule
from gpuperf.gate.verdict import GateReport, read_report
from gpuperf.model.protocol import Opened
from gpuperf.run.session import new_run_id
from gpuperf.run.suite import Suite, load_suite
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.verb import options as opt
from gpuperf.verb.measuring import check_writable
from gpuperf.verb.progress import say

SELFTEST = 0.05


def gate_calibrate(
    suite: Annotated[str, typer.Option(help="ci, quick, full, or a file.")] = "ci",
    gates: Annotated[
        int, typer.Option(min=0, max=1000, help="Real gates of this code against itself.")
    ] = 1,
    injected: Annotated[
        int, typer.Option(min=0, max=1000, help="Real gates with one case slowed down.")
    ] = 0,
    slower: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="By which share it is slowed down.")
    ] = 0.03,
    case: Annotated[
        str, typer.Option(help="The id of that case; else the one that takes longest.")
    ] = LONGEST,
    resampled: Annotated[
        int, typer.Option(min=0, max=100_000, help="Gates drawn from the processes of real ones.")
    ] = 1000,
    device: opt.DeviceName = "auto",
    out: opt.Out = Path("gpuperf-runs"),
    deadline: opt.Deadline = opt.DEFAULT_DEADLINE_S,
    format: opt.FormatOption = opt.Format.TABLE,
) -> int:
    """Measure how often the gate is red here when nothing changed, and when something did.

    Real gates accumulate over nights, those that --out holds already included, and every report
    quotes them. Gates are resampled from the processes of all of them.
    """
    check_writable(out)
    chosen, rule = load_suite(suite), Rule()
    opened = _opened(device, deadline) if gates or injected else None
    for share in (*(0.0 for _ in range(gates)), *(slower for _ in range(injected))):
        report = _gate(chosen, {case: share} if share else {}, device, out, deadline)
        found = gate_of(report, report.slowed)
        if found is None:
            say("it does not count: it came to no verdict")
        elif opened is not None:
            add_gate(opened, rule, found)
    reports = _reports(out, chosen.name, rule, opened)
    known = kept(opened, chosen.name, rule).gates if opened is not None else ()
    gates_here = {g.id: g for g in (*known, *(gate_of(r, r.slowed) for r in reports)) if g}
    calibration = Calibration(tuple(gates_here.values()))
    if resampled and reports:
        try:
            again = resample(pool_of(reports), rule, resampled, 1)
            calibration = replace(calibration, resampled=again)
        except CannotMeasure as error:
            say(f"nothing is resampled: {error}")
    if opened is not None:
        keep_calibration(opened, chosen.name, rule, calibration)
    _print(calibration, format)
    return 0


def gate_selftest(
    suite: Annotated[str, typer.Option(help="ci, quick, full, or a file.")] = "quick",
    device: opt.DeviceName = "auto",
    out: opt.Out = Path("gpuperf-runs"),
    deadline: opt.Deadline = opt.DEFAULT_DEADLINE_S,
) -> int:
    """See that the gate works here: green for this code against itself, red for 5 % more."""
    check_writable(out)
    chosen = load_suite(suite)
    stages: tuple[tuple[dict[str, float], str], ...] = (({}, "green"), ({LONGEST: SELFTEST}, "red"))
    for slower, wanted in stages:
        report = _gate(chosen, slower, device, out, deadline)
        red = {c.case for c in report.cases if c.judged.verdict == "REGRESSED"}
        outcome = "regressed" if slower else "passed"
        if red != set(report.slowed) or report.outcome != outcome:
            why = report.reasons[0] if report.reasons else "nothing was found"
            raise CannotMeasure(
                f"the gate was to be {wanted}, and is {report.outcome}: {why}",
                "`gpuperf doctor` looks for what disturbs; noise that hides 5 % is too much",
            )
        say(f"{wanted}, as it should be: {report.outcome}")
    return 0


def _gate(
    suite: Suite, slower: dict[str, float], device: str, out: Path, deadline_s: float
) -> GateReport:
    """A gate of this interpreter against itself."""
    rule = Rule(seed=int.from_bytes(os.urandom(3)))
    identity = new_run_id("calibration", suite.name)
    plan = GatePlan(
        identity,
        suite,
        Project(),
        rule,
        rule.seed,
        target=1.0,
        base_python=sys.executable,
        head_python=sys.executable,
        device=device,
        slower=slower,
    )
    folder = out / identity
    folder.mkdir(parents=True)
    report = run_gate(plan, folder, deadline_s)
    write_outputs(report, folder)
    say(f"{report.outcome}: {report.reasons[0] if report.reasons else 'as it should be'}")
    return report


def _opened(device: str, deadline_s: float) -> Opened:
    with opt.make_supervisor(device, deadline_s) as supervisor:
        return supervisor.open()


def _reports(out: Path, suite: str, rule: Rule, opened: Opened | None) -> list[GateReport]:
    """The gates in *out* of *suite*, by *rule* and of the same code on both sides, on this device,
    or where none was opened on the first that is met."""
    found: list[GateReport] = []
    device = opened.device.name if opened is not None else None
    for path in sorted(out.glob("*/verdict.json")):
        try:
            report = read_report(path)
        except UsageError as error:
            say(f"{error}")
            continue
        same = report.kind == "ab" and report.base.told == report.head.told
        same = same and replace(report.rule, seed=rule.seed) == rule
        if report.suite == suite and same and report.device == (device or report.device):
            device = report.device
            found.append(report)
    return found


def _print(found: Calibration, format: opt.Format) -> None:
    rows: list[dict[str, object]] = []
    again = found.resampled
    for share in sorted({gate.slower for gate in found.gates}):
        gates = [gate for gate in found.gates if gate.slower == share]
        right = sum(gate.right for gate in gates)
        rows.append(_row("real", share, right, len(gates)))
    if again is not None:
        rows.append(_row("resampled", 0.0, again.gates - again.red, again.gates))
        for text, (caught, tried) in again.power.items():
            rows.append(_row("resampled", float(text), caught, tried))
    heads = ("gates", "slowdown", "right", "of", "probability, 95 %")
    columns = [Column(head, left=head == "gates") for head in heads]
    cells = [
        [
            str(row["gates"]),
            f"{float(str(row['slower'])) * 100:g} %",
            str(row["right"]),
            str(row["of"]),
            f"≥ {float(str(row['at_least'])) * 100:.3g} %",
        ]
        for row in rows
    ]
    notes = (
        "right: green at a slowdown of 0, else red for that case alone; resampled gates are not "
        "independent of each other, and count a caught case whatever else is red",
        quote(found) or "nothing was calibrated yet",
    )
    table = Table(fill(columns, cells), notes=notes_of(*notes), rows=rows, names=heads)
    put(render([table], format.value, stdout_screen()))


def _row(kind: str, share: float, right: int, tried: int) -> dict[str, object]:
    return {
        "gates": kind,
        "slower": share,
        "right": right,
        "of": tried,
        "at_least": bound(right, tried, above=False),
    }
