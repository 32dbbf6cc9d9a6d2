"""How long a gate will take, by the pace of an earlier one."""

from __future__ import annotations

import pytest

from gpuperf.gate.forecast import Pace, minutes
from gpuperf.gate.rule import Rule


def test_the_minutes_of_a_gate_follow_from_the_seconds_of_its_passes() -> None:
    """Two sides, each primed once: (6 + 1) × 30 s and 20 × 6 s; half of a pass where no pace of
    confirming passes is known."""
    assert minutes(Pace(30.0, 6.0), Rule()) == pytest.approx(2 * (7 * 30 + 20 * 6) / 60)
    assert minutes(Pace(30.0), Rule()) == pytest.approx(17.0)
    assert minutes(Pace(30.0, 6.0), Rule(screen_pairs=2, confirm_pairs=5)) == pytest.approx(4.0)
