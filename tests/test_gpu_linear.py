"""Are linear layers with quantized weights right on a GPU, for few rows of x and for many?"""

from __future__ import annotations

import pytest
import torch
from gpuperf.kernels import _linear_cuda, _linear_triton
from gpuperf.kernels._quantized import FORMATS
from gpuperf.kernels.linear import LINEAR

from gpuperf.measure.checks import compare, poison
from gpuperf.measure.device import open_device
from gpuperf.measure.inputs import bind_make
from gpuperf.measure.verify import picker
from gpuperf.model.workload import Implementation, Point

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

BY_NAME = {implementation.name: implementation for implementation in LINEAR.implementations}


def check(implementation: Implementation, at: Point) -> None:
    """Compare the result of *implementation* with the reference."""
    device = open_device("cuda:0")
    if reason := implementation.supports(at, device.facts):
        pytest.skip(reason)
    inputs = LINEAR.inputs(at, bind_make(device.torch, 0))
    call = implementation.build(inputs, at, {})
    poison(call())
    accumulate = LINEAR.cost(at).flops[0].accumulate
    rows = picker(torch.Generator().manual_seed(2))
    compare(LINEAR, at, inputs, call(), accumulate, rows)


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("m", [1, 16, 300])
@pytest.mark.parametrize("name", ["torch", "dequantize"])
def test_torch_is_right_for_few_rows_and_many(name: str, m: int, weights: str) -> None:
    check(BY_NAME[name], Point(m=m, n=512, k=1024, weights=weights, dtype="bf16"))


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("m", [1, 16, 60, 300, 600])
def test_every_tile_is_right(m: int, weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rows that end within a tile; groups of 128 fill the tiles or are longer than they."""
    at = Point(m=m, n=500, k=1024, weights=weights, dtype="bf16")
    kind = {"fp8": torch.float8_e4m3fn, "int8-dynamic": torch.int8}.get(weights, torch.bfloat16)
    for tile in _linear_triton.tiles(torch.empty(0, dtype=kind, device="cuda:0"), at):
        monkeypatch.setattr(_linear_triton, "tiles", lambda x, point, tile=tile: [tile])
        check(BY_NAME["triton"], at)


@pytest.mark.parametrize("weights", ["int4", "int8"])
@pytest.mark.parametrize("m", [1, 8, 13])
def test_every_shape_of_a_block_is_right(
    m: int, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rows that end within a block, and steps that its warps share unevenly."""
    at = Point(m=m, n=500, k=2816, weights=weights, dtype="bf16")
    for shape in _linear_cuda.shapes(at):
        monkeypatch.setattr(_linear_cuda, "shapes", lambda point, shape=shape: [shape])
        check(BY_NAME["cuda"], at)


@pytest.mark.parametrize("group", [6, 96])
def test_groups_that_do_not_fill_a_tile_are_right(group: int) -> None:
    at = Point(m=3, n=500, k=960, group=group, weights="int4", dtype="fp16")
    check(BY_NAME["triton"], at)
    check(BY_NAME["triton"], Point({**at, "m": 100}))
