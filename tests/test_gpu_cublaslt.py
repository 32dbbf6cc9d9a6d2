"""Are cuBLASLt's products right on a GPU, whichever algorithm computes them?"""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from gpuperf.kernels import _cublaslt_search
from gpuperf.kernels._cublaslt_search import CUBLASLT, listed_algorithms, product_of
from gpuperf.kernels.matmul import DTYPES, MATMUL

from gpuperf import jit
from gpuperf.measure.checks import compare, poison
from gpuperf.measure.device import open_device
from gpuperf.measure.inputs import bind_make
from gpuperf.measure.verify import picker
from gpuperf.model.workload import Implementation, Point

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

ODD = {"fp8": (33, 48, 80), "int8": (33, 44, 76)}
LARGER = {"fp8": (300, 528, 1040), "int8": (300, 516, 1028)}


@pytest.fixture(autouse=True)
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cublaslt_search, "SCREEN_S", 0.2)
    monkeypatch.setattr(jit, "_remembered", jit._Memory())


def check(point: Point, call: object) -> None:
    """Compare the result of *call* with the float64 reference."""
    device = open_device("cuda:0")
    accumulate = MATMUL.cost(point).flops[0].accumulate
    inputs = MATMUL.inputs(point, bind_make(device.torch, 0))
    rows = picker(torch.Generator().manual_seed(2))
    compare(MATMUL, point, inputs, call, accumulate, rows)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [ODD, LARGER], ids=["odd", "larger"])
@pytest.mark.parametrize("implementation", CUBLASLT, ids=lambda each: str(each.name))
def test_a_product_is_that_of_the_reference(
    implementation: Implementation, sizes: dict[str, tuple[int, int, int]], dtype: str
) -> None:
    m, n, k = sizes.get(dtype, (33, 47, 65) if sizes is ODD else (301, 517, 1031))
    point = Point(m=m, n=n, k=k, dtype=dtype)
    device = open_device("cuda:0")
    if reason := implementation.supports(point, device.facts):
        pytest.skip(reason)
    inputs = MATMUL.inputs(point, bind_make(device.torch, 0))
    call = implementation.build(inputs, point, {})
    poison(call())
    check(point, call())
    assert call.chosen["workspace_bytes"] <= 32 << 20


@pytest.mark.parametrize("dtype", ["bf16", "tf32", "fp8", "int8"])
def test_every_listed_algorithm_and_its_neighbours_are_right(dtype: str) -> None:
    m, n, k = LARGER.get(dtype, (304, 520, 1032))
    point = Point(m=m, n=n, k=k, dtype=dtype)
    device = open_device("cuda:0")
    if reason := CUBLASLT[0].supports(point, device.facts):
        pytest.skip(reason)
    inputs = MATMUL.inputs(point, bind_make(device.torch, 0))
    product = product_of(inputs, point)
    listed = listed_algorithms(product, point)
    ran = 0
    for algorithm in islice(dict.fromkeys([*listed, *product.neighbours(listed[0])]), 100):
        poison(product.c)
        try:
            result = product.call(algorithm)()
        except _cublaslt_search.Refused:
            continue
        check(point, result)
        ran += 1
    assert ran >= 2


def test_the_search_is_no_slower_than_the_heuristic() -> None:
    point = Point(m=64, n=8192, k=1024, dtype="bf16")
    inputs = MATMUL.inputs(point, bind_make(torch.device("cuda:0"), 0))
    call = CUBLASLT[1].build(inputs, point, {})
    assert call.readings()["heuristic_loss"] >= 0
    assert call.readings()["algorithms_tried"] >= 2
