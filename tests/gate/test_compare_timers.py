"""Are times compared that two timers took of one case, where they mean the same?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_gate import CASES, compare_runs, run_of

from gpuperf.gate.rule import Rule
from gpuperf.model.record import Kernel, Run, Telemetry
from gpuperf.model.times import TimeName


def timed(
    run: Run, usual: TimeName, kernels: int = 1, traced: bool = True, disturbed: int = -1
) -> Run:
    """*run* with the primary time *usual* of so many *kernels*; another program was on the GPU in
    the process *disturbed*, which has a window."""
    records = []
    for record in run.records:
        assert record.samples is not None
        shared = record.pass_index == disturbed
        primary: TimeName = "window" if shared else usual
        records.append(
            replace(
                record,
                times={name: record.samples for name in (primary, *(("span",) if traced else ()))},
                primary=primary,
                telemetry=Telemetry(other_processes=int(shared)),
                kernels=(Kernel("scale", kernels),),
            )
        )
    return replace(run, records=tuple(records))


@pytest.mark.parametrize(
    ("kernels", "traced", "verdict"),
    [(1, True, "REGRESSED"), (2, True, "NOT_COMPARABLE"), (1, False, "NOT_COMPARABLE")],
)
def test_a_kernel_that_became_two_is_judged(kernels: int, traced: bool, verdict: str) -> None:
    """One kernel is timed by its record, which is the window from its start to its end."""
    base = timed(run_of(), "busy", kernels, traced)
    head = timed(run_of({CASES[0].id: 0.5}, seed=2), "window", 2, traced)
    report = compare_runs(base, head, Rule(), 0.05)
    (case,) = (case for case in report.cases if case.case == CASES[0].id)
    assert case.judged.verdict == verdict
    if verdict == "NOT_COMPARABLE":
        assert "time is 'busy' on the base and 'window' on the head" in case.judged.reason


def test_a_disturbed_process_does_not_decide_how_a_case_is_timed() -> None:
    """Another program on the GPU has CUPTI, so that the last process takes a window."""
    base, head = run_of(), run_of(seed=2)
    last = max(record.pass_index for record in base.records)
    disturbed = timed(base, "busy", disturbed=last)
    report = compare_runs(disturbed, timed(head, "window"), Rule(), 0.05)
    assert {case.judged.verdict for case in report.cases} <= {"UNCHANGED", "IMPROVED"}
