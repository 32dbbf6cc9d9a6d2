"""Linear layers: every format against fp32's tolerance, their bytes, refusals and error."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from every_case import CPU, pick
from gpuperf.kernels import _linear_triton
from gpuperf.kernels import _linear_wide as wide
from gpuperf.kernels._quantized import FORMATS, fill_codes, pack, restored, unpack
from gpuperf.kernels.linear import LINEAR

from gpuperf.errors import CannotMeasure
from gpuperf.measure.checks import compare, poison
from gpuperf.measure.inputs import bind_make
from gpuperf.model.workload import Point
from gpuperf.theory.transformer.step import Formats

BY_NAME = {implementation.name: implementation for implementation in LINEAR.implementations}


def point(weights: str, m: int = 3, dtype: str = "fp32", **sizes: int) -> Point:
    return Point(
        {"m": m, "n": 48, "k": 192, "group": 64, "weights": weights, "dtype": dtype} | sizes
    )


def inputs_of(at: Point, seed: int = 0) -> dict[str, torch.Tensor]:
    return dict(LINEAR.inputs(at, bind_make(torch.device("cpu"), seed)))


def check(name: str, at: Point) -> Any:
    """Build the call of *name*, and compare its result with the reference; return the call."""
    implementation = BY_NAME[name]
    assert implementation.supports(at, CPU.facts) is None
    inputs = inputs_of(at)
    call = implementation.build(inputs, at, {})
    poison(call())
    accumulate = LINEAR.cost(at).flops[0].accumulate
    compare(LINEAR, at, inputs, call(), accumulate, pick)
    return call


@pytest.mark.parametrize("weights", FORMATS[1:])
def test_a_product_of_quantized_weights_is_right_to_the_digits_of_fp32(weights: str) -> None:
    sizes = {} if weights == "int4" else {"n": 37, "k": 71}
    for m in (2, 17):  # by the GEMV, and by tiles
        check("triton", point(weights, m, **sizes))
    check("dequantize", point(weights, **sizes))
    call = check("torch", point(weights))
    assert 1e-3 < call.readings()["quantization_error"] < 0.2


@pytest.mark.parametrize("group", [6, 32, 192])
def test_groups_need_not_be_powers_of_two_nor_fill_a_tile(group: int) -> None:
    for m in (2, 17):
        check("triton", point("int4", m, n=7, k=192, group=group))


@pytest.mark.parametrize(
    ("weights", "promote", "restore"),
    [*((weights, 0, 0) for weights in FORMATS), *(("fp8", 64, 0), ("int8", 0, 1), ("int4", 0, 1))],
)
def test_tiles_of_many_rows_are_right_where_they_end_within_a_matrix(
    weights: str, promote: int, restore: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = point(weights, 37, n=75, k=192, group=32)
    tile = dict(zip(wide.KEYS, (16, 32, 32, 4, 1, promote, restore), strict=True))
    monkeypatch.setattr(_linear_triton, "tiles", lambda x, point: [tile])
    check("triton", at)


def test_weights_are_moved_by_tma_if_their_rows_are_aligned_and_groups_fill_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wide, "has_tma", lambda device: True)
    x = torch.empty(0, dtype=torch.bfloat16)
    at = point("int4", 64, "bf16", k=1024, group=128)
    heights = {tile["BM"] for tile in wide.wide_tiles(x, at)}
    assert heights == {32, 64}
    assert not wide.wide_tiles(x, Point({**at, "group": 16}))
    assert not wide.wide_tiles(x, Point({**at, "k": 1032, "group": 129}))
    assert not wide.wide_tiles(x.float(), at)
    restoring = wide.wide_tiles(x, Point({**at, "m": 4096, "group": 16}))
    assert restoring
    assert all(tile["RESTORE"] for tile in restoring)


def test_a_group_that_does_not_divide_k_is_refused_in_a_sentence() -> None:
    with pytest.raises(CannotMeasure, match="groups of 64 weights do not divide k = 160"):
        inputs_of(point("int4", k=160))
    with pytest.raises(CannotMeasure, match="k = 65 is odd"):
        inputs_of(point("int4", k=65, group=5))


def test_two_codes_fit_in_a_byte_and_come_back() -> None:
    codes = torch.arange(-8, 8, dtype=torch.int8).repeat(3, 2)
    assert pack(codes).shape == (3, 16)
    assert torch.equal(unpack(pack(codes)), codes)


@pytest.mark.parametrize("weights", FORMATS[1:])
def test_a_restored_weight_is_within_half_a_step_of_the_original(weights: str) -> None:
    at = point(weights)
    inputs = inputs_of(at)
    off = (restored(inputs, at, torch.float64) - inputs["original"].double()).abs()
    step = inputs["scale"].double().expand(48, -1) if weights != "fp8" else inputs["scale"].double()
    step = step.repeat_interleave(192 // step.shape[1], 1) if weights != "fp8" else 32 * step
    assert (off <= step * 0.5001).all()


def test_weights_of_zeros_stay_zeros() -> None:
    weight, scale = torch.ones((4, 8), dtype=torch.int8), torch.ones((4, 1))
    fill_codes(torch.zeros((4, 8)), weight, scale, "int8")
    assert not weight.any()
    assert (scale == 1).all()


@pytest.mark.parametrize("weights", ["fp8", "int8", "int8-dynamic", "int4"])
def test_the_bytes_of_the_weights_are_those_of_the_theory(weights: str) -> None:
    at = Point(m=1, n=8192, k=8192, weights=weights, dtype="bf16")
    moved = LINEAR.cost(at).bytes[0]
    activations = 8192 * (1 if weights == "fp8" else 2)
    bits = (moved.read - activations) * 8 / 8192**2
    assert bits == pytest.approx(Formats(weights).weight_bits, rel=5e-3)  # it has no scale of a row
    work = BY_NAME["dequantize"].work
    assert work is not None
    extra = work(at).dram_bytes - LINEAR.cost(at).dram_bytes
    assert extra == pytest.approx(2 * 2 * 8192**2, rel=1e-3)  # bf16 weights, written and read
