"""The record of a case has its times and costs, or a status that says why not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_bench import FakeTimer, Inputs, make_bench, measure, product
from gpuperf.kernels.matmul import MATMUL

from gpuperf.model.contract import Contract
from gpuperf.model.workload import Case, Point


def test_a_right_case_has_its_time_and_its_costs() -> None:
    record = measure(MATMUL, **product(64, 32, 16, "fp32"))
    assert record.status == "ok"
    assert record.samples is not None
    assert record.samples.values_s == (1e-3,) * 3
    assert record.stop == "precision"
    assert record.cost is not None
    assert record.cost.flop_count == 2 * 64 * 32 * 16
    assert record.memory is not None
    assert record.memory.inputs_bytes == 4 * (64 * 16 + 16 * 32)
    assert record.memory.output_bytes == 4 * 64 * 32
    assert record.fingerprint.hard["workload_version"] == 1


def test_a_dtype_that_the_device_lacks_is_skipped() -> None:
    record = measure(MATMUL, **product(64, 32, 16, "fp8"))
    assert (record.status, record.reason) == ("skipped", "a CPU does not compute in fp8")


@pytest.mark.parametrize("size", [2**24, 2**40])
def test_what_cannot_fit_is_refused_before_it_is_allocated(size: int) -> None:
    record = measure(MATMUL, **product(size, size, size, "fp64"))
    assert record.status == "oom"
    assert "GB are free" in record.reason
    assert record.hint == "choose smaller sizes"


def test_an_error_in_a_build_is_the_cases_status() -> None:
    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], object]:
        raise ZeroDivisionError("no tiles\nin this size")

    record = measure(MATMUL, build, **product(8, 8, 8, "fp32"))
    assert record.status == "error"
    assert "ZeroDivisionError: no tiles" in record.reason


def test_a_call_that_takes_no_time_did_no_work() -> None:
    record = measure(MATMUL, None, FakeTimer(time_s=0.0), **product(8, 8, 8, "fp32"))
    assert record.status == "no-work"
    assert record.times == {}


def test_an_implementation_that_there_is_not_is_an_error_with_its_name() -> None:
    case = Case("matmul", "tourch", product(8, 8, 8, "fp32"))
    record = make_bench().measure(MATMUL, case, Contract("wall"), "r", 0)
    assert record.status == "error"
    assert "no implementation 'tourch'; did you mean 'torch'?" in record.reason
