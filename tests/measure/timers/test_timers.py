"""The timers that need no GPU agree with known times."""

from __future__ import annotations

import time
from typing import get_args

import pytest
import torch

from gpuperf.errors import CannotMeasure
from gpuperf.measure.stopwatch import open_stopwatch
from gpuperf.measure.timers import make_timer
from gpuperf.measure.timers.wall import WallTimer, last_level_cache_bytes
from gpuperf.measure.timers.window import open_window
from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.timers import timer_names

CPU = torch.device("cpu")
NEED_A_GPU = [name for name in timer_names() if name != "wall"]


@pytest.fixture(scope="module")
def timer() -> WallTimer:
    """A timer of the host, which takes half a second to measure its own cost."""
    return WallTimer(CPU)


def test_the_wall_timer_reads_a_wait_of_known_length(timer: WallTimer) -> None:
    def wait() -> None:
        end = time.perf_counter() + 0.0005
        while time.perf_counter() < end:
            pass

    least = min(timer.sample(wait, 0.0, "hot").time_s for _ in range(200))
    assert least - timer.facts_in("hot", 0.0).floor_s == pytest.approx(0.0005, rel=0.02)


def test_the_wall_timer_knows_its_own_cost(timer: WallTimer) -> None:
    facts, in_hot = timer.facts_in("cold", 0.0), timer.facts_in("hot", 0.0)
    hot = sorted(timer.sample(lambda: None, 0.0, "hot").time_s for _ in range(200))
    cold = sorted(timer.sample(lambda: None, 0.0, "cold").time_s for _ in range(15))
    assert min(hot) > 0  # a sample is as it was read
    assert facts.floor_s > 0
    assert abs(hot[100] - facts.floor_s) <= facts.floor_uncertainty_s + 1e-6
    assert hot[100] == pytest.approx(in_hot.floor_s, abs=0.2e-6)
    assert in_hot.floor_uncertainty_s < 0.2e-6
    assert in_hot.empty_call_s < facts.empty_call_s
    assert timer.facts_in("rotate", 0.0) == timer.facts_in("hot", 0.002) == facts
    rested = sorted(timer.sample(lambda: None, 0.002, "hot").time_s for _ in range(15))
    assert abs(rested[7] - facts.floor_s) <= 3 * facts.floor_uncertainty_s + 2e-6
    assert abs(cold[7] - facts.floor_s) <= 3 * facts.floor_uncertainty_s + 2e-6
    assert timer.facts.empty_call_s > 0


def test_a_gap_is_kept_before_the_sample_and_out_of_it(timer: WallTimer) -> None:
    start = time.perf_counter()
    sample = timer.sample(lambda: None, 0.05, "hot")
    assert time.perf_counter() - start >= 0.05
    assert sample.time_s < 0.01


def test_the_flush_is_several_times_the_last_level_cache(timer: WallTimer) -> None:
    size = last_level_cache_bytes()
    assert 2**18 <= size <= 2**32
    assert timer._flush.nbytes >= 2 * size
    assert timer._flush.nbytes >= min(4 * size, 2**28)


@pytest.mark.parametrize("cache", get_args(Cache))
def test_the_cache_is_as_asked_before_the_sample_and_no_part_of_it(
    cache: Cache, timer: WallTimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 32 MiB take over a millisecond.
    monkeypatch.setattr(timer, "_flush", torch.arange(1, 1 << 22))
    times = sorted(timer.sample(lambda: None, 0.0, cache).time_s for _ in range(9))
    assert times[4] < 1e-4
    written = bool((timer._flush == 0).all())
    assert written == (cache == "cold-dirty")


def test_a_host_timer_reads_no_clock_of_a_device(timer: WallTimer) -> None:
    sample = timer.sample(lambda: None, 0.0, "hot")
    assert (sample.clock_hz, sample.before_hz) == (None, None)
    assert timer.facts.clock_hz is None


def test_a_timer_is_made_once_for_each_device() -> None:
    assert make_timer("wall", CPU) is make_timer("wall", CPU)


@pytest.mark.parametrize("name", NEED_A_GPU)
def test_a_timer_that_cannot_be_had_is_an_error_and_never_another_timer(name: TimerName) -> None:
    for make in (make_timer, open_stopwatch):
        with pytest.raises(CannotMeasure, match=f"the timer '{name}' needs a GPU") as caught:
            make(name, CPU)
        assert caught.value.hint == "choose --timer wall"


def test_a_window_is_opened_on_a_gpu_alone() -> None:
    with pytest.raises(CannotMeasure, match="needs an NVIDIA GPU"):
        open_window(CPU)


def test_the_stopwatch_of_a_cpu_has_a_timer_and_nothing_else() -> None:
    watch = open_stopwatch("wall", CPU)
    assert watch.timer is make_timer("wall", CPU)
    extras = (watch.trace, watch.fallback, watch.unfinished_s, watch.wall, watch.sustain)
    assert extras == (None,) * 5
