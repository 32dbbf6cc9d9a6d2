"""Frames on host and device: what a call of each scope includes, and where its result is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_bench import measure
from gpuperf.kernels import _frames
from gpuperf.kernels.filter import FILTER
from gpuperf.kernels.groupby import GROUPBY
from gpuperf.kernels.sort import SORT

from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.inputs import bind_make
from gpuperf.measure.registry import load_all
from gpuperf.measure.result_tensors import refuse_bad_tensors
from gpuperf.model.workload import Implementation, Point, Workload
from gpuperf.run.plan import plan_cases

CPU = torch.device("cpu")
WORKLOADS = {"groupby": GROUPBY, "filter": FILTER, "sort": SORT}


def point_of(workload: Workload, scope: str, n: int = 1000) -> Point:
    given = {axis.name: axis.default for axis in workload.axes}
    return Point({**given, "n": n, "scope": scope})


def by_name(workload: Workload, name: str) -> Implementation:
    return next(each for each in workload.implementations if each.name == name)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_sweep_has_all_three_scopes_unless_one_is_given(name: str) -> None:
    described = load_all("gpuperf.kernels").workloads[name].describe("gpuperf.kernels")
    cases = plan_cases(described, {}, None, ("torch",))
    assert [case.point["scope"] for case in cases] == [*_frames.SCOPES]
    (case,) = plan_cases(described, {"scope": "copied"}, None, ("torch",))
    assert case.point["scope"] == "copied"


@pytest.mark.parametrize("scope", _frames.SCOPES)
def test_columns_on_the_host_follow_the_inputs(scope: str) -> None:
    point = point_of(SORT, scope)
    inputs = SORT.inputs(point, bind_make(CPU, 1))
    call = by_name(SORT, "numpy").build(inputs, point, {})
    call()
    inputs["key"].copy_(torch.arange(1000).flip(0))
    inputs["value"].copy_(torch.arange(1000))
    key, value = call()
    assert torch.equal(key, torch.arange(1000))
    assert torch.equal(value, torch.arange(999.0, -1.0, -1.0))


def test_a_frame_is_split_from_its_rows_in_every_call_that_builds_one() -> None:
    point = point_of(GROUPBY, "end-to-end")
    inputs = GROUPBY.inputs(point, bind_make(CPU, 1))
    frame = _frames.HostFrame(inputs, point)
    key, value = frame.split()
    assert np.array_equal(key, inputs["key"].numpy())
    assert np.array_equal(value, inputs["value"].numpy())
    assert not np.shares_memory(key, inputs["key"].numpy())
    key[:] = 0
    assert frame.split()[0].any(), "the rows do not change with the columns"


def test_the_work_of_torch_has_the_bytes_that_cross_the_link() -> None:
    work = by_name(SORT, "torch").work
    assert work is not None
    by_scope = {scope: work(point_of(SORT, scope)) for scope in _frames.SCOPES}
    assert by_scope["kernel"].dram_bytes == SORT.cost(point_of(SORT, "kernel")).dram_bytes == 24000
    for scope in ("copied", "end-to-end"):
        (link,) = (b for b in by_scope[scope].bytes if b.channel == "host")
        assert (link.read, link.written) == (12000, 12000)


def test_ties_keep_their_order_in_all_sorts() -> None:
    point = point_of(SORT, "kernel", 4000)
    inputs = dict(SORT.inputs(point, bind_make(CPU, 1)))
    inputs["key"] %= 50
    first, *others = (each.build(inputs, point, {})() for each in SORT.implementations)
    for other in others:
        for one, two in zip(first, other, strict=True):
            assert torch.equal(one, two)


def test_a_limit_that_admits_a_key_too_many_is_wrong() -> None:
    def one_more(inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        kept = inputs["key"] <= 10
        return inputs["key"][kept], inputs["value"][kept]

    point = {name: value for name, value in point_of(FILTER, "kernel").items() if name != "dtype"}
    record = measure(FILTER, lambda i, p, o: lambda: one_more(i), **point, dtype="fp32")
    assert record.status == "wrong"


def test_a_result_must_be_in_the_memory_that_its_implementation_declares() -> None:
    point = point_of(GROUPBY, "kernel")
    inputs = GROUPBY.inputs(point, bind_make(CPU, 1))
    output, gpu = torch.zeros(point.groups), torch.device("cuda")
    refuse_bad_tensors(GROUPBY, point, inputs, output, gpu, by_name(GROUPBY, "numpy"))
    device = by_name(GROUPBY, "torch")
    with pytest.raises(WrongResult, match="'cuda' is right"):
        refuse_bad_tensors(GROUPBY, point, inputs, output, gpu, device)
    copied = point_of(GROUPBY, "copied")
    refuse_bad_tensors(GROUPBY, copied, inputs, output, gpu, device)
