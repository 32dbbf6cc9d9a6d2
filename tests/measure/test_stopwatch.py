"""The right time of a call is primary, and every caveat about it is raised.

A timer, a tracer and what a GPU offers beside them are fakes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from typing import get_args

import pytest
from fake_tracer import (
    BURST,
    FACTS,
    GEMM,
    SPLIT,
    TICK,
    US,
    FakeTimer,
    FakeTracer,
    caveats,
    giving,
    take,
    trace_of,
)

from gpuperf.errors import CannotMeasure
from gpuperf.measure.stopwatch import Stopwatch
from gpuperf.measure.timers.activity import Trace
from gpuperf.measure.timers.window import Reading
from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.record import Kernel, TimerFacts


def test_of_one_kernel_its_own_duration_counts_as_the_hardware_recorded_it() -> None:
    timer, tracer = FakeTimer(), FakeTracer()
    timing = take(Stopwatch(timer, tracer))
    assert timing.primary == "busy"
    assert timing.times["busy"].values_s == (10 * US,) * 20
    assert timing.times["busy"].sm_clock_hz == (1.9e9,) * 20
    assert timing.times["busy"].tick_s == TICK
    assert timing.times.keys() == {"busy", "span"}
    assert (timing.stop, timing.kernels, timing.capture_s) == ("precision", GEMM, None)
    assert timer.asked == []
    assert caveats(timing) == {}


def test_nothing_is_subtracted_from_a_recorded_duration_and_nothing_uncertain_is_added() -> None:
    timing = take(Stopwatch(FakeTimer(), FakeTracer()))
    assert timing.facts == replace(FACTS, floor_s=0.0, floor_uncertainty_s=0.0)
    assert timing.times["busy"].offset_uncertainty_s == 0


def test_of_several_kernels_the_window_is_primary_beside_the_recorded_times() -> None:
    timer, tracer = FakeTimer(), FakeTracer(SPLIT)
    timing = take(Stopwatch(timer, tracer))
    assert timing.primary == "window"
    assert timing.times["window"].values_s == pytest.approx([12 * US] * 20)
    assert timing.times["window"].offset_uncertainty_s == FACTS.floor_uncertainty_s
    assert timing.times["busy"].median_s == pytest.approx(10 * US)
    assert timing.times["span"].median_s == pytest.approx(11 * US)
    assert timing.facts == FACTS
    assert timing.kernels == SPLIT
    assert len(timer.asked) == 20
    assert caveats(timing) == {}


def test_a_call_of_several_kernels_has_a_floor_of_its_own() -> None:
    own = replace(FACTS, floor_s=3 * US, floor_uncertainty_s=0.1 * US)
    traces: list[Trace] = []

    def facts_of(trace: Trace) -> TimerFacts:
        traces.append(trace)
        return own

    timing = take(Stopwatch(FakeTimer(own=facts_of), FakeTracer(SPLIT)), fits_cache=True)
    assert timing.facts == own
    assert timing.times["window"].values_s == pytest.approx([11.3 * US] * 20)
    assert timing.times["window"].offset_uncertainty_s == 0.1 * US
    assert traces[0].busy_s[0] == 10 * US
    assert traces[-1].busy_s[0] == 6 * US  # the hot time has the floor of hot calls


def test_another_timer_keeps_its_own_floor() -> None:
    timer = FakeTimer(name="events")
    watch = Stopwatch(timer, FakeTracer(SPLIT))
    assert take(watch, replace(BURST, timer="events")).facts == FACTS


def test_one_kernel_that_a_call_runs_twice_is_two() -> None:
    timing = take(Stopwatch(FakeTimer(), FakeTracer((Kernel("gemm", 2),))))
    assert timing.primary == "window"


@pytest.mark.parametrize("kernels", [GEMM, SPLIT])
def test_the_timer_activity_always_takes_the_busy_time(kernels: tuple[Kernel, ...]) -> None:
    timer = FakeTimer()
    timing = take(Stopwatch(timer, FakeTracer(kernels)), replace(BURST, timer="activity"))
    assert timing.primary == "busy"
    assert timing.times["busy"].median_s == pytest.approx(10 * US)
    assert timing.facts.floor_uncertainty_s == 0
    assert timer.asked == []


@pytest.mark.parametrize("name", ["events", "graph"])
def test_another_timer_counts_itself_however_few_the_kernels(name: TimerName) -> None:
    timing = take(Stopwatch(FakeTimer(name=name), FakeTracer()), replace(BURST, timer=name))
    assert timing.primary == "window"
    assert timing.times["window"].values_s == pytest.approx([12 * US] * 20)
    assert timing.times["busy"].median_s == pytest.approx(10 * US)
    assert timing.kernels == GEMM
    assert caveats(timing) == {}


def test_traced_calls_go_on_until_the_busy_time_is_known() -> None:
    noise = iter([*[9 * US, 11 * US] * 30, *repeat(10 * US, 1000)])
    tracer = FakeTracer(busy_s=noise)
    timing = take(Stopwatch(FakeTimer(), tracer), replace(BURST, precision=0.02))
    assert timing.stop == "precision"
    assert timing.times["busy"].size == sum(count for _, _, count in tracer.asked) > 60
    assert {cache for _, cache, _ in tracer.asked} == {"cold"}
    assert max(count for _, _, count in tracer.asked) <= 20


def test_the_first_calls_are_traced_as_often_as_the_budget_has_room_for() -> None:
    """Twenty, or what the budget holds of rest, call and a millisecond, three at least."""
    for budget_s, call_s, counted in ((2.0, 30 * US, 20), (0.1, 0.002, 9), (0.001, 0.5, 3)):
        tracer = FakeTracer(SPLIT)
        take(Stopwatch(FakeTimer(), tracer), replace(BURST, budget_s=budget_s), call_s)
        assert tracer.asked[0][2] == counted


@pytest.mark.parametrize("cache", get_args(Cache))
def test_the_contracts_rest_and_cache_reach_the_timer_and_the_tracer(cache: Cache) -> None:
    timer, tracer = FakeTimer(), FakeTracer(SPLIT)
    take(Stopwatch(timer, tracer), replace(BURST, cache=cache), 0.001)
    assert set(timer.asked) == {(0.004, cache)}
    assert tracer.asked == [(0.004, cache, 20)]


def test_a_reading_that_belongs_to_no_known_call_gives_no_clock() -> None:
    calls = replace(trace_of([10 * US] * 20), readings=())
    timing = take(Stopwatch(FakeTimer(), giving(calls)))
    assert timing.times["busy"].sm_clock_hz == (None,) * 20
    assert timing.times["busy"].clock_hz is None


def test_the_host_watches_and_hears_while_samples_are_taken() -> None:
    timer, heard = FakeTimer(), list[int]()
    watch = Stopwatch(timer, watch=lambda: None, on_sample=heard.append)
    take(watch, replace(BURST, min_samples=5))
    assert timer.watch is watch.watch
    assert heard == [1, 2, 3, 4, 5]


def test_the_card_is_let_rest_before_the_first_call() -> None:
    timer, tracer = FakeTimer(), FakeTracer(SPLIT)
    asked_before: list[int] = []

    def recover() -> bool:
        asked_before.append(len(timer.asked) + len(tracer.asked))
        return True

    timer.rested = recover
    timing = take(Stopwatch(timer, tracer))
    assert asked_before == [0]
    assert caveats(timing) == {}


def test_without_a_trace_the_window_counts_and_is_called_uncalibrated() -> None:
    for tracer in (None, giving(None)):
        timer = FakeTimer()
        timing = take(Stopwatch(timer, tracer))
        assert timing.primary == "window"
        assert timing.times.keys() == {"window"}
        assert (timing.kernels, timing.facts) == ((), FACTS)
        assert caveats(timing).keys() == {"uncalibrated"}
        assert "CUPTI" in caveats(timing)["uncalibrated"].message


def test_where_every_record_was_lost_the_window_counts() -> None:
    """That there is no kernel is not known then."""
    lost = replace(trace_of([], (), odd=20), readings=(Reading(15 * US, None, None, US),) * 20)
    timing = take(Stopwatch(FakeTimer(), giving(lost)))
    assert timing.primary == "window"
    assert timing.times.keys() == {"window"}
    assert caveats(timing)


def test_the_timer_activity_cannot_be_had_without_a_trace() -> None:
    timer = FakeTimer()
    with pytest.raises(CannotMeasure, match="'activity' needs kernel records") as caught:
        take(Stopwatch(timer, giving(None)), replace(BURST, timer="activity"))
    assert "--timer blocked" in caught.value.hint
    assert timer.asked == []


def test_the_timer_activity_ends_where_the_records_end() -> None:
    noise = trace_of([9 * US, 11 * US] * 10)
    for more in (None, trace_of([], odd=20)):
        with pytest.raises(CannotMeasure, match="no more kernel records"):
            take(Stopwatch(FakeTimer(), giving(noise, more)), replace(BURST, timer="activity"))


def test_the_timer_activity_is_never_another_timer() -> None:
    lost = replace(trace_of([], (), odd=20), readings=(Reading(15 * US, None, None, US),) * 20)
    with pytest.raises(CannotMeasure):
        take(Stopwatch(FakeTimer(), giving(lost)), replace(BURST, timer="activity"))
