"""A call rests between samples as long as its contract and its clock ask."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuperf.measure.sampling import LONGEST_REST_S, Rest
from gpuperf.measure.timers.timer import Sample
from gpuperf.model.contract import Contract

RESTED_HZ = 1980e6
GPU = Contract("blocked", gap_s=0.002, duty=0.2)


@pytest.mark.parametrize(
    ("call_s", "idle_s"),
    [(1e-6, 0.002), (0.0005, 0.002), (0.001, 0.004), (0.01, 0.04), (0.0625, 0.25), (1.0, 0.25)],
)
def test_a_call_rests_for_the_gap_or_as_long_as_its_duty_asks(call_s: float, idle_s: float) -> None:
    """A fifth of the time busy is four times the call at rest, a quarter of a second at most."""
    assert Rest(GPU, call_s).idle_s == pytest.approx(idle_s)


def test_a_duty_of_one_asks_for_the_gap_alone() -> None:
    assert Rest(Contract("wall", gap_s=0.01), 5.0).idle_s == 0.01
    assert Rest(Contract("wall", gap_s=0.0), 5.0).idle_s == 0.0


def test_a_gap_longer_than_the_longest_rest_is_kept() -> None:
    rest = Rest(replace(GPU, gap_s=0.4), 1.0, RESTED_HZ)
    assert rest.idle_s == 0.4
    rest.observe([Sample(1e-3, None, 0.5 * RESTED_HZ)])
    assert rest.idle_s == 0.4
    assert rest.unrecovered == 1


@given(st.floats(1e-7, 10), st.floats(0.01, 1), st.floats(0, 1))
def test_the_busy_share_stays_under_the_duty_but_for_the_longest_rest(
    call_s: float, duty: float, gap_s: float
) -> None:
    idle_s = Rest(Contract("blocked", gap_s=gap_s, duty=duty), call_s).idle_s
    assert gap_s <= idle_s <= max(gap_s, LONGEST_REST_S)
    if idle_s < LONGEST_REST_S:
        assert call_s / (call_s + idle_s) <= duty * (1 + 1e-9)
    if idle_s > gap_s:
        assume(idle_s < LONGEST_REST_S)
        assert call_s / (call_s + idle_s) == pytest.approx(duty)


def test_the_rest_doubles_up_to_its_cap_while_the_clock_does_not_recover() -> None:
    rest, rests = Rest(GPU, 1e-6, RESTED_HZ), []
    for _ in range(9):
        rest.observe([Sample(1e-6, None, 0.97 * RESTED_HZ)])
        rests.append(rest.idle_s)
    assert rests == [0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.25, 0.25]
    assert rest.unrecovered == 9


def test_two_percent_under_the_rested_clock_are_recovered() -> None:
    rest = Rest(GPU, 1e-6, RESTED_HZ)
    for share in (0.981, 1.0, 1.02):
        rest.observe([Sample(1e-6, None, share * RESTED_HZ)])
    assert (rest.idle_s, rest.unrecovered) == (0.002, 0)
    rest.observe([Sample(1e-6, None, 0.979 * RESTED_HZ)])
    assert (rest.idle_s, rest.unrecovered) == (0.004, 1)


@pytest.mark.parametrize(
    ("rested_hz", "before_hz"), [(None, 1e9), (RESTED_HZ, None), (None, None), (0.0, 1e9)]
)
def test_an_unknown_clock_changes_no_rest(rested_hz: float | None, before_hz: float | None) -> None:
    rest = Rest(GPU, 1e-6, rested_hz)
    rest.observe([Sample(1e-6, 1e9, before_hz)])
    assert (rest.idle_s, rest.unrecovered) == (0.002, 0)


def test_the_clock_inside_a_sample_changes_no_rest() -> None:
    rest = Rest(GPU, 1e-6, RESTED_HZ)
    rest.observe([Sample(1e-6, 0.5 * RESTED_HZ, RESTED_HZ)])
    assert (rest.idle_s, rest.unrecovered) == (0.002, 0)


def test_where_no_rest_is_asked_for_none_is_made() -> None:
    rest = Rest(Contract("blocked", gap_s=0.0), 1e-6, RESTED_HZ)
    rest.observe([Sample(1e-6, None, 0.5 * RESTED_HZ)])
    assert (rest.idle_s, rest.unrecovered) == (0.0, 0)
