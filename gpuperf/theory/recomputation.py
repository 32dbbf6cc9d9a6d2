"""Compare storing an activation with computing it again in the backward pass."""

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

FLOPS = tuple(2**k for k in range(10))  # of the plot, for an element


def stored_passes(stages: int) -> int:
    """Return the passes over memory of a chain of *stages* functions, each fused in itself, whose
    results are kept: the forward pass reads x and writes each result; the backward pass reads them
    and the gradient, and writes the gradient of x."""
    return (1 + stages) + (stages + 1 + 1)


def recomputed_passes() -> int:
    """Return the passes of a chain that keeps x alone: x and y forward; x, dy and dx backward."""
    return 2 + 3


def seconds(passes: int, flops: float, size: int, dtype: str, chip: Chip) -> float | None:
    """Return the least time of one element: that of its *passes* or that of its *flops*."""
    bytes_s = ratio(passes * size, chip.bandwidth)
    return longest(bytes_s, ratio(flops, chip.rate(dtype, "elementwise")))


def _ways(at: Any, flops: int, chip: Chip) -> Iterator[tuple[str, int, int, float | None]]:
    size, forward = itemsize(at.dtype), at.stages * flops
    for name, passes, each in (
        ("stored", stored_passes(at.stages), 2 * forward),
        ("recomputed", recomputed_passes(), 3 * forward),
    ):
        yield name, passes, each, seconds(passes, each, size, "fp32", chip)


def _rows(at: Any, chip: Chip) -> Iterator[tuple[Value, ...]]:
    for flops in at.flops:
        ways = list(_ways(at, flops, chip))
        for name, passes, each, least_s in ways:
            held = at.stages if name == "stored" else 1
            size = itemsize(at.dtype)
            whole_s = None if least_s is None else least_s * at.n
            gain = ratio(ways[0][3], least_s)
            yield (
                flops,
                name,
                passes,
                passes * at.n * size,
                each * at.n,
                held * at.n * size,
                whole_s,
                gain,
            )


def _plot(at: Any, chip: Chip) -> Plot:
    points = []
    for flops in FLOPS:
        (*_, stored_s), (*_, again_s) = _ways(at, flops, chip)
        gain = ratio(stored_s, again_s)
        if gain is not None:
            points.append((flops, gain))
    curve = Curve(f"{at.stages} functions, {at.dtype}", points)
    return Plot(
        "FLOPs of each function, an element", "gain of recomputing", (curve,), {"none": 1.0}
    )


THEORY = Theory(
    question="When is it faster to compute an activation again than to load it?",
    parameters=(
        Parameter("stages", "3", "elementwise functions in a chain", most=1000),
        Parameter("flops", "4,64,1024", "FLOPs of each function, an element", swept=True),
        Parameter("n", "64M", "elements"),
        Parameter("dtype", "fp32", "of the tensors in memory", choices=DTYPES),
    ),
    quantities=(
        Quantity("flops_each", "FLOPs of each"),
        Quantity("way", "results are"),
        Quantity(
            "passes", "passes", "", "stored: (1 + k) + (k + 2); recomputed: 2 + 3, for k functions"
        ),
        Quantity("bytes", "bytes", "byte", "passes·n·s"),
        Quantity("flops", "FLOPs", "FLOP", "k·f·n·(2 stored, 3 recomputed): backward as forward"),
        Quantity("held_bytes", "held", "byte", "kept from the forward to the backward pass"),
        Quantity("least_s", "at least", "s", "max(bytes / bandwidth, FLOPs / fp32 vector peak)"),
        Quantity("gain", "gain", "", "time stored / this time: above 1, recomputing wins"),
    ),
    rows=_rows,
    plot=_plot,
    sources=("Chen et al.: Training Deep Nets with Sublinear Memory Cost (2016)",),
    notes=(
        "the backward pass of a function is taken to cost as many FLOPs as the function",
        "stored: a backward pass that computes the last result again from its input reads one "
        "tensor less: 8 passes instead of 9 for three functions",
    ),
)
