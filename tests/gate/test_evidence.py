"""Which telemetry discards a pass of a gate?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_gate import CASES, run_of

from gpuperf.gate.evidence import SPOILING, disturbance
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
