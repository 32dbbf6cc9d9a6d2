"""How often is the rule red when nothing changed, and how often when something did?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_noise import CASES, GATES, MODELS, RealNoise
from scipy.stats import binomtest, false_discovery_control, ttest_1samp

from gpuperf.errors import UsageError
from gpuperf.gate.rule import (
    LOOK_LEVEL,
    Evidence,
    Judged,
    Pairs,
    Rule,
    detectable,
    judge,
    settled,
    slower_p,
    suspicious,
)

RULE = Rule(resamples=4000)  # what 50 cases take for one of them to be red
ORDER = "ABBA"


def pairs_of(logs: Any, slowdown: Any) -> list[Pairs]:
    """ABBA by fours; *slowdown* is of each case, as a log ratio of the head."""
    sides = numpy.array([ORDER[i % 4] for i in range(len(logs))])
    base, head = numpy.exp(logs[sides == "A"]), numpy.exp(logs[sides == "B"] + slowdown)
    return [Pairs(tuple(b), tuple(h)) for b, h in zip(base.T, head.T, strict=True)]


def red(
    noise: Any,
    random: numpy.random.Generator,
    cases: int,
    slowdown: float = 0.0,
    judged: bool = True,
) -> list[int]:
    """The red cases of one gate, the first of which is so much slower; where it is *judged*, the
    whole judgement, which takes longer, must say the same."""
    whole = 2 * (RULE.screen_pairs + RULE.confirm_pairs)
    logs = noise.processes(random, whole, cases)
    slower = numpy.zeros(logs.shape[1])
    slower[0] = math.log1p(slowdown)
    cut = 2 * RULE.screen_pairs
    screens, confirms = pairs_of(logs[:cut], slower), pairs_of(logs[cut:], slower)
    both = zip(screens, confirms, strict=True)
    evidence = {str(i): Evidence(*stages) for i, stages in enumerate(both)}
    p = slower_p(evidence, RULE)
    q = false_discovery_control(list(p.values()))
    found = [i for i in range(len(q)) if q[i] <= RULE.alpha]
    if found and judged:
        verdicts = [case.verdict for case in judge(evidence, RULE).values()]
        assert [i for i, verdict in enumerate(verdicts) if verdict == "REGRESSED"] == found
    return found


@pytest.mark.parametrize("noise", [*MODELS.values(), RealNoise()], ids=[*MODELS, "real"])
def test_a_gate_of_no_change_is_red_in_at_most_one_of_a_hundred(noise: Any) -> None:
    random = numpy.random.default_rng(7)
    reds = sum(bool(red(noise, random, CASES)) for _ in range(GATES))
    bound = binomtest(reds, GATES, alternative="less").proportion_ci(0.95).high
    assert bound <= 0.01, f"{reds} of {GATES} were red"


@pytest.mark.parametrize(("noise", "slowdown"), [("quiet", 0.015), ("typical", 0.025)])
def test_a_slowdown_is_caught_and_no_other_case_named(noise: str, slowdown: float) -> None:
    random = numpy.random.default_rng(11)
    found = [red(MODELS[noise], random, CASES, slowdown, judged=i < 20) for i in range(200)]
    caught = sum(0 in cases for cases in found)
    assert binomtest(caught, 200, alternative="greater").proportion_ci(0.95).low >= 0.95
    assert sum(cases != [0] for cases in found if 0 in cases) <= 2


def test_a_slow_mode_hides_no_slowdown_of_six_percent() -> None:
    random = numpy.random.default_rng(13)
    found = [red(MODELS["bimodal"], random, CASES, 0.06, judged=i < 10) for i in range(100)]
    caught = sum(0 in cases for cases in found)
    assert caught >= 88  # the t-test alone finds three of four


def lower_half(logs: Sequence[float]) -> float:
    half = (len(logs) + 1) // 2
    return math.fsum(sorted(logs)[:half]) / half


def p_by_all_swaps(head: Sequence[float], base: Sequence[float]) -> float:
    """The share of all ways to swap the sides of pairs that differ by as much."""
    seen, count = lower_half(head) - lower_half(base), 0
    for swapped in itertools.product((False, True), repeat=len(head)):
        one = [b if swap else h for h, b, swap in zip(head, base, swapped, strict=True)]
        other = [h if swap else b for h, b, swap in zip(head, base, swapped, strict=True)]
        count += lower_half(one) - lower_half(other) >= seen - 1e-12
    return count / 2 ** len(head)


@pytest.mark.parametrize(
    ("base", "head", "by"),
    [
        # One process of the base met a slow mode: the lower half does not mind, the mean does.
        (
            (0.0, 0.001, 0.002, 0.003, 0.004, 0.09, 0.006, 0.007),
            (0.03, 0.032, 0.034, 0.033, 0.036, 0.038, 0.037, 0.039),
            "mode",
        ),
        (
            (0.0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007),
            (0.03, 0.032, 0.034, 0.033, 0.036, 0.038, 0.037, 0.039),
            "t",
        ),
        # Neither finds much.
        (
            (0.0, 0.01, 0.002, 0.003, 0.02, 0.005, 0.006, 0.007),
            (0.03, 0.0, 0.034, 0.001, 0.036, 0.002, 0.037, 0.003),
            "t",
        ),
    ],
)
def test_p_is_the_screens_level_times_twice_the_smaller_of_both_tests(
    base: tuple[float, ...], head: tuple[float, ...], by: str
) -> None:
    margin = math.log1p(0.01)
    differences = [h - b for h, b in zip(head, base, strict=True)]
    by_t = float(ttest_1samp(differences, margin, alternative="greater").pvalue)
    by_mode = p_by_all_swaps(head, [log + margin for log in base])
    assert (by_mode < by_t) == (by == "mode")
    confirm = Pairs(*(tuple(math.exp(log) for log in side) for side in (base, head)))
    rule = Rule(confirm_pairs=8)
    found = slower_p({"a": Evidence(steady(1.0, 1.05, 6), confirm)}, rule)["a"]
    assert found == pytest.approx(0.2 * min(1.0, 2 * min(by_t, by_mode)))


def test_the_detectable_slowdown_is_that_of_one_of_two_tests_at_what_alpha_leaves_it() -> None:
    """Of 20 cases: 0.96 · 0.01 / 20 / 0.2 / 2 = 0.0012, where t of 19 degrees is 3.4991; of 5 pairs
    the 95 % quantile is 2.1318 (4 degrees), of 20 it is 1.7291."""
    far = (3.4991 + 1.7291) * 0.01 / math.sqrt(20)
    assert detectable(0.01, 20, 0.01, Rule(), 20) == pytest.approx(0.01 + far, rel=1e-4)
    few = (3.4991 + 2.1318) * 0.01 / math.sqrt(20)
    assert detectable(0.01, 5, 0.01, Rule(), 20) == pytest.approx(0.01 + few, rel=1e-4)


def test_many_cases_ask_more_of_each() -> None:
    """One whose p would be red alone is not among a hundred."""
    random = numpy.random.default_rng(17)

    def pairs(count: int, slower: float) -> Pairs:
        noise = numpy.exp(random.normal(0, 0.01, (2, count)))
        return Pairs(tuple(noise[0]), tuple(noise[1] * (1 + slower)))

    edge = next(
        found
        for found in iter(lambda: Evidence(pairs(6, 0.02), pairs(20, 0.019)), None)
        if suspicious({"a": found}, RULE) and 5e-4 < slower_p({"a": found}, RULE)["a"] <= RULE.alpha
    )
    assert judge({"a": edge}, RULE)["a"].verdict == "REGRESSED"
    others = {str(i): evidence_of(1.0) for i in range(99)}
    judged = judge({"a": edge, **others}, RULE)["a"]
    assert judged.verdict != "REGRESSED"
    assert judged.p <= RULE.alpha < judged.q


def test_a_case_of_fewer_pairs_is_not_comparable_and_costs_no_other() -> None:
    short = Evidence(steady(1.0, 1.0, RULE.screen_pairs - 1))
    judged = judge({"a": short, "b": evidence_of(1.05)}, RULE)
    assert [each.verdict for each in judged.values()] == ["NOT_COMPARABLE", "REGRESSED"]
    half = Evidence(evidence_of(1.05).screen, steady(1.0, 1.05, 2))
    assert judge({"a": half}, RULE)["a"].verdict == "NOT_COMPARABLE"


def steady(base: float, head: float, count: int, jitter: float = 1e-3) -> Pairs:
    wobble = [1 + jitter * (-1) ** i for i in range(count)]
    return Pairs(tuple(base * w for w in wobble), tuple(head / w for w in wobble))


def evidence_of(ratio: float, confirmed: bool = True) -> Evidence:
    confirm = steady(1.0, ratio, RULE.confirm_pairs) if confirmed else None
    return Evidence(steady(1.0, ratio, RULE.screen_pairs), confirm)


def test_what_is_within_the_margin_needs_no_confirmation() -> None:
    """0.5 % is slower beyond doubt, and tolerated; the scatter of the second hides the margin."""
    sure, unsure = steady(1.0, 1.005, 6), steady(1.0, 1.008, 6, jitter=6e-3)
    assert suspicious({"sure": Evidence(sure), "unsure": Evidence(unsure)}, RULE) == {"unsure"}
    assert suspicious({"sure": Evidence(sure, None, 0.001)}, RULE) == {"sure"}  # its own margin


@pytest.mark.parametrize("count", range(2, 20))
def test_a_case_is_done_early_only_at_a_look_and_within_the_margin(count: int) -> None:
    looked = count in (5, 10, 15)
    assert settled(steady(1.0, 1.002, count), None, RULE, 5) == looked
    assert not settled(steady(1.0, 1.012, count), None, RULE, 5)
    assert not settled(steady(1.0, 1.002, count, jitter=0.05), None, RULE, 5)
    screen = steady(1.0, 1.008, 6, jitter=6e-3)
    (judged,) = judge({"a": Evidence(screen, steady(1.0, 1.002, count))}, RULE).values()
    assert judged.verdict == ("UNCHANGED" if looked else "NOT_COMPARABLE")
    assert settled(steady(1.0, 1.05, 20), None, RULE, 5)


@pytest.mark.parametrize("count", [5, 10, 15])
def test_a_case_is_red_early_at_a_part_of_the_level(count: int) -> None:
    """Five pairs decide nothing; a doubt that 20 pairs would remove waits for them."""
    sure, doubtful = steady(1.0, 1.05, count), steady(1.0, 1.03, count, jitter=0.02)
    assert settled(sure, None, RULE, 5) == (count > 5)
    assert not settled(doubtful, None, RULE, 5)
    screen = steady(1.0, 1.05, 6)
    (judged,) = judge({"a": Evidence(screen, sure)}, RULE).values()
    assert judged.verdict == ("REGRESSED" if count > 5 else "NOT_COMPARABLE")
    (judged,) = judge({"a": Evidence(screen, doubtful)}, RULE).values()
    assert judged.verdict == "NOT_COMPARABLE"


def test_a_slowdown_of_the_margin_is_unchanged_in_one_gate_of_twenty() -> None:
    """Whatever the number of looks; 300 gates of one case, of whose pairs the ratios scatter by
    0.4 %."""
    random, unchanged = numpy.random.default_rng(11), 0
    rule = Rule(resamples=99)

    def pairs(count: int) -> Pairs:
        base, head = numpy.exp(random.normal(0, 0.004 / math.sqrt(2), (2, count)))
        return Pairs(tuple(base), tuple(1.01 * head))

    for _ in range(300):
        screen, every = pairs(rule.screen_pairs), pairs(rule.confirm_pairs)
        confirm = None
        if suspicious({"a": Evidence(screen)}, rule):
            ends = (*rule.looks, rule.confirm_pairs)
            firsts = (Pairs(every.base[:end], every.head[:end]) for end in ends)
            confirm = next(first for first in firsts if settled(first, None, rule, 1))
        (judged,) = judge({"a": Evidence(screen, confirm)}, rule).values()
        unchanged += judged.verdict == "UNCHANGED"
    assert binomtest(unchanged, 300).proportion_ci(0.99).low <= rule.equivalence


def test_the_levels_of_all_looks_are_one_level() -> None:
    for pairs in range(2, 60):
        rule = Rule(confirm_pairs=pairs)
        assert rule.last_level + LOOK_LEVEL * len(rule.decisive) == pytest.approx(1.0)
        assert set(rule.decisive) <= set(rule.looks)
    assert RULE.decisive == (10, 15)
    assert Rule(confirm_pairs=8).last_level == 1.0


def test_few_confirming_pairs_have_few_looks() -> None:
    assert Rule(confirm_pairs=2).looks == ()
    assert Rule(confirm_pairs=4).looks == (2, 3)
    assert Rule(confirm_pairs=9).looks == (2, 4, 6)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(1.05, "REGRESSED"), (1.005, "UNCHANGED"), (0.95, "IMPROVED"), (1.0, "UNCHANGED")],
)
def test_clear_evidence_has_a_clear_verdict(ratio: float, verdict: str) -> None:
    (judged,) = judge({"a": evidence_of(ratio)}, RULE).values()
    assert judged.verdict == verdict
    assert judged.change == pytest.approx(ratio - 1, abs=1e-4)
    assert judged.low is not None
    assert judged.high is not None
    assert judged.low <= ratio - 1 + 1e-9
    assert ratio - 1 - 1e-9 <= judged.high


def test_evidence_that_scatters_is_inconclusive_and_says_what_it_could_have_seen() -> None:
    pairs = steady(1.0, 1.0, RULE.screen_pairs, jitter=0.05)
    (judged,) = judge({"a": Evidence(pairs, steady(1.0, 1.0, 20, jitter=0.05))}, RULE).values()
    assert judged.verdict == "INCONCLUSIVE"
    assert judged.detectable is not None
    assert judged.detectable > 0.05


def test_the_floor_in_seconds_is_the_margin_of_a_short_case() -> None:
    rule = Rule(floor_s=0.2e-6)
    assert rule.margin_of(steady(2e-6, 2e-6, 3)) == pytest.approx(math.log1p(0.1), rel=1e-2)
    assert rule.margin_of(steady(1e-3, 1e-3, 3)) == pytest.approx(math.log1p(0.01))


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_time_is_not_comparable(value: float) -> None:
    bad = Pairs((1.0, value, 1.0), (1.0, 1.0, 1.0))
    assert judge({"a": Evidence(bad)}, RULE)["a"].verdict == "NOT_COMPARABLE"
    assert judge({"a": Evidence(bad), "b": evidence_of(1.0)}, RULE)["b"].verdict == "UNCHANGED"


def test_a_suspicious_case_without_its_second_stage_is_an_error() -> None:
    with pytest.raises(ValueError, match="was not confirmed"):
        judge({"a": evidence_of(1.05, confirmed=False)}, RULE)


def test_sides_of_different_length_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="2 times of the base and 1 of the head"):
        Pairs((1.0, 1.0), (1.0,))


@pytest.mark.parametrize(
    ("rule", "cases"),
    [(Rule(confirm_pairs=4), 20), (Rule(confirm_pairs=14), 2000), (Rule(), 30_000)],
)
def test_a_plan_that_can_never_be_red_is_refused(rule: Rule, cases: int) -> None:
    with pytest.raises(UsageError, match="cannot make one of"):
        rule.refuse_unreachable(cases)
    Rule().refuse_unreachable(20)


def test_many_cases_are_permuted_as_often_as_one_of_them_needs_to_be_red() -> None:
    Rule().refuse_unreachable(2000)
    assert Rule().resamples_of(20) == 9999
    assert RULE.screen_level * 2 / (Rule().resamples_of(2000) + 1) <= RULE.alpha / 2000
    clear = {"a": evidence_of(1.05), **{str(i): evidence_of(1.0) for i in range(400)}}
    assert judge(clear, RULE)["a"].verdict == "REGRESSED"


def test_one_pair_is_no_test() -> None:
    with pytest.raises(UsageError, match="at least 2 pairs"):
        Rule(screen_pairs=1).refuse_unreachable(1)


times = st.lists(st.floats(1e-6, 1.0), min_size=6, max_size=6)


@given(times, times)
def test_exchanging_the_sides_exchanges_faster_and_slower(
    base: list[float], head: list[float]
) -> None:
    one, other = Pairs(tuple(base), tuple(head)), Pairs(tuple(head), tuple(base))
    assert list(one.ratios) == pytest.approx(list(-other.ratios))
    both = suspicious({"a": Evidence(one)}, RULE) and suspicious({"a": Evidence(other)}, RULE)
    assert not both


@given(times, times, st.floats(0.1, 10))
def test_the_unit_of_time_is_no_matter(base: list[float], head: list[float], unit: float) -> None:
    def told(scale: float) -> Judged:
        def scaled(values: list[float]) -> tuple[float, ...]:
            return tuple(scale * v for v in values)

        pairs = Pairs(scaled(base), scaled(head))
        rule = Rule(confirm_pairs=6, resamples=99)
        return judge({"a": Evidence(pairs, pairs)}, rule)["a"]

    one, other = told(1.0), told(unit)
    assert one.verdict == other.verdict
    assert one.change == pytest.approx(other.change, rel=1e-6, abs=1e-9)
