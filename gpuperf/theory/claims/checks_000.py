"""Compute the figures of claims of the lecture notes on GPUs."""

from __future__ import annotations

import math
from itertools import pairwise

from gpuperf.theory import attention_io
from gpuperf.theory.attention import eager, kernels
from gpuperf.theory.claims.claim import Figures, over, printed
from gpuperf.theory.claims.devices import bandwidth, chip, figure, tensor, vector
from gpuperf.theory.claims.published import CACHE_TB, CYCLES
from gpuperf.theory.online_softmax import softmax, steps
from gpuperf.theory.recomputation import recomputed_passes, seconds, stored_passes
from gpuperf.theory.ridge import matmul_intensity
from gpuperf.tiles.waves import Tiling

BARE: frozenset[str] = frozenset()
SINCOS = {"sin": 2, "cos": 2, "square": 2, "square again": 2, "sum": 3}  # tensors of a kernel
EXAMPLE = (2.0, 1.0, 5.0)


def l2_ratios() -> Figures:
    """Return how much slower the L2 is than the L1, in latency and in bandwidth."""
    ratios = {}
    for device, cycles in CYCLES.items():
        ratios[f"{device}, latency"] = cycles["L2"] / cycles["L1"]
        ratios[f"{device}, far latency"] = cycles["far L2"] / cycles["L1"]
        ratios[f"{device}, bandwidth"] = CACHE_TB[device]["L1"] / CACHE_TB[device]["L2"]
    return ratios


def matmul_gain() -> Figures:
    """Return the matmul peak over the fp32 peak of the vector pipe, by device and dtype."""
    gains = {name: tensor(name) / vector(name) for name in ("V100", "A100", "H100", "B200")}
    gains["H100 tf32"] = tensor("H100", "tf32") / vector("H100")
    return {**gains, "H100 fp64": tensor("H100", "fp64") / vector("H100", "fp64")}


def growth() -> Figures:
    """Return the growth of two peaks from V100 to B200 over that of the bandwidth."""
    memory = bandwidth("B200") / bandwidth("V100")
    return {
        "tensor": tensor("B200") / tensor("V100") / memory,
        "fp32 vector": vector("B200") / vector("V100") / memory,
    }


def recomputing_gain() -> dict[str, float]:
    """Return the time of three stored sigmoids over that of recomputed ones on an H200."""
    gains = {}
    for label, flops in (("4 FLOP a function", 4), ("1,024 FLOP", 1024)):
        kept = seconds(stored_passes(3) - 1, 6 * flops, 4, "fp32", chip("H200"))
        again = seconds(recomputed_passes(), 9 * flops, 4, "fp32", chip("H200"))
        gains[label] = (kept or math.nan) / (again or math.nan)
    return gains


def wave_drops() -> Figures:
    """Return the efficiency of one tile more than whole waves, on the SMs of an A100."""
    one = Tiling(1, 1, 1, chip("A100").sms)
    return {
        f"{waves} to {waves + 1} waves": one.wave_efficiency(waves * one.sms + 1, 1)
        for waves in (1, 4, 16)
    }


def slope(at_8k: float, at_16k: float) -> float:
    """Return the exponent of a growth between 8 Ki and 16 Ki."""
    return math.log2(at_16k / at_8k)


def access_slopes() -> Figures:
    """Return the exponents in n of the accesses of exact attention beyond the SM."""
    sram, ns = figure("A100", "shared_memory"), (8192, 16384)
    bounds = [attention_io.bound_bytes(n, 64, 1, 2, sram) for n in ns]
    through = [attention_io.sm_read_bytes(n, 64, 1, 2, 64) for n in ns]
    return {"n²·d²/M": slope(*bounds), "L2 to SMs": slope(*through)}


def attention_products() -> Figures:
    """Return the matmuls of attention, alone and with the projections of q, k, v and the output."""
    d = 64
    core = sum(flops == 2 * 128**2 * d for *_, flops in kernels(128, d, 1, 2, BARE))
    return {"core": core, "with projections": core + 4}


def online_steps() -> Figures:
    """Return the sums of the online softmax after each step, and the last factor times the sum."""
    rows = list(steps(EXAMPLE))
    kept = rows[1][3] * rows[2][2]
    said = ("1", "1.3679", "1.0681")
    sums = {
        f"l{i}": (row[3], printed(text))
        for i, (row, text) in enumerate(zip(rows, said, strict=True), 1)
    }
    return {**sums, "l2·exp(2 − 5)": (kept, printed("0.0681"))}


def example_result() -> Figures:
    """Return the softmax of the worked example beside the digits of the note."""
    said = ("0.0466", "0.0171", "0.9363")
    rows = zip(EXAMPLE, softmax(EXAMPLE), said, strict=True)
    return {f"x = {x:g}": (p, printed(text)) for x, p, text in rows}


def cube_growth() -> Figures:
    """Return the intensity of an n³ matmul over that of half its n."""
    cubes = [(n, matmul_intensity(n, n, n, 2)) for n in (256, 512, 1024, 2048)]
    return {f"n {n} to {m}": after / before for (n, before), (m, after) in pairwise(cubes)}


def separate_kernels() -> Figures:
    """Return the kernels of sin² + cos², and their tensor passes over those of one kernel."""
    return {"kernels": len(SINCOS), "passes / fused": (sum(SINCOS.values()) / 2, over(1))}


def intensity_gains() -> Figures:
    """Return the intensity in bf16 over that in fp32."""
    wide, narrow = (eager(1024, 64, 1, size, BARE)[1] for size in (4, 2))
    cubes = [matmul_intensity(512, 512, 512, size) for size in (4, 2)]
    return {"attention": wide / narrow, "matmul": cubes[1] / cubes[0]}
