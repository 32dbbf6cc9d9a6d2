"""How `lab all --budget` shares its time among the experiments that are left."""

from __future__ import annotations

import pytest

from gpuperf.lab import pace
from gpuperf.lab.pace import CASE_S, LEAST_S, Pace, by_cost
from gpuperf.model.experiment import READING, ExperimentDescription
from tests.lab.test_experiments import EXPERIMENTS, SOURCE

BY_NAME = {experiment.name: experiment.describe(SOURCE) for experiment in EXPERIMENTS}
BANKS, RATIO = BY_NAME["banks"], BY_NAME["divergence"]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [0.0]
    monkeypatch.setattr(pace.time, "monotonic", lambda: clock[0])
    return clock


def cases(experiment: ExperimentDescription) -> int:
    return len(experiment.axes["stride"]) + len(experiment.controls)


def test_without_a_budget_each_case_has_its_usual_time(now: list[float]) -> None:
    shared = Pace(None, 1)
    now[0] = 1e6
    assert shared.case_s([BANKS]) == CASE_S


def test_what_cases_take_beside_their_samples_is_learnt(now: list[float]) -> None:
    shared, count = Pace(4.0 * cases(BANKS), 1), cases(BANKS)
    assert shared.case_s([BANKS, BANKS]) == CASE_S, "2 s for each, 1 of them beside its samples"
    now[0] = 2.0 * count
    shared.measured(BANKS, CASE_S)
    assert shared.case_s([BANKS]) == CASE_S
    now[0] = 2.2 * count
    assert shared.case_s([BANKS]) == pytest.approx(4 - 2.2 - (2.2 - CASE_S))


def test_a_short_budget_shortens_the_samples_and_leaves_nothing_out_until_it_is_spent(
    now: list[float],
) -> None:
    shared = Pace(1.0, 3)
    assert shared.case_s([BANKS] * 50) == LEAST_S
    now[0] = 0.99
    assert shared.case_s([BANKS]) == LEAST_S
    now[0] = 1.0
    assert shared.case_s([BANKS]) is None


def test_experiments_that_count_and_those_that_read_are_last() -> None:
    ordered = by_cost(tuple(BY_NAME.values()))
    costs = [(each.y.startswith(READING), "counters" in each.needs) for each in ordered]
    assert costs == sorted(costs)
    assert {*costs} == {(False, False), (False, True), (True, False)}
