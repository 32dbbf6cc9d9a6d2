"""A call is warm when its time no longer falls, and the number of calls until then is returned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, cycle, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.measure.warmup import MOST_CALLS, MOST_S, Warm, warm_up

MS, US = 1e-3, 1e-6


@dataclass
class FakeHost:
    """A host whose clock moves on by *times*, one a call; the device is waited for around each."""

    times: Iterator[float]
    clock_s: float = 100.0
    log: list[str] = field(default_factory=list)

    def call(self) -> None:
        self.clock_s += next(self.times)
        self.log.append("call")

    def synchronize(self) -> None:
        self.log.append("wait")

    def now(self) -> float:
        return self.clock_s

    @property
    def calls(self) -> int:
        return self.log.count("call")


def warm(first_s: float, times: Iterable[float], least: int = 1) -> tuple[Warm, FakeHost]:
    host = FakeHost(iter(times))
    return warm_up(host.call, host.synchronize, first_s, least, host.now), host


def test_a_call_that_was_never_slower_is_warm_from_the_first() -> None:
    found, host = warm(1 * MS, repeat(1 * MS))
    assert found.calls == 0
    assert found.call_s == pytest.approx(1 * MS)
    assert host.calls == 1


def test_a_slow_first_call_is_not_the_time_of_one() -> None:
    """The first compiles. The second was checked, untimed, and may have been slow too."""
    found, host = warm(2.0, repeat(1 * MS))
    assert found.calls == 2
    assert found.call_s == pytest.approx(1 * MS)
    assert host.calls == 2


def test_a_call_that_captures_a_graph_later_is_warmed_up_beyond_that() -> None:
    """Call 1 compiles, calls 3 and 4 record and capture, from call 5 on it is fast."""
    found, host = warm(2.0, chain([0.5, 0.3], repeat(1 * MS)))
    assert found.calls == 4
    assert found.call_s == pytest.approx(1 * MS)
    assert host.calls == 4


@pytest.mark.parametrize(
    ("second_s", "agree"), [(1.09 * MS, True), (1.11 * MS, False), (0.9 * MS, False)]
)
def test_two_times_agree_within_a_tenth_of_the_shorter(second_s: float, agree: bool) -> None:
    found, host = warm(1 * MS, chain([second_s], repeat(second_s)))
    assert host.calls == (1 if agree else 2)
    assert found.calls == (0 if agree else 2)


@pytest.mark.parametrize(("second_s", "agree"), [(24 * US, True), (26 * US, False)])
def test_of_short_calls_the_host_itself_differs_by_20_microseconds(
    second_s: float, agree: bool
) -> None:
    _, host = warm(5 * US, repeat(second_s))
    assert host.calls == (1 if agree else 2)


@pytest.mark.parametrize("least", [1, 3, 10, 50])
def test_at_least_as_many_calls_are_made_as_asked(least: int) -> None:
    found, host = warm(1 * MS, repeat(1 * MS), least)
    assert host.calls == least
    assert found.calls == 0


def test_a_call_that_slows_again_among_the_least_is_warm_after_that() -> None:
    found, host = warm(1 * MS, chain([1 * MS, 9 * MS], repeat(1 * MS)), least=5)
    assert host.calls == 5
    assert found == Warm(4, pytest.approx(1 * MS))


def test_a_call_that_never_agrees_with_itself_is_called_thirty_times() -> None:
    found, host = warm(1 * MS, cycle([2 * MS, 1 * MS]))
    assert host.calls == MOST_CALLS == 30
    assert found.calls == 31  # the checked one is among them
    assert found.call_s == pytest.approx(1 * MS)


def test_after_two_seconds_it_is_enough() -> None:
    found, host = warm(0.9, cycle([0.6, 0.3]))
    assert host.calls == 5
    assert 2.0 < host.clock_s - 100.0 <= 2.0 + 0.6
    assert found.call_s == pytest.approx(0.3)


def test_a_call_of_ten_seconds_is_made_once_more() -> None:
    found, host = warm(20.0, repeat(10.0))
    assert host.calls == 1
    assert found == Warm(2, pytest.approx(10.0))


def test_the_device_is_waited_for_before_and_after_each_call() -> None:
    _, host = warm(1.0, repeat(1 * MS))
    assert host.log == ["wait", "call", "wait"] * 2


@given(
    st.floats(1e-6, 3.0),
    st.lists(st.floats(1e-6, 3.0), min_size=1, max_size=40),
    st.integers(1, 40),
)
def test_what_is_said_of_the_warm_up_is_true(
    first_s: float, times: list[float], least: int
) -> None:
    found, host = warm(first_s, cycle(times), least)
    given = [first_s, *(t for t, _ in zip(cycle(times), range(host.calls), strict=False))]
    spent_s = host.clock_s - 100.0
    assert least <= host.calls <= max(least, MOST_CALLS)
    assert found.call_s == pytest.approx(min(given), rel=1e-6, abs=1e-9)
    assert found.calls == 0 or 2 <= found.calls <= host.calls + 1
    # Times from then on: the first call is no. 1, the timed ones are no. 3, 4, …
    later = given[found.calls - 1 if found.calls else 0 :]
    assert max(later) - min(later) <= max(0.1 * min(later), 20 * US) + 1e-9
    if host.calls > least and len(later) < 2:
        assert host.calls == MOST_CALLS or spent_s > MOST_S
