"""Is what a gate says of its own error rate exact, and does it accumulate?"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from fake_sides import OPENED, FakeSide, Heard, plan_of, shared_from, sides_in

from gpuperf.errors import CannotMeasure
from gpuperf.gate.ab import LONGEST, gate_ab
from gpuperf.gate.calibration import (
    Calibration,
    RealGate,
    Resampled,
    add_gate,
    bound,
    gate_of,
    pool_of,
    quote,
    resample,
    store_calibration,
    stored_calibration,
)
from gpuperf.gate.prime import GateRequest
from gpuperf.gate.rule import Rule
from gpuperf.gate.schedule import order_of
from gpuperf.gate.sides import LABELS
from gpuperf.gate.verdict import GateReport
from gpuperf.run.store import read_run

RULE = Rule()
RULE_SEED = plan_of().rule.seed


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))


def gate(
    folder: Path, slower: float = 0.0, really: Mapping[str, float] | None = None
) -> GateReport:
    folder.mkdir(parents=True)
    launchers = {"base": FakeSide(seed=1), "head": FakeSide(seed=2, slower=really or {})}
    plan = plan_of(slower={LONGEST: slower} if slower else {})
    return gate_ab(GateRequest(plan, folder), sides_in(folder), launchers, Heard())  # type: ignore[arg-type]


def real_gate(right: bool, slower: float = 0.0, id: str = "") -> RealGate:
    return RealGate(id or f"{random.random()}", "", "ci", 20, slower, "passed", right)


def test_six_green_gates_bound_the_rate_under_39_percent_and_five_catches_the_power_above_55() -> (
    None
):
    assert bound(0, 6, above=True) == pytest.approx(0.393, abs=1e-3)
    assert bound(5, 5, above=False) == pytest.approx(0.549, abs=1e-3)
    assert bound(0, 299, above=True) < 0.01 < bound(0, 298, above=True)


def test_the_quote_says_what_was_seen_with_its_bound() -> None:
    gates = (*(real_gate(True) for _ in range(6)), *(real_gate(True, 0.03) for _ in range(5)))
    text = quote(Calibration(gates, Resampled(1000, 2, 45, 12, {})))
    assert "0 of 6 real gates of unchanged code regressed here (rate ≤ 39.3 %" in text
    assert "2 of 1000 resampled from 45 processes" in text
    assert "not independent" in text
    assert "an injected 3 % was detected in 5 of 5 (power ≥ 55 %)" in text
    assert quote(Calibration()) == ""


def test_gates_accumulate_and_none_counts_twice() -> None:
    add_gate(OPENED, RULE, real_gate(True, id="a"))
    add_gate(OPENED, RULE, real_gate(True, id="b"))
    add_gate(OPENED, RULE, real_gate(False, id="a"))
    again = Resampled(10, 0, 12, 3, {})
    store_calibration(
        OPENED, "ci", RULE, replace(stored_calibration(OPENED, "ci", RULE), resampled=again)
    )
    found = add_gate(OPENED, replace(RULE, seed=7), real_gate(True, id="b"))
    assert sorted((g.id, g.right) for g in found.gates) == [("a", False), ("b", True)]
    assert found.resampled == again
    assert stored_calibration(OPENED, "ci", RULE) == found


def test_no_gate_speaks_for_another_suite_or_rule() -> None:
    add_gate(OPENED, RULE, real_gate(True))
    assert stored_calibration(OPENED, "quick", RULE) == Calibration()
    assert stored_calibration(OPENED, "ci", replace(RULE, margin=0.02)) == Calibration()
    assert len(stored_calibration(OPENED, "ci", replace(RULE, seed=3)).gates) == 1


def test_a_later_gate_quotes_the_earlier_ones(tmp_path: Path) -> None:
    first = gate(tmp_path / "first")
    assert first.calibration == ""
    one = gate_of(first)
    assert one is not None
    assert one.right
    add_gate(OPENED, first.rule, one)
    assert "0 of 1 real gates" in gate(tmp_path / "second").calibration


def test_an_injected_slowdown_is_right_if_it_alone_is_red(tmp_path: Path) -> None:
    report = gate(tmp_path / "right", slower=0.05)
    (name,) = report.slowed
    found = gate_of(report)
    assert found is not None
    assert found.right
    assert found.case == name
    assert found.measured == pytest.approx(0.05, abs=0.01)
    other = "op1/torch[n=64" if "op1/torch[n=64" not in name else "op2/torch[n=64"
    both = gate(tmp_path / "both", 0.05, {other: 0.08})
    wrong = gate_of(both)
    assert wrong is not None
    assert not wrong.right


def test_a_gate_without_a_verdict_does_not_count(tmp_path: Path) -> None:
    report = gate(tmp_path / "gate", slower=0.0)
    assert gate_of(replace(report, outcome="incomplete")) is None
    assert gate_of(replace(report, outcome="contaminated")) is None


def test_a_pool_holds_whole_processes_only(tmp_path: Path) -> None:
    report = gate(tmp_path / "gate")
    pool = pool_of([report])
    assert pool.keys() == {case.case for case in report.cases}
    assert {len(values) for values in pool.values()} == {12}  # the screen's, of both sides


def test_the_processes_of_a_pool_are_in_the_order_in_which_they_ran(tmp_path: Path) -> None:
    """Neighbours are drawn together for what carries over from one to the next."""
    head = FakeSide(seed=2, change=shared_from(4, until=5))  # discards the second pair
    (folder := tmp_path / "gate").mkdir()
    launchers = {"base": FakeSide(seed=1), "head": head}
    report = gate_ab(GateRequest(plan_of(), folder), sides_in(folder), launchers, Heard())  # type: ignore[arg-type]
    assert [one.pair for one in report.discarded] == [1]
    (first, *_) = report.cases
    times = {
        (label, r.pass_index): r.samples.median_s
        for label in LABELS
        for r in read_run(folder / f"{label}.jsonl").records
        if r.case.id == first.case and r.samples is not None
    }
    turns = [(label, pair) for pair in (0, 2, 3, 4, 5, 6) for label in order_of(RULE_SEED, pair)]
    assert {label for label, _ in turns[::2]} == set(LABELS)  # the order turns: else it says little
    assert numpy.exp(pool_of([report])[first.case]) == pytest.approx([times[t] for t in turns])


def test_a_head_that_was_slowed_down_is_not_in_the_pool(tmp_path: Path) -> None:
    slowed = gate(tmp_path / "slowed", slower=0.05)
    with pytest.raises(CannotMeasure, match="6 processes of the same cases are too few"):
        pool_of([slowed])
    assert {len(v) for v in pool_of([slowed, gate(tmp_path / "same")]).values()} == {18}


def test_resampled_gates_are_seldom_red_and_catch_what_is_slow() -> None:
    draw = numpy.random.default_rng(3)
    pool = {str(i): -9 + draw.normal(0, 0.004, 40) for i in range(12)}
    found = resample(pool, Rule(resamples=1999), 100, seed=1)
    assert found.red <= 1
    assert found.processes == 40
    caught, tried = found.power["0.05"]
    assert caught >= 0.9 * tried
    assert found.power["0.01"][0] <= 0.2 * tried
    assert found == resample(pool, Rule(resamples=1999), 100, seed=1)
