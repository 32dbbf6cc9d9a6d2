"""Are the CUDA C kernels of long rows right, in every shape of a cluster?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from gpuperf.kernels import _rows_cuda as cuda
from gpuperf.kernels import norms, softmax
from gpuperf.kernels._norms_triton import empty_result

from gpuperf.errors import CannotMeasure
from gpuperf.measure.inputs import bind_make
from gpuperf.model.workload import Point, Workload

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0),
        reason="needs a GPU with clusters",
    ),
]

ROUNDOFF = 2.0**-8  # of bf16
# Rows that fill their blocks and rows that do not, of one to eight blocks.
LENGTHS = [8192, 16384, 30000, 65496, 131072]
NORMS = pytest.mark.parametrize("workload", [norms.LAYERNORM, norms.RMSNORM], ids=lambda w: w.name)


def drawn(workload: Workload, n: int, **axes: str) -> tuple[Point, dict[str, Any]]:
    """Return a point and inputs with more rows than clusters run at a time."""
    point = Point({"m": 300, "n": n, "mode": "fwd+bwd", "dtype": "bf16", **axes})
    return point, dict(workload.inputs(point, bind_make(torch.device("cuda"), 3)))


def assert_near(got: Iterable[torch.Tensor], exact: Iterable[torch.Tensor]) -> None:
    for ours, theirs in zip(got, exact, strict=True):
        assert (ours.double() - theirs).abs().max() <= 2 * ROUNDOFF * theirs.abs().max()


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_every_softmax_and_its_gradient_are_right(n: int, dtype: str) -> None:
    point, inputs = drawn(softmax.SOFTMAX, n, dtype=dtype)
    exact, slope = softmax.SOFTMAX.reference(inputs, point)
    x, dy = inputs["x"], inputs["dy"]
    y, dx = x.new_empty(x.shape), x.new_empty(x.shape)
    for shape in cuda.shapes(cuda.FORWARD, n, 1, 0):
        assert_near([cuda.softmax_call(x, y.fill_(torch.nan), shape)()], [exact])
    for shape in cuda.shapes(cuda.BACKWARD, n, 2, 0):
        assert_near([cuda.softmax_backward_call(y, dy, dx.fill_(torch.nan), shape)()], [slope])


def test_a_softmax_of_infinite_and_of_huge_elements_is_that_of_torch() -> None:
    x = torch.randn(4, 20000, dtype=torch.bfloat16, device="cuda")
    x[0, 5000:], x[1], x[2] = -torch.inf, -torch.inf, -3e38
    x[3, 7] = 3e38
    for shape in cuda.shapes(cuda.FORWARD, 20000, 1, 0):
        ours = cuda.softmax_call(x, torch.empty_like(x), shape)()
        torch.testing.assert_close(ours, torch.softmax(x, 1), equal_nan=True)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("residual", ["off", "on"])
@NORMS
def test_every_norm_and_its_gradients_are_right(workload: Workload, residual: str, n: int) -> None:
    point, inputs = drawn(workload, n, residual=residual)
    inputs["x"] += torch.linspace(-2.0, 8.0, n, device="cuda")  # each warp has another mean
    y, *others = workload.reference(inputs, point)
    added = residual == "on"
    for shape in cuda.shapes(cuda.FORWARD, n, 1 + added, 2):
        result = empty_result(inputs)
        for tensor in (result.y, result.mean, result.rstd):
            tensor.fill_(torch.nan)
        cuda.norm_call(inputs, result, shape)()
        assert_near([result.y], [y])
        if added:
            assert_near([result.rows], others[:1])
    for shape in cuda.shapes(cuda.SUMMED, n, 2 + added, 1):
        gradients = cuda.norm_backward_call(inputs, result, shape)
        first = [tensor.clone() for tensor in gradients()]
        assert_near(first, others[added:])
        for _ in range(5):  # in the same order, whenever which cluster runs
            assert all(map(torch.equal, gradients(), first))


def test_a_constant_row_has_no_variance() -> None:
    _, inputs = drawn(norms.LAYERNORM, 16384)
    inputs["x"][5] = 1000.0
    for shape in cuda.shapes(cuda.FORWARD, 16384, 1, 2):
        result = cuda.norm_call(inputs, empty_result(inputs), shape)()
        assert torch.equal(result.y[5], inputs["bias"])


def test_constant_rows_have_no_gradient_of_the_weight() -> None:
    point, inputs = drawn(norms.LAYERNORM, 16384)
    inputs["x"].fill_(9984.0)  # u is 0, though 1/√ε multiplies what is rounded
    result = empty_result(inputs)
    cuda.norm_call(inputs, result, next(cuda.shapes(cuda.FORWARD, 16384, 1, 2)))()
    slope = norms.LAYERNORM.reference(inputs, point)[1]
    for shape in cuda.shapes(cuda.SUMMED, 16384, 2, 1):
        dx, dweight, _ = cuda.norm_backward_call(inputs, result, shape)()
        assert not dweight.any()
        assert_near([dx], [slope])


def test_rows_that_cannot_be_loaded_by_16_bytes_are_refused() -> None:
    x = torch.empty(10, 16385, dtype=torch.bfloat16, device="cuda")[:, 1:]
    with pytest.raises(CannotMeasure, match="16 bytes"):
        cuda.softmax_call(x, torch.empty_like(x), next(cuda.shapes(cuda.FORWARD, 16384, 1, 2)))
