"""Is the fastest candidate chosen, once a case, and is nothing of the others kept?"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from gpuperf import jit

SLOW, FAST, BROKEN = {"ms": 3}, {"ms": 1}, {"ms": -1}


class Array:
    """What a call may hold; weak references to it are possible."""


def make(candidate: Mapping[str, int]) -> Callable[[], Any]:
    held = Array()
    made.append(weakref.ref(held))

    def call() -> tuple[int, Array]:
        alive.append(sum(ref() is not None for ref in made))
        if candidate["ms"] < 0:
            try:
                raise ValueError("ptxas")
            except ValueError as error:
                raise RuntimeError("out of resource: registers") from error
        return candidate["ms"], held

    return call


made: list[weakref.ref[Array]] = []
alive: list[int] = []  # arrays, while each candidate ran


@pytest.fixture(autouse=True)
def a_bench_that_takes_what_the_call_says(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def median_ms(call: Callable[[], Any]) -> float:
        return float(call()[0])

    monkeypatch.setattr(jit, "INTERPRETED", False)
    monkeypatch.setattr(jit, "_median_ms", median_ms)
    monkeypatch.setattr(jit, "_remembered", jit._Memory())
    made.clear()
    alive.clear()
    gc.disable()
    yield
    gc.enable()


def test_the_fastest_is_chosen_and_what_fails_is_passed_over() -> None:
    tuned = jit.tune(make, [SLOW, BROKEN, FAST, SLOW, BROKEN])
    assert tuned.chosen == FAST
    assert tuned()[0] == 1


def test_tensors_of_the_others_are_freed_without_the_garbage_collector() -> None:
    tuned = jit.tune(make, [BROKEN, SLOW, FAST, BROKEN, SLOW, BROKEN])
    assert [ref() is not None for ref in made] == [False, False, True, False, False, False]
    assert tuned.chosen == FAST
    assert max(alive) == 2  # the best and the next


def test_a_case_built_again_is_not_tuned_again() -> None:
    for case, tried in (("a", 3), ("a", 1), ("b", 3), ("a", 1)):
        jit.begin_build(case)
        made.clear()
        assert jit.tune(make, [SLOW, FAST, SLOW]).chosen == FAST
        assert len(made) == tried


def test_kernels_of_one_case_are_told_apart() -> None:
    for _ in range(2):
        jit.begin_build("a")
        assert jit.tune(make, [SLOW]).chosen == SLOW
        assert jit.tune(make, [FAST]).chosen == FAST


def test_when_none_runs_the_last_failure_is_raised() -> None:
    with pytest.raises(RuntimeError, match="registers"):
        jit.tune(make, [BROKEN, BROKEN])
    with pytest.raises(ValueError, match="no candidates"):
        jit.tune(make, [])


def test_interpreted_it_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "INTERPRETED", True)
    assert jit.tune(make, [SLOW, FAST]).chosen == SLOW


def test_one_candidate_is_not_timed() -> None:
    assert jit.tune(make, [BROKEN]).chosen == BROKEN


def test_candidates_are_timed_as_the_case_will_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back to back the one is ahead, and rested the other: the case's own timer chooses."""
    monkeypatch.undo()
    monkeypatch.setattr(jit, "INTERPRETED", False)
    rested_s = {3: 1e-3, 1: 2e-3}
    jit.begin_build("matmul/triton[n=64]", lambda call: rested_s[call()[0]])
    assert jit.tune(make, [FAST, SLOW]).chosen == SLOW
    jit.begin_build("")
