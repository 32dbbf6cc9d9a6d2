"""Does what `gpuperf doctor` prints fit on a screen?"""

from __future__ import annotations

import pytest

from gpuperf.doctor.command import _table
from gpuperf.model.protocol import DeviceCheck
from gpuperf.show.render import render
from gpuperf.show.screen import Screen

VALUE = "1980 MHz at most, and 1755 MHz with the application clocks that are set"
HINT = "`nvidia-smi -rac` lets the clock move; the time is what this clock gives"
# As many checks as a GPU has, of which every third one has a hint.
CHECKS = [
    DeviceCheck(f"a check, number {i}", ("ok", "ok", "note")[i % 3], VALUE, HINT * (i % 3 == 2))
    for i in range(24)
]


def test_the_checks_of_a_gpu_fit_in_100_columns_and_45_lines() -> None:
    lines = render([_table(CHECKS)], "table", Screen(100)).splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    assert sum("hint: " in line for line in lines) == 8


@pytest.mark.parametrize(("verdict", "mark"), [("ok", "ok"), ("note", "note"), ("bad", "BAD")])
def test_a_check_begins_with_its_verdict(verdict: str, mark: str) -> None:
    check = DeviceCheck("driver", verdict, "580.1")  # type: ignore[arg-type]
    assert render([_table([check])], "table", Screen(100)).split() == [mark, "driver", "580.1"]
