"""The right time of a call is primary, and every caveat about it is raised.

A timer, a tracer and what a GPU offers beside them are fakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, repeat
from typing import get_args

import pytest
import torch

from gpuperf.errors import CannotMeasure
from gpuperf.measure import timer_comparison
from gpuperf.measure.refusals import NoTime
from gpuperf.measure.stopwatch import Stopwatch
from gpuperf.measure.timer_comparison import TimerComparison
from gpuperf.measure.timers.activity import Trace
from gpuperf.measure.timers.timer import Call, CannotBlock, OpenTimer, Sample, do_nothing
from gpuperf.measure.timers.window import Reading
from gpuperf.measure.timing import Timing
from gpuperf.model.contract import Cache, Contract, TimerName
from gpuperf.model.record import Caveat, Kernel, Status, TimerFacts
from gpuperf.model.samples import Samples

US = 1e-6
RESTED_HZ = 1980e6
TICK = 32e-9
FACTS = TimerFacts(2.3 * US, 0.02 * US, 1.2 * US, TICK, RESTED_HZ)
BURST = Contract("blocked", gap_s=0.002, duty=0.2, min_samples=20, max_samples=200)
GEMM = (Kernel("gemm"),)
SPLIT = (Kernel("gemm"), Kernel("reduce", 2))


@dataclass
class FakeTimer(OpenTimer):
    """Hands out *times*, with its floor; refuses to admit a call for *refusal*, if there is one."""

    times: Iterator[float] = field(default_factory=lambda: repeat(12 * US))
    name: TimerName = "blocked"
    facts: TimerFacts = FACTS
    before_hz: Iterator[float | None] = field(default_factory=lambda: repeat(RESTED_HZ))
    refusal: str = ""
    watch: Callable[[], None] = do_nothing
    asked: list[tuple[float, Cache]] = field(default_factory=list)
    own: Callable[[Trace], TimerFacts] | None = None
    rested: Callable[[], bool] = lambda: True
    period: Callable[[Call, int, float, Cache], Sample] | None = None

    @property
    def periodic(self) -> bool:  # type: ignore[override]
        return self.period is not None

    def facts_of(self, trace: Trace) -> TimerFacts:
        return self.own(trace) if self.own else self.facts

    def recover(self) -> bool:
        return self.rested()

    def sample_period(self, call: Call, launches: int, idle_s: float, cache: Cache) -> Sample:
        assert self.period is not None
        return self.period(call, launches, idle_s, cache)

    def admit(self, call: Call) -> None:
        if self.refusal:
            raise CannotBlock(self.refusal)

    def sample(self, call: Call, idle_s: float, cache: Cache) -> Sample:
        call()
        self.asked.append((idle_s, cache))
        return Sample(next(self.times) + self.facts.floor_s, 1.9e9, next(self.before_hz))


def trace_of(
    busy_s: Sequence[float],
    kernels: tuple[Kernel, ...] = GEMM,
    odd: int = 0,
    outside_s: float = 0.0,
    queued_s: float = 5 * US,
    before_hz: float | None = RESTED_HZ,
) -> Trace:
    """The trace of calls that were busy for *busy_s*, with a tenth of gaps between kernels."""
    gaps = 1.1 if len(kernels) > 1 else 1.0
    reading = Reading(15 * US, 1.9e9, before_hz, queued_s)
    span_s = tuple(busy * gaps for busy in busy_s)
    readings = (reading,) * len(busy_s)
    return Trace(tuple(busy_s), span_s, readings, kernels, odd, outside_s, TICK)


@dataclass
class FakeTracer:
    """Gives as many calls as it is asked for, of *kernels* that take *busy_s* together."""

    kernels: tuple[Kernel, ...] = GEMM
    busy_s: Iterator[float] = field(default_factory=lambda: repeat(10 * US))
    hot_s: float = 6 * US
    outside_s: float = 0.0
    queued_s: float = 5 * US
    asked: list[tuple[float, Cache, int]] = field(default_factory=list)

    def __call__(self, call: Call, idle_s: float, cache: Cache, count: int) -> Trace:
        self.asked.append((idle_s, cache, count))
        busy_s = [self.hot_s if cache == "hot" else next(self.busy_s) for _ in range(count)]
        return trace_of(busy_s, self.kernels, outside_s=self.outside_s, queued_s=self.queued_s)


def giving(*traces: Trace | None) -> Callable[[Call, float, Cache, int], Trace | None]:
    """A tracer that gives these, one after the other."""
    left = iter(traces)
    return lambda call, idle_s, cache, count: next(left)


def take(
    watch: Stopwatch, contract: Contract = BURST, call_s: float = 30 * US, fits_cache: bool = False
) -> Timing:
    return watch.take(do_nothing, contract, call_s, fits_cache)


def refusal(watch: Stopwatch, contract: Contract = BURST, call_s: float = 30 * US) -> NoTime:
    with pytest.raises(NoTime) as caught:
        take(watch, contract, call_s)
    assert caught.value.status in get_args(Status)
    assert str(caught.value) == caught.value.reason
    assert caught.value.hint
    return caught.value


def caveats(timing: Timing) -> dict[str, Caveat]:
    found = {caveat.kind: caveat for caveat in timing.caveats}
    assert len(found) == len(timing.caveats)
    assert all(caveat.message and caveat.hint for caveat in timing.caveats)
    return found


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


def test_a_card_that_does_not_come_to_rest_gets_a_caveat_except_under_a_load() -> None:
    def recover() -> bool:
        return False

    for kernels in (GEMM, SPLIT):
        found = caveats(take(Stopwatch(FakeTimer(rested=recover), FakeTracer(kernels))))
        assert found.keys() == {"unrecovered"}
        assert "after 2 s of rest" in found["unrecovered"].message
    load = Stopwatch(FakeTimer(rested=recover), FakeTracer(), sustain=FakeLoad())
    assert caveats(take(load, SUSTAINED)) == {}


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
    assert "it waits for the device: timed by events" in caveats(timing)["cannot-block"].message


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
    assert "6.667 µs to the average call of 1.000 µs" in stop.reason


def test_a_kernel_now_and_then_that_hardly_takes_time_is_no_refusal() -> None:
    calls = replace(trace_of([10 * US] * 20), odd=1, extra_s=0.19 * US)
    assert take(Stopwatch(FakeTimer(), giving(calls))).primary == "busy"


@pytest.mark.parametrize(
    ("beyond_s", "agreed"), [(1.4 * US, True), (1.6 * US, False), (-1.6 * US, False), (1e-3, False)]
)
def test_the_window_of_a_single_kernel_bears_its_record_out(beyond_s: float, agreed: bool) -> None:
    """A kernel of 10 µs: a twentieth and 1 µs are left to the stamps."""
    own = replace(FACTS, floor_s=FACTS.floor_s + beyond_s)
    watch = Stopwatch(FakeTimer(own=lambda trace: own), FakeTracer())
    if agreed:
        assert take(watch).primary == "busy"
        return
    stop = refusal(watch)
    assert stop.status == "error"
    assert stop.reason.startswith("CUPTI records a kernel of 10.00 µs in windows that hold ")


@pytest.mark.parametrize(
    ("kernels", "busy_s", "periodic"),
    [(SPLIT, 10 * US, True), (GEMM, 10 * US, False), (SPLIT, 190 * US, False)],
)
def test_short_calls_of_several_kernels_are_taken_over_a_period_of_the_launch_queue(
    kernels: tuple[Kernel, ...], busy_s: float, periodic: bool
) -> None:
    asked: list[tuple[int, float, Cache]] = []

    def period(call: Call, launches: int, idle_s: float, cache: Cache) -> Sample:
        asked.append((launches, idle_s, cache))
        return Sample(20 * US + FACTS.floor_s)

    watch = Stopwatch(FakeTimer(period=period), FakeTracer(kernels, repeat(busy_s)))
    timing = take(watch)
    assert bool(asked) == periodic
    if periodic:
        assert asked[0] == (3, 0.002, "cold")
        assert timing.times["window"].values_s == pytest.approx([20 * US] * 20)
        assert timing.times["window"].windows == 4
        assert timing.times["window"].tick_s == TICK / 4


def test_one_lost_record_of_very_many_calls_is_no_matter() -> None:
    noise = trace_of([9 * US, 11 * US] * 10)
    lossy = replace(noise, busy_s=noise.busy_s[1:], span_s=noise.span_s[1:], odd=1)
    watch = Stopwatch(FakeTimer(), giving(lossy, *repeat(noise, 20)))
    timing = take(watch, replace(BURST, precision=1e-6, min_samples=20))
    assert timing.times["busy"].size >= 199
    assert "lost-records" not in caveats(timing)


@pytest.mark.parametrize(("slow", "doubted"), [(0, False), (2, False), (3, True), (20, True)])
def test_samples_before_which_the_clock_had_not_recovered_get_a_caveat(
    slow: int, doubted: bool
) -> None:
    """More than a tenth of twenty."""
    before = chain(repeat(0.9 * RESTED_HZ, slow), repeat(RESTED_HZ))
    timing = take(Stopwatch(FakeTimer(before_hz=before), FakeTracer(SPLIT)))
    found = caveats(timing)
    assert found.keys() == ({"unrecovered"} if doubted else set())
    if doubted:
        assert found["unrecovered"].message.endswith(f"before {slow} of 20 samples")
        assert "--regime sustained" in found["unrecovered"].hint


def test_traced_calls_before_which_the_clock_had_not_recovered_get_a_caveat() -> None:
    first, slow = trace_of([9 * US, 11 * US] * 10), trace_of([10 * US] * 20, before_hz=1.5e9)
    timing = take(Stopwatch(FakeTimer(), giving(first, *repeat(slow, 20))))
    assert "unrecovered" in caveats(timing)


def test_so_are_the_calls_that_were_traced_first() -> None:
    """They are all the samples that there are of a steady kernel."""
    slow = trace_of([10 * US] * 20, before_hz=0.5 * RESTED_HZ)
    timing = take(Stopwatch(FakeTimer(), giving(slow)))
    assert timing.times["busy"].size == 20
    assert caveats(timing).keys() == {"unrecovered"}


def test_the_hot_samples_are_none_of_those_that_had_not_recovered() -> None:
    before = chain(repeat(RESTED_HZ, 20), repeat(0.5 * RESTED_HZ))
    timing = take(Stopwatch(FakeTimer(before_hz=before), FakeTracer(SPLIT)), fits_cache=True)
    assert "hot" in timing.times
    assert "unrecovered" not in caveats(timing)


@pytest.mark.parametrize("kernels", [GEMM, SPLIT])
@pytest.mark.parametrize(("wall_s", "doubted"), [(14.9 * US, False), (40 * US, True)])
def test_a_call_that_waits_for_its_launches_is_launch_bound(
    kernels: tuple[Kernel, ...], wall_s: float, doubted: bool
) -> None:
    """Back to back it takes more than half as long again as the device is busy, 10 µs."""
    seen: list[float] = []

    def wall(call: Call, call_s: float) -> Samples:
        seen.append(call_s)
        return Samples((wall_s,) * 7, calls_per_window=50)

    timing = take(Stopwatch(FakeTimer(), FakeTracer(kernels), wall=wall), call_s=30 * US)
    assert seen == [30 * US]
    assert timing.times["wall"].median_s == wall_s
    found = caveats(timing)
    assert found.keys() == ({"launch-bound"} if doubted else set())
    if doubted:
        assert "40" in found["launch-bound"].message
        assert "the device is busy for 25 %" in found["launch-bound"].message


def test_without_a_busy_time_the_primary_one_is_held_against_the_wall() -> None:
    """12 µs in the window: 17 µs back to back are not launch-bound, 19 µs are."""
    for wall_s, kinds in ((17 * US, {"uncalibrated"}), (19 * US, {"uncalibrated", "launch-bound"})):
        watch = Stopwatch(FakeTimer(), wall=lambda call, call_s, w=wall_s: Samples((w,) * 7))
        assert caveats(take(watch)).keys() == kinds


@pytest.mark.parametrize("cache", get_args(Cache))
@pytest.mark.parametrize("fits", [True, False])
def test_the_hot_figure_is_taken_where_the_working_set_fits_and_the_cache_was_cold(
    cache: Cache, fits: bool
) -> None:
    for kernels in (GEMM, SPLIT):
        watch = Stopwatch(FakeTimer(), FakeTracer(kernels))
        timing = take(watch, replace(BURST, cache=cache), fits_cache=fits)
        assert ("hot" in timing.times) == (fits and cache in ("cold", "cold-dirty"))


def test_the_hot_figure_is_of_the_same_kind_as_the_primary_one() -> None:
    timer, tracer = FakeTimer(), FakeTracer()
    timing = take(Stopwatch(timer, tracer), fits_cache=True)
    assert timing.primary == "busy"
    assert timing.times["busy"].median_s == pytest.approx(10 * US)
    assert timing.times["hot"].median_s == pytest.approx(6 * US)
    assert tracer.asked[-1][1:] == ("hot", 20)
    assert timer.asked == []
    timer = FakeTimer(chain(repeat(12 * US, 20), repeat(8 * US)))
    timing = take(Stopwatch(timer, FakeTracer(SPLIT)), fits_cache=True)
    assert timing.primary == "window"
    assert timing.times["window"].values_s == pytest.approx([12 * US] * 20)
    assert timing.times["hot"].values_s == pytest.approx([8 * US] * 20)
    assert [cache for _, cache in timer.asked] == ["cold"] * 20 + ["hot"] * 20


def test_where_the_hot_calls_left_no_record_there_is_no_hot_figure() -> None:
    for nothing in (None, trace_of([], odd=20)):
        watch = Stopwatch(FakeTimer(), giving(trace_of([10 * US] * 20), nothing))
        assert take(watch, fits_cache=True).times.keys() == {"busy", "span"}


@dataclass
class FakeLoad:
    """Gives the first second and what it settled on."""

    steady: bool = True
    asked: list[tuple[float, float]] = field(default_factory=list)

    def __call__(
        self, call: Call, call_s: float, settle_s: float, heard: Callable[[int], None]
    ) -> tuple[Samples, Samples, bool]:
        self.asked.append((call_s, settle_s))
        heard(7)
        return Samples((10 * US,) * 50), Samples((13 * US,) * 100), self.steady


SUSTAINED = replace(BURST, regime="sustained", cache="hot", settle_s=30.0)


def test_of_a_sustained_load_that_counts_which_it_settled_on() -> None:
    timer, tracer, load, heard = FakeTimer(), FakeTracer(), FakeLoad(), list[int]()
    timing = take(Stopwatch(timer, tracer, sustain=load, on_sample=heard.append), SUSTAINED)
    assert timing.primary == "settled"
    assert timing.times["settled"].median_s == pytest.approx(13 * US)
    assert timing.times["first_second"].median_s == pytest.approx(10 * US)
    assert timing.times.keys() == {"settled", "first_second", "busy", "span"}
    assert load.asked == [(30 * US, 30.0)]
    assert heard == [7]
    assert timing.stop == "precision"
    assert timing.facts == replace(FACTS, floor_s=0.0, floor_uncertainty_s=0.0)
    assert timing.kernels == GEMM
    assert [cache for _, cache, _ in tracer.asked] == ["hot"]
    assert (timer.asked, caveats(timing)) == ([], {})


def test_a_load_that_is_sustained_is_traced_with_the_cache_as_it_leaves_it() -> None:
    tracer = FakeTracer()
    take(Stopwatch(FakeTimer(), tracer, sustain=FakeLoad()), replace(SUSTAINED, cache="cold"))
    assert [cache for _, cache, _ in tracer.asked] == ["hot"]


def test_a_load_that_did_not_settle_gets_a_caveat() -> None:
    timing = take(Stopwatch(FakeTimer(), FakeTracer(), sustain=FakeLoad(False)), SUSTAINED)
    assert timing.stop == "budget"
    assert caveats(timing).keys() == {"unsettled"}
    assert "after 30 s" in caveats(timing)["unsettled"].message
    assert "--settle" in caveats(timing)["unsettled"].hint


def test_a_clock_that_a_sustained_load_lowers_is_no_doubt() -> None:
    timer = FakeTimer(before_hz=repeat(0.5 * RESTED_HZ))
    assert caveats(take(Stopwatch(timer, FakeTracer(), sustain=FakeLoad()), SUSTAINED)) == {}


def test_a_load_can_be_sustained_on_a_gpu_only() -> None:
    with pytest.raises(CannotMeasure, match="needs a GPU") as caught:
        take(Stopwatch(FakeTimer(name="wall")), replace(SUSTAINED, timer="wall"))
    assert "--regime" in caught.value.hint


def test_a_sustained_load_without_work_is_refused() -> None:
    load = FakeLoad()
    watch = Stopwatch(FakeTimer(), giving(trace_of([0.0] * 20, ())), sustain=load)
    assert refusal(watch, SUSTAINED).status == "no-work"
    assert load.asked == []


def test_the_wall_timer_gives_its_own_figure_and_nothing_else() -> None:
    timer, tracer = FakeTimer(name="wall"), FakeTracer()
    timer.before_hz = repeat(None)
    watch = Stopwatch(timer, tracer, wall=lambda call, call_s: Samples((1.0,) * 7))
    timing = take(watch, replace(BURST, timer="wall"), fits_cache=True)
    assert timing.primary == "window"
    assert timing.times.keys() == {"window"}
    assert timing.times["window"].values_s == pytest.approx([12 * US] * 20)
    assert (timing.kernels, timing.caveats, timing.capture_s) == ((), (), None)
    assert tracer.asked == []


def test_the_budget_ends_what_is_too_noisy_and_the_timing_says_so() -> None:
    times = (12 * US * (1 + 0.3 * (i % 7)) for i in count())
    contract = replace(BURST, budget_s=0.0)
    timing = take(Stopwatch(FakeTimer(times), FakeTracer(SPLIT)), contract)
    assert (timing.stop, timing.times["window"].size) == ("budget", 3)
    timing = take(
        Stopwatch(FakeTimer(times), FakeTracer(SPLIT)),
        replace(BURST, max_samples=30, precision=1e-6),
    )
    assert (timing.stop, timing.times["window"].size) == ("samples", 30)


def test_a_candidate_is_timed_with_the_rest_and_the_cache_of_the_contract() -> None:
    timer = FakeTimer(iter([100 * US, *[10 * US, 12 * US, 11 * US] * 4]))
    watch = Stopwatch(timer)
    assert watch.time_candidate(do_nothing, BURST) == pytest.approx(11 * US + FACTS.floor_s)
    assert timer.asked == [(0.0, "cold"), *[(0.002, "cold")] * 12]


def test_a_candidate_that_cannot_be_blocked_is_no_candidate() -> None:
    with pytest.raises(CannotBlock):
        Stopwatch(FakeTimer(refusal="it waits")).time_candidate(do_nothing, BURST)


def test_a_comparison_takes_a_call_with_every_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default timer is primary; the references are a cold and a hot trace."""
    opened: list[str] = []

    def make_timer(name: TimerName, device: torch.device) -> FakeTimer:
        opened.append(name)
        return FakeTimer(name=name)

    monkeypatch.setattr(timer_comparison, "make_timer", make_timer)
    monkeypatch.setattr(timer_comparison, "do_bench", lambda call: Samples((5 * US,)))
    counts = list[int]()
    comparison = TimerComparison(FakeTimer(), FakeTracer(), device=torch.device("cpu"))
    comparison = comparison.with_hooks(do_nothing, counts.append, lambda call: call)
    timing = take(comparison)
    assert (timing.primary, opened) == ("blocked", ["window", "graph", "events", "wall"])
    assert timing.times.keys() == {"blocked", "span", "busy", "busy_hot", "do_bench", *opened}
    assert timing.times["blocked"].median_s == timing.times["busy"].median_s == 10 * US
    assert timing.times["busy_hot"].median_s == 6 * US
    assert counts
