"""Count the bytes, FLOPs and intensity of softmax(q·kᵀ/√d)·v, kernel by kernel and fused."""

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

SOFTMAX_FLOPS = 5  # an element: maximum, subtract, exponential, add, divide
NS = tuple(2**k for k in range(7, 15))  # sequence lengths of the plot: 128 to 16k
Kernel = tuple[str, int, int]  # name, bytes, FLOPs


def kernels(n: int, d: int, heads: int, size: int, more: frozenset[str]) -> tuple[Kernel, ...]:
    """Return the kernels of eager attention over *n* queries and keys of *heads* heads (all of a
    batch) of width *d*, with *size* bytes an element.

    *more* may hold `scale` (a kernel of its own), `mask` (n·n elements, added) and `dropout`, which
    keeps a mask of one byte an element.
    """
    scores, tensor = heads * n * n, heads * n * d
    u, v = scores * size, tensor * size
    listed = [("q kᵀ", 2 * v + u, 2 * scores * d)]
    listed += [("scale", 2 * u, scores)] if "scale" in more else []
    listed += [("mask", 2 * u, scores)] if "mask" in more else []
    listed += [("softmax", 2 * u, SOFTMAX_FLOPS * scores)]
    listed += [("dropout", 2 * u + scores, 2 * scores)] if "dropout" in more else []
    return (*listed, ("p v", u + 2 * v, 2 * scores * d))


def eager(n: int, d: int, heads: int, size: int, more: frozenset[str]) -> Kernel:
    """Return the sum of all kernels of eager attention."""
    each = kernels(n, d, heads, size, more)
    return "eager, sum", sum(k[1] for k in each), sum(k[2] for k in each)


def fused(n: int, d: int, heads: int, size: int, more: frozenset[str] = frozenset()) -> Kernel:
    """Return the one kernel that keeps the scores on the chip: it reads q, k, v, and writes o."""
    return "fused", 4 * heads * n * d * size, eager(n, d, heads, size, more)[2]


def _more(at: Any) -> frozenset[str]:
    return frozenset(name for name in ("scale", "mask", "dropout") if getattr(at, name) == "yes")


def _rows(at: Any, chip: Chip) -> Iterator[tuple[Value, ...]]:
    size, heads = itemsize(at.dtype), at.batch * at.heads
    for n in at.n:
        for d in at.d:
            given = (n, d, heads, size, _more(at))
            for name, moved, flops in (*kernels(*given), eager(*given), fused(*given)):
                intensity = flops / moved
                least_s = longest(ratio(moved, chip.bandwidth), ratio(flops, chip.rate(at.dtype)))
                share = ratio(intensity, chip.ridge(at.dtype))
                yield n, d, name, moved, flops, intensity, share, least_s


def _plot(at: Any, chip: Chip) -> Plot:
    size, more = itemsize(at.dtype), _more(at)
    curves = []
    for d in at.d:
        sums = [(n, eager(n, d, 1, size, more), fused(n, d, 1, size, more)) for n in NS]
        curves.append(Curve(f"eager, d {d}", [(n, e[2] / e[1]) for n, e, _ in sums]))
        curves.append(Curve(f"fused, d {d}", [(n, f[2] / f[1]) for n, _, f in sums]))
    ridge = chip.ridge(at.dtype)
    levels = {f"ridge of {at.dtype}": ridge} if ridge else {}
    return Plot("sequence length n", "intensity, FLOP/byte", curves, levels)


YES = ("no", "yes")
THEORY = Theory(
    question="How many bytes and FLOPs does attention need, kernel by kernel and fused?",
    parameters=(
        Parameter("n", "4096", "queries and keys", swept=True, most=2**20),
        Parameter("d", "64", "width of a head", swept=True, most=2**14),
        Parameter("batch", "1", "sequences", most=2**20),
        Parameter("heads", "1", "heads", most=2**20),
        Parameter("dtype", "bf16", "of every tensor", choices=DTYPES),
        Parameter("scale", "no", "a kernel for 1/√d", choices=YES),
        Parameter("mask", "no", "a kernel that adds a mask", choices=YES),
        Parameter("dropout", "no", "a kernel that drops probabilities", choices=YES),
    ),
    quantities=(
        Quantity("n", "n"),
        Quantity("d", "d"),
        Quantity("kernel", "kernel"),
        Quantity(
            "bytes", "bytes", "byte", "s·(n² a score read or written, n·d each of q, k, v, o)"
        ),
        Quantity("flops", "FLOPs", "FLOP", "2·n²·d a product, n²·(softmax 5, dropout 2, others 1)"),
        Quantity("intensity_flop_per_byte", "intensity", "FLOP/byte", "FLOPs / bytes"),
        Quantity("of_ridge", "of ridge", "", "intensity / ridge: below 1, memory binds"),
        Quantity("least_s", "at least", "s", "max(bytes / bandwidth, FLOPs / peak)"),
    ),
    rows=_rows,
    plot=_plot,
    sources=(
        "element counts: Dao et al., FlashAttention (2022), algorithm 0, each kernel reading its "
        "operands and writing its result once",
    ),
    notes=(
        "scores that fit the L2 are read there, so measured DRAM bytes may be fewer",
        "exponentials run on the special-function unit, whose rate is not in `at least`",
    ),
)
