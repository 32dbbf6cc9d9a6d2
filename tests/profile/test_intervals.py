"""Do sets of moments obey the algebra of sets, and count each moment once?"""

from __future__ import annotations

import numpy
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.profile.intervals import IntervalSet

TIME = 60  # moments 0 … 59, few enough to be counted one by one
pairs = st.lists(st.tuples(st.integers(0, TIME), st.integers(0, TIME)), max_size=12)


def slowly(given: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in given for moment in range(start, end)}


def members(moments: IntervalSet) -> set[int]:
    return slowly(list(zip(moments.start.tolist(), moments.end.tolist(), strict=True)))


@given(one=pairs, other=pairs)
def test_sets_of_moments_are_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b, x, y = (
        IntervalSet.of_windows(one),
        IntervalSet.of_windows(other),
        slowly(one),
        slowly(other),
    )
    for found, expected in ((a, x), (a & b, x & y), (a | b, x | y), (a - b, x - y)):
        assert members(found) == expected
        assert found.length == len(expected)
        assert (found.start[1:] > found.end[:-1]).all(), "neighbours are one interval"
    every = numpy.arange(TIME)
    assert set(every[a.contains(every)].tolist()) == x


def test_intervals_that_touch_are_one_and_empty_ones_none() -> None:
    moments = IntervalSet.of_windows([(5, 5), (3, 5), (5, 9), (20, 10)])
    assert (moments.start.tolist(), moments.end.tolist()) == ([3], [9])
    assert IntervalSet.of_windows([]).length == 0
