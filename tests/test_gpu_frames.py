"""Is data work right on a GPU and on its host, in every scope, and in the memory it declares?"""

from __future__ import annotations

import pytest
import torch
from every_case import pick
from gpuperf.kernels._frames import SCOPES
from gpuperf.kernels.filter import FILTER
from gpuperf.kernels.groupby import GROUPBY
from gpuperf.kernels.sort import SORT

from gpuperf.measure.checks import compare, poison
from gpuperf.measure.device import open_device
from gpuperf.measure.inputs import bind_make, refill
from gpuperf.measure.result_tensors import refuse_bad_tensors
from gpuperf.model.workload import Point, Workload

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("name", ["numpy", "numpy_threads", "arrow", "torch"])
@pytest.mark.parametrize("workload", [GROUPBY, FILTER, SORT], ids=lambda w: w.name)
def test_results_follow_the_inputs_and_are_where_they_should(
    workload: Workload, name: str, scope: str
) -> None:
    device = open_device("cuda:0")
    implementation = next(each for each in workload.implementations if each.name == name)
    given = {axis.name: axis.default for axis in workload.axes}
    point = Point({**given, "n": 100_003, "scope": scope})
    if reason := implementation.supports(point, device.facts):
        pytest.skip(reason)
    inputs = workload.inputs(point, bind_make(device.torch, 0))
    call = implementation.build(inputs, point, {})
    poison(call())
    refill(inputs, workload.inputs(point, bind_make(device.torch, 1)))
    output = call()
    device.synchronize()
    refuse_bad_tensors(workload, point, inputs, output, device.torch, implementation)
    compare(workload, point, inputs, output, "", pick)
