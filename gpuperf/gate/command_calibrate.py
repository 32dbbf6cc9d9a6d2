"""Measure how often gates on this device are wrong (`gpuperf gate calibrate`, `selftest`)."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuperf.errors import CannotMeasure
from gpuperf.gate.ab import LONGEST
from gpuperf.gate.calibration import add_gate, gate_of
from gpuperf.gate.rule import Rule
from gpuperf.gate.selfgate import calibration_of, calibration_table, gate_itself
from gpuperf.run.suite import load_suite
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb import options as opt
from gpuperf.verb.measuring import check_writable
from gpuperf.verb.progress import say

SELFTEST = 0.05
SuiteName = Annotated[str, typer.Option(help="Suite: ci, quick, full, or a file.")]


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
