"""What operators of CUDA do. Run there: `python -m pytest tests/test_gpu_accounting.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from seen import seen

from gpuperf.profile.cost.accounting import account

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.version.hip is not None, reason="needs an NVIDIA GPU"
    ),
]

aten = torch.ops.aten


def some(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def first_row_sees_one_key(attend: Callable[..., Any]) -> bool:
    """Of two queries and three keys: so it is where a causal mask is aligned upper left."""
    q, k, v = some(1, 1, 2, 64), some(1, 1, 3, 64), some(1, 1, 3, 64)
    return torch.allclose(attend(q, k, v)[0][0, 0, 0], v[0, 0, 0], atol=1e-2)


def test_flash_attention_aligns_a_causal_mask_lower_right() -> None:
    assert not first_row_sees_one_key(
        lambda q, k, v: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)
    )


def test_efficient_attention_aligns_a_causal_mask_upper_left() -> None:
    assert first_row_sees_one_key(
        lambda q, k, v: aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, True)
    )


def test_cudnns_attention_aligns_a_causal_mask_upper_left() -> None:
    assert first_row_sees_one_key(
        lambda q, k, v: aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True)
    )


def attention(backend: str) -> Callable[[], Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run() -> None:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            q, k, v = (some(2, 4, 128, 64) for _ in range(3))
            F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()

    return run


RUNS: dict[str, Callable[[], Any]] = {
    **{
        name: attention(name)
        for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
    },
    "linear": lambda: F.linear(some(2, 7, 8), some(16, 8), some(16)).sum().backward(),
    "conv": lambda: F.conv2d(some(2, 8, 9, 9), some(4, 8, 3, 3), some(4)).sum().backward(),
    "layer norm": lambda: F.layer_norm(some(4, 8), (8,), some(8), some(8)).sum().backward(),
    "rms norm": lambda: F.rms_norm(some(4, 8), (8,), some(8)).sum().backward(),
    "batch norm": lambda: (
        F.batch_norm(
            some(4, 8, 3, 3).float(),
            torch.zeros(8, device="cuda"),
            torch.ones(8, device="cuda"),
            some(8).float(),
            some(8).float(),
            training=True,
        )
        .sum()
        .backward()
    ),
    "softmax": lambda: F.softmax(some(4, 8), -1, dtype=torch.float32).sum().backward(),
    "dropout": lambda: F.dropout(some(4, 8), 0.5).sum().backward(),
    "activations": lambda: F.gelu(F.silu(some(4, 8))).sum().backward(),
    "embedding": lambda: F.embedding(torch.arange(4, device="cuda"), some(10, 4)).sum().backward(),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_call_on_cuda_costs_the_same_whether_its_results_were_seen_or_not(
    run: Callable[[], Any],
) -> None:
    for call in seen(run):
        assert account(call).known, call
        assert account(call) == account(replace(call, outputs=())), call
