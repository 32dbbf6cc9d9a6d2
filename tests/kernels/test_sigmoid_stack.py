"""Three sigmoids: the passes of their implementations, and that a constant is no right result."""

from __future__ import annotations

import pytest
import torch
from fake_bench import measure
from gpuperf.kernels.sigmoid_stack import SIGMOID_STACK

from gpuperf.measure.inputs import bind_make
from gpuperf.model.workload import Point
from gpuperf.theory.recomputation import recomputed_passes, stored_passes

BY_NAME = {implementation.name: implementation for implementation in SIGMOID_STACK.implementations}


def passes(name: str, mode: str = "fwd+bwd") -> float:
    work = BY_NAME[name].work
    assert work is not None
    return work(Point(n=1000, mode=mode, dtype="fp32")).dram_bytes / 4000


def test_the_passes_are_those_of_the_theory() -> None:
    assert passes("stored") == stored_passes(3) == 9
    assert passes("stored_inner") == 8
    assert passes("recomputed") == recomputed_passes() == 5
    assert passes("eager") == 15
    assert passes("checkpoint") == passes("eager") + passes("eager", "fwd")


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_a_constant_is_refused(dtype: str) -> None:
    point = Point(n=4096, mode="fwd", dtype=dtype)
    y = SIGMOID_STACK.reference(
        SIGMOID_STACK.inputs(point, bind_make(torch.device("cpu"), 1)), point
    )
    mean = float(y.mean())
    record = measure(SIGMOID_STACK, lambda i, p, o: lambda: torch.full_like(i["x"], mean), **point)
    assert record.status == "wrong", record.check


def test_a_checkpoint_computes_the_sigmoids_again() -> None:
    point = Point(n=64, mode="fwd+bwd", dtype="fp32")
    inputs = SIGMOID_STACK.inputs(point, bind_make(torch.device("cpu"), 1))
    for name, forwards in (("eager", 3), ("checkpoint", 6)):
        call = BY_NAME[name].build(inputs, point, {})
        with torch.profiler.profile() as profile:
            call()
        names = [event.name for event in profile.events() or []]
        assert names.count("aten::sigmoid") == forwards
