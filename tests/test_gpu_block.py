"""The rungs of the block's ladder on a GPU, in each phase: right, and timed."""

from __future__ import annotations

import pytest
import torch
from gpuperf.kernels.block import BLOCK

from gpuperf.measure.bench import Bench
from gpuperf.measure.device import open_device
from gpuperf.measure.stopwatch import open_stopwatch
from gpuperf.measure.telemetry import Meter
from gpuperf.model.contract import Contract, Fingerprint
from gpuperf.model.workload import Case, Point

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

CONTRACT = Contract("auto", gap_s=0.002, duty=0.2, budget_s=0.3)
SHAPE = {"batch": 2, "heads": 16, "gqa": 4, "seq": 256, "hidden": 1024, "head_dim": 64}


# The first backward pass of a process meets a thread without a context, and torch makes one.
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")
@pytest.mark.parametrize("phase", ["decode", "prefill", "train"])
@pytest.mark.parametrize("name", [each.name for each in BLOCK.implementations])
def test_a_rung_is_right_and_has_a_time(name: str, phase: str) -> None:
    device = open_device("cuda:0")
    point = Point({**SHAPE, "phase": phase, "dtype": "bf16"})
    implementation = next(each for each in BLOCK.implementations if each.name == name)
    if reason := implementation.supports(point, device.facts):
        pytest.skip(reason)
    bench = Bench(device, open_stopwatch("auto", device.torch), Meter(), Fingerprint())
    record = bench.measure(BLOCK, Case("block", name, point), CONTRACT, "r", seed=0)
    assert (record.status, record.reason) == ("ok", "")
