"""Which telemetry discards a pass of a gate, and after how many passes is it complete?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_gate import CASES, run_of

from gpuperf.gate.evidence import SPOILING, disturbance, gather
from gpuperf.gate.rule import Rule, judge
from gpuperf.measure.telemetry import THROTTLE
from gpuperf.model.record import Telemetry

SLOWED = ("hardware slowdown", "thermal (software)", "thermal (hardware)", "power brake")


@pytest.mark.parametrize("reason", SLOWED)
def test_a_clock_that_was_held_down_discards_the_pass(reason: str) -> None:
    (record,) = run_of(passes=1, cases=CASES[:1]).records
    assert disturbance(replace(record, telemetry=Telemetry(throttle=(reason,)))) == (
        f"the clock was held down: {reason}"
    )


def test_what_the_driver_may_report_beside_that_discards_nothing() -> None:
    """Every big matmul meets the software power cap."""
    (record,) = run_of(passes=1, cases=CASES[:1]).records
    others = set(THROTTLE.values()) - set(SLOWED)
    assert "power cap" in others
    assert set(SPOILING) < set(THROTTLE.values())
    for reason in others:
        assert disturbance(replace(record, telemetry=Telemetry(throttle=(reason,)))) == ""


def test_another_process_discards_the_pass() -> None:
    (record,) = run_of(passes=1, cases=CASES[:1]).records
    assert disturbance(record) == ""
    assert disturbance(replace(record, telemetry=Telemetry(other_processes=2))) == (
        "other processes had a context on the GPU: 2"
    )


@pytest.mark.parametrize(("slower", "pairs"), [(0.004, 5), (0.05, 10)])
def test_a_suspicious_case_is_measured_until_it_is_settled(slower: float, pairs: int) -> None:
    """Without scatter every slowdown is suspicious unless it is tolerated; what a margin of 0.3 %
    does not tolerate in the screen, the pairs after it do."""
    (name,) = names = [CASES[0].id]
    base, head = (
        run_of(passes=26, cases=CASES[:1], between=0.0, slower=s) for s in ({}, {name: slower})
    )
    calm = run_of(passes=26, cases=CASES[:1], between=0.0, slower={name: min(slower, 0.001)})
    rest = [*head.records[:6], *(calm if slower < 0.01 else head).records[6:]]
    counts = [
        gather({"base": base.records[:n], "head": rest[:n]}, names, [], Rule(), {name: 0.003})
        for n in range(27)
    ]
    assert [state.complete for state in counts] == [n >= 6 + pairs for n in range(27)]
    evidence = counts[-1].evidence[name]
    assert evidence.confirm is not None
    assert len(evidence.confirm.base) == pairs


@pytest.mark.parametrize("failing", [{7}, {6, 7, 8, 9, 10}, set(range(11, 26))])
def test_a_case_that_failed_in_a_confirming_process_is_not_comparable(failing: set[int]) -> None:
    """Though enough of the other processes are within the margin."""
    (case,) = cases = CASES[:1]
    base, calm = (run_of(passes=26, seed=i, cases=cases, between=5e-4).records for i in (1, 2))
    slow = run_of({case.id: 0.02}, passes=6, seed=2, cases=cases, between=5e-4).records
    head = [
        replace(record, status="wrong", times={}) if record.pass_index in failing else record
        for record in (*slow, *calm[6:])
    ]
    state = gather({"base": base, "head": head}, [case.id], [], Rule())
    assert (state.complete and case.id in state.failed) or 11 in failing
    (judged,) = judge(state.evidence, Rule()).values()
    settled_before = min(failing) > 10
    assert judged.verdict == ("UNCHANGED" if settled_before else "NOT_COMPARABLE")
