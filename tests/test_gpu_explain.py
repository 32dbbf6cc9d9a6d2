"""Launches, cycles and loss budgets of real kernels, on a GPU."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gpuperf.explain.advice import advise
from gpuperf.explain.study import TIE, LossBudget, explain
from gpuperf.model.record import Record, Run
from gpuperf.run.store import read_run
from gpuperf.tiles.grids import ways
from gpuperf.tiles.names import parse_name

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.version.hip is not None, reason="needs an NVIDIA GPU"
    ),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("explain")
    command = "roofline matmul --sizes 1000,1024,8191,8192 --counters kernels --dtype bf16"
    gpuperf = Path(sys.executable).with_name("gpuperf")
    subprocess.run([gpuperf, *command.split(), "--out", out], check=True, timeout=300)
    (path,) = out.glob("*.jsonl")
    return read_run(path)


def found(run: Run, size: int) -> tuple[Record, LossBudget]:
    record = next(r for r in run.records if r.case.point["m"] == size)
    return record, explain(record, run.header)


STAMPS_S = 0.5e-6  # CUPTI's stamps around a call; seen up to 0.48 µs, of 1000³ (7.7 µs)


@pytest.mark.parametrize("size", [1000, 1024, 8191, 8192])
def test_a_budget_of_measured_steps_is_exact_and_tied_to_the_time(run: Run, size: int) -> None:
    record, told = found(run, size)
    steps = {factor.name: factor for factor in told.factors}
    assert all(factor.how == "measured" for factor in told.factors)
    product = math.prod(factor.value for factor in told.factors)
    assert product == pytest.approx(told.attained / told.peak, rel=1e-9)
    assert record.samples is not None
    doubt = max(0.02, STAMPS_S / record.samples.median_s)
    assert steps[TIE].value == pytest.approx(1, abs=doubt)
    assert 0 < steps["ramp and tail"].value <= 1.01
    assert 0 < steps["feeding"].value <= 1.001


def test_the_loss_of_odd_sizes_is_on_named_causes(run: Run) -> None:
    for size in (1000, 8191):
        assert (found(run, size)[1].named or 0) >= 0.95
    odd = found(run, 8191)[1]
    assert odd.largest.name == "feeding"
    assert "aligned to 2 bytes" in advise(odd)
    assert {f.name: f.value for f in odd.factors}["instruction path"] < 0.6


@pytest.mark.parametrize("size", [1000, 1024, 8191, 8192])
def test_each_kernel_has_its_launch_and_its_time(run: Run, size: int) -> None:
    record, _ = found(run, size)
    kernels = [kernel for kernel in record.kernels if not kernel.name.startswith("Mem")]
    assert kernels
    for kernel in kernels:
        tile = parse_name(kernel.name)
        assert tile is not None
        assert kernel.launch is not None
        assert kernel.launch.registers > 0
        assert ways(tile, kernel.launch, size, size, run.header.device.sm_count)
    seconds = sum(kernel.time_s or 0.0 for kernel in record.kernels)
    assert seconds == pytest.approx(record.times["busy"].median_s, rel=0.02)
