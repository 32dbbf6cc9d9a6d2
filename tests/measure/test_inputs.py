"""A workload is given the numbers that the contract names."""

import math
from typing import get_args

import pytest
import torch

from gpuperf.measure.inputs import ByteCounter, bind_make, torch_dtype
from gpuperf.model.contract import Data

CPU = torch.device("cpu")
DRAWN = ("fp64", "fp32", "bf16", "fp8", "int8")


@pytest.mark.parametrize("dtype", DRAWN)
@pytest.mark.parametrize("data", get_args(Data))
def test_data_of_every_kind_are_the_same_for_one_seed_and_others_for_another(
    data: Data, dtype: str
) -> None:
    drawn = bind_make(CPU, 1, data)((64, 64), dtype)
    assert drawn.dtype == torch_dtype(dtype)
    assert torch.equal(drawn.double(), bind_make(CPU, 1, data)((64, 64), dtype).double())
    other = bind_make(CPU, 2, data)((64, 64), dtype)
    assert torch.equal(drawn.double(), other.double()) == (data == "zeros")
    make = bind_make(CPU, 1, data)
    twice = make((64, 64), dtype), make((64, 64), dtype)
    assert torch.equal(twice[0].double(), drawn.double())
    assert torch.equal(twice[1].double(), drawn.double()) == (data == "zeros")


@pytest.mark.parametrize("dtype", DRAWN)
def test_uniform_data_fill_their_range_evenly(dtype: str) -> None:
    """−1 … 1, or the whole numbers −127 … 127: a standard deviation of the half-width over √3."""
    drawn = bind_make(CPU, 1, "uniform")((256, 256), dtype).double()
    most = 127.0 if dtype == "int8" else 1.0
    assert drawn.abs().max().item() <= most
    assert drawn.max().item() > 0.99 * most
    assert drawn.min().item() < -0.99 * most
    assert drawn.std().item() == pytest.approx(most / math.sqrt(3), rel=0.01)
    assert abs(drawn.mean().item()) < 0.02 * most
    if dtype == "int8":
        assert len(drawn.unique()) == 255


@pytest.mark.parametrize("dtype", DRAWN)
def test_ints_are_the_whole_numbers_from_minus_8_to_8_as_often_each(dtype: str) -> None:
    drawn = bind_make(CPU, 1, "ints")((256, 256), dtype).double()
    values, counts = drawn.unique(return_counts=True)
    assert values.tolist() == [float(i) for i in range(-8, 9)]
    assert counts.double().std().item() < 0.03 * counts.double().mean().item()


@pytest.mark.parametrize("dtype", DRAWN)
def test_zeros_are_zeros(dtype: str) -> None:
    assert not bind_make(CPU, 1, "zeros")((64, 64), dtype).double().any()


@pytest.mark.parametrize("dtype", ["fp8", "int8"])
@pytest.mark.parametrize("data", ["randn", "uniform", "ints"])
def test_what_cannot_be_drawn_itself_is_what_fp32_draws_rounded(data: Data, dtype: str) -> None:
    exact = bind_make(CPU, 4, data)((64, 64), "fp32")
    scale = {"randn": 32.0, "uniform": 127.0}.get(data, 1.0) if dtype == "int8" else 1.0
    rounded = (exact * scale).round().clamp(-128, 127) if dtype == "int8" else exact
    drawn = bind_make(CPU, 4, data)((64, 64), dtype)
    assert torch.equal(drawn.float(), rounded.to(torch_dtype(dtype)).float())


@pytest.mark.parametrize("data", get_args(Data))
def test_data_of_every_kind_come_in_every_shape(data: Data) -> None:
    for shape in ((), (1,), (3, 1, 2)):
        for dtype in DRAWN:
            assert bind_make(CPU, 1, data)(shape, dtype).shape == shape


@pytest.mark.parametrize("data", get_args(Data))
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8"])
def test_indices_are_below_their_bound_whatever_the_data(data: Data, dtype: str) -> None:
    drawn = bind_make(CPU, 1, data)((4096,), dtype, high=100)
    assert drawn.dtype == torch_dtype(dtype)
    assert 0 <= drawn.min() <= drawn.max() < 100
    assert (drawn.max() > 90) == (data != "zeros")
    assert torch.equal(drawn, bind_make(CPU, 1, data)((4096,), dtype, high=100))


def test_a_mask_is_true_and_false_evenly() -> None:
    drawn = bind_make(CPU, 1)((4096,), "bool")
    assert drawn.dtype == torch.bool
    assert 0.4 < drawn.double().mean() < 0.6


@pytest.mark.parametrize(("dtype", "high"), [("fp32", 5), ("int8", 1000), ("int64", 0)])
def test_a_bound_that_no_integer_can_have_is_refused(dtype: str, high: int) -> None:
    with pytest.raises(ValueError, match=f"high={high} is"):
        bind_make(CPU, 1)((8,), dtype, high=high)


def test_what_is_counted_of_indices_is_what_they_take() -> None:
    counter = ByteCounter()
    counter((1000,), "int64", high=7)
    counter((1000,), "bool")
    assert counter.bytes == 9000
