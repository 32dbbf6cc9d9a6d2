"""Step through the online softmax, and count the passes of three ways to compute a softmax."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gpuperf.theory.theory import Chip, Curve, Parameter, Plot, Quantity, Theory, Value, ratio
from gpuperf.units import itemsize

# Passes over the row: reads, writes.
PASSES = {"safe": (3, 1), "online": (2, 1), "fused": (1, 1)}
NS = tuple(2**k for k in range(10, 21))


def steps(values: Sequence[float]) -> Iterator[tuple[float, float, float, float]]:
    """Yield after each value: the value, the maximum m, the factor exp(m_old − m), and the sum."""
    largest, total = -math.inf, 0.0
    for value in values:
        new = max(largest, value)
        factor = math.exp(largest - new) if largest > -math.inf else 0.0
        total = total * factor + math.exp(value - new)
        largest = new
        yield value, largest, factor, total


def softmax(values: Sequence[float]) -> list[float]:
    """Return the softmax by the maximum and the sum of the last step."""
    *_, (_, largest, _, total) = steps(values)
    return [math.exp(value - largest) / total for value in values]


def bytes_moved(n: int, rows: int, size: int, way: str) -> int:
    """Return the bytes of a softmax over *rows* rows of *n* elements by one of `PASSES`."""
    return sum(PASSES[way]) * n * rows * size


def _rows(at: Any, chip: Chip) -> Iterator[tuple[Value, ...]]:
    results = softmax(at.x)
    for (value, largest, factor, total), result in zip(steps(at.x), results, strict=True):
        yield f"step, x = {value:g}", largest, factor, total, result, None, None
    for way, (reads, writes) in PASSES.items():
        moved = bytes_moved(at.n, at.rows, itemsize(at.dtype), way)
        name = f"{way}: {reads} read, {writes} write"
        yield name, None, None, None, None, moved, ratio(moved, chip.bandwidth)


def _plot(at: Any, chip: Chip) -> Plot:
    size = itemsize(at.dtype)
    curves = [
        Curve(way, [(n, bytes_moved(n, at.rows, size, way) / 1e6) for n in NS]) for way in PASSES
    ]
    return Plot("elements of a row n", "MB", curves)


THEORY = Theory(
    question="How does a softmax get by with one pass, and what does that save?",
    parameters=(
        Parameter("x", "2,1,5", "values of the worked example", least=-700, most=700, swept=True),
        Parameter("n", "16384", "elements of a row", most=2**30),
        Parameter("rows", "4096", "rows", most=2**20),
        Parameter("dtype", "bf16", "of input and output", choices=("fp32", "bf16", "fp16")),
    ),
    quantities=(
        Quantity("step", "step"),
        Quantity("maximum", "m", "", "m = max(m_old, x)"),
        Quantity("factor", "factor", "", "exp(m_old − m), by which the old sum shrinks"),
        Quantity("sum", "sum", "", "l = l_old·exp(m_old − m) + exp(x − m)"),
        Quantity("softmax", "softmax", "", "exp(x − m) / l with the last m and l"),
        Quantity("bytes", "bytes", "byte", "(reads + writes)·n·rows·s"),
        Quantity("least_s", "at least", "s", "bytes / bandwidth"),
    ),
    rows=_rows,
    plot=_plot,
    sources=("Milakov, Gimelshein: Online normalizer calculation for softmax (2018)",),
    notes=("fused holds the row on the chip: in registers or shared memory, while it fits",),
)
