"""Are results refused of which a part was left out, and no others?"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from gpuperf.judge.inside.lost_parts import refuse_lost_parts
from gpuperf.measure import pieces
from gpuperf.measure.deviation import WrongResult

ALLOWED = 0.01


@pytest.fixture(params=[2**25, 50], ids=["whole", "by pieces"], autouse=True)
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", request.param)


def scaled(axis: int, scale: float) -> torch.Tensor:
    """Values of which every second slice along *axis* is small."""
    torch.manual_seed(1)
    values = torch.randn(4, 6, 20, 24, dtype=torch.float64)
    values.transpose(0, axis)[1::2] *= scale
    return values


@pytest.mark.parametrize("axis", range(4))
def test_a_slice_that_is_left_out_is_refused(axis: int) -> None:
    want = scaled(axis, 0.003)
    own = want.bfloat16()
    refuse_lost_parts((want * (1 + 1e-3)).float(), want, (own, want), ALLOWED)
    got = own.clone()
    got.transpose(0, axis)[1] = 0
    with pytest.raises(WrongResult, match=r"of the size of .* alone"):
        refuse_lost_parts(got, want, (own, want), ALLOWED)


def test_slices_far_under_the_tolerance_are_not_judged() -> None:
    want = scaled(1, 1e-4)
    got = want.bfloat16()
    got[:, 1] = 0
    refuse_lost_parts(got, want, (want.bfloat16(), want), ALLOWED)


def test_what_the_reference_does_not_know_either_is_granted() -> None:
    want = scaled(1, 0.003)
    noise = 0.003 * torch.randn(want.shape, dtype=torch.float64)
    refuse_lost_parts(want + noise, want, (want - noise, want), ALLOWED)
    refuse_lost_parts(want + noise, want, (want.float(), want + 0.2 * noise), ALLOWED)


def test_scores_that_overflow_or_vanish_are_no_lost_parts() -> None:
    torch.manual_seed(1)
    scores = 64 * torch.randn(40, 300, dtype=torch.float64)
    want = F.softmax(scores, 1)
    own = F.softmax(scores.float(), 1)
    got = torch.exp2((scores.float() - scores.float().amax(1, keepdim=True)) * 1.44269504)
    refuse_lost_parts(got / got.sum(1, keepdim=True), want, (own, want), 4e-6)
    want = torch.full((40, 30), torch.inf, dtype=torch.float64)
    refuse_lost_parts(torch.zeros(40, 30), want, (want, want), ALLOWED)


@pytest.mark.parametrize("shape", [(), (5,), (0, 4), (3, 0), (3, 4)])
def test_results_without_rows_of_many_elements_are_not_judged(shape: tuple[int, ...]) -> None:
    want = torch.ones(shape, dtype=torch.float64)
    refuse_lost_parts(torch.zeros(shape), want, (want, want), ALLOWED)
