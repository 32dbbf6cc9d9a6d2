"""Sampling stops when it may, not before, and reports the reason."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.measure.sampling import FEWEST_SAMPLES, Rest, SamplingResult, is_known, take_samples
from gpuperf.measure.timers.timer import Sample
from gpuperf.model.contract import Contract
from gpuperf.model.record import TimerFacts
from gpuperf.model.samples import Samples

RESTED_HZ = 1980e6


@dataclass
class FakeTimer:
    """Hands out the given times, one a draw or many; each moves its clock on by *cost_s*."""

    times: Iterator[float]
    cost_s: float = 0.001
    facts: TimerFacts = field(default_factory=TimerFacts)
    before_hz: Iterator[float | None] = field(default_factory=lambda: repeat(None))
    clock_s: float = 0.0
    asked: list[tuple[int, float]] = field(default_factory=list)

    def draw(self, count: int, idle_s: float) -> Sequence[Sample]:
        self.asked.append((count, idle_s))
        self.clock_s += count * self.cost_s
        return [Sample(next(self.times), 1.5e9, next(self.before_hz)) for _ in range(count)]

    def now(self) -> float:
        return self.clock_s

    @property
    def counts(self) -> list[int]:
        return [count for count, _ in self.asked]


def take(
    timer: FakeTimer,
    contract: Contract,
    at_once: int = 1,
    first: Sequence[Sample] = (),
    rest: Rest | None = None,
) -> SamplingResult:
    return take_samples(
        timer.draw,
        contract,
        timer.facts,
        rest or Rest(contract, timer.cost_s),
        at_once,
        first,
        now=timer.now,
    )


def noisy(relative: float) -> Iterator[float]:
    """Times around 1 ms that are independent of each other, to ± *relative*."""
    draw = random.Random(11)
    while True:
        yield 1e-3 * (1 + relative * draw.uniform(-1, 1))


def test_steady_times_stop_at_the_fewest_samples_the_contract_takes() -> None:
    taken = take(FakeTimer(repeat(1e-3)), Contract("wall", min_samples=20))
    assert taken.stop == "precision"
    assert taken.samples.values_s == (1e-3,) * 20
    assert taken.samples.sm_clock_hz == (1.5e9,) * 20


def test_noise_is_sampled_until_its_median_is_known() -> None:
    contract = Contract("wall", min_samples=10, max_samples=10_000, budget_s=1e9, precision=0.01)
    taken = take(FakeTimer(noisy(0.1)), contract)
    assert taken.stop == "precision"
    assert 10 < taken.samples.size < 10_000
    assert taken.samples.sampling_precision <= 0.01


def test_no_more_than_a_tenth_is_sampled_beyond_what_was_needed() -> None:
    contract = Contract("wall", min_samples=10, max_samples=10_000, budget_s=1e9, precision=0.01)
    taken = take(FakeTimer(noisy(0.1)), contract)
    values = taken.samples.values_s
    needed = next(
        n for n in range(10, len(values) + 1) if Samples(values[:n]).sampling_precision <= 0.01
    )
    assert needed <= len(values) <= 1.1 * needed + 1


def test_a_finer_precision_takes_more_samples() -> None:
    sizes = []
    for precision in (0.05, 0.02, 0.01):
        contract = Contract("wall", max_samples=100_000, budget_s=1e9, precision=precision)
        sizes.append(take(FakeTimer(noisy(0.2)), contract).samples.size)
    assert sizes[0] < sizes[1] < sizes[2]


def test_the_budget_ends_noisy_samples() -> None:
    contract = Contract("wall", budget_s=0.1, precision=0.001)
    taken = take(FakeTimer(noisy(0.5), cost_s=0.002), contract)
    assert taken.stop == "budget"
    assert taken.samples.size == 50
    assert taken.samples.precision > 0.001


def test_the_most_samples_end_noisy_samples_within_the_budget() -> None:
    contract = Contract("wall", max_samples=64, budget_s=1e9, precision=1e-6)
    taken = take(FakeTimer(noisy(0.5)), contract)
    assert taken.stop == "samples"
    assert taken.samples.size == 64


def test_a_slow_call_is_taken_its_fewest_times_and_says_budget() -> None:
    timer = FakeTimer(repeat(30.0), cost_s=30.0)
    taken = take(timer, Contract("wall", min_samples=20, budget_s=2.0))
    assert taken.stop == "budget"
    assert taken.samples.size == FEWEST_SAMPLES == 3


def test_no_budget_at_all_still_takes_the_fewest() -> None:
    taken = take(FakeTimer(repeat(1e-3)), Contract("wall", budget_s=0.0))
    assert taken.stop == "budget"
    assert taken.samples.size == FEWEST_SAMPLES


def test_precision_reached_as_the_budget_ends_is_called_precision() -> None:
    contract = Contract("wall", min_samples=10, budget_s=0.01)
    taken = take(FakeTimer(repeat(1e-3), cost_s=0.001), contract)
    assert taken.samples.size == 10
    assert taken.stop == "precision"


def test_a_few_equal_samples_before_the_minimum_are_not_precision() -> None:
    contract = Contract("wall", min_samples=20, budget_s=0.005)
    taken = take(FakeTimer(repeat(1e-3), cost_s=0.001), contract)
    assert taken.stop == "budget"
    assert taken.samples.size == 5


def test_the_tick_of_the_timer_counts_in_the_precision() -> None:
    """On a tick of 500 µs, 1 ms in each of 100 samples is known to ± 0.136 ticks, 6.8 %: a part
    of 0.036 of a tick would not have been seen, and 0.0998 is open over the tick."""
    timer = FakeTimer(repeat(1e-3), facts=TimerFacts(tick_s=500e-6))
    taken = take(timer, Contract("wall", max_samples=100))
    assert taken.stop == "samples"
    assert taken.samples.tick_s == 500e-6
    assert taken.samples.sampling_precision == pytest.approx(0.068, abs=0.001)
    assert take(timer, Contract("wall", max_samples=100, precision=0.069)).stop == "precision"


def test_an_uncertain_floor_that_no_sample_narrows_does_not_keep_sampling() -> None:
    timer = FakeTimer(repeat(1e-3), facts=TimerFacts(floor_uncertainty_s=20e-6))
    taken = take(timer, Contract("wall", min_samples=20))
    assert taken.stop == "precision"
    assert taken.samples.size == 20
    assert taken.samples.sampling_precision == pytest.approx(0.0, abs=1e-12)
    assert taken.samples.precision == pytest.approx(0.02)


def test_the_floor_is_subtracted_from_every_sample() -> None:
    timer = FakeTimer(noisy(0.01), facts=TimerFacts(floor_s=2e-4))
    first = [Sample(1.1e-3)]
    taken = take(timer, Contract("wall", min_samples=20), first=first)
    plain = take(FakeTimer(noisy(0.01)), Contract("wall", min_samples=20), first=first)
    assert taken.samples.values_s == pytest.approx([t - 2e-4 for t in plain.samples.values_s])
    assert taken.samples.values_s[0] == pytest.approx(9e-4)


def test_the_rest_before_each_sample_reaches_the_timer() -> None:
    timer = FakeTimer(repeat(1e-3))
    take(timer, Contract("wall", gap_s=0.02, min_samples=5))
    assert timer.asked == [(1, 0.02)] * 5


def test_every_sample_is_heard_of() -> None:
    timer, contract = FakeTimer(repeat(1e-3)), Contract("wall", min_samples=7)
    for at_once, heard in ((1, [1, 2, 3, 4, 5, 6, 7]), (3, [3, 6, 7]), (20, [7])):
        seen: list[int] = []
        take_samples(
            timer.draw,
            contract,
            TimerFacts,
            Rest(contract, 1e-3),
            at_once,
            (),
            seen.append,
            timer.now,
        )
        assert seen == heard


def test_samples_stay_in_the_order_taken() -> None:
    times = [3e-3, 1e-3, 2e-3]
    taken = take(FakeTimer(chain(times, repeat(1e-3))), Contract("wall", budget_s=0.0))
    assert taken.samples.values_s == (3e-3, 1e-3, 2e-3)


def test_a_time_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        take(FakeTimer(repeat(float("nan"))), Contract("wall", budget_s=0.0))


@given(
    times=st.lists(st.floats(1e-6, 1e-2), min_size=1, max_size=40),
    cost_s=st.floats(1e-4, 1.0),
    budget_s=st.floats(0, 2.0),
    precision=st.floats(1e-3, 0.5),
    fewest=st.integers(3, 40),
    more=st.integers(0, 100),
    at_once=st.integers(1, 50),
)
def test_the_reason_to_stop_is_true(
    times: list[float],
    cost_s: float,
    budget_s: float,
    precision: float,
    fewest: int,
    more: int,
    at_once: int,
) -> None:
    timer = FakeTimer(cycle(times), cost_s)
    contract = Contract(
        "wall",
        gap_s=0.0,
        budget_s=budget_s,
        precision=precision,
        min_samples=fewest,
        max_samples=fewest + more,
    )
    taken = take(timer, contract, at_once)
    size = taken.samples.size
    spent = timer.clock_s >= budget_s
    reached = size >= fewest and is_known(taken.samples, precision)
    assert FEWEST_SAMPLES <= size <= contract.max_samples
    assert size == sum(timer.counts)
    assert max(timer.counts) <= at_once
    assert size >= fewest or taken.stop == "budget"
    if taken.stop == "precision":
        assert reached
    elif taken.stop == "budget":
        last = timer.counts[-1]
        assert spent
        assert not reached
        assert timer.clock_s - last * cost_s < budget_s or size - last < FEWEST_SAMPLES
        # A chunk that the budget has no room for is of the fewest that make a median.
        assert last <= FEWEST_SAMPLES or timer.clock_s <= budget_s * (1 + 1e-9)
    else:
        assert size == contract.max_samples
        assert not reached
        assert not spent


def test_samples_come_together_where_that_is_cheaper_and_no_more_than_are_wanted() -> None:
    timer = FakeTimer(repeat(1e-3))
    assert take(timer, Contract("wall", min_samples=20), at_once=8).samples.size == 20
    assert timer.counts == [8, 8, 4]
    timer = FakeTimer(repeat(1e-3))
    assert take(timer, Contract("wall", min_samples=20), at_once=64).samples.size == 20
    assert timer.counts == [20]


def test_of_samples_that_come_together_the_interval_is_looked_at_after_half_as_many() -> None:
    """Or after a tenth of what there is: whichever is more."""
    timer = FakeTimer(noisy(0.5))
    contract = Contract("wall", min_samples=20, max_samples=300, budget_s=1e9, precision=1e-6)
    taken = take(timer, contract, at_once=20)
    assert taken.stop == "samples"
    assert sum(timer.counts) == taken.samples.size == 300
    assert timer.counts[0] == 20
    assert set(timer.counts[1:10]) == {10}
    assert max(timer.counts) <= 20


def test_samples_that_are_there_already_count() -> None:
    first = [Sample(1e-3, 1.4e9)] * 15
    timer = FakeTimer(repeat(1e-3))
    taken = take(timer, Contract("wall", min_samples=20), at_once=20, first=first)
    assert timer.counts == [5]
    assert taken.stop == "precision"
    assert taken.samples.values_s == (1e-3,) * 20
    assert taken.samples.sm_clock_hz == (1.4e9,) * 15 + (1.5e9,) * 5


def test_no_sample_is_taken_where_those_that_are_there_suffice() -> None:
    timer = FakeTimer(repeat(1e-3))
    taken = take(timer, Contract("wall", min_samples=20), 20, [Sample(2e-3)] * 20)
    assert timer.asked == []
    assert (taken.stop, taken.samples.values_s) == ("precision", (2e-3,) * 20)
    noise = [Sample(t) for t, _ in zip(noisy(0.5), range(30), strict=False)]
    taken = take(timer, Contract("wall", max_samples=30, precision=1e-6), 20, noise)
    assert timer.asked == []
    assert (taken.stop, taken.samples.size) == ("samples", 30)


def test_those_that_are_there_are_all_there_is_when_no_budget_is_left() -> None:
    timer = FakeTimer(noisy(0.5))
    first = [Sample(next(timer.times)) for _ in range(FEWEST_SAMPLES)]
    taken = take(timer, Contract("wall", budget_s=0.0), 20, first)
    assert timer.asked == []
    assert (taken.stop, taken.samples.size) == ("budget", FEWEST_SAMPLES)


def test_the_budget_bounds_how_many_are_drawn_together() -> None:
    """80 ms of calls of 1 ms that rest 3 ms each: twenty, not a hundred."""
    contract = Contract("wall", gap_s=0.0, duty=0.25, budget_s=0.08, min_samples=100)
    timer = FakeTimer(noisy(0.5), cost_s=0.004)
    taken = take(timer, contract, at_once=100, rest=Rest(contract, 0.001))
    assert timer.counts[0] in (19, 20)  # in floating point
    assert taken.stop == "budget"
    assert taken.samples.size == sum(timer.counts)
    assert sum(timer.counts) <= 20 + FEWEST_SAMPLES


def test_a_budget_without_room_still_draws_the_fewest_together() -> None:
    timer = FakeTimer(repeat(1e-3), cost_s=10.0)
    taken = take(timer, Contract("wall", budget_s=0.5), at_once=20)
    assert timer.counts == [FEWEST_SAMPLES]
    assert taken.stop == "budget"


def test_a_draw_that_gives_fewer_than_it_was_asked_for_is_drawn_again() -> None:
    timer = FakeTimer(repeat(1e-3))

    def lossy(count: int, idle_s: float) -> Sequence[Sample]:
        return timer.draw(count, idle_s)[: max(1, count // 2)]

    contract = Contract("wall", min_samples=20)
    taken = take_samples(
        lossy, contract, TimerFacts, Rest(contract, 1e-3), at_once=20, now=timer.now
    )
    assert taken.samples.size == 20
    assert timer.counts == [20, 10, 5, 3, 2, 1]


def test_a_clock_that_did_not_recover_lengthens_the_rest_of_the_samples_that_follow() -> None:
    slow = 0.9 * RESTED_HZ
    timer = FakeTimer(repeat(1e-3), before_hz=chain([RESTED_HZ, slow, slow], repeat(RESTED_HZ)))
    contract = Contract("blocked", gap_s=0.002, min_samples=6)
    rest = Rest(contract, timer.cost_s, RESTED_HZ)
    take(timer, contract, rest=rest)
    assert [idle_s for _, idle_s in timer.asked] == [0.002, 0.002, 0.004, 0.008, 0.008, 0.008]
    assert rest.unrecovered == 2
