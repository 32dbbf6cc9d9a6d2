"""Do intervals hold the truth as often as they say, on real processes and on made-up series?"""

from __future__ import annotations

import importlib.util
import math
import random
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from measured import ROOT

from gpuperf.measure.sampling import Rest, take_samples
from gpuperf.measure.timers.timer import Sample
from gpuperf.model.contract import Contract
from gpuperf.model.record import TimerFacts
from gpuperf.roofline.speedup import center

MEASURED = ROOT / "docs" / "measured"
CONTRACT = Contract("blocked", gap_s=0.0, max_samples=400)


@pytest.fixture(scope="module")
def coverage() -> ModuleType:
    """The committed script."""
    spec = importlib.util.spec_from_file_location("coverage_of_intervals", MEASURED / "coverage.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_speed_up_over_processes_of_the_same_code_holds_one_in_19_of_20(
    coverage: ModuleType, count: int
) -> None:
    shares = {}
    for case, records in coverage.cases().items():
        held = list(coverage.over_processes(records, count, draws=500))
        shares[case] = sum(held) / len(held)
    assert len(shares) == 13
    assert sum(shares.values()) / len(shares) == pytest.approx(0.95, abs=0.02)
    assert min(shares.values()) > 0.90


def test_the_committed_figures_of_coverage_are_those_of_the_committed_run(
    coverage: ModuleType,
) -> None:
    """Of the claims that need no random groups, which take long."""
    text = (MEASURED / "coverage.txt").read_text()
    for claim in ("own: the halves of one process agree", "next time: the median of another"):
        test = next(test for name, test in coverage.CLAIMS.items() if name.startswith(claim))
        held = [each for records in coverage.cases().values() for each in test(records)]
        line = next(line for line in text.splitlines() if line.startswith(claim))
        assert line.endswith(f"{sum(held) / len(held) * 100:.1f} %  of {len(held)}")
        assert sum(held) / len(held) > 0.95
    assert "speed-up 1, one process each                   80.6 %  of 2470" in text


def test_the_interval_over_processes_holds_the_median_that_is_shown() -> None:
    value, low, high = center([1.0] * 20 + [2.0] * 19)
    assert value == 1.0
    assert low <= value < high
    assert center([2.0, 2.0]) == pytest.approx((2, 2, 2))
    with pytest.raises(ValueError, match="0 degrees of freedom"):
        center([1.0])


def series(kind: str, draw: random.Random) -> Iterator[float]:
    """Times around 1: an AR(1) process, or two modes of ± 2 %, half of the time each."""
    correlation = {"AR 0.98": 0.98}.get(kind, 0.0)
    stay = {"modes": 0.5, "sticky modes": 0.9}.get(kind, 0.0)
    state, slow = draw.gauss(0, 1), draw.random() < 0.5
    while True:
        if stay:
            yield (1.02 if slow else 0.98) * (1 + 0.003 * draw.gauss(0, 1))
            slow ^= draw.random() > stay
        else:
            yield 1 + 0.01 * state
            state = correlation * state + math.sqrt(1 - correlation**2) * draw.gauss(0, 1)


def held(kind: str, seed: int) -> bool:
    """Whether the interval where sampling stopped holds 1."""
    times = series(kind, random.Random(f"{kind}{seed}"))

    def take(count: int, idle_s: float) -> list[Sample]:
        return [Sample(next(times)) for _ in range(count)]

    rest = Rest(CONTRACT, 1e-4)
    taken = take_samples(take, CONTRACT, TimerFacts(), rest, at_once=8, now=lambda: 0.0)
    low, high = taken.samples.interval_s
    return low <= 1 <= high


@pytest.mark.parametrize(
    ("kind", "least"),
    # Half of the series with sticky modes that fail have shown one mode only when they stop.
    [("independent", 0.95), ("AR 0.98", 0.85), ("modes", 0.95), ("sticky modes", 0.7)],
)
def test_sampling_does_not_stop_where_the_interval_is_narrow_by_chance(
    kind: str, least: float
) -> None:
    """By the precision alone the last three would be 0.68, 0.74 and 0.36."""
    runs = 100
    assert sum(held(kind, seed) for seed in range(runs)) / runs >= least
