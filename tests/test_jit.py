"""Is the fastest candidate chosen, once a case, and is nothing of the others kept?"""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuperf import jit
from gpuperf.choices import KEPT, PREFERRED

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


def test_candidates_are_prepared_once_and_only_if_they_are_timed() -> None:
    prepared: list[int] = []
    for case in ("a", "a", "b"):
        jit.begin_build(case)
        jit.tune(make, [SLOW, FAST], lambda every: prepared.append(len(every)))
        jit.tune(make, [SLOW], lambda every: prepared.append(len(every)))
    assert prepared == [2, 2]


def test_what_cannot_be_prepared_is_tuned_all_the_same() -> None:
    def prepare(every: object) -> None:
        raise RuntimeError("can't start new thread")

    jit.begin_build("a case whose candidates are not prepared")
    assert jit.tune(make, [SLOW, FAST], prepare).chosen == FAST


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


def in_a_new_process(times_s: dict[int, float], monkeypatch: pytest.MonkeyPatch) -> object:
    """What is chosen for a case of two candidates that take *times_s*, with nothing remembered."""
    monkeypatch.setattr(jit, "_remembered", jit._Memory())
    monkeypatch.setattr(jit, "_median_ms", lambda call: times_s[call()[0]])
    jit.begin_build("matmul/triton[n=64]")
    return jit.tune(make, [FAST, SLOW]).chosen


def test_what_the_first_process_of_a_side_chose_holds_for_the_later_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, later = {1: 1e-3, 3: 1.01e-3}, {1: 1.01e-3, 3: 1e-3}
    assert in_a_new_process(first, monkeypatch) == FAST
    assert in_a_new_process(later, monkeypatch) == SLOW
    monkeypatch.setenv(KEPT, str(tmp_path / "base"))
    assert in_a_new_process(first, monkeypatch) == FAST
    made.clear()
    assert in_a_new_process(later, monkeypatch) == FAST
    assert len(made) == 1  # the other was not even built


def test_a_head_keeps_to_the_choice_of_the_base_unless_another_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(KEPT, str(tmp_path / "base"))
    assert in_a_new_process({1: 1e-3, 3: 1.01e-3}, monkeypatch) == FAST
    monkeypatch.setenv(PREFERRED, str(tmp_path / "base"))
    monkeypatch.setenv(KEPT, str(tmp_path / "head"))
    assert in_a_new_process({1: 1.01e-3, 3: 1e-3}, monkeypatch) == FAST
    monkeypatch.setenv(KEPT, str(tmp_path / "another head"))
    assert in_a_new_process({1: 1.05e-3, 3: 1e-3}, monkeypatch) == SLOW


def test_a_choice_that_is_no_candidate_any_more_is_tuned_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(KEPT, str(tmp_path))
    assert in_a_new_process({1: 1e-3, 3: 2e-3}, monkeypatch) == FAST
    (kept,) = tmp_path.iterdir()
    for text in ('{"BLOCK": 7}', "[", "null"):
        kept.write_text(text)
        assert in_a_new_process({1: 2e-3, 3: 1e-3}, monkeypatch) == SLOW


def test_triton_is_imported_by_the_first_that_uses_it() -> None:
    code = """
import sys
from gpuperf.measure import worker
from gpuperf.measure.registry import find_builtin

names = {"copy", "sincos", "matmul"}
found = {find_builtin("gpuperf.kernels", name).name for name in names}
before = "triton" in sys.modules
from gpuperf.jit import jit, tl, triton

print(names == found, before, "triton" in sys.modules or triton is None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False True\n"


def test_a_name_that_is_not_tritons_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tritn'"):
        jit.__getattr__("tritn")
