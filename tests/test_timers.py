"""The timers that need no GPU, against times known otherwise."""

from __future__ import annotations

import time

import pytest
import torch

from gpuperf.errors import CannotMeasure
from gpuperf.measure.timers import make_timer
from gpuperf.measure.timers.wall import WallTimer, last_level_cache_bytes

CPU = torch.device("cpu")


def test_the_wall_timer_reads_a_wait_of_known_length() -> None:
    def wait() -> None:
        end = time.perf_counter() + 0.005
        while time.perf_counter() < end:
            pass

    timer = WallTimer(CPU)
    least = min(timer.sample(wait, 0.0, False).time_s for _ in range(20))
    assert least == pytest.approx(0.005, rel=0.02)


def test_the_wall_timer_subtracts_its_own_cost() -> None:
    timer = WallTimer(CPU)
    facts = timer.facts
    assert 0 < facts.floor_s < 2e-5
    hot = sorted(timer.sample(lambda: None, 0.0, False).time_s for _ in range(200))
    cold = sorted(timer.sample(lambda: None, 0.0, True).time_s for _ in range(15))
    assert abs(hot[100]) <= facts.floor_uncertainty_s + 1e-6
    assert abs(cold[7]) <= 3 * facts.floor_uncertainty_s + 2e-6
    assert timer.facts.empty_call_s > 0


def test_a_gap_is_kept_before_the_sample_and_out_of_it() -> None:
    timer = WallTimer(CPU)
    start = time.perf_counter()
    sample = timer.sample(lambda: None, 0.05, False)
    assert time.perf_counter() - start >= 0.05
    assert sample.time_s < 0.01


def test_the_flush_is_several_times_the_last_level_cache() -> None:
    size = last_level_cache_bytes()
    assert 2**18 <= size <= 2**32
    timer = WallTimer(CPU)
    assert timer._flush.nbytes >= 4 * min(size, 2**30)


@pytest.mark.parametrize("name", ["blocked", "events"])
def test_a_timer_that_cannot_be_had_is_an_error_and_never_another_timer(name: str) -> None:
    with pytest.raises(CannotMeasure, match=name):
        make_timer(name, CPU)  # type: ignore[arg-type]
