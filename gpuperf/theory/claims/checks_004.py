"""Compute the figures of claims of the talk notes on PyTorch, serving, Triton and data."""

from __future__ import annotations

from gpuperf.theory.access import strided, useful_share
from gpuperf.theory.claims.arithmetic import attention, difference, gaussian, tiled_attention
from gpuperf.theory.claims.checks_000 import SINCOS
from gpuperf.theory.claims.checks_002 import DRAM_S
from gpuperf.theory.claims.claim import Figures, near, over, under
from gpuperf.theory.claims.devices import accumulating, bandwidth, ridge, tensor, vector
from gpuperf.theory.claims.published import (
    GPT_FAST,
    KV_PAGED_WASTE,
    KV_USED,
    LINEAR_US,
    LLAMA_8B,
    SMALL_KERNEL_US,
)
from gpuperf.theory.decoding import (
    accepted_tokens,
    decode_intensity,
    linear_seconds,
    pack,
    packed_bits,
    shared_prefix_bytes,
    slots_used,
    unpack,
)
from gpuperf.theory.links import pcie_bandwidth
from gpuperf.theory.little import threads_needed
from gpuperf.theory.ridge import matmul_intensity

HOST_S = 0.0157 / 100 / 30  # of one eager operator: claim 003-15, 100 calls of 30 kernels
SERVER, CORE = 12 * 38.4e9, 15e9  # byte/s: 12 channels of DDR5-4800; about what one core attains
START_S = 10e-6  # of a call on the GPU and its copies
LAUNCH_S = SMALL_KERNEL_US["streamed"] / 1e6
INT4 = range(-8, 8)


def linear(tokens: int, bits: float, dtype: str = "bf16", vector_pipe: bool = False) -> float:
    """Return the least time of a layer of 8192² on an H200."""
    rate = vector("H200") if vector_pipe else tensor("H200", dtype)
    return linear_seconds(tokens, 8192, 8192, bits, rate, bandwidth("H200"))


def repeated_kernels() -> Figures:
    """Return the tensor passes of five kernels over those of one."""
    return {"sin² + cos²": sum(SINCOS.values()) / 2}


def bottlenecks() -> Figures:
    """Return the intensity of four workloads over the ridge of an H200."""
    sizes = {"decode, 1 token": (1, 8192, 8192), "prefill, 4096": (4096, 8192, 8192)}
    sizes |= {"4096³": (4096, 4096, 4096)}
    shares = {label: matmul_intensity(*size, 2) / ridge("H200") for label, size in sizes.items()}
    return {"sum of two tensors": 1 / (3 * 2) / ridge("H200"), **shares}


def precision_gains() -> Figures:
    """Return the gain of 16 over 32 bits where memory binds, and where compute does."""
    return {"bytes": 4 / 2, "H200 peaks": tensor("H200") / vector("H200")}


def host_shares() -> Figures:
    """Return the host's time of an operator over the time of its bytes on an H200."""
    sizes = {"1 Mi elements, fp32": 2 * 4 * 2**20, "256 Mi": 2 * 4 * 2**28}
    return {label: HOST_S / (moved / bandwidth("H200")) for label, moved in sizes.items()}


def quantized_gains() -> Figures:
    """Return the gain of 8-bit weights, and of arithmetic in fp8, over bf16."""
    return {
        "weights, 1 token": linear(1, 16) / linear(1, 8),
        "weights, 4096 tokens": linear(4096, 16) / linear(4096, 8),
        "arithmetic, 4096 tokens": linear(4096, 16) / linear(4096, 8, "fp8"),
        "fp8, published, 1 token": LINEAR_US["bf16"][1] / LINEAR_US["fp8"][1],
    }


def packing() -> Figures:
    """Return the pairs that come back from one byte, and the gain of 4 bits in groups of 128."""
    pairs = [(low, high) for low in INT4 for high in INT4]
    back = sum(unpack(pack(*pair)) == pair for pair in pairs)
    return {"pairs of 256": back, "bf16 / int4 bytes": (16 / packed_bits(4, 128), under(4))}


def ladder() -> Figures:
    """Return the gain of tensor cores over that of 8-bit weights, at two batch sizes."""
    ratios = {}
    for tokens in (1, 4096):
        cores = linear(tokens, 16, vector_pipe=True) / linear(tokens, 16)
        ratios[f"{tokens} in a pass"] = cores / (linear(tokens, 16) / linear(tokens, 8))
    return ratios


def serving_shares() -> Figures:
    """Return the intensity of linear layers of a decode pass over the ridge of an H200."""
    return {f"batch {b}": matmul_intensity(b, 4096, 4096, 2) / ridge("H200") for b in (1, 8, 64)}


def decode_gains() -> Figures:
    """Return the intensity of decode attention over that of one query a key."""
    one = decode_intensity(1)
    return {"4 heads a group": decode_intensity(4) / one, "4 drafts": decode_intensity(5) / one}


def used_slots() -> Figures:
    """Return the used slots of batches that wait for their longest completion."""
    return {f"batch {b}": slots_used(b) for b in (8, 32, 128)}


def mixing_gains() -> Figures:
    """Return the intensity of a linear layer with prefill tokens over that of decode alone."""
    alone = matmul_intensity(8, 4096, 4096, 2)
    return {f"8 + {p} tokens": matmul_intensity(8 + p, 4096, 4096, 2) / alone for p in (64, 512)}


def wasted_caches() -> Figures:
    """Return the unused share of reserved caches, published, beside that of pages."""
    return {name: 1 - used for name, used in zip(("most", "least"), KV_USED, strict=True)} | {
        "paged": (KV_PAGED_WASTE, under(1 - KV_USED[1]))
    }


def shared_pages() -> Figures:
    """Return the GB that users of one prefix of 1,000 tokens save with Llama-3-8B."""
    each = 2 * LLAMA_8B["layers"] * 8 * LLAMA_8B["d"] * 2  # 8 heads of keys and values
    return {f"{u} users": shared_prefix_bytes(u, 1000, 16, each) / 1e9 for u in (2, 100)}


def verifying_times() -> Figures:
    """Return the time of a pass over 5 tokens a sequence over that of one."""
    times = {f"batch {b}": linear(5 * b, 16) / linear(b, 16) for b in (1, 16, 64, 256)}
    measured = {n: LINEAR_US["bf16"][n] / LINEAR_US["bf16"][1] for n in (16, 128, 512)}
    return times | {f"published, {n} tokens / 1": time for n, time in measured.items()}


def speculation() -> Figures:
    """Return the tokens of a pass with four drafts, by the share that is accepted."""
    return {f"{rate:.0%} accepted": accepted_tokens(rate, 4) for rate in (0.5, 0.8)}


def load_sizes() -> Figures:
    """Return the threads that saturate an H200, over the 2,048 of an SM, by the size of a load."""
    needed = {s: threads_needed(DRAM_S, bandwidth("H200"), 132, s) / 2048 for s in (4, 16)}
    return {"4 bytes": (needed[4], over(1)), "16 bytes": (needed[16], under(1))}


def accumulate_shares() -> Figures:
    """Return the peak with sums in fp32 over that with sums in fp16."""
    rates = [accumulating("RTX 4090", "fp16", sums) for sums in ("fp32", "fp16")]
    return {"RTX 4090": rates[0] / rates[1]}


def cpu_speedups() -> Figures:
    """Return the gain of a scan on an H200 over a CPU, by bandwidth alone."""
    copied = 1 / (1 / bandwidth("H200") + 1 / pcie_bandwidth("5.0"))
    return {
        "one core": bandwidth("H200") / CORE,
        "all cores": bandwidth("H200") / SERVER,
        "all cores, with the copy": copied / SERVER,
    }


def larger_speedups() -> Figures:
    """Return the gain of a scan of ten times the bytes over that of the bytes, with the copy."""

    def gain(size: float) -> float:
        there = size / bandwidth("H200") + size / pcie_bandwidth("5.0")
        return size / CORE / (START_S + there)

    return {f"{n:.0e} to {10 * n:.0e} bytes": gain(10 * n) / gain(n) for n in (1e4, 1e6)}


def column_shares() -> Figures:
    """Return the bytes that one of 16 columns moves in rows, over those in columns."""
    return {"one of 16 fields": useful_share(strided(1)) / useful_share(strided(16))}


def limiters() -> Figures:
    """Return how many limiters three calls have: of bytes, of FLOPs, of the launch."""
    calls = {"copy of 1 GiB": (2 * 2**30, 0), "copy of 4 KiB": (2 * 2**12, 0)}
    calls["4096³"] = (3 * 2 * 4096**2, 2 * 4096**3)
    reasons = set()
    for moved, flops in calls.values():
        times = {
            "memory": moved / bandwidth("H200"),
            "compute": flops / tensor("H200"),
            "latency": LAUNCH_S,
        }
        reasons.add(max(times, key=lambda name: times[name]))
    return {"limiters of three calls": len(reasons)}


def unchanged() -> Figures:
    """Return the largest difference of two ways to compute attention."""
    q, k, v = (gaussian(8, 4, seed) for seed in (11, 12, 13))
    return {"float64": difference(tiled_attention(q, k, v, 3), attention(q, k, v))}


def compiled_rates() -> Figures:
    """Return the published tokens a second of quantized weights through torch.compile over those
    of bf16."""
    return {bits: GPT_FAST[bits] / GPT_FAST["bf16"] for bits in ("int8", "int4")}


def one_bit() -> Figures:
    """Return the gain of weights of one bit with a scale for 128, in bytes."""
    return {"bf16 / 1 bit": (16 / packed_bits(1, 128), near(14.2, 0.01))}
