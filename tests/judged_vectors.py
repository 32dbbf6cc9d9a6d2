"""Vectors that tests of the judge compare, whole and by pieces."""

from __future__ import annotations

import pytest
import torch

from gpuperf.measure import pieces

COUNT = 600


@pytest.fixture(params=[2**25, 50], ids=["whole", "by pieces"], autouse=True)
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", request.param)


def make(seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(COUNT)]
