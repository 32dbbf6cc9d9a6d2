"""Compute softmax over rows, and its gradient, with Triton: kernels and their launches.

Two kernels load a row several times, with little of it in registers. The others hold tiles of whole
rows, or read a row in pieces, and again from the L1: other programs of an SM then load while one
waits for a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from gpuperf.kernels._rows import (
    candidates_for,
    launch_of,
    piece_tilings,
    programs,
    row_of,
    tilings,
    widened,
)

from gpuperf.jit import Tuned, jit, tl, tune

Call = Callable[[], torch.Tensor]


@jit
def softmax_safe_kernel(
    x: tl.tensor, y: tl.tensor, n: tl.tensor, stride: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """Compute a row in each program: its maximum, then its sum, then its quotients."""
    x += tl.program_id(0).to(tl.int64) * stride
    y += tl.program_id(0).to(tl.int64) * n
    i = tl.arange(0, BLOCK)
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, n, BLOCK):
        value = tl.load(x + start + i, start + i < n, float("-inf")).to(tl.float32)
        most = tl.maximum(most, value)
    peak = tl.max(most, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        value = tl.load(x + start + i, start + i < n, float("-inf")).to(tl.float32)
        total += tl.exp(value - peak)
    scale = 1.0 / tl.sum(total, 0)
    for start in range(0, n, BLOCK):
        value = tl.load(x + start + i, start + i < n, float("-inf")).to(tl.float32)
        share = tl.exp(value - peak) * scale
        tl.store(y + start + i, share.to(y.dtype.element_ty), start + i < n)


@jit
def softmax_online_kernel(
    x: tl.tensor, y: tl.tensor, n: tl.tensor, stride: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """Compute a row in each program: maximum and sum together, then the quotients."""
    x += tl.program_id(0).to(tl.int64) * stride
    y += tl.program_id(0).to(tl.int64) * n
    i = tl.arange(0, BLOCK)
    # The lowest fp32, since −inf − (−inf) is NaN, and a row may begin with blocks of −inf.
    peak = tl.full((), -3.4028234e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        value = tl.load(x + start + i, start + i < n, float("-inf")).to(tl.float32)
        risen = tl.maximum(peak, tl.max(value, 0))
        total = total * tl.exp(peak - risen) + tl.exp(value - risen)
        peak = risen
    scale = 1.0 / tl.sum(total, 0)
    for start in range(0, n, BLOCK):
        value = tl.load(x + start + i, start + i < n, float("-inf")).to(tl.float32)
        share = tl.exp(value - peak) * scale
        tl.store(y + start + i, share.to(y.dtype.element_ty), start + i < n)


@jit
def softmax_fused_kernel(
    x,
    y,
    m,
    n,
    stride,
    FULL: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    AGAIN: tl.constexpr,
):
    """Compute tiles of ROWS whole rows; programs step through the tiles by their number.

    Rows beyond the last are row m − 1 again, which is written with the same values. With AGAIN an
    exponential is computed twice, and not held in registers. With FULL n is BLOCK.
    """
    i = tl.arange(0, BLOCK)[None, :]
    inside = i < (BLOCK if FULL else n)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = row_of(tile, m, ROWS)
        here = tl.load(x + row * stride + i, inside, float("-inf"), cache_modifier=".cg")
        peak = tl.max(here.to(tl.float32), 1, keep_dims=True)
        share = tl.exp(widened(here, peak, AGAIN) - peak)
        scale = 1.0 / tl.sum(share, 1, keep_dims=True)
        if AGAIN:
            share = tl.exp(widened(here, scale, AGAIN) - peak)
        share *= scale
        tl.store(y + row * n + i, share.to(y.dtype.element_ty), inside)


@jit
def softmax_backward_kernel(
    y,
    dy,
    dx,
    m,
    n,
    stride,
    FULL: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    AGAIN: tl.constexpr,
):
    """Compute dx = y·(dy − Σ y·dy) of tiles of rows, as the forward steps through them."""
    i = tl.arange(0, BLOCK)[None, :]
    inside = i < (BLOCK if FULL else n)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = row_of(tile, m, ROWS)
        shares = tl.load(y + row * n + i, inside, 0.0, cache_modifier=".cg")
        grads = tl.load(dy + row * stride + i, inside, 0.0, cache_modifier=".cg")
        mean = tl.sum(shares.to(tl.float32) * grads.to(tl.float32), 1, keep_dims=True)
        slope = widened(shares, mean, AGAIN) * (widened(grads, mean, AGAIN) - mean)
        tl.store(dx + row * n + i, slope.to(dx.dtype.element_ty), inside)


@jit
def softmax_pieces_kernel(x, y, stride, PIECES: tl.constexpr, BLOCK: tl.constexpr):
    """Compute a row in each program, which reads it for its maximum, its sum and its quotients:
    later mostly from the L1. The length of rows is PIECES · BLOCK."""
    row = tl.program_id(0).to(tl.int64)
    x += row * stride
    y += row * PIECES * BLOCK
    i = tl.arange(0, BLOCK)
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in tl.range(0, PIECES * BLOCK, BLOCK):
        value = tl.load(x + start + i, eviction_policy="evict_last").to(tl.float32)
        most = tl.maximum(most, value)
    peak = tl.max(most, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, PIECES * BLOCK, BLOCK):
        value = tl.load(x + start + i, eviction_policy="evict_last").to(tl.float32)
        total += tl.exp(value - peak)
    scale = 1.0 / tl.sum(total, 0)
    for start in tl.range(0, PIECES * BLOCK, BLOCK):
        value = tl.load(x + start + i, eviction_policy="evict_first").to(tl.float32)
        tl.store(y + start + i, (tl.exp(value - peak) * scale).to(y.dtype.element_ty))


@jit
def softmax_backward_pieces_kernel(y, dy, dx, stride, PIECES: tl.constexpr, BLOCK: tl.constexpr):
    """Compute a row of dx in each program, which reads y and dy twice: the second time mostly
    from the L1. The length of rows is PIECES · BLOCK."""
    row = tl.program_id(0).to(tl.int64)
    y += row * PIECES * BLOCK
    dy += row * stride
    dx += row * PIECES * BLOCK
    i = tl.arange(0, BLOCK)
    mean = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, PIECES * BLOCK, BLOCK):
        share = tl.load(y + start + i, eviction_policy="evict_last").to(tl.float32)
        grad = tl.load(dy + start + i, eviction_policy="evict_last").to(tl.float32)
        mean += share * grad
    mean = tl.sum(mean, 0)
    for start in tl.range(0, PIECES * BLOCK, BLOCK):
        share = tl.load(y + start + i, eviction_policy="evict_first").to(tl.float32)
        grad = tl.load(dy + start + i, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx + start + i, (share * (grad - mean)).to(dx.dtype.element_ty))


IN_PIECES = {
    softmax_fused_kernel: softmax_pieces_kernel,
    softmax_backward_kernel: softmax_backward_pieces_kernel,
}


def fused_call(kernel: Any, result: torch.Tensor, given: Sequence[Any], tiling: Any) -> Call:
    """Return the call of *kernel* with *tiling*, from the tensors *given* to *result* (m, n)."""
    (m, n), stride = result.shape, given[-1].stride(0)
    grid, sizes, launch = (programs(tiling, result),), [m, n, stride], launch_of(tiling, n)
    if tiling["pieces"]:
        kernel, sizes = IN_PIECES[kernel], [stride]
    else:
        launch["FULL"] = n == launch["BLOCK"]

    def call() -> torch.Tensor:
        kernel[grid](*given, result, *sizes, **launch)
        return result

    return call


def tilings_of(given: Sequence[torch.Tensor]) -> list[dict[str, int]]:
    """Return the tilings to tune among for a kernel of the tensors *given*."""
    n, size = given[-1].shape[1], given[-1].element_size()
    return [*tilings(n, size, len(given)), *piece_tilings(n)]


def fused(name: str, kernel: Any, *given: torch.Tensor) -> Tuned:
    """Return the call of *kernel* of the tensors *given*, with the fastest tiling."""
    like, every = given[-1], tilings_of(given)
    call = partial(fused_call, kernel, like.new_empty(like.shape), given)
    return tune(call, candidates_for(name, like, every))
