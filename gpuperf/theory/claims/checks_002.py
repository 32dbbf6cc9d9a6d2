"""Compute the figures of claims of the reading group on architecture, CUDA and NCCL."""

from __future__ import annotations

import math
from itertools import chain, pairwise

from gpuperf.theory import links
from gpuperf.theory.attention import eager, fused
from gpuperf.theory.attention_training import exponential_share
from gpuperf.theory.claims.arithmetic import (
    attention,
    difference,
    flat_product,
    gaussian,
    product,
    softmax_rows,
    tiled_attention,
)
from gpuperf.theory.claims.claim import Figures, near, over, printed
from gpuperf.theory.claims.devices import bandwidth, chip, figure, ridge, special, tensor, vector
from gpuperf.theory.claims.published import (
    CACHE_TB,
    CORE_NS,
    CYCLES,
    DRAM_NS,
    FMA_CYCLES,
    HOST_GBIT,
    MMA_CYCLES,
)
from gpuperf.theory.little import attained, threads_needed
from gpuperf.theory.ridge import critical_tokens

DRAM_S = DRAM_NS / 1e9
CORE_FLOP, CORES = 32 * 3e9, 16  # fp32 of a core with AVX2 at 3 GHz: 8 lanes, 2 units, 2 FLOP
LOOP_FLOP = 2 * 3e9 / 4  # a loop that adds to one sum, which waits 4 cycles for each addition


def latencies() -> Figures:
    """Return latencies of a GPU at 1.98 GHz over those of a CPU."""
    clock = figure("H100", "boost_clock") / 1e9
    return {
        "FMA": FMA_CYCLES / clock / CORE_NS["FMA"],
        "L1": CYCLES["H100"]["L1"] / clock / CORE_NS["L1"],
        "DRAM": DRAM_NS / CORE_NS["DRAM"],
    }


def warps_hide() -> Figures:
    """Return the bandwidth of an H200 with twice the warps, whose lanes load 4 bytes each."""

    def of(warps: int) -> float:
        return attained(132 * warps * 32 * 4, DRAM_S, bandwidth("H200"))

    needed = threads_needed(DRAM_S, bandwidth("H200"), 132, 16) / 2048
    return {
        "1 to 2 warps": of(2) / of(1),
        "16 to 32 warps": of(32) / of(16),
        "share of the threads that 16-byte loads need": (needed, near(0.4, 0.1)),
    }


def hierarchy() -> Figures:
    """Return each throughput of an H100 over that of the level before, and the latency of an FMA
    over that of an MMA."""
    h100 = chip("H100")
    registers = 3 * 4 * 128 * h100.sms * figure("H100", "boost_clock")  # 3 operands a lane
    levels = {
        "global": bandwidth("H100"),
        "L2": CACHE_TB["H100"]["L2"] * 1e12,
        "L1": CACHE_TB["H100"]["L1"] * 1e12,
        "registers": registers,
    }
    ratios = {f"{b} / {a}": levels[b] / levels[a] for a, b in pairwise(levels)}
    ratios["tensor / FMA"] = tensor("H100") / vector("H100")
    return {**ratios, "latency of FMA / MMA": FMA_CYCLES / MMA_CYCLES}


def pcie() -> Figures:
    """Return the GB/s of 16 lanes of PCIe 5.0 after the line code."""
    one = links.pcie_bandwidth(chip("H100").peaks.pcie) / 1e9
    return {"a direction": one, "both directions": 2 * one}


def nvlink() -> Figures:
    """Return the GB/s of the NVLinks of an H100."""
    both = figure("H100", "link_bandwidth") / 1e9
    return {"both directions": both, "a direction": both / 2}


def slower_links() -> Figures:
    """Return the bandwidth of each link of an H100 over that of the next slower one."""
    host = HOST_GBIT["VM with 2 GPUs"] * 1e9 / 8
    links_ = {
        "network": host,
        "PCIe": links.pcie_bandwidth("5.0"),
        "NVLink": figure("H100", "link_bandwidth") / 2,
        "HBM": bandwidth("H100"),
    }
    return {f"{b} / {a}": links_[b] / links_[a] for a, b in pairwise(links_)}


def verdicts() -> Figures:
    """Return for intensities of so many ridges whether the quote's verdict is right (1) or not."""
    truth = {0.5: False, 1.0: True, 8.0: True}  # compute binds
    said = {x: math.isclose(x, 1.0, rel_tol=0.2) for x in truth}
    return {f"{x:g} ridges": float(said[x] == truth[x]) for x in truth}


def precision_growth() -> Figures:
    """Return the ridge of fp8 over that of bf16, and the same of critical tokens."""
    ridges = [ridge("H200", dtype) for dtype in ("bf16", "fp8")]
    wide = [
        critical_tokens(r, 10**9, 10**9, s, s) or 0 for r, s in zip(ridges, (2, 1), strict=True)
    ]
    return {"ridge": ridges[1] / ridges[0], "critical tokens": wide[1] / wide[0]}


def naive_listing() -> Figures:
    """Return the error of the naive kernel's index arithmetic on a small product."""
    m, n, k = 5, 7, 3
    a, b = gaussian(m, k, 1), gaussian(k, n, 2)
    flat = flat_product([*chain(*a)], [*chain(*b)], m, n, k)
    pairs = zip(flat, chain(*product(a, b)), strict=True)
    return {"largest error, 5×7×3": max(abs(x - y) for x, y in pairs)}


def cpu_gains() -> Figures:
    """Return the fp32 rate of a naive kernel, bound by its loads from L1, over that of CPU code."""
    naive = vector("H200") / 8  # 32 lanes load 2 words for 2 FLOP: 16 FMA a clock, not 128
    return {
        "over one loop": naive / LOOP_FLOP,
        "over a BLAS of 16 cores": naive / (CORES * CORE_FLOP),
        "cuBLAS over that": vector("H200") / (CORES * CORE_FLOP),
    }


def collectives() -> Figures:
    """Return the largest difference of an all-reduce of integers and its two halves."""
    ranks = [[(7 * r + 3 * i) % 11 for i in range(4)] for r in range(4)]
    reduced = [[sum(column) for column in zip(*ranks, strict=True)]] * 4
    scattered = [reduced[0][r : r + 1] for r in range(4)]
    gathered = [[x for part in scattered for x in part]] * 4
    return {"largest difference": difference(reduced, gathered)}


def collective_bytes() -> Figures:
    """Return the bytes of an all-reduce over those of its two halves."""
    ratios = {n: links.all_reduce_bytes(1, n) / (2 * links.gather_bytes(1, n)) for n in (2, 8)}
    return {f"{n} ranks": ratio for n, ratio in ratios.items()}


def shifted_softmax() -> Figures:
    """Return the largest difference that subtracting the maximum makes to a softmax."""
    scores = gaussian(4, 9, 3)
    return {"float64": difference(softmax_rows(scores), softmax_rows(scores, shift=False))}


def tiled_listing() -> Figures:
    """Return the error of attention with queries outside and tiles of keys inside."""
    q, k, v = (gaussian(6, 4, seed) for seed in (4, 5, 6))
    return {"largest error": difference(tiled_attention(q, k, v, 4), attention(q, k, v))}


def exponential_shares() -> Figures:
    """Return the time of the exponentials of fused attention over that of its matmuls."""
    return {
        f"{name}, d {d}": exponential_share(d, tensor(name), special(name))
        for name in ("A100", "H100")
        for d in (64, 128)
    }


def causal_share() -> Figures:
    """Return the kept scores of a causal mask over all of them."""
    n = 8192
    return {f"n = {n}": sum(row + 1 for row in range(n)) / n**2}


def score_bytes() -> Figures:
    """Return the bytes of the scores of one head over the L2 of an H200."""
    kinds = {n: n * n * 2 / figure("H200", "l2") for n in (32768, 65536)}
    return {f"n = {n}": ratio for n, ratio in kinds.items()}


def h100_memory() -> Figures:
    """Return size and bandwidth of an H100's memory, beside the quote's."""
    return {
        "GB": (figure("H100", "memory_capacity") / 1e9, printed("80")),
        "TB/s": (bandwidth("H100") / 1e12, printed("3.35")),
    }


def sm_counts() -> Figures:
    """Return the SMs of data-centre devices, and those of the smallest one that is known."""
    counts: dict[str, float] = {name: chip(name).sms for name in ("A100", "H100", "B200")}
    return {**counts, "V100": (chip("V100").sms, over(2))}


def held_ratio(n: int, d: int) -> float:
    """Return the bytes of eager attention, its scale a kernel, over those of the fused one."""
    return eager(n, d, 1, 2, frozenset({"scale"}))[1] / fused(n, d, 1, 2)[1]
