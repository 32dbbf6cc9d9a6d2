"""Count the FLOPs and bytes of an MLP, plain or gated, forward and backward."""

from __future__ import annotations

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

Product = tuple[str, str, int, int]  # name, pass, FLOPs, bytes
BS = tuple(2**k for k in range(15))


def products(
    b: int, n: int, h: int, size: int, input_gradient: bool, gated: bool = False
) -> tuple[Product, ...]:
    """Return the matmuls of y = a·W₂ with a = f(x·W₁), x (b, n), W₁ (n, h), W₂ (h, n), both passes.

    A *gated* MLP has a third matrix: a = f(x·W₁) ⊙ x·W₃, with W₃ (n, h). The gradient of x is
    computed only with *input_gradient*: the first layer of a model needs none.
    """
    flops, moved = 2 * b * n * h, size * (b * n + n * h + b * h)
    into = (("W₁", "dz"), ("W₃", "du")) if gated else (("W₁", "dz"),)
    listed = [(f"x·{weight}", "forward") for weight, _ in into] + [("a·W₂", "forward")]
    listed += [("dW₂ = aᵀ·dy", "backward"), ("da = dy·W₂ᵀ", "backward")]
    for weight, slope in into:
        listed += [(f"d{weight} = xᵀ·{slope}", "backward")]
        listed += [(f"dx = {slope}·{weight}ᵀ", "backward")] if input_gradient else []
    return tuple((name, each, flops, moved) for name, each in listed)


def seconds(at: Any, chip: Chip, b: int, which: str) -> float | None:
    """Return the least time of all matmuls of one pass over *b* tokens."""
    times = [
        longest(ratio(flops, chip.rate(at.dtype)), ratio(moved, chip.bandwidth))
        for _, each, flops, moved in _products(at, b)
        if each == which
    ]
    return None if None in times else sum(time for time in times if time is not None)


def _products(at: Any, b: int) -> tuple[Product, ...]:
    shape = (b, at.n, at.h, itemsize(at.dtype))
    return products(*shape, at.input_gradient == "yes", at.form == "gated")


def _rows(at: Any, chip: Chip) -> Iterator[tuple[Value, ...]]:
    for b in at.b:
        listed = _products(at, b)
        for name, which, flops, moved in listed:
            least_s = longest(ratio(flops, chip.rate(at.dtype)), ratio(moved, chip.bandwidth))
            yield b, name, which, flops, moved, flops / moved, least_s, None
        for which in ("forward", "backward"):
            part = [each for each in listed if each[1] == which]
            flops, moved = sum(p[2] for p in part), sum(p[3] for p in part)
            least_s = seconds(at, chip, b, which)
            times = ratio(least_s, seconds(at, chip, b, "forward"))
            yield b, "sum", which, flops, moved, flops / moved, least_s, times


def _plot(at: Any, chip: Chip) -> Plot:
    curves = []
    for which in ("forward", "backward"):
        times = [(b, seconds(at, chip, b, which)) for b in BS]
        curves.append(Curve(which, [(b, time * 1e6) for b, time in times if time is not None]))
    return Plot("tokens b", "least time, µs", curves)


THEORY = Theory(
    question="How much more does the backward pass of an MLP need than the forward pass?",
    parameters=(
        Parameter("b", "4096", "tokens", swept=True, most=2**24),
        Parameter("n", "4096", "width of input and output", most=2**20),
        Parameter("h", "16384", "width of the hidden layer", most=2**20),
        Parameter("dtype", "bf16", "of every tensor", choices=DTYPES),
        Parameter("form", "plain", "two matrices, or three", choices=("plain", "gated")),
        Parameter("input_gradient", "yes", "whether x needs a gradient", choices=("no", "yes")),
    ),
    quantities=(
        Quantity("b", "b", "tokens"),
        Quantity("product", "product"),
        Quantity("pass", "pass"),
        Quantity(
            "flops",
            "FLOPs",
            "FLOP",
            "2·b·n·h each: 4·b·n·h forward, 8·b·n·h backward, 6 without dx; gated 6, 12 and 8",
        ),
        Quantity(
            "bytes", "bytes", "byte", "s·(b·n + n·h + b·h): two operands read, the result written"
        ),
        Quantity("intensity_flop_per_byte", "intensity", "FLOP/byte", "FLOPs / bytes"),
        Quantity(
            "least_s", "at least", "s", "max(FLOPs / peak, bytes / bandwidth) of each product"
        ),
        Quantity("of_forward", "of forward", "", "the time over that of the forward pass"),
    ),
    rows=_rows,
    plot=_plot,
    sources=("the chain rule: dW = aᵀ·dy and da = dy·Wᵀ each multiply as many pairs as y = a·W",),
    notes=(
        "the activation function is elementwise and left out: fused, it adds no pass over memory",
        "the gradient of x is a quarter of the backward pass (gated: a third); without it the "
        "factor is 1.5 (4/3)",
    ),
)
