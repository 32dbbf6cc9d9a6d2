"""Run gates of this interpreter against itself, and estimate the error rate of gates from them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.gate.calibration import (
    Calibration,
    bound,
    gate_of,
    pool_of,
    quote,
    resample,
    store_calibration,
    stored_calibration,
)
from gpuperf.gate.output import write_outputs
from gpuperf.gate.plan import GatePlan
from gpuperf.gate.project import Project
from gpuperf.gate.rule import Rule
from gpuperf.gate.run import run_gate
from gpuperf.gate.verdict import GateReport, read_report
from gpuperf.model.protocol import Opened
from gpuperf.run.session import new_run_id
from gpuperf.run.suite import Suite
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.verb.progress import say


def gate_itself(
    suite: Suite, slower: Mapping[str, float], device: str, out: Path, deadline_s: float
) -> GateReport:
    """Run a gate of this interpreter against itself, with cases of the head *slower*."""
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
    say(f"{report.outcome}: {report.reasons[0] if report.reasons else 'as expected'}")
    return report


def calibration_of(
    out: Path, suite: str, rule: Rule, opened: Opened | None, resampled: int
) -> Calibration:
    """Return the calibration of *suite*: stored gates, those in *out*, and *resampled* gates drawn
    from their processes. It is stored for the device that is *opened*, if one is."""
    reports = list(_reports(out, suite, rule, opened))
    stored = stored_calibration(opened, suite, rule).gates if opened is not None else ()
    gates = {gate.id: gate for gate in (*stored, *map(gate_of, reports)) if gate is not None}
    calibration = Calibration(tuple(gates.values()))
    if resampled and reports:
        try:
            again = resample(pool_of(reports), rule, resampled, 1)
            calibration = replace(calibration, resampled=again)
        except CannotMeasure as error:
            say(f"nothing is resampled: {error}")
    if opened is not None:
        store_calibration(opened, suite, rule, calibration)
    return calibration


def _reports(out: Path, suite: str, rule: Rule, opened: Opened | None) -> Iterator[GateReport]:
    """Yield the reports in *out* on gates of *suite* by *rule* with the same code on both sides, on
    the device that is *opened*; without one, on the device of the first such gate."""
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
            yield report


def calibration_table(calibration: Calibration) -> Table:
    """Return a table of how often gates came to the right verdict, by slowdown."""
    counts: list[tuple[str, float, int, int]] = []
    for share in sorted({gate.slower for gate in calibration.gates}):
        right = [gate.right for gate in calibration.gates if gate.slower == share]
        counts.append(("real", share, sum(right), len(right)))
    if (again := calibration.resampled) is not None:
        counts.append(("resampled", 0.0, again.gates - again.red, again.gates))
        counts += [("resampled", float(t), right, n) for t, (right, n) in again.power.items()]
    least = [bound(right, tried, above=False) for _, _, right, tried in counts]
    values = [(*count, bound) for count, bound in zip(counts, least, strict=True)]
    names = ("gates", "slower", "right", "of", "at_least")
    heads = ("gates", "slowdown", "right", "of", "probability, 95 %")
    cells = [
        (kind, f"{share * 100:g} %", str(right), str(tried), f"≥ {least * 100:.3g} %")
        for kind, share, right, tried, least in values
    ]
    notes = (
        "right: passed at a slowdown of 0, else regressed for that case alone; resampled gates are "
        "not independent of each other, and count a detected case whatever else regressed",
        quote(calibration) or "no gate was calibrated yet",
    )
    columns = [Column(head, left=head == "gates") for head in heads]
    rows = [dict(zip(names, row, strict=True)) for row in values]
    return Table(fill(columns, cells), notes=notes_of(*notes), rows=rows, names=names)
