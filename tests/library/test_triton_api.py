"""`do_bench` and `perf_report` take and return what those of `triton.testing` do."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import gpuperf
from gpuperf.errors import UnknownName, UsageError
from gpuperf.library.triton_api import in_place_of_triton
from gpuperf.model.samples import Samples

testing = pytest.importorskip("triton.testing")

TIMES = (3e-3, 1e-3, 2e-3, 6e-3)


class Timed:
    samples = Samples(TIMES)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The calls of `measure`, which answers with TIMES."""
    calls: list[dict[str, Any]] = []

    def measured(fn: Any, **words: Any) -> Timed:
        fn()
        calls.append(words)
        return Timed()

    monkeypatch.setattr("gpuperf.library.triton_api.measure", measured)
    yield calls


def test_the_arguments_are_those_of_triton() -> None:
    ours, theirs = (inspect.signature(f).parameters for f in (gpuperf.do_bench, testing.do_bench))
    assert list(ours) == list(theirs)
    assert [p.default for p in ours.values()] == [p.default for p in theirs.values()]


@pytest.mark.parametrize(
    ("mode", "wanted"), [("min", 1.0), ("max", 6.0), ("mean", 3.0), ("median", 2.5)]
)
def test_times_are_in_milliseconds(asked: list[dict[str, Any]], mode: Any, wanted: float) -> None:
    assert gpuperf.do_bench(lambda: None, rep=50, return_mode=mode) == pytest.approx(wanted)
    assert asked[0]["budget_s"] == 0.05


def test_all_times_and_quantiles(asked: list[dict[str, Any]]) -> None:
    assert gpuperf.do_bench(lambda: None, return_mode="all") == pytest.approx([3, 1, 2, 6])
    assert gpuperf.do_bench(lambda: None, quantiles=[0.5]) == pytest.approx(2.5)
    low, high = gpuperf.do_bench(lambda: None, quantiles=[0.0, 1.0])
    assert (low, high) == pytest.approx((1, 6))


def test_gradients_are_dropped_before_each_call(asked: list[dict[str, Any]]) -> None:
    w = torch.ones(2, requires_grad=True)
    seen: list[Any] = []
    w.grad = torch.ones(2)
    gpuperf.do_bench(lambda: seen.append(w.grad), grad_to_none=[w])
    assert seen == [None]


def test_slips_are_sentences() -> None:
    with pytest.raises(UnknownName, match="no return_mode 'men'; did you mean 'mean'"):
        gpuperf.do_bench(lambda: None, return_mode="men")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not all from 0 to 1"):
        gpuperf.do_bench(lambda: None, quantiles=[50])


def test_a_real_call_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path))
    if torch.cuda.is_available():
        pytest.skip("times a CPU")
    x = torch.ones(1000)
    assert 0 < gpuperf.do_bench(lambda: x + 1, rep=20) < 1000


def test_a_report_of_triton_is_made_with_our_times(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas")
    monkeypatch.setenv("MPLBACKEND", "agg")
    theirs = testing.do_bench

    @gpuperf.perf_report(
        testing.Benchmark(
            x_names=["n"],
            x_vals=[8, 16],
            line_arg="provider",
            line_vals=["torch", "ours"],
            line_names=["Torch", "Ours"],
            plot_name="sum",
            args={},
        )
    )
    def bench(n: int, provider: str) -> float:
        x = torch.ones(n)
        return float(testing.do_bench(lambda: x.sum()))

    frame = bench.run(return_df=True)
    assert list(frame["n"]) == [8, 16]
    assert frame.iloc[0, 1] == pytest.approx(3.0)
    assert len(asked) == 4
    assert testing.do_bench is theirs


def test_triton_gets_its_own_back_also_after_an_error() -> None:
    theirs = testing.do_bench
    with pytest.raises(ZeroDivisionError), in_place_of_triton():
        assert testing.do_bench is gpuperf.do_bench
        raise ZeroDivisionError
    assert testing.do_bench is theirs
