"""Measure how often a change point is reported without a step, and how often with one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_noise import MODELS, Noise, RealNoise
from scipy.signal import lfilter
from scipy.stats import binomtest

from gpuperf.model.changepoints import (
    ALPHA,
    LEAST,
    MOST_POINTS,
    SIDE,
    find_change_points,
    greatest_p,
)

SERIES = {20: 1400, 50: 700, 100: 350}  # points → series of each kind of noise
TOGETHER = 100  # series that are searched at once


class Sessions:
    """A point is the median of five processes of a night that has an offset and a drift of its own,
    as facts/gate.md has them; the others are one process a point, with their drift over them all.
    """

    def processes(self, random: numpy.random.Generator, count: int, cases: int) -> Any:
        night = MODELS["typical"].processes(random, 5, count * cases)
        return numpy.median(night, axis=0).reshape(count, cases) + random.normal(
            0, 0.01, (count, cases)
        )


NOISES: Mapping[str, Any] = {**MODELS, "sessions": Sessions(), "real": RealNoise()}


def series_of(noise: Any, random: numpy.random.Generator, points: int, count: int) -> Any:
    """Return *count* series of log times, (count, points)."""
    series: list[Any] = []
    while len(series) < count:
        series += list(noise.processes(random, points, count).T)
    return numpy.array(series[:count])


def count_flagged(logs: Any, seed: int = 0) -> int:
    """Count the series that have a step, each judged alone at half of `ALPHA`.

    They are searched together, which is faster. The level passed on decides how fine the smallest
    p is: to judge one of `TOGETHER` series after multiplicity takes 20,000 permutations, to judge
    a series alone `2 / (ALPHA / 2)` = 400. At a level 20 times as high, 1,000 are drawn if two
    series are left, 400 if five are.
    """
    parts = numpy.array_split(logs, max(1, len(logs) // TOGETHER))
    level = ALPHA / 2 * min(len(parts[0]), TOGETHER / 5)
    p = [p for i, part in enumerate(parts) for p in greatest_p(list(part), level, seed + i)]
    return sum(value <= ALPHA / 2 for value in p)


@pytest.fixture(scope="module")
def flagged() -> dict[tuple[str, int], int]:
    """By noise and number of points, how many unchanged series have a step."""
    random = numpy.random.default_rng(7)
    return {
        (name, points): count_flagged(series_of(noise, random, points, count))
        for name, noise in NOISES.items()
        for points, count in SERIES.items()
    }


def bound(count: int, of: int) -> float:
    """Return the upper bound of Clopper and Pearson, of 95 %."""
    return float(binomtest(count, of, alternative="less").proportion_ci(0.95).high)


@pytest.mark.parametrize("points", SERIES)
def test_at_most_one_of_a_hundred_unchanged_series_has_a_step(
    flagged: dict[tuple[str, int], int], points: int
) -> None:
    count = sum(flagged[name, points] for name in NOISES)
    assert bound(count, SERIES[points] * len(NOISES)) <= 0.01


@pytest.mark.parametrize("name", NOISES)
def test_no_noise_makes_steps(flagged: dict[tuple[str, int], int], name: str) -> None:
    count = sum(flagged[name, points] for points in SERIES)
    assert bound(count, sum(SERIES.values())) <= 0.01, f"{count} steps"


def test_at_most_one_of_a_hundred_lists_of_unchanged_cases_has_a_step() -> None:
    """Cases of one night share what the night adds to all of them."""
    random = numpy.random.default_rng(5)
    red = 0
    for seed in range(300):
        logs = random.normal(0, 0.005, (10, 30)) + random.normal(0, 0.01, 30)
        red += any(find_change_points(numpy.exp(logs), seed))
    assert red <= 3  # of 300: one in a hundred


@pytest.mark.parametrize(("memory", "most"), [(0.3, 0.02), (0.5, 0.05)])
def test_autocorrelated_noise_makes_few_steps(memory: float, most: float) -> None:
    """A test that ignores the order of the points would report a step in 6 and 20 of a hundred."""
    random = numpy.random.default_rng(3)
    white = random.normal(0, 0.005, (600, 200))
    logs = lfilter([1], [1, -memory], white, axis=-1)[:, -50:]
    assert count_flagged(logs) / len(logs) <= most


def stepped(
    random: numpy.random.Generator, points: int, steps: Mapping[int, float], noise: Any = None
) -> Any:
    """Times with *steps* in them, under the typical noise of one process a point."""
    logs = (noise or Noise(0.005, 0.005)).processes(random, points, 1)[:, 0]
    for at, change in steps.items():
        logs[at:] += math.log1p(change)
    return 1e-4 * numpy.exp(logs)


def places(times: Any, seed: int = 0) -> list[int]:
    return [step.at for step in find_change_points([times], seed)[0]]


@pytest.mark.parametrize("noise", [Noise(0.005, 0.005), MODELS["typical"]], ids=["flat", "drift"])
def test_a_step_of_three_percent_amid_forty_points_is_found(noise: Any) -> None:
    """100 series with at most one miss bound the rate of detection above 95 %."""
    random = numpy.random.default_rng(11)
    steps_of = [
        find_change_points([stepped(random, 40, {20: 0.03}, noise)], i)[0] for i in range(100)
    ]
    hits = sum(any(abs(step.at - 20) <= 1 for step in steps) for steps in steps_of)
    assert binomtest(hits, 100, alternative="greater").proportion_ci(0.95).low >= 0.95
    assert sum(len(steps) > 1 for steps in steps_of) <= 2
    exact = [step for steps in steps_of for step in steps if step.at == 20]
    covered = sum(step.low <= 0.03 <= step.high for step in exact)
    assert noise.drift or covered / len(exact) >= 0.9
    assert numpy.median([step.change for step in exact]) == pytest.approx(0.03, abs=0.006)


def test_a_step_six_points_before_the_end_is_found_among_twenty_cases() -> None:
    random = numpy.random.default_rng(13)
    hits = others = 0
    for seed in range(20):
        times = [stepped(random, 40, {34: 0.03} if i == 7 else {}) for i in range(20)]
        steps_of = find_change_points(times, seed)
        hits += [step.at for step in steps_of[7]] == [34]
        others += sum(bool(steps) for i, steps in enumerate(steps_of) if i != 7)
    assert hits >= 18
    assert others == 0


@pytest.mark.parametrize(
    ("points", "steps", "least"),
    [
        (60, {15: 0.03, 30: 0.03, 45: 0.03}, 7),
        (100, {20: 0.03, 50: 0.03, 75: 0.03}, 18),
        (60, {28: 0.03, 34: -0.03}, 12),
        (60, {20: 0.7, 40: 0.03}, 18),
    ],
    ids=["stairs", "long stairs", "a short bump", "a huge step and a small one"],
)
def test_several_steps_of_a_series_are_found(
    points: int, steps: Mapping[int, float], least: int
) -> None:
    random = numpy.random.default_rng(17)
    found = [places(stepped(random, points, steps), seed) for seed in range(20)]
    assert sum(at == list(steps) for at in found) >= least


def test_a_drift_is_no_step_and_hides_none() -> None:
    random = numpy.random.default_rng(19)
    drift = numpy.exp(numpy.linspace(0, 0.04, 60))
    found = [places(stepped(random, 60, {30: 0.04}) * drift, seed) for seed in range(20)]
    assert sum(at == [30] for at in found) >= 17


def test_disturbed_runs_hide_no_step() -> None:
    random = numpy.random.default_rng(23)
    hits = 0
    for seed in range(40):
        times = stepped(random, 100, {50: 0.03})
        times[random.integers(0, 100, 4)] *= 1.25
        hits += any(abs(at - 50) <= 1 for at in places(times, seed))
    assert hits >= 30


def test_a_step_without_noise_has_its_change_and_no_width() -> None:
    ((step,),) = find_change_points([[1e-3] * 20 + [1.03e-3] * 20])
    assert step.at == 20
    assert (step.change, step.low, step.high) == pytest.approx((0.03, 0.03, 0.03))
    assert step.p <= step.q <= ALPHA


@pytest.mark.parametrize(
    "times",
    [
        [1e-3] * 40,
        [1e-3, 1.001e-3] * 20,
        [1e-3 * (1 + 1e-13 * (i % 3)) for i in range(40)],
        [1e-3 * 1.001**i for i in range(40)],
    ],
    ids=["constant", "in turn", "rounding", "a straight drift"],
)
def test_what_does_not_scatter_has_no_step(times: Sequence[float]) -> None:
    assert find_change_points([times]) == [()]


def test_times_of_a_ticking_clock_have_no_step() -> None:
    random = numpy.random.default_rng(29)
    ticks = numpy.round(random.normal(200, 0.6, (400, 40)))
    assert count_flagged(numpy.log(ticks)) <= 8


def test_few_points_are_not_judged_and_cost_no_other() -> None:
    random = numpy.random.default_rng(31)
    clear = stepped(random, 40, {20: 0.05})
    short = [1.0] * (LEAST // 2) + [2.0] * (LEAST // 2 - 1)
    steps_of = find_change_points([short, clear, []])
    assert (steps_of[0], steps_of[2]) == ((), ())
    assert steps_of[1] == find_change_points([clear])[0]
    assert find_change_points([]) == []
    assert find_change_points([short]) == [()]


def test_no_level_has_fewer_points_than_a_side() -> None:
    random = numpy.random.default_rng(47)
    for seed in range(20):
        found = [0, *places(stepped(random, 40, {40 - SIDE + 1: 0.2}), seed), 40]
        assert min(numpy.diff(found)) >= SIDE


def test_more_cases_ask_more_of_each() -> None:
    """A p that would do alone is not enough among fifty."""
    random = numpy.random.default_rng(37)
    series = (stepped(random, 24, {12: 0.02}) for _ in range(100))
    alone = next(
        times
        for times in series
        if (steps := find_change_points([times])[0]) and 0.001 < steps[0].p <= ALPHA / 2
    )
    crowd = [stepped(random, 24, {}) for _ in range(49)]
    assert find_change_points([alone, *crowd])[0] == ()


def test_the_same_series_have_the_same_steps_again() -> None:
    times = stepped(numpy.random.default_rng(41), 60, {30: 0.03})
    assert find_change_points([times]) == find_change_points([times])


def test_of_a_very_long_series_the_last_points_are_searched() -> None:
    random = numpy.random.default_rng(43)
    times = stepped(random, MOST_POINTS + 200, {100: 0.1, MOST_POINTS: 0.1})
    assert places(times) == [MOST_POINTS]


@settings(max_examples=30)
@given(st.floats(1e-6, 1e6), st.integers(0, 5))
def test_the_unit_of_time_is_no_matter(unit: float, seed: int) -> None:
    times = stepped(numpy.random.default_rng(seed), 24, {12: 0.04})
    one, other = find_change_points([times]), find_change_points([times * unit])
    assert [s.at for s in one[0]] == [s.at for s in other[0]]
    assert [s.change for s in one[0]] == pytest.approx([s.change for s in other[0]], rel=1e-5)
