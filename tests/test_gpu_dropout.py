"""Dropout and masks of the attention that torch brings for GPUs: `pytest -m gpu` runs these."""

from __future__ import annotations

import pytest
import torch
from attention_points import BY_NAME, of
from gpuperf.kernels.attention import ATTENTION

from gpuperf.measure.bench import Bench
from gpuperf.measure.device import open_device
from gpuperf.measure.stopwatch import open_stopwatch
from gpuperf.measure.telemetry import Meter
from gpuperf.model.contract import Contract, Fingerprint
from gpuperf.model.workload import Case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.version.hip is not None, reason="needs an NVIDIA GPU"
    ),
]

CONTRACT = Contract("auto", gap_s=0.002, duty=0.2, budget_s=0.5)
# torch.compile calls cuDNN where it can. cuDNN 9.19 drops the same elements in four rows of a head.
BY_CUDNN = ("sdpa_cudnn", "compile")
NAMES = ("eager", "compile", "sdpa_math", "sdpa_efficient", "sdpa_flash", "sdpa_cudnn")


# The first backward pass of a process meets a thread without a context, and torch makes one.
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")
@pytest.mark.parametrize("dropout", ["0", "0.1"])
@pytest.mark.parametrize("mask", ["none", "additive", "boolean"])
@pytest.mark.parametrize("mode", ["fwd", "bwd", "fwd+bwd"])
@pytest.mark.parametrize("name", NAMES)
def test_a_mask_and_dropout_are_computed_by_every_backend_that_has_them(
    name: str, mode: str, mask: str, dropout: str
) -> None:
    shape = {"batch": 2, "heads": 4, "seq": 512, "head_dim": 64, "dtype": "bf16"}
    point = of(**shape, mode=mode, mask=mask, dropout=dropout)
    device = open_device("cuda:0")
    if reason := BY_NAME[name].supports(point, device.facts):
        pytest.skip(reason)
    bench = Bench(device, open_stopwatch("auto", device.torch), Meter(), Fingerprint())
    record = bench.measure(ATTENTION, Case("attention", name, point), CONTRACT, "r", seed=0)
    if record.status == "skipped":
        pytest.skip(record.reason)
    if record.status == "wrong" and dropout != "0" and name in BY_CUDNN:
        assert record.reason == "the result drops the same elements of two rows"
        return
    assert (record.status, record.reason) == ("ok", "")
