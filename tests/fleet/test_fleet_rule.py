"""Does the rule keep its error rate, and find what is slow, on noise that was measured?"""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuperf.fleet.rule import FleetRule, Scores, fastest, judge_processes

MEASURED = Path(__file__).parents[2] / "docs" / "measured"
RULE = FleetRule()


def judged(cube: Any, tests: int) -> Scores:
    """Judge (units, cases, processes), with equally many cases in each of *tests*."""
    test_of_case = numpy.repeat(numpy.arange(tests), cube.shape[1] // tests)
    return judge_processes(cube, test_of_case, tests, RULE)


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fleet_simulation", MEASURED / "fleet.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_healthy_fleets_accuse_nobody_and_bad_hosts_are_found(simulation: ModuleType) -> None:
    draw = numpy.random.default_rng(1)
    fleet = simulation.Fleet(hosts=100)
    for _ in range(10):
        verdicts, detectable = simulation.judge(simulation.simulate(draw, fleet, 0)[0], fleet)
        assert not verdicts.any()
        assert detectable < 0.08
        logs, slow = simulation.simulate(draw, fleet, 3)
        verdicts, _ = simulation.judge(logs, fleet)
        assert set(numpy.nonzero(verdicts.any(axis=1))[0]) == set(slow)


def test_the_committed_rates_hold_what_is_promised() -> None:
    """At most 1 % of healthy fleets accuse a host, and each bad host is found."""
    text = (MEASURED / "fleet.txt").read_text(encoding="utf-8")
    fleet = r"^ *(\d+) +(\d+) +(\d+) +(\d+) +(\w+) +([\d.]+) +([\d.]+)"
    line = fleet + r" +(\d+)/(\d+) +\(.*?\) +(\d+)/(\d+) +(\d+)"
    rows = re.findall(line, text, re.MULTILINE)
    assert len(rows) >= 10
    assert all(int(row[7]) <= 0.01 * int(row[8]) for row in rows)
    usual = [
        row
        for row in rows
        if int(row[0]) >= 200 and row[1:7] == ("16", "10", "10", "unpaced", "0.4", "0.2")
    ]
    assert len(usual) == 2
    assert all(row[9] == row[10] for row in usual)
    seconds = [float(each) for each in re.findall(r"^(?:merge|judge): +([\d.]+) s", text, re.M)]
    memory = [float(each) for each in re.findall(r" s, ([\d.]+) GB", text)]
    assert "1,000 hosts, 1,600,000 rows" in text
    assert sum(seconds) <= 30
    assert max(memory) <= 4


def test_a_rule_of_many_bad_hosts_still_finds_them() -> None:
    """Up to a fifth of the hosts: they do not hide each other."""
    draw = numpy.random.default_rng(2)
    logs = draw.normal(0, 0.004, (100, 30, 5))
    logs[:15] += 0.08
    scores = judged(logs, 3)
    assert scores.slow(RULE).any(axis=1)[:15].all()
    assert not scores.slow(RULE)[15:].any()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12), st.integers(0, 5))
def test_the_fastest_third_ignores_missing_values_and_order(values: list[float], gaps: int) -> None:
    third = sorted(values)[: max(1, len(values) // 3)]
    row = numpy.array([*values, *[math.nan] * gaps])
    for order in (row, row[::-1]):
        assert float(fastest(order[None, :])[0]) == pytest.approx(sum(third) / len(third))


def test_nothing_has_no_fastest_third() -> None:
    assert math.isnan(float(fastest(numpy.array([[math.nan, math.nan]]))[0]))


@settings(deadline=None, max_examples=30)
@given(st.integers(3, 40), st.floats(-3, 3), st.integers(0, 2**31))
def test_the_verdict_does_not_depend_on_the_unit_or_the_order(
    hosts: int, scale: float, seed: int
) -> None:
    draw = numpy.random.default_rng(seed)
    logs = draw.normal(0, 0.01, (hosts, 12, 6))
    logs[0] += 0.1
    plain = judged(logs, 3)
    order = draw.permutation(hosts)
    other = judged(logs[order][:, :, ::-1] + scale, 3)
    assert numpy.allclose(plain.p[order], other.p, atol=1e-9)
    assert (plain.slow(RULE)[order] == other.slow(RULE)).all()


def test_equal_times_accuse_nobody() -> None:
    assert not judged(numpy.zeros((10, 12, 5)), 3).slow(RULE).any()


def test_missing_times_are_neither_slow_nor_in_the_way() -> None:
    draw = numpy.random.default_rng(3)
    logs = draw.normal(0, 0.004, (30, 12, 5))
    logs[4, :4] = math.nan
    logs[:, 11] = math.nan
    logs[5, 2, 3] = math.nan
    logs[7, 4:8] += 0.1
    scores = judged(logs, 3)
    assert [tuple(place) for place in numpy.argwhere(scores.slow(RULE))] == [(7, 1)]
    assert numpy.isfinite(scores.floor).all()


def test_a_slow_mode_of_single_processes_accuses_nobody() -> None:
    """One process in five is 10 % slower, and on one device all of them are."""
    draw = numpy.random.default_rng(4)
    logs = draw.normal(0, 0.002, (60, 12, 5))
    logs += 0.1 * (draw.random((60, 1, 5)) < 0.2)
    logs[9] = draw.normal(0.09, 0.002, (12, 5))
    scores = judged(logs, 3)
    assert not scores.slow(RULE).any()
    assert (scores.detectable > math.log1p(RULE.slow)).all()


def test_few_processes_accuse_nobody() -> None:
    logs = numpy.random.default_rng(5).normal(0, 0.002, (60, 12, 4))
    logs[9] += 0.3
    scores = judged(logs, 3)
    assert not scores.slow(RULE).any()
    assert numpy.isinf(scores.detectable).all()
