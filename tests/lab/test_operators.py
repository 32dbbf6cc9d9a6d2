"""The workloads of experiments on operators: each series that a CPU has computes what it should."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from fake_bench import CONTRACT, make_bench
from torch.utils.flop_counter import FlopCounterMode

from gpuperf.measure import warmup
from gpuperf.measure.device import open_device
from gpuperf.measure.inputs import bind_make
from gpuperf.measure.registry import load_all
from gpuperf.model.record import Record
from gpuperf.model.workload import Case, Point, Value
from gpuperf.theory.checkpointing import (
    apart_passes,
    checkpointed_passes,
    inner_passes,
    product_ratio,
)
from gpuperf.theory.dispatch import call_s, knee_bytes
from gpuperf.theory.fusion import binding_operators, fused_ratio

CPU = open_device("cpu")
WORKLOADS = load_all("gpuperf.lab_experiments").workloads


def measured(op: str, implementation: str, axes: Mapping[str, Value]) -> Record:
    """The record of a case that the bench builds, checks, times by a fake timer, and reads."""
    workload = WORKLOADS[op]
    point = {axis.name: axis.default for axis in workload.axes} | axes
    contract = replace(CONTRACT, min_samples=2, budget_s=60.0)
    case = Case(op, implementation, point, source="gpuperf.lab_experiments")
    return make_bench(facts=CPU.facts).measure(workload, case, contract, "r", 0)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # when inductor is imported
@pytest.mark.parametrize(
    ("op", "implementation", "axes"),
    [
        ("chain", "eager", {"n": 36, "ops": 5}),
        ("chain", "compile", {"n": 36, "ops": 5}),
        *(("negation", name, {"n": 33}) for name in ("plain", "out", "inference", "compiled")),
        ("small_function", "eager", {"n": 64, "calls": 2}),
        *(
            ("matmul_stack", name, {"d": 24, "dtype": "fp32", "mode": mode})
            for name in ("stored", "checkpoint", "checkpoint_early")
            for mode in ("fwd", "bwd", "fwd+bwd")
        ),
    ],
)
def test_a_series_that_needs_no_gpu_passes_every_check_of_the_bench(
    op: str, implementation: str, axes: Mapping[str, Value], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "MOST_S", 0.0)  # else up to 30 calls, on a busy host
    record = measured(op, implementation, axes)
    assert record.status == "ok", record.reason


def test_a_fused_chain_takes_as_long_as_one_operator_until_its_products_bind() -> None:
    """On an H200: 33.5 T products a second, and 8 bytes an element at 4.29 TB/s."""
    assert binding_operators(4, 33.5e12, 4.29e12) == pytest.approx(62.5, abs=0.1)
    assert fused_ratio(62, 4, 33.5e12, 4.29e12) == 1
    assert fused_ratio(125, 4, 33.5e12, 4.29e12) == pytest.approx(2.0, abs=0.01)


def test_the_passes_and_products_of_a_checkpoint_are_those_worked_out_by_hand() -> None:
    """Three sigmoids: 15 passes kernel by kernel, 21 with a second forward, 8 fused."""
    assert (apart_passes(3), checkpointed_passes(3), inner_passes(3)) == (15, 21, 8)
    assert product_ratio(3, 3) == product_ratio(100, 100) == 4 / 3
    assert product_ratio(3, 2) == 11 / 9


@pytest.mark.parametrize(("name", "again"), [("checkpoint", 3), ("checkpoint_early", 2)])
def test_a_checkpoint_computes_as_many_products_again_as_predicted(name: str, again: int) -> None:
    workload = WORKLOADS["matmul_stack"]
    point = Point({"d": 8, "mode": "fwd+bwd", "dtype": "fp32"})
    inputs = workload.inputs(point, bind_make(CPU.torch, 0))
    counts = {}
    for each in (i for i in workload.implementations if i.name in ("stored", name)):
        with FlopCounterMode(display=False) as counter:
            each.build(inputs, point, {})()
        counts[each.name] = counter.get_total_flops()
    assert counts["stored"] == sum(f.count for f in workload.cost(point).flops)
    assert counts[name] / counts["stored"] == product_ratio(3, again)


def test_an_operator_of_5_microseconds_moves_21_megabytes_before_the_device_binds() -> None:
    assert knee_bytes(5e-6, 4.29e12) == pytest.approx(21.5e6, rel=0.01)
    assert call_s(5e-6, 20e6, 4.29e12) == 5e-6
    assert call_s(5e-6, 43e6, 4.29e12) == pytest.approx(10e-6, rel=0.01)
