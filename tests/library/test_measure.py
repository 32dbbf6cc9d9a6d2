"""`gpuperf.measure`, `compare`, `sweep` and `do_bench` in the program's own process, on a CPU."""

from __future__ import annotations

import functools
import html
import inspect
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import gpuperf
from gpuperf import Bytes, Cost, Flops
from gpuperf.errors import CannotMeasure, UnknownName, UsageError
from gpuperf.library import measurement
from gpuperf.library.costs import cost_of
from gpuperf.library.measure import contract_of
from gpuperf.measure.agreement import disagreement
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.record import Record

X = torch.randn(256, 256)
measure: Callable[..., gpuperf.Measurement] = functools.partial(
    gpuperf.measure, device="cpu", budget_s=0.02
)
compare: Callable[..., gpuperf.Comparison] = functools.partial(
    gpuperf.compare, device="cpu", budget_s=0.1
)


def generator() -> Any:
    yield X.sin()


async def coroutine() -> Any:
    return X.sin()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def product() -> gpuperf.Measurement:
    return measure(lambda: X @ X, flops=2 * 256**3, bytes=3 * X.nbytes, dtype="fp32", name="x·<b>")


def test_a_measurement_has_time_place_and_conditions(product: gpuperf.Measurement) -> None:
    low, high = product.interval_s
    assert low <= product.time_s <= high
    assert product.time_s > 0
    assert product.record.status == "ok"
    assert (product.record.contract.timer, product.record.contract.cache) == ("wall", "cold")
    assert product.record.contract.data == "own"
    assert product.record.cost == Cost((Flops(2 * 256**3, "matmul", "fp32"),), (Bytes(786432, 0),))
    assert product.placement is not None
    assert product.placement.attained_flop_per_s == pytest.approx(2 * 256**3 / product.time_s)
    assert (product.kernels, product.dram_bytes, product.clock_hz) == ((), None, None)


@pytest.mark.parametrize(("kind", "timer"), [("cuda", "auto"), ("cpu", "wall"), ("rocm", "events")])
def test_a_call_that_waits_for_the_gpu_has_a_time_by_default(kind: Any, timer: str) -> None:
    facts = DeviceFacts(kind, 0, "of a test", 1, 2**30, 2**30)
    assert contract_of(facts, {})[0].timer == timer
    assert contract_of(facts, {"timer": "wall"})[0].timer == "wall"


def test_it_prints_its_time_how_it_was_taken_and_every_doubt(product: gpuperf.Measurement) -> None:
    text = str(product)
    assert text.startswith("x-b: ")
    assert "timer wall, cold cache" in text
    assert "FLOP/s" in text
    assert all(caveat.kind in text for caveat in product.caveats)
    shown = product._repr_html_()
    assert html.escape(text.splitlines()[0]) in shown
    assert "<b>x" in shown


def test_it_is_a_run_file_as_of_the_command_line(
    product: gpuperf.Measurement, tmp_path: Path
) -> None:
    path = product.save(tmp_path / "one")
    run = gpuperf.read_run(path)
    assert path.name == "one.jsonl"
    assert run.records[0].times == product.record.times
    assert run.records[0].run == run.header.run
    with pytest.raises(UsageError, match="exists"):
        product.save(path)


def test_the_program_is_left_as_it_was() -> None:
    before = (torch.get_num_threads(), torch.get_rng_state(), torch.is_grad_enabled())
    with torch.inference_mode():
        y = torch.ones(64)
        assert measure(lambda: y + 1).time_s > 0
    w = torch.ones(64, requires_grad=True)

    def step() -> None:
        w.grad = None
        (w * w).sum().backward()  # type: ignore[no-untyped-call]

    assert measure(step).time_s > 0
    assert torch.equal(before[1], torch.get_rng_state())
    assert (before[0], before[2]) == (torch.get_num_threads(), torch.is_grad_enabled())


def test_as_a_decorator_it_takes_the_place_of_the_function() -> None:
    @functools.partial(gpuperf.measure, device="cpu", budget_s=0.02)
    def doubled() -> torch.Tensor:
        return X * 2

    assert isinstance(doubled, gpuperf.Measurement)
    assert doubled.record.case.op == "doubled"


def test_what_a_callable_raises_is_the_programs_own() -> None:
    with pytest.raises(ZeroDivisionError):
        measure(lambda: 1 / 0)


def test_a_callable_that_works_once_only_is_told_that_it_is_called_often() -> None:
    loss = (torch.ones(3, requires_grad=True) ** 2).sum()
    with pytest.raises(RuntimeError, match="second time") as error:
        measure(loss.backward)
    assert "called many times" in "".join(error.value.__notes__)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"fn": 3}, "a int cannot be called"),
        ({"fn": X}, "a Tensor cannot be called"),
        ({"fn": generator}, "runs nothing of it"),
        ({"fn": coroutine}, "runs nothing of it"),
        ({"precision": 0}, "is not a number above 0"),
        ({"precision": float("nan")}, "is not a number above 0"),
        ({"precision": 5}, "precision=5 is not a number above 0 and up to 1"),
        ({"budget_s": True}, "budget_s=True is not a number above 0"),
        ({"budget_s": "2s"}, "budget_s='2s' is not a number above 0"),
        ({"budget_s": -1}, "is not a number above 0"),
        ({"cache": "warm"}, "no cache state 'warm'"),
        ({"device": "cuda:7"}, "there is no device 'cuda:7'"),
        ({"device": "gpu0"}, "no device 'gpu0'"),
        ({"percision": 1}, "no argument 'percision'; did you mean 'precision'"),
        ({"timer": "blocked"}, "does not have the timer 'blocked'"),
        ({"cost": 12}, "cost is of type int, not a gpuperf.Cost"),
        ({"cost": Cost(), "bytes": 4}, "cost is given, and flops or bytes too"),
        ({"flops": 2e9}, "does not say in which dtype"),
        ({"flops": -1, "dtype": "fp32"}, "flops=-1 is not a count"),
        ({"flops": ["many"]}, "which is not a gpuperf.Flops"),
        ({"bytes": True}, "bytes=True is not a count"),
    ],
)
def test_a_slip_is_one_sentence_with_a_hint(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises((UsageError, CannotMeasure), match=sentence) as error:
        measure(**{"fn": lambda: X, **words})
    assert error.value.hint


def test_what_gets_no_time_has_a_status_and_the_record() -> None:
    def greedy() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(gpuperf.NotMeasured, match="greedy: oom: ") as error:
        measure(greedy)
    assert error.value.record.status == "oom"
    with pytest.raises(gpuperf.NotMeasured):
        _ = measurement.Measurement(error.value.record, None).time_s  # type: ignore[arg-type]


def test_a_call_that_changes_its_inputs_is_told() -> None:
    kept = torch.zeros(8)
    found = measure(lambda: kept.add_(1))
    assert "changes-inputs" in {caveat.kind for caveat in found.caveats}
    assert "changes kept," in str(found)


def test_a_call_that_changes_a_tensor_in_a_list_is_told() -> None:
    kept = [torch.zeros(8), torch.zeros(8)]
    assert "changes kept[1]," in str(measure(lambda: kept[1].add_(1)))


def test_a_call_that_holds_a_sparse_tensor_is_measured() -> None:
    held = [torch.eye(256).to_sparse()]
    assert measure(lambda: held[0] @ X).record.status == "ok"


def test_numbers_of_flops_and_bytes_make_a_cost() -> None:
    special = Flops(3, "special", "fp32")
    assert cost_of(None, None, None, "") is None
    assert cost_of(None, special, Bytes(1, 2), "") == Cost((special,), (Bytes(1, 2),))
    assert cost_of(None, [special, special], None, "") == Cost((special, special), ())


def test_callables_are_compared_in_turns_and_a_wrong_one_has_no_time(tmp_path: Path) -> None:
    order: list[str] = []

    def said(name: str, call: Callable[[], Any]) -> Callable[[], Any]:
        def both() -> Any:
            if order[-1:] != [name]:
                order.append(name)
            return call()

        return both

    calls = {
        "once": said("once", lambda: X.sin()),
        "often": said("often", lambda: functools.reduce(lambda _, i: X.sin(), range(20), X)),
        "wrong": said("wrong", lambda: X.cos()),
    }
    found = compare(calls, rounds=3)
    assert order == ["once", "often", "wrong", "once", "often", "once", "often"]
    assert found["wrong"].record.status == "wrong"
    assert "wrong: the result is off by" in str(found)
    assert (found.baseline, found.rounds, list(found)) == ("once", 3, list(calls))
    often = found.speedups["often"]
    assert often.low is not None
    assert often.high is not None
    assert often.low <= often.value <= often.high
    assert often.value < 0.9
    assert "wrong" not in found.speedups
    assert found["once"].samples.size > 3
    run = gpuperf.read_run(found.save(tmp_path / "turns"))
    assert (run.header.baseline, run.header.study, len(run.records)) == ("once", "compare", 3)


def test_one_that_is_not_checked_is_timed_whatever_it_returns() -> None:
    found = compare({"a": lambda: X.sin(), "b": lambda: X.cos()}, check=False, rounds=2)
    assert {found[name].record.status for name in found} == {"ok"}


def test_one_that_raises_costs_no_other_its_time() -> None:
    for check in (True, False):
        found = compare({"a": lambda: X.sin(), "b": lambda: 1 / 0}, check=check, rounds=2)
        assert found["a"].record.status == "ok"
        assert found["b"].record.status == "error"
        assert "b  error: ZeroDivisionError: division by zero" in str(found)
    with pytest.raises(ZeroDivisionError):
        compare({"a": lambda: 1 / 0, "b": lambda: X.sin()})


def test_a_point_that_raises_costs_no_other_its_time() -> None:
    def make(n: int) -> Callable[[], Any]:
        if n == 2:
            raise torch.OutOfMemoryError("out of memory")
        return (lambda: 1 / 0) if n == 3 else lambda: X.sin()

    found = gpuperf.sweep(make, n=[1, 2, 3, 4], device="cpu", budget_s=0.02)
    assert [m.record.status for m in found] == ["ok", "oom", "error", "ok"]
    assert "n = 3: error: ZeroDivisionError" in str(found)


def test_an_interrupted_sweep_has_written_what_it_measured(tmp_path: Path) -> None:
    def make(n: int) -> Callable[[], Any]:
        if n == 3:
            raise KeyboardInterrupt
        return lambda: X.sin()

    with pytest.raises(KeyboardInterrupt):
        gpuperf.sweep(make, n=[1, 2, 3], device="cpu", budget_s=0.02, save=tmp_path / "cut")
    run = gpuperf.read_run(tmp_path / "cut.jsonl")
    assert [record.case.point["n"] for record in run.records] == [1, 2]
    assert len(run.header.plan) == 3


def test_an_impossible_time_is_neither_shown_nor_compared(
    product: gpuperf.Measurement, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(product.record, status="impossible", reason="too fast", hint="mend the cost")
    shown = replace(product, record=broken)
    assert str(shown).startswith("x-b: impossible: too fast")
    with pytest.raises(gpuperf.NotMeasured, match="impossible: too fast"):
        _ = shown.time_s

    def impossible(record: Record, *_: object) -> Record:
        return replace(broken, case=record.case) if record.case.implementation == "b" else record

    monkeypatch.setattr("gpuperf.library.measure.check_physics", impossible)
    found = compare({"a": lambda: X.sin(), "b": lambda: X.sin()}, rounds=2)
    assert "b  impossible: too fast" in str(found)
    assert list(found.speedups) == ["a"]


def test_slips_of_a_comparison() -> None:
    with pytest.raises(UsageError, match="nothing to compare"):
        compare({})
    with pytest.raises(UsageError, match="rounds=1 is not"):
        compare({"a": print}, rounds=1)
    with pytest.raises(UnknownName, match="did you mean 'fused'"):
        compare({"fused": lambda: X}, baseline="fuse")


@pytest.mark.parametrize(
    ("got", "wanted", "why"),
    [
        (X, X.clone(), ""),
        (None, None, ""),
        ((X, X), X, "has 2 tensors instead of 1"),
        (X, X[:1], "instead of"),
        (None, X, "is a NoneType"),
        (X * 1.001, X, "is off by 0.001"),
        (X.bfloat16(), X, ""),
        (X.bfloat16() * 1.1, X, "is off by 0.1"),
        (torch.arange(3), torch.arange(3) + 1, "is off by 1"),
        (torch.full((2,), torch.nan), torch.ones(2), "NaN or unwritten"),
    ],
)
def test_two_results_agree_within_the_roundings_of_their_dtypes(
    got: Any, wanted: Any, why: str
) -> None:
    found = disagreement(got, wanted)
    assert why in found
    assert bool(found) == bool(why)


def test_a_sweep_measures_each_point_and_is_a_run(tmp_path: Path) -> None:
    def make(n: int, times: int) -> Callable[[], Any]:
        x = torch.ones(n)
        return lambda: [x.sin() for _ in range(times)]

    def cost(n: int, times: int) -> Cost:
        return Cost((Flops(n * times, "elementwise", "fp32"),), (Bytes(4 * n, 4 * n),))

    found = gpuperf.sweep(
        make, n="1k:4k", times=[1, 2], cost=cost, device="cpu", budget_s=0.02, name="sine"
    )
    assert [m.record.case.id for m in found] == [
        f"sine/call[n={n},times={times}]" for n in (1024, 2048, 4096) for times in (1, 2)
    ]
    assert len(found) == len(str(found).splitlines()) == 6
    assert str(found).startswith("n = 1024, times = 1: ")
    run = gpuperf.read_run(found.save(tmp_path / "sine"))
    assert run.header.main == ("n", "times")
    frame = found.frame()
    assert list(frame["point.n"]) == [1024, 1024, 2048, 2048, 4096, 4096]
    assert list(frame["time_s"]) == pytest.approx([m.time_s for m in found])
    found.plot(tmp_path / "sine.svg")
    assert "FLOP" in (tmp_path / "sine.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ({}, "needs an axis"),
        ({"n": "1k:"}, "n='1k:'"),
        ({"n": 3}, "neither a range nor values"),
        ({"n": []}, "0 points are not"),
        ({"n": range(20_000)}, "20000 points are not"),
    ],
)
def test_slips_of_a_sweep(axes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        gpuperf.sweep(lambda n: print, device="cpu", **axes)


def test_measure_and_compare_stay_functions_beside_the_packages_of_their_names() -> None:
    import gpuperf.compare.chart
    import gpuperf.measure.bench

    assert inspect.isfunction(gpuperf.measure)
    assert inspect.isfunction(gpuperf.compare)


def test_two_threads_of_a_program_measure_one_after_the_other() -> None:
    inside, most = [0], [0]

    def call() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(1e-3)
        inside[0] -= 1

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: measure(call), range(2)))
    assert most == [1]
