"""Compute the figures of claims of the reading group on attention and IO."""

from __future__ import annotations

import operator
from itertools import pairwise

from gpuperf.theory.access import strided, tiled_reads, useful_share
from gpuperf.theory.attention import eager, fused, kernels
from gpuperf.theory.attention_io import bound_bytes, sm_read_bytes
from gpuperf.theory.attention_training import eager_step_bytes, fused_step_bytes, step_flops
from gpuperf.theory.claims.arithmetic import derivative
from gpuperf.theory.claims.checks_000 import BARE, recomputing_gain, slope
from gpuperf.theory.claims.claim import ONE, Figures, near, over, printed, under
from gpuperf.theory.claims.devices import bandwidth, chip, figure, ridge, sure, tensor, vector
from gpuperf.theory.claims.published import COPY_TB, FLASH_TFLOPS
from gpuperf.theory.mlp import products
from gpuperf.theory.occupancy import LIMITS
from gpuperf.theory.ridge import critical_tokens, matmul_intensity

BOTH = frozenset({"mask", "dropout"})
ROW = (1024, 64, 64 * 16)  # of the FlashAttention paper: n, d, heads of a batch of 64
A100S = ("A100", "A100 PCIe", "A100 80 GB")
RESULT_TILES = {"WMMA": 16 * 16, "mma.sync m16n8k16": 16 * 8, "wgmma m64n256k16": 64 * 256}


def loss(a: float, b: float, c: float) -> float:
    """Return the loss L = 2·w₁·w₂·w₃."""
    return 2 * a * b * c


def gradients() -> Figures:
    """Return two derivatives at w = (3, 5, 7), beside the values that the note gives them."""
    w = (3.0, 5.0, 7.0)
    return {
        "∂L/∂w₃": (derivative(loss, w, 2), near(w[2])),
        "∂(w₁·w₂)/∂w₂": (derivative(operator.mul, w[:2], 1), near(w[1])),
    }


def units(which: str) -> Figures:
    """Return the FLOPs of the matmuls of one pass of an MLP, in units of b·n·h."""
    b, n, h = 8, 16, 32
    return {
        name: flops / (b * n * h)
        for name, each, flops, _ in products(b, n, h, 2, True)
        if each == which and "₂" in name
    }


def backward_over_forward() -> Figures:
    """Return the FLOPs of the backward over those of the forward pass, with and without the
    gradient of the input."""
    ratios = {}
    for label, input_gradient in (("a layer within", True), ("two layers, no input", False)):
        listed = products(8, 16, 32, 2, input_gradient)
        done = {which: sum(p[2] for p in listed if p[1] == which) for _, which, *_ in listed}
        ratios[label] = done["backward"] / done["forward"]
    return ratios


def attention_slopes() -> Figures:
    """Return the exponents in n of the FLOPs and of the memory that is held."""
    ends = [eager(n, 64, 1, 2, BARE)[2] for n in (8192, 16384)]
    held = [n * n + n * 64 for n in (8192, 16384)]
    tensors = [fused(n, 64, 1, 2)[1] for n in (8192, 16384)]
    return {
        "compute": slope(*ends),
        "memory, eager": slope(*held),
        "memory, fused": slope(*tensors),
    }


def tokens() -> Figures:
    """Return the tokens from which on a linear layer is bound by compute."""
    figures: dict[str, float] = {}
    for name in (*A100S, "H200"):
        figures[name] = ridge(name)
        figures[f"{name}, 8192²"] = sure(critical_tokens(ridge(name), 8192, 8192, 2, 2))
    return figures


def a100_table() -> Figures:
    """Return the peaks of the A100 in the order of the note, in TFLOP/s and GB/s."""
    peaks = {
        "fp64": (vector("A100", "fp64"), "9.7"),
        "fp64 tensor": (tensor("A100", "fp64"), "19.5"),
        "fp32": (vector("A100"), "19.5"),
        "tf32": (tensor("A100", "tf32"), "156"),
        "tf32 sparse": (2 * tensor("A100", "tf32"), "312"),
        "bf16": (tensor("A100", "bf16"), "312"),
        "bf16 sparse": (2 * tensor("A100", "bf16"), "624"),
        "int8": (tensor("A100", "int8"), "624"),
        "int8 sparse": (2 * tensor("A100", "int8"), "1248"),
    }
    table = {label: (peak / 1e12, printed(text)) for label, (peak, text) in peaks.items()}
    table["PCIe, GB/s"] = (bandwidth("A100 PCIe") / 1e9, printed("1935"))
    return {**table, "SXM, GB/s": (bandwidth("A100 80 GB") / 1e9, printed("2039"))}


def listed_elements() -> Figures:
    """Return the elements that eager attention with mask and dropout moves, by their order: the
    byte of the dropout mask cancels between two sizes of an element."""
    n, d = 4096, 64
    moved = [eager(n, d, 1, size, BOTH)[1] for size in (1, 2)]
    twice = [eager(2 * n, d, 1, size, BOTH)[1] for size in (1, 2)]
    at_n, at_2n = moved[1] - moved[0], twice[1] - twice[0]
    squares = (at_2n - 2 * at_n) / (2 * n * n)
    return {"N²": squares, "N·D": ((at_n - squares * n * n) / (n * d), near(4, 0))}


def operator_flops() -> Figures:
    """Return the FLOPs of each kernel, of a score; those of a matmul over D."""
    rows = kernels(128, 64, 1, 2, BOTH)
    return {name: flops / 128**2 / (64 if " " in name else 1) for name, _, flops in rows}


def intensity(n: int, d: int, more: frozenset[str] = BOTH) -> float:
    """Return the FLOP/byte of eager attention over *n* keys."""
    _, moved, flops = eager(n, d, 1, 2, more)
    return flops / moved


def rising(first: int, last: int) -> Figures:
    """Return the intensity of eager attention at *last* over that at *first*."""
    growth = {d: intensity(last, d) / intensity(first, d) for d in (64, 128)}
    return {f"D {d}, N {first} to {last}": times for d, times in growth.items()}


def scores_over_ridge() -> Figures:
    """Return the intensity of q·kᵀ at 16 Ki keys over the lowest ridge of an A100."""
    ratios = {}
    for d in (64, 128):
        _, moved, flops = kernels(16384, d, 1, 2, BARE)[0]
        ratios[f"D {d}"] = flops / moved / ridge("A100 80 GB")
    return ratios


def layer_over_ridge() -> Figures:
    """Return the intensity of a linear layer of 8192² over the ridge of an H200."""
    each = {n: matmul_intensity(n, 8192, 8192, 2) / ridge("H200") for n in (1, 128)}
    return {f"{n} in a pass": share for n, share in each.items()}


def threads_over_limit() -> Figures:
    """Return SMs · blocks · threads of a block over the threads that the SMs hold."""
    ratios = {}
    for name in ("A100", "H200"):
        limits = LIMITS[chip(name).peaks.capability]
        ratios[name] = limits.blocks * 1024 / limits.threads
    return ratios


def flash_constant() -> Figures:
    """Return the bytes from the L2 over n²·d²/M at twice the n, over the same at n."""
    sram = figure("A100", "shared_memory")
    ratios = [
        sm_read_bytes(n, 64, 1, 2, 64) / bound_bytes(n, 64, 1, 2, sram) for n in (8192, 16384)
    ]
    return {"n 8192 to 16384": ratios[1] / ratios[0]}


def table_flops() -> Figures:
    """Return the GFLOPs of the paper's row, beside those of its table."""
    n, d, heads = ROW
    plain, again = (step_flops(n, d, heads, fuses) / 1e9 for fuses in (False, True))
    return {
        "eager, GFLOP": (plain, near(66.6)),
        "flash, GFLOP": (again, near(75.2)),
        "flash / eager": (again / plain, near(1.13, 0.01)),
    }


def table_bytes() -> Figures:
    """Return the bytes of the paper's row over those of its table."""
    n, d, heads = ROW
    some = frozenset({"dropout"})
    steps = {"dropout": some, "mask and dropout": BOTH}
    ratios = {
        f"eager, {label}": eager_step_bytes(n, d, heads, 2, more) / 40.3e9
        for label, more in steps.items()
    }
    return {**ratios, "flash, least": (fused_step_bytes(n, d, heads, 2) / 4.4e9, under(1))}


def table_times() -> Figures:
    """Return eager over flash time: of the printed digits, and on an H200 by bytes of mask and
    dropout at a published copy rate and FLOPs at a published rate."""
    n, d, heads = ROW
    eager_s = eager_step_bytes(n, d, heads, 2, BOTH) / (COPY_TB * 1e12)
    flash_s = step_flops(n, d, heads, True) / (FLASH_TFLOPS["FA2"] * 1e12)
    return {"A100, printed": 41.7 / 7.3, "H200": eager_s / flash_s}


def generations() -> Figures:
    """Return how the ratio of matmul to vector peak grew from one generation to the next."""
    names = ("V100", "A100", "H100", "B200")
    ratios = {name: tensor(name) / vector(name) for name in names}
    return {f"{a} to {b}": ratios[b] / ratios[a] for a, b in pairwise(names)}


def both_ends() -> Figures:
    """Return both ends of recomputation: its gain where memory binds and where compute binds."""
    (low, gain), (high, cost) = recomputing_gain().items()
    return {low: gain, high: (cost, under(1))}


def units_of_peaks() -> Figures:
    """Return peaks of the A100 in the printed units."""
    return {
        "FLOP/s": (tensor("A100"), near(300, 0.1)),
        "TFLOP/s": (tensor("A100") / 1e12, near(300, 0.1)),
        "TB/s": (bandwidth("A100 PCIe") / 1e12, near(2, 0.1)),
    }


def scores_over_shared() -> Figures:
    """Return the bytes of the scores of one head over a block's shared memory."""
    return {
        f"{name}, n = {n}": n * n * 2 / sure(chip(name).block_shared)
        for name in ("A100", "H200")
        for n in (500, 1000, 4000)
    }


def sides_of_the_ridge() -> Figures:
    """Return the time of the FLOPs over that of the bytes, for three intensities."""
    return {
        "at the ridge": (ridge("H200") * bandwidth("H200") / tensor("H200"), ONE),
        "at a half": (ridge("H200") / 2 * bandwidth("H200") / tensor("H200"), under(1)),
        "at twice": (ridge("H200") * 2 * bandwidth("H200") / tensor("H200"), over(1)),
    }


def matmul_intensities() -> Figures:
    """Return the intensity of two matmuls, beside the printed ones."""
    return {
        "N 128": (matmul_intensity(128, 8192, 8192, 2), printed("124.1")),
        "8192³": (matmul_intensity(8192, 8192, 8192, 2), near(2730.6, 1e-4)),
    }


def access_rules() -> Figures:
    """Return what coalescing and tiling leave of the accesses."""
    return {
        "in order, useful": (useful_share(strided(1)), ONE),
        "stride 8, useful": (useful_share(strided(8)), under(1)),
        "tiles of 16, reads": (tiled_reads(512, 16) / tiled_reads(512, 1), near(1 / 16)),
    }


def day_ratios() -> Figures:
    """Return the ratios of the days, beside the printed ones."""
    return {
        "9.5 / 2.7": (9.5 / 2.7, printed("3.5")),
        "9.5 / 4.7": (9.5 / 4.7, printed("2.0")),
        "21.0 / 6.9": (21.0 / 6.9, printed("3.0")),
        "21.0 / 11.5": (21.0 / 11.5, printed("1.8")),
    }


def score_megabytes() -> Figures:
    """Return the MB of N² scores in fp16, beside the printed ones."""
    return {
        f"N = {n}": (2 * n * n / 1e6, near(said, 1e-9))
        for n, said in ((500, 0.5), (1000, 2), (4000, 32))
    }


def at_the_crossing() -> Figures:
    """Return intensities at N = 250, of eager attention and of the fused form."""
    return {
        "eager, D 64": intensity(250, 64),
        "eager, D 128": intensity(250, 128),
        "bare, D 128": intensity(250, 128, BARE),
        "fused": 250 / 2,
    }


def memory_over_sram() -> Figures:
    """Return DRAM over the shared memory of all SMs."""
    return {
        n: figure(n, "memory_capacity") / figure(n, "shared_memory") / chip(n).sms
        for n in ("A100", "A100 80 GB", "H200")
    }
