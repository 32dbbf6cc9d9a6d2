"""Is the loop in a sequence of kernels found where there is one, and nowhere else?"""

from __future__ import annotations

import random
import time

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.profile.trace.periods import periods, repeats

STEP = list(range(10))
LAYERS = [100, *[1, 2, 3] * 12, 101, 102]  # a loop in the loop


def noise(count: int, seed: int = 0) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(1000, 2000) for _ in range(count)]


LOOPS = {
    "steady": (STEP * 8, (0, 10)),
    "odd ends": ([50, 51, 52, *STEP * 8, 60, 61], (3, 10)),
    "a warm-up": ([*noise(40), *STEP * 5], (40, 10)),
    "another thing after it": ([*STEP * 5, *noise(40)], (0, 10)),
    "layers in steps": ([7, 7, 8, *LAYERS * 5, 9], (3, 39)),
    "layers in two steps": (LAYERS * 2, (0, 39)),
    "layers in one step": ([100, *[1, 2, 3] * 12, 101], (1, 3)),
    "an odd step in the middle": ([*STEP * 12, 99, *STEP * 12], (121, 10)),
    "a log every ten steps": ([*STEP * 10, 77, 78] * 3, (0, 102)),
    "a long warm-up": ([*noise(3000), *STEP * 100], (3000, 10)),
    "long other things after it": ([*STEP * 100, *noise(2000), 5], (0, 10)),
    "long ends": ([*noise(1200), *STEP * 100, *noise(1200, 1)], (1200, 10)),
    "one kernel": ([4] * 9, (0, 1)),
    "twice": ([1, 2, 1, 2], (0, 2)),
    "a part of a round": ([1, 2, 3, 1, 2, 3, 1], (0, 3)),
}
NO_LOOPS = {
    "nothing": [],
    "one": [1],
    "three": [1, 1, 1],
    "all different": list(range(100)),
    "noise": noise(1000),
    "a short loop in much else": [*noise(900), *STEP * 3],
    "the first again": [1, 2, 3, 4, 5, 1],
}


@pytest.mark.parametrize("name", LOOPS)
def test_the_steady_part_is_found(name: str) -> None:
    names, expected = LOOPS[name]
    assert periods(names) == expected


@pytest.mark.parametrize("name", NO_LOOPS)
def test_without_a_repetition_there_is_no_period(name: str) -> None:
    assert periods(NO_LOOPS[name]) is None


@given(
    unit=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    rounds=st.integers(4, 9),
    before=st.lists(st.integers(4, 9), max_size=8),
    after=st.lists(st.integers(4, 9), max_size=8),
)
def test_a_loop_is_found_whatever_is_before_and_after(
    unit: list[int], rounds: int, before: list[int], after: list[int]
) -> None:
    names = [*before, *unit * rounds, *after]
    if len(unit) * rounds < len(names) / 2 or len(names) < 4:
        return
    found = periods(names)
    assert found is not None
    first, length = found
    assert len(unit) % length == 0 or repeats(names, first, length) * length >= len(unit) * rounds
    assert repeats(names, first, length) >= 2


def test_columns_are_taken_too_and_rounds_are_counted() -> None:
    names = numpy.array([-5, *STEP * 8, *STEP[:4]])
    assert periods(names) == (1, 10)  # type: ignore[arg-type]
    assert repeats(names, 1, 10) == 8  # type: ignore[arg-type]


def test_the_work_grows_with_the_length_and_not_its_square() -> None:
    """The square of 60,000 kernels would take an hour; 2 s are ten times what they take."""
    for names in (LAYERS * 1500, [1, 1, 2] * 20_000, [0] * 60_000, noise(60_000)):
        start = time.process_time()
        periods(names)
        assert time.process_time() - start < 2
