"""On a CPU a budget binds before a call that exceeds it is run."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from fake_bench import CONTRACT, FACTS, FakeTimer, make_bench
from gpuperf.kernels.matmul import MATMUL

from gpuperf.measure import forecast as forecasting
from gpuperf.measure.forecast import Forecast
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.workload import Case, Implementation, Point

CASE = Case("matmul", "torch", {"m": 64, "n": 64, "k": 64, "dtype": "fp32"})


def cube(n: int) -> Cost:
    return Cost((Flops(2 * n**3, "matmul", "fp32"),), (Bytes(8 * n * n, 4 * n * n),))


def known(n: int, call_s: float) -> Forecast:
    forecast = Forecast()
    forecast.note(CASE, cube(n), call_s)
    return forecast


def test_a_call_is_expected_to_take_its_share_of_the_work_of_the_nearest_size() -> None:
    forecast = known(1024, 0.02)
    forecast.note(CASE, cube(128), 1.0)  # a slow small one: all overhead
    expected = forecast.expect(CASE, cube(2048))
    assert expected is not None
    assert (expected.call_s, expected.near) == (pytest.approx(0.16), True)


def test_memory_bound_work_grows_with_its_bytes() -> None:
    forecast = Forecast()
    forecast.note(CASE, Cost(bytes=(Bytes(1000, 1000),)), 0.01)
    expected = forecast.expect(CASE, Cost(bytes=(Bytes(4000, 4000),)))
    assert expected is not None
    assert expected.call_s == pytest.approx(0.04)


def test_another_implementation_dtype_or_option_says_nothing() -> None:
    forecast = known(1024, 0.02)
    others = [
        replace(CASE, implementation="triton"),
        replace(CASE, point={**CASE.point, "dtype": "fp64"}),
        replace(CASE, options={"tile": "64x64x64"}),
    ]
    assert [forecast.expect(other, cube(2048)) for other in others] == [None] * 3


def test_a_size_is_refused_where_the_calls_that_a_case_needs_exceed_its_budget() -> None:
    contract = replace(CONTRACT, budget_s=2.0)
    assert known(1024, 0.02).refusal(CASE, cube(2048), contract, None) is None
    refusal = known(2048, 0.16).refusal(CASE, cube(4096), contract, None)
    assert refusal == (
        "a call takes about 1.3 s, and a case needs 4 of them: over the 2 s of a case",
        "a budget of 8 s (--budget, or budget_s of a suite) measures it",
    )


def test_a_size_far_beyond_what_is_known_is_judged_by_its_first_call_too() -> None:
    contract = replace(CONTRACT, budget_s=2.0)
    assert known(128, 0.01).refusal(CASE, cube(4096), contract, None) is None
    assert known(128, 0.01).refusal(CASE, cube(4096), contract, 0.1) is None
    assert known(128, 0.01).refusal(CASE, cube(4096), contract, 1.5) is not None
    assert Forecast().refusal(CASE, cube(4096), contract, 1.5) is None, "it may have compiled"


def test_a_later_call_counts_by_itself() -> None:
    contract = replace(CONTRACT, budget_s=2.0)
    assert Forecast().refusal(CASE, cube(4096), contract, 1.9, calls=1) is None
    assert Forecast().refusal(CASE, cube(4096), contract, 2.1, calls=1) is not None


def test_what_was_skipped_leads_on_to_larger_sizes() -> None:
    forecast, contract = known(1024, 0.1), replace(CONTRACT, budget_s=2.0)
    for n in (2048, 4096, 8192, 16384):
        assert forecast.refusal(CASE, cube(n), contract, None) is not None


def test_a_budget_of_milliseconds_skips_nothing_that_is_as_short() -> None:
    contract = replace(CONTRACT, budget_s=0.01)
    assert known(1024, 0.02).refusal(CASE, cube(2048), contract, None) is None


@pytest.mark.parametrize(("kind", "status"), [("cpu", "skipped"), ("cuda", "ok")])
def test_a_size_over_the_budget_is_skipped_on_a_cpu_alone(kind: str, status: str) -> None:
    facts = replace(FACTS, kind=kind)
    assert isinstance(facts, DeviceFacts)
    bench = make_bench(facts=facts)
    point = {"m": 64, "n": 64, "k": 64, "dtype": "fp32"}
    bench.forecast.note(CASE, MATMUL.cost(Point(point)), 10.0)
    record = bench.measure(MATMUL, replace(CASE, point=point), CONTRACT, "r", seed=1)
    assert record.status == status
    if kind == "cpu":
        assert "s of a case" in record.reason
        assert record.hint.startswith("a budget of ")


def test_what_a_case_took_is_known_to_the_next() -> None:
    bench = make_bench(FakeTimer(time_s=0.01))
    point = {"m": 64, "n": 64, "k": 64, "dtype": "fp32"}
    assert bench.measure(MATMUL, replace(CASE, point=point), CONTRACT, "r", seed=1).status == "ok"
    larger = {"m": 256, "n": 256, "k": 256, "dtype": "fp32"}
    record = bench.measure(MATMUL, replace(CASE, point=larger), CONTRACT, "r", seed=1)
    assert record.status == "skipped"
    assert "640 ms" in record.reason


def test_a_call_of_an_unknown_workload_longer_than_the_budget_is_not_sampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slept(x: object) -> object:
        time.sleep(0.3)
        return x

    monkeypatch.setattr(forecasting, "LEAST_LIMIT_S", 0.1)
    sleepy = replace(
        MATMUL,
        standard=(),
        implementations=(Implementation("torch", lambda i, p, o: lambda: slept(i["a"] @ i["b"])),),
    )
    timer = FakeTimer()
    contract = replace(CONTRACT, budget_s=0.1)
    record = make_bench(timer).measure(sleepy, CASE, contract, "r", seed=1)
    assert record.status == "skipped"
    assert timer.calls == 0
