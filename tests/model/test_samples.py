"""Does the interval of a median hold the truth as often as it says?"""

import json
import math
import random
import statistics
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import TESTS

from gpuperf.model.samples import Samples, effective_size

TICK = 32e-9
# Two-sided 95 % points of Student's t, from any table.
T2, T49, T99 = 4.302653, 2.009575, 1.984217


def noise(n: int, rho: float, draw: random.Random) -> tuple[float, ...]:
    """*n* values of a stationary AR(1) process around 0 with the lag-1 correlation *rho*."""
    values = [draw.gauss(0, 1)]
    for _ in range(n - 1):
        values.append(rho * values[-1] + math.sqrt(1 - rho * rho) * draw.gauss(0, 1))
    return tuple(values)


def around(centre_s: float, n: int, rho: float = 0.0, seed: int = 1) -> Samples:
    return Samples(tuple(centre_s * (1 + 0.01 * v) for v in noise(n, rho, random.Random(seed))))


def alternating(n: int) -> tuple[float, ...]:
    """0 … n − 1, high and low in turn: not correlated, or against each other."""
    return tuple(float(i // 2 if i % 2 else n - 1 - i // 2) for i in range(n))


def test_the_median_of_a_few_values_is_theirs() -> None:
    assert Samples((3.0, 1.0, 2.0)).median_s == 2.0
    assert Samples((4.0, 1.0, 2.0, 3.0)).median_s == 2.5
    assert Samples((5.0,)).median_s == 5.0
    with pytest.raises(ValueError, match="no sample"):
        Samples(())


def test_the_interval_of_independent_values_is_that_of_their_order_statistics() -> None:
    """100 shuffled values 1 … 100: ranks 0.5 ± t/20 of 99 steps, t = 1.984 of 99 degrees of
    freedom, and the values are narrower by √0.99 than what they were drawn from."""
    values = [float(i) for i in range(1, 101)]
    random.Random(3).shuffle(values)
    samples = Samples(tuple(values))
    assert samples.effective_size == 100
    reach = T99 / 20 / math.sqrt(0.99)
    assert reach == pytest.approx(0.0997, abs=1e-4)
    low, high = samples.interval_s
    assert low == pytest.approx(1 + 99 * (0.5 - reach))
    assert high == pytest.approx(1 + 99 * (0.5 + reach))
    assert samples.precision == pytest.approx(99 * reach / 50.5)


def test_the_interval_of_very_many_values_is_that_of_the_normal_distribution() -> None:
    """40,000 alternating values: ranks 0.5 ± 1.96/(2·200)."""
    n = 40_000
    samples = Samples(alternating(n))
    assert samples.effective_size == n
    low, high = samples.interval_s
    assert (high - low) / (n - 1) == pytest.approx(1.959964 / 200, rel=1e-4)


@pytest.mark.parametrize(
    ("n", "t", "within"),
    [
        (3, T2, 0.01),
        (4, 3.182446, 0.002),
        (6, 2.570582, 2e-4),
        (11, 2.228139, 1e-5),
        (21, 2.085963, 1e-5),
        (50, T49, 1e-5),
    ],
)
def test_few_samples_are_as_uncertain_as_students_t_says(n: int, t: float, within: float) -> None:
    """Of n − 1 degrees of freedom; two of them to 1 %."""
    samples = Samples(alternating(n))
    assert samples.effective_size == n
    low, high = samples.interval_s
    expected = t / math.sqrt(n) / math.sqrt(1 - 1 / n)
    assert (high - low) / (n - 1) == pytest.approx(expected, rel=within)
    assert (high + low) / 2 == pytest.approx((n - 1) / 2)


def test_the_interval_of_three_values_reaches_beyond_them() -> None:
    """t = 4.303 of two degrees of freedom: ranks 0.5 ± 4.303/(2·√3)/√(2/3), on with their step."""
    reach = T2 / (2 * math.sqrt(3)) / math.sqrt(2 / 3)
    assert reach == pytest.approx(1.521, abs=1e-3)
    low, high = Samples((3.0, 1.0, 2.0)).interval_s
    assert low == pytest.approx(2 - 2 * reach, abs=0.03)
    assert high == pytest.approx(2 + 2 * reach, abs=0.03)
    assert Samples((3.0, 1.0, 2.0)).precision == pytest.approx(reach, rel=0.01)
    beyond = 2 * 3 * (reach - 0.5)
    skewed = Samples((1.0, 1.0, 7.0)).interval_s
    assert skewed == pytest.approx((1 - beyond, 7 + beyond), abs=0.09)


def test_of_samples_that_are_worth_one_the_interval_is_eight_times_their_range() -> None:
    """A drift: ranks 0.5 ± 4.303, t of two degrees of freedom over 2·√1 and √¼."""
    samples = Samples(tuple(float(i) for i in range(100)))
    assert samples.effective_size == 1
    low, high = samples.interval_s
    assert (high + low) / 2 == pytest.approx(49.5)
    assert (high - low) / 2 == pytest.approx(99 * T2, rel=0.01)


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


def test_samples_all_on_one_tick_are_known_to_what_would_not_have_been_seen() -> None:
    """A kernel of 64.071 ticks reads 64 in each of 50 samples once in 40 times: 0.929⁵⁰ = 0.025.
    To that comes what 50 values spread over the tick leave open: t/(2·√50)/√0.98 of 49 steps."""
    samples = Samples((64 * TICK,) * 50, tick_s=TICK)
    assert samples.median_s == pytest.approx(64 * TICK)
    unseen, spread = 0.07112, T49 / (2 * math.sqrt(50)) / math.sqrt(0.98) * 49 / 50
    assert (1 - unseen) ** 50 == pytest.approx(0.025, rel=1e-3)
    low, high = samples.interval_s
    assert high - samples.median_s == pytest.approx((unseen + spread) * TICK, rel=1e-4)
    assert samples.median_s - low == pytest.approx((unseen + spread) * TICK, rel=1e-4)
    assert samples.precision == pytest.approx((unseen + spread) / 64, rel=1e-4)


@given(st.integers(1, 300), st.floats(0, 1))
def test_no_duration_that_reads_one_tick_throughout_is_left_out(n: int, part: float) -> None:
    """Unless so many samples would have shown the next tick too, 39 times of 40."""
    low, high = Samples((64.0,) * n, tick_s=1.0).interval_s
    if (1 - part) ** n > 0.0251:
        assert low <= 64 - part
        assert 64 + part <= high


def test_a_median_between_two_ticks_is_told_by_how_many_read_each() -> None:
    """2.3 ticks read 2 in seven of ten samples, and 3 in the others."""
    values = [2 * TICK] * 70 + [3 * TICK] * 30
    random.Random(1).shuffle(values)
    samples = Samples(tuple(values), tick_s=TICK)
    assert statistics.median(values) == 2 * TICK
    assert samples.median_s == pytest.approx(2.214 * TICK, abs=0.002 * TICK)
    low, high = samples.interval_s
    assert low < 2.3 * TICK < high
    assert high - low < 0.6 * TICK


def test_half_of_the_samples_on_each_of_two_ticks_is_half_a_tick() -> None:
    """100 values spread over two ticks lie 1/50 apart: ± 0.0997 of 99 steps, and a tenth."""
    samples = Samples((2 * TICK, 3 * TICK) * 50, tick_s=TICK)
    assert samples.median_s == pytest.approx(2.5 * TICK)
    half = T99 / 20 / math.sqrt(0.99) * 99 / 50 + 0.1
    low, high = samples.interval_s
    assert (high - low) / 2 == pytest.approx(half * TICK)
    assert half == pytest.approx(0.297, abs=1e-3)


def test_values_on_one_tick_may_differ_in_their_last_digits() -> None:
    """Differences of two times are rounded."""
    draw = random.Random(2)
    ticks = [draw.choice((64, 65)) for _ in range(100)]
    exact = Samples(tuple(k * TICK for k in ticks), tick_s=TICK)
    rounded = Samples(tuple(k * TICK + draw.uniform(-1, 1) * 1e-15 for k in ticks), tick_s=TICK)
    assert rounded.median_s == pytest.approx(exact.median_s, abs=1e-6 * TICK)
    assert rounded.spread == pytest.approx(exact.spread, abs=1e-6)


def test_noise_beyond_the_tick_hides_it() -> None:
    """Over many ticks the reading of a time is the time: only a tenth of a tick is added."""
    draw = random.Random(7)
    exact, read = [], []
    for _ in range(400):
        duration, phase = draw.gauss(1000, 30), draw.random()
        exact.append(duration * TICK)
        read.append(math.floor(phase + duration) * TICK)
    smooth, ticking = Samples(tuple(exact)), Samples(tuple(read), tick_s=TICK)
    assert ticking.median_s == pytest.approx(smooth.median_s, abs=0.5 * TICK)
    added = ticking.precision * ticking.median_s - smooth.precision * smooth.median_s
    assert abs(added - 0.1 * TICK) < 0.4 * TICK
    blurred = Samples(tuple(read))
    assert ticking.interval_s[1] - blurred.interval_s[1] < 0.6 * TICK


@given(
    st.lists(st.integers(40, 60), min_size=1, max_size=60),
    st.floats(0, 3e-6),
    st.sampled_from([TICK, 1e-6]),
)
def test_a_floor_that_was_subtracted_moves_the_times_and_nothing_else(
    ticks: list[int], floor_s: float, tick: float
) -> None:
    """The times are off the grid of the ticks then, but still as far apart."""
    plain = Samples(tuple(k * tick for k in ticks), tick_s=tick)
    moved = Samples(tuple(k * tick - floor_s for k in ticks), tick_s=tick)
    assert moved.median_s == pytest.approx(plain.median_s - floor_s, abs=1e-6 * tick)
    for here, there in zip(plain.interval_s, moved.interval_s, strict=True):
        assert there == pytest.approx(here - floor_s, abs=1e-6 * tick)


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
    assert blurred.sampling_precision == pytest.approx(plain.sampling_precision)


times = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=40)


@given(times, st.floats(0, 1e-3))
def test_the_interval_holds_the_median_which_is_within_the_samples_but_for_half_a_tick(
    values: list[float], tick: float
) -> None:
    samples = Samples(tuple(values), tick_s=tick)
    low, high = samples.interval_s
    assert low <= samples.median_s * (1 + 1e-12)
    assert high >= samples.median_s * (1 - 1e-12)
    assert min(values) - tick / 2 - 1e-9 <= samples.median_s <= max(values) + tick / 2 + 1e-9
    assert 1 <= samples.effective_size <= len(values)


@given(times, st.floats(0, 1e-3))
def test_the_interval_stays_in_the_samples_where_they_are_worth_seven_and_is_bounded_where_not(
    values: list[float], tick: float
) -> None:
    """t/(2·√n)/√(1 − 1/n) ≤ ½ from n = 7 on; at n = 1 it is 4.303, which is 3.803 beyond them."""
    samples = Samples(tuple(values), tick_s=tick)
    low, high = samples.interval_s
    width = max(values) - min(values)
    beyond = 0.0 if samples.effective_size >= 7 else (T2 - 0.5) * (width + tick)
    unseen = tick * (1 - 0.025 ** (1 / len(values))) if width <= tick / 2 else 0.1 * tick
    slack = tick / 2 + unseen + beyond + 1e-9
    assert min(values) - slack <= low
    assert high <= max(values) + slack


@given(st.lists(st.floats(1e-6, 1.0), min_size=4, max_size=40), st.floats(0.5, 2.0))
def test_the_interval_scales_with_the_unit(values: list[float], factor: float) -> None:
    low, high = Samples(tuple(values)).interval_s
    scaled = Samples(tuple(v * factor for v in values))
    if len(set(scaled.values_s)) == len(set(values)):  # rounding made no ties
        assert scaled.interval_s == pytest.approx((low * factor, high * factor), rel=1e-9)


def test_correlation_widens_the_interval() -> None:
    assert around(1e-3, 300, rho=0.9).precision > 2 * around(1e-3, 300).precision


def coverage(draw_one: Callable[[], tuple[float, ...]], truth: float, runs: int) -> float:
    """How often the interval of what *draw_one* gives holds *truth*."""
    intervals = [Samples(draw_one()).interval_s for _ in range(runs)]
    return sum(low <= truth <= high for low, high in intervals) / runs


@pytest.mark.parametrize(
    ("n", "rho", "least"),
    [
        (20, 0.0, 0.95),
        (20, 0.5, 0.94),
        (20, 0.8, 0.91),
        (20, 0.95, 0.86),
        (60, 0.0, 0.935),
        (60, 0.5, 0.955),
        (60, 0.8, 0.945),
        (60, 0.95, 0.92),
        (200, 0.0, 0.945),
        (200, 0.5, 0.95),
        (200, 0.8, 0.95),
        (200, 0.95, 0.94),
    ],
)
def test_the_95_percent_interval_covers_the_true_median(n: int, rho: float, least: float) -> None:
    """A coverage of 0.95 is seen within ± 0.014 (95 %) in 1000 runs, ± 0.021 in 400.

    20 samples of a correlation of 0.95 are worth one: no interval of theirs can know it.
    """
    draw = random.Random(17)
    runs = {20: 1000, 60: 600, 200: 400}[n]
    assert least <= coverage(lambda: noise(n, rho, draw), 0.0, runs) <= 0.995


@pytest.mark.parametrize(
    ("n", "least", "most"),
    [(3, 0.93, 0.98), (4, 0.95, 0.99), (5, 0.96, 0.995), (10, 0.97, 0.998), (20, 0.96, 0.99)],
)
def test_the_interval_of_few_times_covers_their_median(n: int, least: float, most: float) -> None:
    """Times have a floor and a long tail: exponential, whose median is ln 2. Three samples alone
    span it three times of four."""
    draw = random.Random(23)
    seen = coverage(lambda: tuple(1 + draw.expovariate(1) for _ in range(n)), 1 + math.log(2), 1000)
    assert least <= seen <= most


@pytest.mark.parametrize("n", [60, 200])
def test_the_interval_of_a_skewed_time_covers_its_median(n: int) -> None:
    draw = random.Random(23)
    seen = coverage(lambda: tuple(1 + draw.expovariate(1) for _ in range(n)), 1 + math.log(2), 400)
    assert 0.93 <= seen <= 0.99


def test_a_skewed_time_whose_samples_are_correlated_is_covered() -> None:
    """A log-normal time over AR(1) noise: its median is that of the noise, raised."""
    draw = random.Random(29)
    for rho, least in ((0.5, 0.955), (0.8, 0.94), (0.95, 0.91)):
        seen = coverage(lambda rho=rho: tuple(math.exp(v) for v in noise(60, rho, draw)), 1.0, 500)
        assert least <= seen <= 0.995, rho


@pytest.mark.parametrize("sigma", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("n", "usual"), [(20, 0.15), (60, 0.1)])
def test_a_time_between_the_ticks_is_covered_and_told_to_a_fraction_of_one(
    n: int, usual: float, sigma: float
) -> None:
    """A duration anywhere between two ticks, read at a random phase, with noise under a tick.

    The plain median is a whole tick: off by a quarter of one in the mean.
    """
    draw = random.Random(31)
    held, errors = 0, []
    for _ in range(400):
        duration = 50 + draw.random()
        phases = [draw.random() for _ in range(n)]
        values = tuple(
            TICK * (math.floor(phase + duration + draw.gauss(0, sigma)) - math.floor(phase))
            for phase in phases
        )
        samples = Samples(values, tick_s=TICK)
        low, high = samples.interval_s
        held += low <= duration * TICK <= high
        errors.append(samples.median_s / TICK - duration)
    assert held / 400 >= 0.95
    assert abs(statistics.fmean(errors)) < 0.03
    assert statistics.fmean(map(abs, errors)) < usual
    assert max(map(abs, errors)) < 0.75


REAL = json.loads((TESTS / "data" / "noise_h200.json").read_text("utf-8"))


def blocks(series: list[float], size: int) -> list[tuple[float, ...]]:
    return [tuple(series[i : i + size]) for i in range(0, len(series) - size + 1, 10)]


@pytest.mark.parametrize("size", [20, 30])
@pytest.mark.parametrize("process", [0, 1])
def test_a_part_of_a_real_series_covers_the_median_of_the_whole(process: int, size: int) -> None:
    """60 calls of twelve operations on an H200, packed closely: their clock moves on the way."""
    series = REAL["processes"][process]
    assert len(series) == 12
    held = [
        low <= statistics.median(whole) <= high
        for whole in series.values()
        for low, high in (Samples(part).interval_s for part in blocks(whole, size))
    ]
    assert len(held) == {20: 60, 30: 48}[size]
    assert sum(held) / len(held) >= 0.93


def test_the_real_series_are_worth_all_their_samples_or_a_few() -> None:
    for process in REAL["processes"]:
        worth = {name: effective_size(tuple(series)) for name, series in process.items()}
        assert worth["mm8192"] < 5  # lowers the clock with its own power
        assert worth["add4MB"] == worth["mm512"] == 60


def test_the_clock_is_the_median_of_what_was_read() -> None:
    assert Samples((1.0, 1.0, 1.0), (1.6e9, None, 1.8e9)).clock_hz == 1.7e9
    assert Samples((1.0,), (None,)).clock_hz is None
    assert Samples((1.0,)).clock_hz is None
    assert Samples((1.0, 2.0)).size == 2
