"""Does sampling stop when it may, not before, and does it say truly why?"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, cycle, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.measure.sampling import FEWEST_SAMPLES, Taken, take_samples
from gpuperf.measure.timers.timer import Call, Sample
from gpuperf.model.contract import Contract, TimerName
from gpuperf.model.record import TimerFacts
from gpuperf.model.samples import Samples


@dataclass
class FakeTimer:
    """Hands out the given times; each sample moves its clock on by *cost_s*."""

    times: Iterator[float]
    cost_s: float = 0.001
    facts: TimerFacts = field(default_factory=TimerFacts)
    name: TimerName = "wall"
    clock_s: float = 0.0
    asked: list[tuple[float, bool]] = field(default_factory=list)

    def admit(self, call: Call) -> None:
        call()

    def sample(self, call: Call, gap_s: float, cold: bool) -> Sample:
        call()
        self.asked.append((gap_s, cold))
        self.clock_s += self.cost_s
        return Sample(next(self.times), 1.5e9)

    def now(self) -> float:
        return self.clock_s


def take(timer: FakeTimer, contract: Contract) -> Taken:
    return take_samples(timer, lambda: None, contract, now=timer.now)


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
    """1 ms on a tick of 40 µs is known to ± 2 %, however often it is taken."""
    timer = FakeTimer(repeat(1e-3), facts=TimerFacts(tick_s=40e-6))
    taken = take(timer, Contract("wall", max_samples=100))
    assert taken.stop == "samples"
    assert taken.samples.tick_s == 40e-6
    assert take(timer, Contract("wall", precision=0.021)).stop == "precision"


def test_an_uncertain_floor_that_no_sample_narrows_does_not_keep_sampling() -> None:
    timer = FakeTimer(repeat(1e-3), facts=TimerFacts(floor_uncertainty_s=20e-6))
    taken = take(timer, Contract("wall", min_samples=20))
    assert taken.stop == "precision"
    assert taken.samples.size == 20
    assert taken.samples.sampling_precision == pytest.approx(0.0, abs=1e-12)
    assert taken.samples.precision == pytest.approx(0.02)


def test_the_contracts_gap_and_cache_reach_the_timer() -> None:
    for cache, cold in (("cold", True), ("hot", False)):
        timer = FakeTimer(repeat(1e-3))
        take(timer, Contract("wall", gap_s=0.02, cache=cache, min_samples=5))
        assert timer.asked == [(0.02, cold)] * 5


def test_every_sample_is_heard_of() -> None:
    heard: list[int] = []
    timer = FakeTimer(repeat(1e-3))
    take_samples(timer, lambda: None, Contract("wall", min_samples=7), heard.append, timer.now)
    assert heard == [1, 2, 3, 4, 5, 6, 7]


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
)
def test_the_reason_to_stop_is_true(
    times: list[float], cost_s: float, budget_s: float, precision: float, fewest: int, more: int
) -> None:
    timer = FakeTimer(cycle(times), cost_s)
    contract = Contract(
        "wall", budget_s=budget_s, precision=precision, min_samples=fewest,
        max_samples=fewest + more,
    )  # fmt: skip
    taken = take(timer, contract)
    size = taken.samples.size
    spent = timer.clock_s >= budget_s
    reached = size >= fewest and taken.samples.sampling_precision <= precision
    assert FEWEST_SAMPLES <= size <= contract.max_samples
    assert size == len(timer.asked)
    assert size >= fewest or taken.stop == "budget"
    if taken.stop == "precision":
        assert reached
    elif taken.stop == "budget":
        assert spent
        assert not reached
        assert timer.clock_s - cost_s < budget_s or size == FEWEST_SAMPLES
    else:
        assert size == contract.max_samples
        assert not reached
        assert not spent
