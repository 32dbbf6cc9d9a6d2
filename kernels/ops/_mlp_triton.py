"""Compute an MLP by torch's products, with its activation and its gradient fused in Triton.

Both activations are z·σ(k(z)): SiLU with k(z) = z, and GELU in its tanh form with
k(z) = 2·√(2/π)·(z + 0.044715·z³), since (1 + tanh t)/2 = σ(2·t).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.kernels._blocks import in_blocks
from gpuperf.kernels._modes import Backward, by_mode

from gpuperf import Point
from gpuperf.jit import Tuned, jit, tl

Inputs = Mapping[str, torch.Tensor]


@jit
def share_of(z, GATED: tl.constexpr):
    """Return σ(k(z)), the factor of z."""
    k = z if GATED else 1.5957691216057308 * (z + 0.044715 * z * z * z)
    return 1.0 / (1.0 + tl.exp(-k))


@jit
def activate_kernel(a, z, up, GATED: tl.constexpr, n, BLOCK: tl.constexpr):
    """Compute BLOCK elements of a = z·σ(k(z)), times those of *up* if GATED."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(z + i, i < n, 0.0).to(tl.float32)
    result = value * share_of(value, GATED)
    if GATED:
        result *= tl.load(up + i, i < n, 0.0).to(tl.float32)
    tl.store(a + i, result.to(a.dtype.element_ty), i < n)


@jit
def gradient_kernel(dz, dup, z, up, da, GATED: tl.constexpr, n, BLOCK: tl.constexpr):
    """Compute BLOCK elements of dz, and of dup if GATED, from those of da."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(z + i, i < n, 0.0).to(tl.float32)
    grad = tl.load(da + i, i < n, 0.0).to(tl.float32)
    share = share_of(value, GATED)
    slope = 1.0  # of k
    if GATED:
        tl.store(dup + i, (grad * value * share).to(dup.dtype.element_ty), i < n)
        grad *= tl.load(up + i, i < n, 0.0).to(tl.float32)
    else:
        slope = 1.5957691216057308 * (1.0 + 3 * 0.044715 * value * value)
    grad *= share * (1.0 + value * (1.0 - share) * slope)
    tl.store(dz + i, grad.to(dz.dtype.element_ty), i < n)


def mlp_triton(inputs: Inputs, point: Point, options: object) -> Tuned:
    """Build the products and the kernels of the mode, which own the hidden tensors (b, h)."""
    x, down, gated = inputs["x"], inputs["down"], "gate" in inputs
    weights = [inputs[name] for name in ("gate", "up") if name in inputs]
    hidden = [x.new_empty(point.b, point.h) for _ in weights]
    a = torch.empty_like(hidden[0])
    activate = in_blocks(activate_kernel, a.numel(), a, hidden[0], hidden[-1], gated)
    chosen = {f"forward_{name}": value for name, value in activate.chosen.items()}

    def forward() -> torch.Tensor:
        for weight, result in zip(weights, hidden, strict=True):
            torch.mm(x, weight.t(), out=result)
        return torch.mm(activate(), down.t())

    if point.mode == "fwd":
        return Tuned(forward, chosen)
    da, slopes = torch.empty_like(a), [torch.empty_like(a) for _ in weights]
    ends = (slopes[0], slopes[-1], hidden[0], hidden[-1], da)
    gradient = in_blocks(gradient_kernel, a.numel(), *ends, gated)
    chosen |= {f"backward_{name}": value for name, value in gradient.chosen.items()}

    def backward(dy: torch.Tensor) -> tuple[torch.Tensor, ...]:
        torch.mm(dy, down, out=da)
        gradient()
        dx = torch.mm(slopes[0], weights[0])
        if gated:
            dx.addmm_(slopes[1], weights[1])
        return (dx, *(torch.mm(slope.t(), x) for slope in slopes), torch.mm(dy.t(), a))

    def both() -> tuple[torch.Tensor, Backward]:
        return forward(), backward

    call: Callable[[], Any] = by_mode(point.mode, inputs, both, forward)
    return Tuned(call, chosen)
