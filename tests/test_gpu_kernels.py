"""Is every implementation right on a GPU too? At crooked sizes, with the first of its tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from every_case import every_case, odd_points, pick
from gpuperf.kernels import sincos

from gpuperf import jit
from gpuperf.errors import Unsupported
from gpuperf.measure.checks import compare, poison
from gpuperf.measure.device import open_device
from gpuperf.measure.inputs import bind_make, refill
from gpuperf.model.workload import Implementation, Point, Workload

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def cases() -> Iterator[Any]:
    """Those in bf16, and in fp32 where the words are few: each compiles for a second or two."""
    for case in every_case():
        workload, _, chosen, _ = case.values
        if chosen["dtype"] == "bf16" or (chosen["dtype"] == "fp32" and len(workload.axes) < 6):
            yield case


def test_sincos_in_cuda_c_is_right_for_any_number() -> None:
    point = Point({"n": 4099, "dtype": "fp32"})
    x = torch.randn(4099, device="cuda") * torch.logspace(0, 30, 4099, device="cuda")
    odd = torch.tensor([torch.inf, -torch.inf, torch.nan, 1e4, 1.0001e4, -0.0], device="cuda")
    x[:6], x[-6:] = odd, odd
    y = sincos.sincos_cuda({"x": x, "b": torch.ones(1, device="cuda")}, point, None)()
    real = torch.isfinite(x)
    assert torch.equal(torch.isnan(y), ~real)
    assert (y[real] - 1).abs().max() <= 1e-6


@pytest.mark.parametrize(("workload", "implementation", "chosen", "given"), list(cases()))
@pytest.mark.filterwarnings("ignore")
def test_an_implementation_is_right(
    workload: Workload,
    implementation: Implementation,
    chosen: Mapping[str, str],
    given: Mapping[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What tuning chooses among is compiled for seconds each; the first does here.
    monkeypatch.setattr(jit, "INTERPRETED", True)
    device = open_device("cuda:0")
    reason: str | None = "no size fits"
    for point in odd_points(workload, chosen):
        reason = implementation.supports(point, device.facts)
        if reason is None:
            break
    if reason is not None:
        pytest.skip(reason)
    inputs = workload.inputs(point, bind_make(device.torch, 0))
    try:
        call = implementation.build(inputs, point, given)
        poison(call())
    except Unsupported as lacking:
        pytest.skip(str(lacking))
    refill(inputs, workload.inputs(point, bind_make(device.torch, 1)))
    before = {
        name: value.clone() if name in workload.mutates else value for name, value in inputs.items()
    }
    output = call()
    device.synchronize()
    flops = workload.cost(point).flops
    accumulate = flops[0].accumulate if flops else ""
    check = compare(workload, Point(point), before, output, accumulate, pick)
    assert check.error <= check.tolerance
