"""What the library says of slips, and of results that it cannot compare."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import gpuperf
from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.library.measurement import in_python
from gpuperf.measure import callables
from gpuperf.model.samples import Samples

X = torch.randn(256, 256)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))


def test_as_a_decorator_it_takes_conditions() -> None:
    @gpuperf.measure(budget_s=0.05, cache="hot", flops=2e3, dtype="float32", device="cpu")
    def doubled() -> torch.Tensor:
        return X * 2

    assert isinstance(doubled, gpuperf.Measurement)
    assert doubled.record.case.op == "doubled"
    assert doubled.record.contract.budget_s == 0.05
    assert doubled.record.cost is not None
    assert doubled.record.cost.flops[0].dtype == "fp32"


def test_a_hint_is_in_the_traceback() -> None:
    with pytest.raises(UsageError) as caught:
        gpuperf.measure(X.sin, budget_s=0, device="cpu")
    assert caught.value.__notes__ == ["hint: budget_s=2.0"]


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("use --timer wall, which measures", "use timer='wall', which measures"),
        ("or use --device cuda:1", "or use device='cuda:1'"),
        ("give --budget more seconds", "give budget_s more seconds"),
        ("choose another --timer", "choose another timer"),
        ("--cache cold-dirty leaves", "cache='cold-dirty' leaves"),
    ],
)
def test_a_hint_speaks_of_arguments(hint: str, said: str) -> None:
    assert in_python(hint) == said


@pytest.mark.parametrize("dtype", ["fp99", "torch.int7"])
def test_a_dtype_that_is_none_is_refused(dtype: str) -> None:
    with pytest.raises(UsageError, match="no dtype"):
        gpuperf.measure(X.sin, flops=1e6, dtype=dtype, device="cpu")


@pytest.mark.parametrize("dtype", ["fp32", "float32", torch.float32])
def test_a_dtype_has_its_name_in_gpuperf(dtype: Any) -> None:
    found = gpuperf.measure(X.sin, flops=1e3, dtype=dtype, device="cpu", budget_s=0.02)
    assert found.record.cost is not None
    assert found.record.cost.flops[0].dtype == "fp32"


def test_results_that_cannot_be_compared_are_a_doubt() -> None:
    out = torch.empty_like(X)

    def one() -> None:
        torch.add(X, 1, out=out)

    def two() -> None:
        torch.add(X, 2, out=out)

    calls: dict[str, Any] = {"one": one, "two": two}
    found = gpuperf.compare(calls, device="cpu", budget_s=0.1, cache="hot")
    kinds = {name: [caveat.kind for caveat in found[name].caveats] for name in found}
    assert "unchecked" in kinds["two"]
    assert "unchecked" not in kinds["one"]
    assert "two  unchecked: the call returns no tensor" in str(found)
    assert "two  unchecked: the call returns no tensor" in found._repr_html_()
    unchecked = gpuperf.compare(calls, device="cpu", budget_s=0.1, cache="hot", check=False)
    assert "unchecked" not in str(unchecked)


def test_so_they_are_in_other_processes(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def one():\n    sum(range(9999))\n\n\ndef two():\n    sum(range(8888))\n")
    calls = {name: f"{file}:{name}" for name in ("one", "two")}
    found = gpuperf.compare(calls, device="cpu", budget_s=0.04, cache="hot", processes=2)
    doubts = [c.kind for record in found.records for c in record.caveats if c.kind == "unchecked"]
    assert doubts == ["unchecked"] * 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"calls": [X.sin, X.cos]}, "are a list, not a dict"),
        ({"calls": {"a": X.sin}, "check": -1.0}, "check=-1.0 is not a tolerance"),
        ({"calls": {"a": X.sin}, "check": None}, "check=None is not a tolerance"),
        ({"calls": {"a": "nowhere.py:f"}, "processes": 2}, "there is no file nowhere.py"),
    ],
)
def test_slips_of_a_comparison(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        gpuperf.compare(**words, device="cpu")
    assert caught.value.hint


def test_axes_of_other_names_are_refused_before_anything_is_measured() -> None:
    with pytest.raises(UsageError, match="make is called with m: ") as caught:
        gpuperf.sweep(lambda n: X.sin, m=[1, 2], device="cpu")
    assert caught.value.hint == "name its arguments like the axes"
    with pytest.raises(UsageError, match="cost is called with n: "):
        gpuperf.sweep(lambda n: X.sin, n=[1], cost=lambda m: gpuperf.Cost(), device="cpu")
    with pytest.raises(UsageError, match="cost is of type int, not a gpuperf"):
        gpuperf.sweep(lambda n: X.sin, n=[1], cost=lambda n: n, device="cpu")


def test_few_samples_may_show_little_and_never_less_than_nothing() -> None:
    found = gpuperf.measure(X.sin, cache="hot", budget_s=0.02, device="cpu")
    few = {**found.record.times, found.record.primary: Samples((1e-6, 2e-6, 9e-6))}
    wide = replace(found, record=replace(found.record, times=few))
    assert wide.samples.interval_s[0] < 0
    assert wide.interval_s[0] == 0.0


def test_none_is_no_callable() -> None:
    with pytest.raises(UsageError, match="a NoneType cannot be called"):
        gpuperf.measure(None, device="cpu")  # type: ignore[call-overload]


def test_a_slip_is_found_before_a_device_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(name: str) -> None:
        raise AssertionError("a device was opened")

    monkeypatch.setattr(callables, "opened_device", opened)
    for words in ({"budget_s": "2s"}, {"precision": 0}):
        with pytest.raises(UsageError, match="is not a number above 0"):
            gpuperf.measure(X.sin, **words)  # type: ignore[call-overload]
        with pytest.raises(UsageError, match="is not a number above 0"):
            gpuperf.compare({"a": X.sin}, **words)  # type: ignore[arg-type]


def test_the_hint_of_a_device_speaks_of_arguments() -> None:
    with pytest.raises(CannotMeasure) as caught:
        gpuperf.measure(X.sin, timer="graph", device="cpu")
    assert caught.value.hint == "choose timer='wall'"
    assert caught.value.__notes__ == ["hint: choose timer='wall'"]


def test_a_wrapper_of_a_function_has_arguments_of_its_own() -> None:
    def inner(n: int, device: str) -> Any:
        return X[:n].sin

    @functools.wraps(inner)
    def wrapper(n: int) -> Any:
        return inner(n, "cpu")

    assert len(gpuperf.sweep(wrapper, n=[1], device="cpu", budget_s=0.02, cache="hot")) == 1


def test_tensors_in_a_dict_are_compared() -> None:
    calls: dict[str, Any] = {"sin": lambda: {"y": X.sin()}, "cos": lambda: {"y": X.cos()}}
    found = gpuperf.compare(calls, device="cpu", budget_s=0.05, cache="hot")
    assert found["cos"].record.status == "wrong"


def test_a_wide_interval_is_shown_as_times() -> None:
    calls = {"sin": X.sin, "cos": X.cos}
    found = gpuperf.compare(calls, device="cpu", budget_s=0.1, cache="hot", check=False)
    wide = replace(found, processes=2, intervals_s={"cos": (-1.0, 2.0)})
    line = next(line for line in str(wide).splitlines() if line.startswith("cos"))
    assert " to 2.000 s " in line


def test_a_sweep_is_shown_in_a_notebook_as_text() -> None:
    found = gpuperf.sweep(lambda n: X[:n].sin, n=[1, 2], device="cpu", budget_s=0.02, cache="hot")
    assert found._repr_html_().startswith("<pre>n = 1: ")
