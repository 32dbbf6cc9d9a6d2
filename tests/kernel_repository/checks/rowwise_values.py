"""Tests of values, which their author names so."""

import rowwise
import torch


def test_rms_norm_has_unit_rows():
    x = torch.randn(4, 64)
    assert torch.allclose(rowwise.rms_norm(x, torch.ones(64)).square().mean(-1), torch.ones(4))


def test_swiglu_is_zero_for_a_closed_gate():
    assert not rowwise.swiglu(torch.ones(2, 8), torch.zeros(2, 8)).any()
