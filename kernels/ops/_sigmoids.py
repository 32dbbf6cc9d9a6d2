"""Compute three stacked sigmoids and their gradient with Triton, keeping 0, 2 or 3 results."""

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
def sigmoid(x: tl.tensor) -> Any:
    return 1.0 / (1.0 + tl.exp(-x))


@jit
def stack_kernel(y, x, a, b, KEPT: tl.constexpr, n, BLOCK: tl.constexpr):
    """Compute BLOCK elements of y in fp32; write the first two results to a and b if KEPT."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    first = sigmoid(tl.load(x + i, i < n, 0.0).to(tl.float32))
    second = sigmoid(first)
    if KEPT:
        tl.store(a + i, first.to(a.dtype.element_ty), i < n)
        tl.store(b + i, second.to(b.dtype.element_ty), i < n)
    tl.store(y + i, sigmoid(second).to(y.dtype.element_ty), i < n)


@jit
def gradient_kernel(dx, dy, x, a, b, y, KEPT: tl.constexpr, n, BLOCK: tl.constexpr):
    """Compute BLOCK elements of dx from x, or from a and b, or from a, b and y."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if KEPT:
        first = tl.load(a + i, i < n, 0.0).to(tl.float32)
        second = tl.load(b + i, i < n, 0.0).to(tl.float32)
    else:
        first = sigmoid(tl.load(x + i, i < n, 0.0).to(tl.float32))
        second = sigmoid(first)
    third = tl.load(y + i, i < n, 0.0).to(tl.float32) if KEPT == 3 else sigmoid(second)
    slope = first * (1.0 - first) * second * (1.0 - second) * third * (1.0 - third)
    gradient = tl.load(dy + i, i < n, 0.0).to(tl.float32) * slope
    tl.store(dx + i, gradient.to(dx.dtype.element_ty), i < n)


def stack_triton(kept: int) -> Callable[[Inputs, Point, object], Tuned]:
    """Return the build of the Triton kernels that keep *kept* results."""

    def build(inputs: Inputs, point: Point, options: object) -> Tuned:
        x, y = inputs["x"], torch.empty_like(inputs["x"])
        a, b = (torch.empty_like(x), torch.empty_like(x)) if kept else (x, x)
        forward = in_blocks(stack_kernel, point.n, y, x, a, b, kept)
        chosen = {f"forward_{name}": value for name, value in forward.chosen.items()}
        if point.mode == "fwd":
            return Tuned(forward, chosen)
        dx, dy = torch.empty_like(x), inputs["dy"]
        gradient = in_blocks(gradient_kernel, point.n, dx, dy, x, a, b, y, kept)
        chosen |= {f"backward_{name}": value for name, value in gradient.chosen.items()}

        def both() -> tuple[torch.Tensor, Backward]:
            return forward(), lambda dy: (gradient(),)

        return Tuned(by_mode(point.mode, inputs, both, forward), chosen)

    return build
