"""Inputs are drawn, renewed, and counted before they are allocated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from fake_bench import CPU, measure
from gpuperf.kernels.stream import COPY
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.measure.inputs import ByteCounter, TooLarge, bind_make, refill, torch_dtype
from gpuperf.model.workload import Point
from gpuperf.units import itemsize


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16", "bf16", "fp8", "int8"])
def test_inputs_are_drawn_by_seed_and_drawn_afresh(dtype: str) -> None:
    first = bind_make(CPU, 1)((64, 64), dtype).double()
    assert torch.equal(first, bind_make(CPU, 1)((64, 64), dtype).double())
    assert not torch.equal(first, bind_make(CPU, 2)((64, 64), dtype).double())
    sigma = 32.0 if dtype == "int8" else 1.0
    assert first.std().item() == pytest.approx(sigma, rel=0.1)
    assert abs(first.mean().item()) < 0.1 * sigma
    tensor = first.to(torch_dtype(dtype), copy=True)
    fresh = bind_make(CPU, 3)((64, 64), dtype)
    refill({"x": tensor, "scale": 2.0}, {"x": fresh, "scale": 2.0})
    assert torch.equal(fresh.double(), tensor.double())
    assert not torch.equal(first, tensor.double())


def test_an_expanded_input_is_refilled_through_what_it_is_expanded_from() -> None:
    row = torch.zeros(4)
    refill({"x": row.expand(3, 4)}, {"x": torch.arange(4.0).expand(3, 4)})
    assert torch.equal(row, torch.arange(4.0))


def test_the_check_and_the_timing_see_inputs_as_the_workload_made_them() -> None:
    seen = []

    def positive(point: Point, make: Any) -> dict[str, Any]:
        return {"x": make((point.n,), "fp32").abs_().add_(1.0)}

    def logarithm(inputs: Any, point: Point, options: Any) -> Any:
        def call() -> torch.Tensor:
            seen.append(inputs["x"].min().item())
            return inputs["x"].log()

        return call

    workload = replace(
        COPY,
        inputs=positive,
        reference=lambda inputs, point: inputs["x"].double().log(),
        narrow=None,
    )
    record = measure(workload, logarithm, n=4096, dtype="fp32")
    assert record.status == "ok", record.reason
    assert min(seen) >= 1.0


@given(
    st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 2**20)), max_size=4),
    st.sampled_from(["fp64", "bf16", "fp8", "int8"]),
)
def test_bytes_are_counted_without_being_taken(shapes: list[tuple[int, int]], dtype: str) -> None:
    counter = ByteCounter()
    for shape in shapes:
        assert counter(shape, dtype).device.type == "meta"
    assert counter.bytes == sum(m * n for m, n in shapes) * itemsize(dtype)


def test_a_shape_that_cannot_exist_is_too_large_and_counted() -> None:
    counter = ByteCounter()
    with pytest.raises(TooLarge):
        counter((2**40, 2**40), "fp32")
    assert counter.bytes == 2**82
