"""A load is steady when its time and clock are flat; what needs a GPU is in `test_gpu`."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, count, repeat
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.measure import batches
from gpuperf.measure.batches import AHEAD, is_flat, sustain, unfinished_s
from gpuperf.measure.timers.timer import Call, do_nothing
from gpuperf.model.samples import Samples

TICK = 32e-9
RESTED_HZ = 1980e6
Batch = tuple[float, float | None]


@dataclass
class FakeWindow:
    """Gives *batches*; the host's clock stands at the end of the last one."""

    batches: Iterator[Batch]
    tick_s: float = TICK
    clock_s: float = 100.0
    asked: list[tuple[int, int]] = field(default_factory=list)

    def stream(self, call: Call, calls: int, ahead: int) -> Iterator[Batch]:
        self.asked.append((calls, ahead))
        for time_s, clock_hz in self.batches:
            self.clock_s += time_s
            yield time_s, clock_hz


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> FakeWindow:
    """A window by whose batches the host's clock goes."""
    window = FakeWindow(iter(()))
    clock = SimpleNamespace(perf_counter=lambda: window.clock_s)
    monkeypatch.setattr(batches, "time", clock)
    return window


def load(
    window: FakeWindow, call_s: float = 1e-3, settle_s: float = 10.0
) -> tuple[Samples, Samples, bool]:
    return sustain(window, do_nothing, call_s, settle_s)  # type: ignore[arg-type]


def test_a_load_that_is_steady_from_the_start_is_so_after_two_fifths(clocked: FakeWindow) -> None:
    """A fifth of 10 s is ten batches of 0.2 s, of two hundred calls of 1 ms each."""
    clocked.batches = repeat((0.2, RESTED_HZ))
    first, settled, steady = load(clocked)
    assert steady
    assert clocked.asked == [(200, AHEAD)]
    assert clocked.clock_s == pytest.approx(100 + 20 * 0.2)
    assert settled.size == 10
    assert first.size in (5, 6)  # a second, in floating point
    for samples in (first, settled):
        assert set(samples.values_s) == {0.2 / 200}
        assert set(samples.sm_clock_hz) == {RESTED_HZ}
        assert samples.calls_per_window == 200
        assert samples.tick_s == TICK / 200
        assert samples.offset_uncertainty_s == 0


def test_a_load_that_heats_up_has_a_first_second_and_what_it_settles_on(
    clocked: FakeWindow,
) -> None:
    """Full clock for 1.6 s, then down by a fifth over a second, and flat."""
    falling = [(0.2 * (1 + 0.05 * i), RESTED_HZ / (1 + 0.05 * i)) for i in range(1, 6)]
    clocked.batches = chain(repeat((0.2, RESTED_HZ), 8), falling, repeat((0.25, 1.58e9)))
    first, settled, steady = load(clocked)
    assert steady
    assert first.median_s == pytest.approx(1e-3)
    assert settled.median_s == pytest.approx(1.25e-3)
    assert settled.clock_hz == 1.58e9
    assert clocked.clock_s - 100 < 8


def test_noise_is_no_movement(clocked: FakeWindow) -> None:
    draw = random.Random(3)
    clocked.batches = ((0.2 * draw.gauss(1, 0.01), draw.gauss(1.7e9, 1e7)) for _ in count())
    _, settled, steady = load(clocked)
    assert steady
    assert settled.median_s == pytest.approx(1e-3, rel=0.02)


def test_a_time_that_never_stops_rising_is_unsteady_when_the_time_is_up(
    clocked: FakeWindow,
) -> None:
    clocked.batches = ((0.2 * (1 + 1e-3 * i), None) for i in count())
    _, settled, steady = load(clocked)
    assert not steady
    assert 10 <= clocked.clock_s - 100 <= 10.3
    assert settled.size == 10
    assert list(settled.values_s) == sorted(settled.values_s)


def test_a_clock_that_still_falls_is_unsteady_though_the_time_is_flat(clocked: FakeWindow) -> None:
    clocked.batches = ((0.2, 1.9e9 * (1 - 1e-3 * i)) for i in count())
    assert not load(clocked)[2]


def test_where_no_clock_is_read_the_time_alone_decides(clocked: FakeWindow) -> None:
    clocked.batches = repeat((0.2, None))
    _, settled, steady = load(clocked)
    assert steady
    assert settled.clock_hz is None


def test_no_load_is_steady_within_a_second(clocked: FakeWindow) -> None:
    """The power limit has not acted yet."""
    clocked.batches = repeat((0.19, None))
    assert not load(clocked, settle_s=0.9)[2]
    assert clocked.clock_s == pytest.approx(100.95)
    clocked.clock_s, clocked.batches = 100.0, repeat((0.19, None))
    assert load(clocked, settle_s=1.5)[2]
    assert clocked.clock_s == pytest.approx(101.14)


def test_a_long_call_is_a_batch_of_its_own(clocked: FakeWindow) -> None:
    clocked.batches = repeat((3.0, None))
    first, settled, steady = load(clocked, call_s=3.0)
    assert steady
    assert clocked.asked == [(1, AHEAD)]
    assert (first.size, settled.size) == (1, 2)
    assert clocked.clock_s == 112


def test_the_shortest_call_is_batched_all_the_same(clocked: FakeWindow) -> None:
    clocked.batches = repeat((0.2, None))
    load(clocked, call_s=0.0)
    assert clocked.asked[0][0] == pytest.approx(2_000_000, abs=1)


def test_a_load_shorter_than_a_second_is_all_in_its_first_second(clocked: FakeWindow) -> None:
    clocked.batches = repeat((0.2, None))
    first, settled, steady = load(clocked, settle_s=0.5)
    assert not steady
    assert (first.size, settled.size) == (3, 2)
    assert clocked.clock_s == pytest.approx(100.6)


def test_every_batch_is_heard_of(clocked: FakeWindow) -> None:
    heard: list[int] = []
    clocked.batches = repeat((0.2, None))
    sustain(clocked, do_nothing, 1e-3, 0.5, heard.append)  # type: ignore[arg-type]
    assert heard == [1, 2, 3]


def test_the_time_that_is_given_is_kept_by_the_hosts_own_clock() -> None:
    taken: list[float] = []

    def batches() -> Iterator[Batch]:
        while True:
            time.sleep(0.005)
            taken.append(0.005)
            yield 0.005, None

    start = time.perf_counter()
    steady = load(FakeWindow(batches()), settle_s=0.05)[2]
    assert not steady
    assert time.perf_counter() - start >= 0.05
    assert sum(taken) <= 0.05 + 0.01


@given(
    st.lists(st.floats(0.005, 0.2), min_size=1, max_size=60),
    st.floats(1e-5, 0.1),
    st.floats(0.05, 4.0),
)
def test_the_settled_samples_are_the_last_and_those_of_the_first_second_the_first(
    times: list[float], call_s: float, settle_s: float
) -> None:
    window = FakeWindow(zip(chain(times, repeat(times[-1])), repeat(1.7e9), strict=False))
    with pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(perf_counter=lambda: window.clock_s)
        patch.setattr(batches, "time", clock)
        heard: list[int] = []
        first, settled, steady = sustain(
            window,
            do_nothing,
            call_s,
            settle_s,
            heard.append,  # type: ignore[arg-type]
        )
    calls = window.asked[0][0]
    taken = [t / calls for t, _ in zip(chain(times, repeat(times[-1])), heard, strict=False)]
    assert first.values_s == tuple(taken[: first.size])
    assert settled.values_s == tuple(taken[-settled.size :])
    lasted = window.clock_s - 100
    assert lasted < settle_s + 0.2 + 1e-6
    assert steady or lasted >= settle_s - 1e-6
    assert not steady or lasted >= 1.0 - 1e-6
    assert sum(first.values_s[:-1]) * calls < 1.0
    assert sum(first.values_s) * calls >= 1.0 - 1e-9 or first.size == len(taken)


def test_equal_values_are_flat_and_a_step_is_not() -> None:
    assert is_flat([1.0] * 10, 5)
    assert not is_flat([1.0] * 5 + [1.1] * 5, 5)
    assert not is_flat([1.1] * 5 + [1.0] * 5, 5)


@pytest.mark.parametrize(
    ("change", "flat"), [(0.004, True), (-0.004, True), (0.006, False), (-0.006, False)]
)
def test_half_a_percent_from_stretch_to_stretch_is_flat(change: float, flat: bool) -> None:
    assert is_flat([2.0] * 7 + [2.0 * (1 + change)] * 7, 7) is flat


@pytest.mark.parametrize(("change", "flat"), [(0.018, True), (0.022, False), (-0.022, False)])
def test_what_is_within_two_sigmas_of_the_noise_is_flat(change: float, flat: bool) -> None:
    """The means of two times eight values 1 ± 0.02 differ by √(2/8)·0.0214 = 0.0107 at one."""
    values = [0.98, 1.02] * 4
    assert is_flat(values + [v + change for v in values], 8) is flat


def test_a_steady_drift_is_not_taken_for_noise() -> None:
    """It widens each stretch too, but by less than it moves the next: √12 is over two sigmas."""
    for stretch in (2, 3, 10, 100):
        for slope in (0.02, -0.02):
            drift = [1 + slope * i / stretch for i in range(2 * stretch)]
            assert not is_flat(drift, stretch), (stretch, slope)


def test_noise_alone_is_called_movement_once_in_twenty_times() -> None:
    draw, moved = random.Random(5), 0
    for _ in range(1000):
        moved += not is_flat([draw.gauss(1, 0.1) for _ in range(60)], 30)
    assert 0.02 < moved / 1000 < 0.08


def test_what_was_before_the_last_two_stretches_is_no_matter() -> None:
    assert is_flat([9.0] * 100 + [1.0] * 10, 5)
    assert not is_flat([1.0] * 100 + [9.0] * 5, 5)


def test_a_single_outlier_is_no_movement() -> None:
    assert is_flat([1.0, 1.0, 50.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0], 5)


def test_clocks_that_were_not_read_do_not_count() -> None:
    assert is_flat([None] * 10, 5)
    assert is_flat([None, 1.7e9, None, 1.7e9, None, None, 1.7e9, None, None, 1.7e9], 5)
    assert not is_flat([None, 1.7e9, None, 1.7e9, None, None, 1.5e9, None, None, 1.5e9], 5)
    assert is_flat([1.7e9] * 5 + [None] * 5, 5)
    assert is_flat([1.7e9] * 5 + [None] * 4 + [1.5e9], 5)  # one is not enough to tell


@given(
    st.lists(st.floats(0.5, 2.0), min_size=2, max_size=40),
    st.integers(1, 20),
    st.sampled_from([2.0**-20, 0.5, 4.0, 2.0**30]),
)
def test_whether_values_are_flat_is_no_matter_of_their_unit(
    values: list[float], stretch: int, factor: float
) -> None:
    assert is_flat(values, stretch) == is_flat([v * factor for v in values], stretch)


@pytest.mark.parametrize(
    ("wait_s", "late_s", "side_s"),
    [
        (5e-6, 0.0, 0.0),
        (58e-6, 0.0, 0.0),
        (5e-6, 0.0, 8e-5),
        (58e-6, 0.0, 8e-5),
        (5e-6, 1e-3, 8e-5),
    ],
)
def test_work_on_a_side_stream_differs_from_a_host_that_is_slow_to_wait(
    monkeypatch: pytest.MonkeyPatch, wait_s: float, late_s: float, side_s: float
) -> None:
    """A wait takes *wait_s* and what is left of the side stream; one wait is *late_s* late."""
    clock_s, left_s, late = 0.0, 0.0, chain([0.0, 0.0, late_s], repeat(0.0))

    def call() -> None:
        nonlocal left_s
        left_s += side_s

    def wait() -> None:
        nonlocal clock_s, left_s
        clock_s += wait_s + left_s + next(late)
        left_s = 0.0

    stream = SimpleNamespace(synchronize=do_nothing)
    cuda = SimpleNamespace(synchronize=wait, current_stream=lambda: stream)
    monkeypatch.setattr(batches, "torch", SimpleNamespace(cuda=cuda))
    clock = SimpleNamespace(perf_counter=lambda: clock_s)
    monkeypatch.setattr(batches, "time", clock)
    assert unfinished_s(call, 1e-4) == pytest.approx(side_s, abs=1e-12)
