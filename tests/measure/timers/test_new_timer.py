"""A timer that is registered in one file needs no change elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuperf.model.contract import Contract
from gpuperf.model.timers import TIMERS, Timer, register, timer_names

DUMMY = """
import sys, torch
from gpuperf.model.timers import Timer, register
register(Timer("dummy", "a constant", ("cpu",), "dummy"))

def open_timer(device):
    from gpuperf.measure.timers.timer import OpenTimer, Sample
    class Dummy(OpenTimer):
        name = "dummy"
        def sample(self, call, idle_s, cache):
            return Sample(1e-6)
    return Dummy()
"""
ASK = """
import dummy
from gpuperf.measure.timers import make_timer
from gpuperf.model.contract import Contract, DeviceFacts
from gpuperf.run.plan import default_contract
import sys, torch
cpu = DeviceFacts("cpu", 0, "a CPU", 2, 10**12, 10**12)
assert default_contract(cpu, "dummy").timer == "dummy"
assert default_contract(cpu).timer == "wall"
assert make_timer("dummy", torch.device("cpu")).name == "dummy"
sys.argv = ["gpuperf", "roofline", "--help"]
from gpuperf.app import main
main()
"""


def test_one_file_adds_a_timer_to_the_help_the_plan_the_contract_and_the_worker(
    tmp_path: Path,
) -> None:
    (tmp_path / "dummy.py").write_text(DUMMY)
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "dummy: a constant" in " ".join(done.stdout.split())


def test_two_timers_do_not_share_a_name() -> None:
    with pytest.raises(ValueError, match="two timers 'wall'"):
        register(Timer("wall", "another", ("cpu",)))


@pytest.mark.parametrize("name", ["", "sundial", "do_bench"])
def test_a_contract_names_a_timer_that_can_be_chosen(name: str) -> None:
    with pytest.raises(ValueError, match=f"no timer '{name}'; known: blocked, activity"):
        Contract(name)


def test_every_timer_says_what_it_is_and_which_module_or_timer_takes_its_samples() -> None:
    for name in timer_names():
        timer = TIMERS[name]
        assert timer.help
        assert bool(timer.module) != bool(timer.windows_of)
        assert timer.kinds
