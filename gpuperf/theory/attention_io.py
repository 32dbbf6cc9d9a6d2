"""Compare FlashAttention's bound on memory accesses with what each level of memory serves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gpuperf.theory.attention import eager, fused
from gpuperf.theory.theory import Chip, Curve, Parameter, Plot, Quantity, Theory, Value, ratio
from gpuperf.units import itemsize

DS = (32, 64, 128, 256, 512)


def blocks(sram_bytes: float, d: int, size: int) -> tuple[int, int]:
    """Return the columns B_c and rows B_r of a tile of FlashAttention: B_c = ⌈M/(4·d)⌉ and
    B_r = min(B_c, d), for M elements of on-chip memory."""
    columns = math.ceil(sram_bytes / size / (4 * d))
    return columns, min(columns, d)


def sm_read_bytes(n: int, d: int, heads: int, size: int, rows: int) -> float:
    """Return the bytes that the SMs read from the L2: each block of *rows* queries reads its
    queries, and all keys and values: (2·n/B_r + 1)·v."""
    return (2 * n / rows + 1) * heads * n * d * size


def bound_bytes(n: int, d: int, heads: int, size: int, sram_bytes: float) -> float:
    """Return n²·d²/M elements, the order of the accesses that FlashAttention's theorem counts."""
    return heads * n * n * d * d / (sram_bytes / size) * size


def _rows(at: Any, chip: Chip) -> Iterator[tuple[Value, ...]]:
    size, heads = itemsize(at.dtype), at.batch * at.heads
    sram = chip.block_shared
    for d in at.d:
        columns, rows = blocks(sram, d, size) if sram else (None, None)
        tile = at.rows or rows
        for n in at.n:
            least, whole = fused(n, d, heads, size)[1], eager(n, d, heads, size, frozenset())[1]
            through_l2 = sm_read_bytes(n, d, heads, size, tile) if tile else None
            bound = bound_bytes(n, d, heads, size, sram) if sram else None
            share = d * d * size / sram if sram else None
            yield n, d, columns, rows, share, bound, through_l2, least, whole, ratio(whole, least)


def _plot(at: Any, chip: Chip) -> Plot:
    size, sram = itemsize(at.dtype), chip.block_shared
    n = at.n[-1]
    curves = [
        Curve("eager, DRAM", [(d, eager(n, d, 1, size, frozenset())[1] / 1e6) for d in DS]),
        Curve("fused, DRAM", [(d, fused(n, d, 1, size)[1] / 1e6) for d in DS]),
    ]
    if sram:
        tiled = [
            (d, sm_read_bytes(n, d, 1, size, at.rows or blocks(sram, d, size)[1]) / 1e6) for d in DS
        ]
        bound = [(d, bound_bytes(n, d, 1, size, sram) / 1e6) for d in DS]
        curves += [Curve("fused, L2 to SMs", tiled), Curve("n²·d²/M", bound)]
    return Plot("width of a head d", f"MB a head, n = {n}", curves)


THEORY = Theory(
    question="Does fused attention read less than n² from memory, and up to which width?",
    parameters=(
        Parameter("n", "4096", "queries and keys", swept=True, most=2**20),
        Parameter("d", "64,128,256,512", "width of a head", swept=True, most=2**14),
        Parameter("batch", "1", "sequences", most=2**20),
        Parameter("heads", "1", "heads", most=2**20),
        Parameter("rows", "0", "queries of a block; 0: by the formula", least=0, most=2**20),
        Parameter("dtype", "bf16", "of every tensor", choices=("fp32", "bf16", "fp16", "fp8")),
    ),
    quantities=(
        Quantity("n", "n"),
        Quantity("d", "d"),
        Quantity("columns", "B_c", "", "⌈M / (4·d)⌉, M elements of a block's shared memory"),
        Quantity("rows", "B_r", "", "min(⌈M / (4·d)⌉, d)"),
        Quantity("d2_over_m", "d²/M", "", "below 1, the bound is below n²"),
        Quantity("bound_bytes", "n²d²/M", "byte", "the theorem's order of accesses, in bytes"),
        Quantity("l2_bytes", "L2 to SMs", "byte", "(2·n/B_r + 1)·v with v = n·d·s"),
        Quantity(
            "dram_bytes",
            "DRAM",
            "byte",
            "4·v, while the keys and values of running heads fit the L2",
        ),
        Quantity("eager_bytes", "eager", "byte", "4·u + 4·v with u = n²·s"),
        Quantity("eager_over", "eager/DRAM"),
    ),
    rows=_rows,
    plot=_plot,
    sources=("Dao et al.: FlashAttention (2022), theorem 2 and algorithm 1",),
    notes=("n²·d²/M is quadratic in n; DRAM sees a linear amount, since the L2 serves re-reads",),
)
