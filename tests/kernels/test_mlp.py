"""MLPs: their FLOPs and bytes against the theory, and that each activation is the one named."""

from __future__ import annotations

import pytest
import torch
from fake_bench import measure
from gpuperf.kernels.mlp import FORMS, MLP
from torch.utils.flop_counter import FlopCounterMode

from gpuperf.measure.inputs import bind_make
from gpuperf.model.workload import Point
from gpuperf.theory.mlp import products

BY_NAME = {implementation.name: implementation for implementation in MLP.implementations}
SIZES = {"b": 33, "n": 47, "h": 65}
MODES = {"fwd": ("forward",), "bwd": ("backward",), "fwd+bwd": ("forward", "backward")}


def point_of(form: str, mode: str = "fwd", dtype: str = "fp32") -> Point:
    return Point({**SIZES, "form": form, "mode": mode, "dtype": dtype})


def inputs_of(point: Point) -> dict[str, torch.Tensor]:
    return dict(MLP.inputs(point, bind_make(torch.device("cpu"), 1)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", MODES)
def test_flops_and_bytes_are_those_of_the_theory(form: str, mode: str) -> None:
    point = point_of(form, mode)
    listed = [p for p in products(33, 47, 65, 4, True, form == "gated") if p[1] in MODES[mode]]
    assert MLP.cost(point).flop_count == sum(p[2] for p in listed)
    work = BY_NAME["triton"].work
    assert work is not None
    hidden = {"fwd": {"plain": 2, "gated": 3}, "bwd": {"plain": 3, "gated": 5}}
    passes = sum(hidden[each][form] for each in hidden if each in mode)
    sums = 33 * 47 if form == "gated" and "bwd" in mode else 0  # dx is read again
    more = 4 * (passes * 33 * 65 + sums)
    assert work(point).dram_bytes == sum(p[3] for p in listed) + more


@pytest.mark.parametrize("form", FORMS)
def test_the_flops_are_those_that_torch_counts(form: str) -> None:
    point = point_of(form, "fwd+bwd")
    with FlopCounterMode(display=False) as counter:
        BY_NAME["eager"].build(inputs_of(point), point, {})()
    assert counter.get_total_flops() == MLP.cost(point).flop_count


def test_a_gate_saves_passes_of_the_activation_alone() -> None:
    for mode, saved in (("fwd", 2), ("bwd", 4)):
        point = point_of("gated", mode)
        eager, fused = (BY_NAME[name].work for name in ("eager", "triton"))
        assert eager is not None
        assert fused is not None
        sums = 2 * 33 * 47 if mode == "bwd" else 0
        assert eager(point).dram_bytes - fused(point).dram_bytes == 4 * (saved * 33 * 65 + sums)
        assert eager(point).flops == fused(point).flops


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("form", FORMS)
def test_another_activation_is_refused(form: str, dtype: str) -> None:
    from torch.nn import functional as F

    def relu(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        into = F.relu(F.linear(inputs["x"], inputs["gate" if form == "gated" else "up"]))
        if form == "gated":
            into = into * F.linear(inputs["x"], inputs["up"])
        return F.linear(into, inputs["down"])

    record = measure(MLP, lambda i, p, o: lambda: relu(i), **point_of(form, "fwd", dtype))
    assert record.status == "wrong", record.check
