"""Small points of the attention workload, their inputs, and devices that compute them."""

from __future__ import annotations

from typing import Any

import torch
from gpuperf.kernels.attention import ATTENTION

from gpuperf.measure.inputs import bind_make
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.workload import Point

__all__ = ["BY_NAME", "CPU", "GPU", "inputs_of", "of"]

CPU = DeviceFacts("cpu", 0, "CPU", 1, 0, 0)
GPU = DeviceFacts("cuda", 0, "GPU", 132, 0, 0, capability="9.0")
BY_NAME = {implementation.name: implementation for implementation in ATTENTION.implementations}


def of(**given: Any) -> Point:
    default = {axis.name: axis.default for axis in ATTENTION.axes}
    small = {"batch": 2, "heads": 4, "seq": 9, "head_dim": 16, "dtype": "fp32"}
    return Point(default | small | given)


def inputs_of(point: Point, seed: int = 0) -> dict[str, torch.Tensor]:
    return dict(ATTENTION.inputs(point, bind_make(torch.device("cpu"), seed)))
