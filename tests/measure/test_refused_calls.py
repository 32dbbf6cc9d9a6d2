"""Calls without work, on side streams, that block or lose records are refused or get a caveat."""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat

import pytest
from fake_tracer import (
    BURST,
    FACTS,
    GEMM,
    SPLIT,
    US,
    FakeTimer,
    FakeTracer,
    caveats,
    giving,
    refusal,
    take,
    trace_of,
)

from gpuperf.measure.stopwatch import Stopwatch
from gpuperf.measure.timers.activity import Trace
from gpuperf.measure.timers.timer import Call, CannotBlock
from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.record import Kernel, TimerFacts


@pytest.mark.parametrize(
    ("queued_s", "status"),
    [(1 * US, "no-work"), (19 * US, "no-work"), (21 * US, "host-only"), (1.0, "host-only")],
)
def test_a_call_without_a_kernel_did_no_work_or_worked_on_the_host(
    queued_s: float, status: str
) -> None:
    timer = FakeTimer()
    stop = refusal(Stopwatch(timer, giving(trace_of([0.0] * 20, (), queued_s=queued_s))))
    assert stop.status == status
    assert timer.asked == []
    if status == "host-only":
        assert "--timer wall" in stop.hint


def test_how_long_the_host_was_busy_is_the_median_of_the_calls_and_is_said() -> None:
    calls = trace_of([0.0] * 5, ())
    quick, slow = calls.readings[0], calls.readings[0]._replace(queued_s=0.003)
    mostly_slow = replace(calls, readings=(quick, slow, slow, slow, quick))
    stop = refusal(Stopwatch(FakeTimer(), giving(mostly_slow)))
    assert stop.status == "host-only"
    assert "3.000 ms" in stop.reason
    mostly_quick = replace(calls, readings=(quick, slow, quick, slow, quick))
    assert refusal(Stopwatch(FakeTimer(), giving(mostly_quick))).status == "no-work"


@pytest.mark.parametrize(("tick_s", "uncertainty_s"), [(0.0, 50e-9), (50e-9, 0.0), (25e-9, 25e-9)])
def test_a_window_within_its_own_uncertainty_saw_no_work(
    tick_s: float, uncertainty_s: float
) -> None:
    facts = replace(FACTS, tick_s=tick_s, floor_uncertainty_s=uncertainty_s)
    for time_s in (-1e-9, 0.0, 49e-9):
        timer = FakeTimer(repeat(time_s), facts=facts)
        assert refusal(Stopwatch(timer)).status == "no-work"
    just_more = FakeTimer(repeat(51e-9), facts=facts)
    assert take(Stopwatch(just_more)).primary == "window"


@pytest.mark.parametrize("kernels", [GEMM, SPLIT, ()])
@pytest.mark.parametrize("timer", ["blocked", "activity", "auto"])
def test_work_outside_the_window_is_on_a_side_stream(
    timer: TimerName, kernels: tuple[Kernel, ...]
) -> None:
    watch = Stopwatch(FakeTimer(), giving(trace_of([US] * 20, kernels, outside_s=0.2 * US)))
    stop = refusal(watch, replace(BURST, timer=timer))
    assert stop.status == "side-stream"
    assert stop.reason.startswith("200.0 ns of its work")


def test_a_rounding_is_not_outside_the_window() -> None:
    timing = take(Stopwatch(FakeTimer(), FakeTracer(outside_s=0.05 * US)))
    assert timing.primary == "busy"


@pytest.mark.parametrize(
    ("call_s", "left_s", "refused"),
    [
        (10 * US, 1.9 * US, False),
        (10 * US, 2.1 * US, True),
        (100 * US, 4.9 * US, False),
        (100 * US, 5.1 * US, True),
        (0.01, 0.0004, False),
        (0.01, 0.0006, True),
    ],
)
def test_a_device_that_works_on_after_its_stream_is_done_has_a_side_stream(
    call_s: float, left_s: float, refused: bool
) -> None:
    """A twentieth of a call counts, or 2 µs of a short one."""
    timer, tracer = FakeTimer(), FakeTracer()
    watch = Stopwatch(timer, tracer, unfinished_s=lambda call, call_s: left_s)
    if not refused:
        assert take(watch, call_s=call_s).primary == "busy"
        return
    assert refusal(watch, call_s=call_s).status == "side-stream"
    assert (timer.asked, tracer.asked) == ([], [])


def test_a_host_that_is_late_for_once_is_no_side_stream() -> None:
    late = iter([60 * US, 55 * US, 1.2 * US])
    watch = Stopwatch(FakeTimer(), FakeTracer(), unfinished_s=lambda call, call_s: next(late))
    assert take(watch, call_s=10 * US).primary == "busy"


def test_what_cannot_be_blocked_is_not_timed_otherwise_unless_asked() -> None:
    timer = FakeTimer(refusal="it waits for the device")
    for name in ("blocked", "activity"):
        watch = Stopwatch(timer, FakeTracer(), lambda: FakeTimer(name="events"))
        with pytest.raises(CannotBlock, match="waits for the device"):
            take(watch, replace(BURST, timer=name))


def test_under_auto_what_cannot_be_blocked_is_timed_by_events_and_says_so() -> None:
    timer, events = FakeTimer(refusal="it waits for the device"), FakeTimer(name="events")
    events.facts = TimerFacts(empty_call_s=4 * US)
    tracer = FakeTracer()
    timing = take(Stopwatch(timer, tracer, lambda: events), replace(BURST, timer="auto"))
    assert timing.primary == "window"
    assert timing.times["window"].values_s == pytest.approx([12 * US] * 20)
    assert timing.facts == events.facts
    assert (timer.asked, tracer.asked) == ([], [])
    assert caveats(timing).keys() == {"cannot-block"}
    why = "it waits for the device: its time is that between two events"
    assert why in caveats(timing)["cannot-block"].message


def test_auto_is_blocked_where_it_can_be() -> None:
    events = FakeTimer(name="events")
    timing = take(
        Stopwatch(FakeTimer(), FakeTracer(), lambda: events), replace(BURST, timer="auto")
    )
    assert timing == take(Stopwatch(FakeTimer(), FakeTracer()))
    assert events.asked == []


def test_auto_without_a_fallback_cannot_block_either() -> None:
    with pytest.raises(CannotBlock):
        take(Stopwatch(FakeTimer(refusal="it waits")), replace(BURST, timer="auto"))


def test_events_time_a_call_that_cannot_be_blocked() -> None:
    def refuse(call: Call, idle_s: float, cache: Cache, count: int) -> Trace | None:
        raise CannotBlock("it waits for the device")

    timing = take(Stopwatch(FakeTimer(name="events"), refuse), replace(BURST, timer="events"))
    assert timing.primary == "window"


@pytest.mark.parametrize("kernels", [GEMM, SPLIT])
@pytest.mark.parametrize(("odd", "doubted"), [(0, False), (1, True), (5, True)])
def test_lost_records_get_a_caveat(kernels: tuple[Kernel, ...], odd: int, doubted: bool) -> None:
    calls = trace_of([10 * US] * (20 - odd), kernels, odd)
    more = trace_of([10 * US] * odd, kernels)
    found = caveats(take(Stopwatch(FakeTimer(), giving(calls, *[more] * doubted))))
    assert found.keys() == ({"lost-records"} if doubted else set())
    if doubted:
        total = 20 + (odd if kernels is GEMM else 0)
        assert found["lost-records"].message.startswith(f"{odd} of {total} traced calls")


def test_calls_of_another_kernel_that_come_later_do_not_count() -> None:
    first, later = trace_of([9 * US, 11 * US] * 10), trace_of([50 * US] * 20, (Kernel("other"),))
    watch = Stopwatch(FakeTimer(), giving(first, *repeat(later, 20)))
    timing = take(watch, replace(BURST, max_samples=40, precision=1e-6))
    assert "lost-records" in caveats(timing)
    assert max(timing.times["busy"].values_s) == 11 * US


@pytest.mark.parametrize("later", [False, True])
def test_a_call_that_works_for_others_is_refused(later: bool) -> None:
    """One of fifteen calls does 100 µs of work for all, the others a decoy of 1 µs."""
    decoys = trace_of([US] * 20)
    uneven = replace(decoys, odd=1, extra_s=100 * US / 15)
    noisy = trace_of([0.9 * US, 1.1 * US] * 10)
    traces = [noisy, *repeat(uneven, 20)] if later else [uneven]
    watch = Stopwatch(FakeTimer(), giving(*traces))
    stop = refusal(watch, replace(BURST, precision=1e-6))
    assert stop.status == "error"
    assert "6.667 µs a call on average, beside the 1.000 µs of a usual call" in stop.reason


def test_a_kernel_now_and_then_that_hardly_takes_time_is_no_refusal() -> None:
    calls = replace(trace_of([10 * US] * 20), odd=1, extra_s=0.19 * US)
    assert take(Stopwatch(FakeTimer(), giving(calls))).primary == "busy"
