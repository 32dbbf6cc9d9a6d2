"""The floor of a window agrees with fakes whose windows are known to the nanosecond."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, repeat
from typing import Any

import pytest
import torch

from gpuperf.measure.timers import blocked
from gpuperf.measure.timers.activity import Trace
from gpuperf.measure.timers.blocked import BlockedTimer
from gpuperf.measure.timers.timer import Call, do_nothing
from gpuperf.measure.timers.window import Reading, Window
from gpuperf.model.contract import Cache
from gpuperf.model.record import Kernel

US = 1e-6
CPU = torch.device("cpu")
KERNEL_S, FLOOR_S, TRACING_S, TICK_S = 4 * US, 2.4 * US, 0.2 * US, 32e-9


@dataclass
class FakeWindow:
    """A window around kernels of 4 µs, or of *call_s*; each is *late_s* longer than the floor."""

    call_s: float = KERNEL_S
    late_s: Iterator[float] = field(default_factory=lambda: repeat(0.0))
    clock_hz: Iterator[float] = field(default_factory=lambda: repeat(1.98e9))
    tick_s: float = TICK_S
    device: torch.device = CPU
    watch: Callable[[], None] = do_nothing
    takes: int = 0

    def empty(self) -> None: ...

    def take(self, call: Call, idle_s: float = 0.0, cache: Cache = "hot") -> Reading:
        self.takes += 1
        before_hz = next(self.clock_hz)
        return Reading(self.call_s + FLOOR_S + next(self.late_s), before_hz, before_hz, US)


def trace(window: FakeWindow, count: int, tracing_s: float = TRACING_S) -> Trace:
    readings = [window.take(do_nothing) for _ in range(count)]
    return Trace(
        (window.call_s,) * count,
        (window.call_s,) * count,
        tuple(r._replace(window_s=r.window_s + tracing_s) for r in readings),
        (Kernel("gemm"),),
        odd=0,
        outside_s=0.0,
    )


def timer_of(
    window: Any, monkeypatch: pytest.MonkeyPatch, tracing_s: Iterator[float] | None = None
) -> BlockedTimer:
    added = tracing_s or repeat(TRACING_S)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(blocked.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(
        blocked,
        "trace_calls",
        lambda window, call, idle_s, cache, count: trace(window, count, next(added)),
    )
    return BlockedTimer(window)


def test_the_floor_is_what_a_window_has_beyond_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = timer_of(FakeWindow(), monkeypatch).facts
    assert facts.floor_s == pytest.approx(FLOOR_S)
    assert facts.floor_uncertainty_s == pytest.approx(TICK_S / 2)
    assert (facts.tick_s, facts.clock_hz) == (TICK_S, 1.98e9)
    assert facts.empty_call_s == pytest.approx(KERNEL_S)


@pytest.mark.parametrize("cache", ["cold", "cold-dirty", "hot", "rotate"])
@pytest.mark.parametrize("launches", [2, 3, 5, 8])
def test_windows_of_a_period_begin_at_every_place_of_the_launch_queue(
    cache: Cache, launches: int
) -> None:
    """One launch in four is late: a mean over four windows has all places, in whatever order."""

    @dataclass
    class Queue:
        place: int = 0
        late: tuple[int, ...] = ()

        def launch(self, count: int) -> int:
            self.place += count
            return sum(place % 4 == 0 for place in range(self.place - count, self.place))

        def empty(self) -> None:
            self.launch(1)

        def take(self, call: Call, idle_s: float, cache: Cache) -> Reading:
            self.launch(2 + cache.startswith("cold"))  # the flush, BLOCK and OPEN
            late = self.launch(launches)
            self.launch(2)  # CLOSE and the hand-over
            return Reading(1 * US * late, None, None, US)

    for start in range(4):
        readings = Window.take_period(Queue(start), do_nothing, launches, 0.0, cache)  # type: ignore[arg-type]
        assert sum(r.window_s for r in readings) == pytest.approx(launches * US)


def test_a_sample_of_a_period_is_the_mean_and_its_clocks_are_those_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = FakeWindow()
    timer = timer_of(window, monkeypatch)
    taken = iter([1.0, 2.0, 1.0, 2.0])
    before = iter([1.98e9, None, 1.7e9, 1.98e9])

    def period(call: Call, launches: int, idle_s: float, cache: Cache) -> list[Reading]:
        return [Reading(next(taken) * US, 1.9e9, next(before), US) for _ in range(4)]

    monkeypatch.setattr(window, "take_period", period, raising=False)
    assert timer.sample_period(do_nothing, 5, 0.002, "cold") == (1.5 * US, 1.9e9, 1.7e9)


def test_a_call_whose_end_is_stamped_late_has_a_longer_floor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timer = timer_of(FakeWindow(), monkeypatch)
    late = FakeWindow(call_s=20 * US, late_s=repeat(0.6 * US))
    facts = timer.facts_of(trace(late, 20))
    assert facts.floor_s == pytest.approx(FLOOR_S + 0.6 * US)
    # so that the window of such a call without a profiler gives its span
    assert late.take(do_nothing).window_s - facts.floor_s == pytest.approx(20 * US)


def test_what_tracing_adds_is_known_as_well_as_the_references_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    added = iter([0.1 * US, 0.2 * US, 0.2 * US, 0.2 * US, 0.2 * US, 0.3 * US, 0.4 * US, 0.0])
    timer = timer_of(FakeWindow(), monkeypatch, added)
    facts = timer.facts_of(trace(FakeWindow(), 20))
    assert facts.floor_s == pytest.approx(FLOOR_S)
    assert facts.floor_uncertainty_s == pytest.approx(0.15 * US + TICK_S / 2)


def test_the_scatter_of_a_calls_own_windows_is_in_its_floors_uncertainty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timer = timer_of(FakeWindow(), monkeypatch)
    steady = timer.facts_of(trace(FakeWindow(), 20)).floor_uncertainty_s
    shaky = FakeWindow(late_s=cycle([0.0, 0.2 * US]))
    assert timer.facts_of(trace(shaky, 20)).floor_uncertainty_s == pytest.approx(
        steady + 0.1026 * US / 20**0.5, rel=1e-3
    )


def test_a_few_late_windows_do_not_move_the_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = timer_of(FakeWindow(), monkeypatch)
    facts = timer.facts_of(trace(FakeWindow(late_s=cycle([0.0] * 9 + [5 * US])), 20))
    assert facts.floor_s == pytest.approx(FLOOR_S)


def test_a_trace_without_readings_leaves_the_floor_of_the_references(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timer = timer_of(FakeWindow(), monkeypatch)
    lost = Trace((US,) * 3, (US,) * 3, (), (Kernel("gemm"),), odd=0, outside_s=0.0)
    none = Trace((), (), (), (), odd=20, outside_s=0.0)
    assert timer.facts_of(lost) == timer.facts_of(none) == timer.facts


def test_without_cupti_the_floor_lies_between_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight kernels of a window that knows of one only: a step of nothing, and all is floor."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(blocked.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(blocked, "trace_calls", lambda *args: None)
    window = FakeWindow()
    launched = 0

    def empty() -> None:
        nonlocal launched
        launched += 1

    def take(call: Call, idle_s: float = 0.0, cache: Cache = "hot") -> Reading:
        nonlocal launched
        launched = 0
        call()
        return Reading(FLOOR_S + 1.4 * US * launched, None, None, US)

    monkeypatch.setattr(window, "empty", empty)
    monkeypatch.setattr(window, "take", take)
    facts = BlockedTimer(window).facts  # type: ignore[arg-type]
    assert facts.floor_s == pytest.approx(FLOOR_S + 0.7 * US)
    assert facts.floor_uncertainty_s == pytest.approx(0.7 * US)


def test_a_card_is_rested_when_its_windows_and_its_clock_are_as_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = FakeWindow()
    timer = timer_of(window, monkeypatch)
    before = window.takes
    assert timer.recover()
    rested = window.takes - before
    window.late_s = iter([0.5 * US] * (3 * rested) + [0.0] * rested)
    before = window.takes
    assert timer.recover()
    assert window.takes - before == 4 * rested
    window.clock_hz = repeat(1.2e9)
    window.late_s = repeat(0.0)
    assert not timer.recover()
