"""Compute the figures of claims of the notes on FlashAttention and torch.compile."""

from __future__ import annotations

import math

from gpuperf.theory.attention import eager, fused
from gpuperf.theory.attention_io import blocks, bound_bytes
from gpuperf.theory.claims.arithmetic import (
    Matrix,
    attention,
    difference,
    dot,
    gaussian,
    numeric_gradient,
    product,
    softmax_rows,
    transposed,
)
from gpuperf.theory.claims.checks_000 import BARE, slope
from gpuperf.theory.claims.claim import Figures, near, over, under
from gpuperf.theory.claims.devices import bandwidth, tensor
from gpuperf.theory.claims.published import LLAMA_8B, SMALL_KERNEL_US
from gpuperf.theory.graph_amortisation import break_even, speedup
from gpuperf.theory.online_softmax import PASSES

SRAM, HALF = 192 * 1024, 2  # bytes of the notes' on-chip memory and of an element
NOTE_S = {"eager": 0.0157, "graphs": 0.0856, "no graphs": 0.0025}  # of 100 calls
CALLS, EAGER_KERNELS = 100, 30
EAGER_S, COMPILED_S = NOTE_S["eager"] / CALLS, NOTE_S["no graphs"] / CALLS
# A replay: the kernel, at most as long as a call without graphs, and a published launch of a graph.
REPLAY_S = COMPILED_S + SMALL_KERNEL_US["graph"] / 1e6
RECORDING_S = NOTE_S["graphs"] - CALLS * REPLAY_S


def causal_pairs() -> Figures:
    """Return the scores that a causal mask keeps, beside those with i > j."""
    n = 4
    kept = [[j <= i for j in range(n)] for i in range(n)]
    said = [[i > j for j in range(n)] for i in range(n)]
    return {
        f"scores of {n} queries": (sum(map(sum, kept)), near(sum(map(sum, said)), 0)),
        "keys of the first query": (sum(kept[0]), near(sum(said[0]), 0)),
    }


def standard_constant() -> Figures:
    """Return the elements of eager attention over N·d + N² at two sizes."""
    return {f"N = {n}": eager(n, 64, 1, 1, BARE)[1] / (n * 64 + n * n) for n in (128, 4096, 65536)}


def formula_blocks() -> Figures:
    """Return the tiles of FlashAttention beside ⌈M/4d⌉ and min(⌈M/4d⌉, d)."""
    said = {64: (384, 64), 128: (192, 128), 256: (96, 96), 512: (48, 48)}
    figures = {}
    for d, pair in said.items():
        for name, tile, value in zip(("B_c", "B_r"), blocks(SRAM, d, HALF), pair, strict=True):
            figures[f"{name}, d {d}"] = (float(tile), near(value, 0))
    return figures


def gradients() -> Figures:
    """Return the largest difference of each formula and a central difference of dO·O."""
    q, k, v, do = (gaussian(4, 3, seed) for seed in (1, 2, 3, 4))
    p = softmax_rows(product(q, transposed(k)))
    dp = product(do, transposed(v))
    ds = [
        [x * (y - dot(row, other)) for x, y in zip(row, other, strict=True)]
        for row, other in zip(p, dp, strict=True)
    ]

    def loss(q: Matrix, k: Matrix, v: Matrix) -> float:
        return sum(dot(a, b) for a, b in zip(attention(q, k, v), do, strict=True))

    return {
        "dV": difference(product(transposed(p), do), numeric_gradient(lambda x: loss(q, k, x), v)),
        "dQ": difference(product(ds, k), numeric_gradient(lambda x: loss(x, k, v), q)),
        "dK": difference(product(transposed(ds), q), numeric_gradient(lambda x: loss(q, x, v), k)),
    }


def row_identity() -> Figures:
    """Return the largest difference of dPᵀP and dOᵀO, row by row."""
    q, k, v, do = (gaussian(4, 3, seed) for seed in (5, 6, 7, 8))
    p = softmax_rows(product(q, transposed(k)))
    o, dp = product(p, v), product(do, transposed(v))
    pairs = zip(dp, p, do, o, strict=True)
    return {"float64": max(abs(dot(a, b) - dot(c, e)) for a, b, c, e in pairs)}


def winning_width() -> Figures:
    """Return the width up to which n²·d²/M is below n², by bisection."""
    low, high = 1, 4096
    while high - low > 1:
        d = (low + high) // 2
        wins = bound_bytes(1, d, 1, HALF, SRAM) < HALF
        low, high = (d, high) if wins else (low, d)
    return {"largest d, fp16": (low, near(math.sqrt(HALF / SRAM)))}


def advantages() -> Figures:
    """Return n²·d²/M over n² by width, and fused over eager bytes of DRAM at d = 512."""
    shares = {d: bound_bytes(1, d, 1, HALF, SRAM) / HALF for d in (64, 128, 256, 512)}
    rows = {f"d {d}": (share, under(1) if d < 512 else over(1)) for d, share in shares.items()}
    at_512 = fused(4096, 512, 1, HALF)[1] / eager(4096, 512, 1, HALF, BARE)[1]
    return {**rows, "d 512, DRAM": (at_512, over(1))}


def held_slopes() -> Figures:
    """Return the exponents in n of the memory that eager and fused attention hold."""
    scores = [n * n + n * 64 for n in (8192, 16384)]
    tensors = [fused(n, 64, 1, 2)[1] for n in (8192, 16384)]
    return {"standard": (slope(*scores), near(2, 0.01)), "fused": (slope(*tensors), near(1, 0.01))}


def prefill_times() -> Figures:
    """Return the least time of a prefill of Llama-3-8B with the scores in DRAM over that without,
    on an H200."""
    times = {}
    for n in (2048, 8192):
        products = 2 * LLAMA_8B["parameters"] * n / tensor("H200")
        moved = eager(n, int(LLAMA_8B["d"]), int(LLAMA_8B["heads"]), 2, BARE)[1]
        scores = LLAMA_8B["layers"] * moved / bandwidth("H200")
        times[f"{n} tokens"] = (products + scores) / products
    return times


def per_call() -> Figures:
    """Return the microseconds of one call, from the printed seconds of a hundred."""
    return {name: seconds / CALLS * 1e6 for name, seconds in NOTE_S.items()}


def graph_gains() -> Figures:
    """Return the gain of graphs after ten times the calls that pay for the recording, and
    without end."""
    calls = 10 * round(break_even(EAGER_S, RECORDING_S, REPLAY_S))
    gain = speedup(calls, EAGER_S, RECORDING_S, REPLAY_S)
    steady = speedup(math.inf, EAGER_S, RECORDING_S, REPLAY_S)
    return {f"{calls:,} calls": gain, "steady": steady}


def small_gains() -> Figures:
    """Return the steady gain of a graph for one fused kernel, and for the eager kernels."""
    many = EAGER_KERNELS * SMALL_KERNEL_US["streamed"], EAGER_KERNELS * SMALL_KERNEL_US["graph"]
    return {
        "one fused kernel": speedup(math.inf, COMPILED_S, RECORDING_S, REPLAY_S),
        "30 small kernels": many[0] / many[1],
    }


def softmax_accesses() -> Figures:
    """Return the passes of an online and of a fused softmax over its row that read it."""
    return {"online": (PASSES["online"][0], near(2, 0)), "fused": (PASSES["fused"][0], near(1, 0))}
