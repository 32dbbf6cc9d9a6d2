"""The software of a record names what its times depend on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import h200_device

from gpuperf.errors import UnknownName
from gpuperf.measure.device import open_device
from gpuperf.measure.fingerprint import fingerprint_of
from gpuperf.measure.telemetry import Meter

CPU = open_device("cpu")


def test_a_gpu_has_the_recorder_of_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = replace(CPU, facts=h200_device())
    monkeypatch.delenv("GPUPERF_RECORDER", raising=False)
    assert fingerprint_of(gpu, Meter())[1].soft["recorder"] == "cupti"
    monkeypatch.setenv("GPUPERF_RECORDER", "kineto")
    assert fingerprint_of(gpu, Meter())[1].soft["recorder"] == "kineto"
    assert "recorder" not in fingerprint_of(CPU, Meter())[1].soft
    monkeypatch.setenv("GPUPERF_RECORDER", "tape")
    with pytest.raises(UnknownName, match="tape"):
        fingerprint_of(gpu, Meter())
