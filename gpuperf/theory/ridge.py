"""Compute from which size on compute binds: the ridge, as intensity, as tokens, as a cube."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gpuperf.theory.theory import (
    DTYPES,
    Chip,
    Curve,
    Parameter,
    Plot,
    Quantity,
    Theory,
    Value,
    longest,
    ratio,
)
from gpuperf.units import itemsize

TOKENS = tuple(2**k for k in range(13))


def critical_tokens(ridge: float, k: int, m: int, size: int, weight_bytes: float) -> float | None:
    """Return the tokens at which a linear layer of *k* inputs and *m* outputs leaves memory.

    2·T·k·m FLOPs over `weight_bytes`·k·m + size·T·(k + m) bytes are the *ridge* there. None where
    the activations alone keep the intensity below the ridge for any number of tokens.
    """
    left = 1 - ridge * (size / 2) * (1 / k + 1 / m)
    return ridge * weight_bytes / 2 / left if left > 0 else None


def weights_seconds(tokens: int, k: int, m: int, size: int, rate: float, bandwidth: float) -> float:
    """Return the least time of a linear layer without its activations: that of its weights' bytes,
    or that of its FLOPs from rate / bandwidth · size / 2 tokens on."""
    return max(k * m * size / bandwidth, 2 * tokens * k * m / rate)


def matmul_intensity(m: int, n: int, k: int, size: int) -> float:
    """Return the FLOP/byte of an (m, k)·(k, n) matmul whose tensors are moved once."""
    return 2 * m * n * k / (size * (m * k + k * n + m * n))


def critical_cube(ridge: float, size: int) -> int:
    """Return the smallest n whose n³ matmul, 2·n³ FLOPs over 3·size·n² bytes, is at the ridge."""
    return math.ceil(ridge * 3 * size / 2)


def seconds(at: Any, chip: Chip, tokens: int, dtype: str) -> float | None:
    """Return the least time of the layer: that of its bytes or that of its FLOPs."""
    size = itemsize(dtype)
    moved = size * (at.k * at.m + tokens * (at.k + at.m))
    return longest(ratio(moved, chip.bandwidth), ratio(2 * tokens * at.k * at.m, chip.rate(dtype)))


def _rows(at: Any, chip: Chip) -> Iterator[tuple[Value, ...]]:
    for dtype in at.dtype:
        ridge, size = chip.ridge(dtype), itemsize(dtype)
        tokens = critical_tokens(ridge, at.k, at.m, size, size) if ridge else None
        cube = critical_cube(ridge, size) if ridge else None
        vector = chip.ridge("fp32", "elementwise")
        yield dtype, chip.rate(dtype), chip.bandwidth, ridge, cube, tokens, vector


def _plot(at: Any, chip: Chip) -> Plot:
    curves = []
    for dtype in at.dtype:
        times = [(tokens, seconds(at, chip, tokens, dtype)) for tokens in TOKENS]
        points = [(t, s * 1e6) for t, s in times if s is not None]
        if points:
            curves.append(Curve(f"{dtype}, {at.k}×{at.m}", points))
    return Plot("tokens", "least time, µs", curves)


THEORY = Theory(
    question="From which size on is a matmul bound by compute?",
    parameters=(
        Parameter("dtype", "bf16,tf32,fp8", "of inputs and weights", choices=DTYPES, swept=True),
        Parameter("k", "8192", "inputs of the linear layer", most=2**24),
        Parameter("m", "8192", "outputs of the linear layer", most=2**24),
    ),
    quantities=(
        Quantity("dtype", "dtype"),
        Quantity("peak_flop_per_s", "peak", "FLOP/s"),
        Quantity("bandwidth_byte_per_s", "bandwidth", "byte/s"),
        Quantity("ridge_flop_per_byte", "ridge", "FLOP/byte", "R = peak / bandwidth"),
        Quantity("cube", "n of n³", "", "n = R·3·s/2, as an n³ matmul has 2·n/(3·s) FLOP/byte"),
        Quantity("tokens", "tokens", "", "T = (R·s/2) / (1 − R·s/2·(1/k + 1/m))"),
        Quantity("vector_ridge", "fp32 vector ridge", "FLOP/byte", "the same of elementwise work"),
    ),
    rows=_rows,
    plot=_plot,
    sources=("Williams, Waterman, Patterson: Roofline (2009); peaks of `gpuperf devices`",),
    notes=(
        "peaks are those of the data sheet; measured roofs (`gpuperf calibrate`) move the ridge",
        "`tokens` counts the rows of one pass through the layer, not the length of a sequence",
    ),
)
