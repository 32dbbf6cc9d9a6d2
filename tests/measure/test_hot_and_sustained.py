"""The stopwatch takes hot and sustained samples, and says which samples are in doubt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain, count, repeat
from typing import get_args

import pytest
import torch
from fake_tracer import (
    BURST,
    FACTS,
    GEMM,
    RESTED_HZ,
    SPLIT,
    TICK,
    US,
    FakeTimer,
    FakeTracer,
    caveats,
    giving,
    refusal,
    take,
    trace_of,
)

from gpuperf.errors import CannotMeasure
from gpuperf.measure import timer_comparison
from gpuperf.measure.stopwatch import Stopwatch
from gpuperf.measure.timer_comparison import TimerComparison
from gpuperf.measure.timers.timer import Call, CannotBlock, Sample, do_nothing
from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.record import Kernel
from gpuperf.model.samples import Samples


@pytest.mark.parametrize(
    ("beyond_s", "primary"),
    [(1.4 * US, "busy"), (-1.4 * US, "busy"), (1.6 * US, "window"), (1e-3, "window")],
)
def test_the_window_of_a_single_kernel_bears_its_record_out(beyond_s: float, primary: str) -> None:
    """A kernel of 10 µs: a twentieth and 1 µs are left to the stamps, and else the window counts,
    less the floor of any call."""
    own = replace(FACTS, floor_s=FACTS.floor_s + beyond_s)
    timing = take(Stopwatch(FakeTimer(own=lambda trace: own), FakeTracer()))
    assert timing.primary == primary
    assert ("unrecorded" in [caveat.kind for caveat in timing.caveats]) == (primary == "window")
    if primary == "window":
        assert timing.facts == FACTS


def test_the_time_of_the_kernels_is_kept_where_it_was_asked_for() -> None:
    own = replace(FACTS, floor_s=FACTS.floor_s + 3 * US)
    watch = Stopwatch(FakeTimer(own=lambda trace: own), FakeTracer())
    timing = take(watch, replace(BURST, timer="activity"))
    assert timing.primary == "busy"
    assert "unrecorded" in [caveat.kind for caveat in timing.caveats]


def test_a_window_shorter_than_the_record_of_its_kernel_is_an_error() -> None:
    own = replace(FACTS, floor_s=FACTS.floor_s - 1.6 * US)
    stop = refusal(Stopwatch(FakeTimer(own=lambda trace: own), FakeTracer()))
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


def test_a_card_that_does_not_come_to_rest_gets_a_caveat_except_under_a_load() -> None:
    def recover() -> bool:
        return False

    for kernels in (GEMM, SPLIT):
        found = caveats(take(Stopwatch(FakeTimer(rested=recover), FakeTracer(kernels))))
        assert found.keys() == {"unrecovered"}
        assert "after 2 s of rest" in found["unrecovered"].message
    load = Stopwatch(FakeTimer(rested=recover), FakeTracer(), sustain=FakeLoad())
    assert caveats(take(load, SUSTAINED)) == {}
