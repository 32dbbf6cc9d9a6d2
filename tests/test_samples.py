"""Does the interval of a median hold the truth as often as it says?"""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.model.samples import Z95, Samples, effective_size

TICK = 32e-9


def noise(n: int, rho: float, draw: random.Random) -> tuple[float, ...]:
    """*n* values of a stationary AR(1) process around 0 with the lag-1 correlation *rho*."""
    values = [draw.gauss(0, 1)]
    for _ in range(n - 1):
        values.append(rho * values[-1] + math.sqrt(1 - rho * rho) * draw.gauss(0, 1))
    return tuple(values)


def around(centre_s: float, n: int, rho: float = 0.0, seed: int = 1) -> Samples:
    return Samples(tuple(centre_s * (1 + 0.01 * v) for v in noise(n, rho, random.Random(seed))))


def test_z95_is_the_two_sided_95_percent_point() -> None:
    assert pytest.approx(1.959964, abs=1e-6) == Z95


def test_the_median_of_a_few_values_is_theirs() -> None:
    assert Samples((3.0, 1.0, 2.0)).median_s == 2.0
    assert Samples((4.0, 1.0, 2.0, 3.0)).median_s == 2.5
    assert Samples((5.0,)).median_s == 5.0
    with pytest.raises(ValueError, match="no sample"):
        Samples(())


def test_the_interval_of_independent_values_is_that_of_their_order_statistics() -> None:
    """100 shuffled values 1 … 100: ranks 0.5 ± 1.96/20 of 99 steps."""
    values = [float(i) for i in range(1, 101)]
    random.Random(3).shuffle(values)
    samples = Samples(tuple(values))
    assert samples.effective_size == 100
    low, high = samples.interval_s
    assert low == pytest.approx(1 + 99 * (0.5 - 1.959964 / 20))
    assert high == pytest.approx(1 + 99 * (0.5 + 1.959964 / 20))
    assert samples.precision == pytest.approx(99 * 1.959964 / 20 / 50.5)


def test_three_values_give_their_whole_range() -> None:
    assert Samples((3.0, 1.0, 2.0)).interval_s == (1.0, 3.0)
    assert Samples((3.0, 1.0, 2.0)).precision == 0.5


def test_the_spread_is_the_interquartile_range_over_the_median() -> None:
    assert Samples((1.0, 2.0, 3.0, 4.0, 5.0)).spread == pytest.approx(2 / 3)
    assert Samples((2.0,) * 9).spread == 0.0
    assert Samples((0.0, 0.0)).spread == math.inf
    assert Samples((0.0, 0.0)).precision == math.inf


def test_a_sample_that_is_not_finite_is_refused() -> None:
    for odd in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="not a finite number"):
            Samples((1.0, odd))


def test_independent_samples_count_fully() -> None:
    sizes = [effective_size(noise(200, 0.0, random.Random(seed))) for seed in range(40)]
    assert statistics.median(sizes) > 150
    assert max(sizes) <= 200


@pytest.mark.parametrize("rho", [0.3, 0.5, 0.8, 0.95])
def test_autocorrelated_samples_count_for_what_they_tell(rho: float) -> None:
    """The mean of an AR(1) process of n values is as sure as that of n(1−ρ)/(1+ρ) free ones."""
    n = 1000
    truth = n * (1 - rho) / (1 + rho)
    sizes = [effective_size(noise(n, rho, random.Random(seed))) for seed in range(8)]
    assert truth / 1.5 < statistics.median(sizes) < truth * 1.5


def test_outliers_do_not_hide_the_correlation_of_the_rest() -> None:
    draw = random.Random(5)
    values = list(noise(500, 0.9, draw))
    calm = effective_size(tuple(values))
    for place in draw.sample(range(500), 5):
        values[place] = 1e6
    assert effective_size(tuple(values)) < 2 * calm


def test_a_drift_is_worth_few_samples() -> None:
    assert effective_size(tuple(float(i) for i in range(100))) < 5


def test_the_effective_size_of_very_few_or_equal_values_is_their_number() -> None:
    assert effective_size(()) == 1.0
    assert effective_size((1.0,)) == 1.0
    assert effective_size((1.0, 2.0, 3.0)) == 3.0
    assert effective_size((2.0,) * 50) == 50.0


def test_alternating_samples_count_no_more_than_their_number() -> None:
    assert effective_size((1.0, 2.0) * 50) == 100.0


def test_samples_all_on_one_tick_are_uncertain_by_half_of_it() -> None:
    samples = Samples((64 * TICK,) * 50, tick_s=TICK)
    low, high = samples.interval_s
    assert high - samples.median_s >= TICK / 2 * (1 - 1e-12)
    assert samples.median_s - low >= TICK / 2 * (1 - 1e-12)
    assert samples.precision == pytest.approx(0.5 / 64)


def test_noise_beyond_the_tick_dithers_it() -> None:
    """Uniform over many ticks: the tick adds 1.96·tick/√(12·n), not half a tick."""
    values = tuple(TICK * (1000 + i % 100) for i in random.Random(7).sample(range(400), 400))
    ticking, smooth = Samples(values, tick_s=TICK), Samples(values)
    added = ticking.interval_s[1] - smooth.interval_s[1]
    assert added == pytest.approx(1.959964 * TICK / math.sqrt(12 * smooth.effective_size))
    assert added < TICK / 10


def test_constants_without_a_tick_are_exact() -> None:
    assert Samples((2.0,) * 20).interval_s == (2.0, 2.0)
    assert Samples((2.0,) * 20).precision == 0.0


@given(st.floats(1e-9, 1e-3))
def test_what_is_uncertain_in_the_floor_widens_both_sides(blur: float) -> None:
    plain = around(1e-2, 40)
    blurred = Samples(plain.values_s, offset_uncertainty_s=blur)
    assert blurred.interval_s[0] == pytest.approx(plain.interval_s[0] - blur)
    assert blurred.interval_s[1] == pytest.approx(plain.interval_s[1] + blur)
    assert blurred.precision > plain.precision


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=40), st.floats(0, 1e-3))
def test_the_interval_holds_the_median_and_stays_in_the_samples_but_for_the_tick(
    values: list[float], tick: float
) -> None:
    samples = Samples(tuple(values), tick_s=tick)
    low, high = samples.interval_s
    assert low <= samples.median_s * (1 + 1e-12)
    assert high >= samples.median_s * (1 - 1e-12)
    assert low >= min(values) - 1.14 * tick - 1e-12
    assert high <= max(values) + 1.14 * tick + 1e-9
    assert 1 <= samples.effective_size <= len(values)


@given(st.lists(st.floats(1e-6, 1.0), min_size=4, max_size=40), st.floats(0.5, 2.0))
def test_the_interval_scales_with_the_unit(values: list[float], factor: float) -> None:
    low, high = Samples(tuple(values)).interval_s
    scaled = Samples(tuple(v * factor for v in values))
    if len(set(scaled.values_s)) == len(set(values)):  # rounding made no ties
        assert scaled.interval_s == pytest.approx((low * factor, high * factor), rel=1e-9)


def test_correlation_widens_the_interval() -> None:
    assert around(1e-3, 300, rho=0.9).precision > 2 * around(1e-3, 300).precision


@pytest.mark.parametrize(
    ("rho", "least", "most"), [(0.0, 0.90, 0.985), (0.5, 0.90, 0.99), (0.8, 0.85, 0.99)]
)
def test_the_95_percent_interval_covers_the_true_median(
    rho: float, least: float, most: float
) -> None:
    """400 runs of 60 samples: a coverage of 0.95 is seen within ± 0.022 (95 %)."""
    draw = random.Random(17)
    intervals = [Samples(noise(60, rho, draw)).interval_s for _ in range(400)]
    coverage = sum(low <= 0 <= high for low, high in intervals) / len(intervals)
    assert least <= coverage <= most


def test_the_interval_of_a_skewed_time_covers_its_median() -> None:
    """Times have a floor and a long tail: exponential, whose median is ln 2."""
    draw = random.Random(23)
    hits = 0
    for _ in range(400):
        low, high = Samples(tuple(1 + draw.expovariate(1) for _ in range(60))).interval_s
        hits += low <= 1 + math.log(2) <= high
    assert 0.90 <= hits / 400 <= 0.985


def test_the_clock_is_the_median_of_what_was_read() -> None:
    assert Samples((1.0, 1.0, 1.0), (1.6e9, None, 1.8e9)).clock_hz == 1.7e9
    assert Samples((1.0,), (None,)).clock_hz is None
    assert Samples((1.0,)).clock_hz is None
    assert Samples((1.0, 2.0)).size == 2
