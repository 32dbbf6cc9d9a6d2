"""Predict a training step of GPT-2 medium's attention: the bytes and the time of eager and flash.

Dao et al., FlashAttention (arXiv 2205.14135), section 5 and figure 2, on an A100 of 40 GB with mask
and dropout: 66.6 and 75.2 GFLOP, 40.3 and 4.4 GB, 41.7 and 7.3 ms. Its GFLOP are wrong by the
author's word (Dao-AILab/flash-attention, issue 741): 6 and 7 dense products are 824.6 and 962.1.
Ours differ as torch has more kernels, and memory is faster: eager follows it, flash its products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuperf import Control, Expected, Experiment, Numbers, Point, exactly
from gpuperf.model.workload import Value
from gpuperf.theory.attention_training import eager_step_bytes, fused_step_bytes, step_flops
from gpuperf.units import itemsize

GPT2_MEDIUM = {"batch": 64, "heads": 16, "seq": 1024, "head_dim": 64}
STEP: Mapping[str, tuple[Value, ...]] = {
    **{axis: (value,) for axis, value in GPT2_MEDIUM.items()},
    "mode": ("fwd+bwd",),
    "dtype": ("fp16",),
    "causal": ("no", "yes"),
    "dropout": ("0", "0.1"),
}
# FlashAttention-2 reaches 20 to 65 % of the peak: its own figures on A100, no wgmma on Hopper.
USUAL, LEAST, MOST = 0.35, 0.12, 0.7
# Tensors that it moves: 4 forward; backward 4 to copy two into another layout, o and do, 2 to clear
# fp32 sums of dq, q, k, v and do, 4 to add to the sums, dk and dv, 3 to convert dq. 12 are needed.
PASSES, LEAST_PASSES = 4 + 4 + 2 + 2 + 4 + 4 + 2 + 3, 12
PLAIN, MASKED = 1.5, 1.8  # most time of eager over that of its bytes: masked_fill computes indices


def shape(at: Point) -> tuple[int, int, int]:
    return at.seq, at.head_dim, at.batch * at.heads


def dropped(at: Point) -> bool:
    return str(at.get("dropout", "0")) != "0"


def step_bytes(at: Point) -> int:
    """Return the modelled bytes: of all kernels of eager, or the least of a fused step."""
    size, masked = itemsize(at.dtype), at.causal == "yes"
    if at.implementation != "eager":
        return fused_step_bytes(*shape(at), size)
    present = ("scale", True), ("mask", masked), ("dropout", dropped(at))
    more = frozenset(name for name, there in present if there)
    # torch multiplies gradient and p in a kernel of its own, and masked_fill reads half, twice.
    own = (3 - masked) * shape(at)[2] * at.seq**2 * size
    return eager_step_bytes(*shape(at), size, more) + own


def flops(at: Point) -> float:
    """Return the FLOPs that are computed; flash leaves out tiles above the diagonal."""
    fuses = at.implementation != "eager"
    share = (1 + 1 / at.seq) / 2 if fuses and at.causal == "yes" else 1.0
    return step_flops(*shape(at), fuses) * share


def published(at: Point, figure: float, unit: str) -> str:
    """Return the published figure, which is one with mask and dropout."""
    whole = dropped(at) and at.causal == "yes" and at.batch == GPT2_MEDIUM["batch"]
    return f"; published {figure} {unit}" if whole else ""


def of_bytes(at: Point, numbers: Numbers) -> Expected:
    """Predict the bytes through DRAM."""
    least = step_bytes(at)
    if at.implementation == "eager":
        return exactly(least, "byte", f"all kernels{published(at, 40.3, 'GB')}", 0.06)
    because = f"{PASSES}·v with sums of dq in fp32{published(at, 4.4, 'GB')}"
    return exactly(least * PASSES / LEAST_PASSES, "byte", because, 0.06)


def of_time(at: Point, numbers: Numbers) -> Expected:
    """Predict the time: eager's by its bytes, flash's by its products."""
    count = f"{flops(at) / 1e9:.1f} GFLOP"
    if at.implementation == "eager":
        bytes_s = step_bytes(at) / numbers["copy_bandwidth"]
        most = MASKED if at.causal == "yes" else PLAIN
        because = f"bytes / bandwidth, {count}{published(at, 41.7, 'ms')}"
        return Expected(bytes_s, 0.9 * bytes_s, most * bytes_s, "s", "model", because)
    peak_s = flops(at) / numbers["tensor_fp16"]
    because = f"{count} at {USUAL:.0%} of the peak{published(at, 7.3, 'ms')}"
    return Expected(peak_s / USUAL, peak_s / MOST, peak_s / LEAST, "s", "model", because)


ATTENTION_TABLE = Experiment(
    name="attention_table",
    question="What does flash attention gain in a training step of GPT-2 medium?",
    workload="attention",
    axes=STEP,
    implementations=("eager", "sdpa_flash"),
    x="modelled GB",
    along=lambda at, numbers: step_bytes(at) / 1e9,
    y="time_per_step",
    expect=of_time,
    controls=(
        Control(
            "an eighth",
            {"batch": 8},
            "an eighth of the sequences takes an eighth of the time: no launch is in it",
        ),
    ),
    claims=("001-30", "001-31", "001-33"),
    notes=("published on A100: 41.7 ms eager, 7.3 ms flash, with mask and dropout",),
)

ATTENTION_TABLE_BYTES = replace(
    ATTENTION_TABLE,
    name="attention_table_bytes",
    question="How many bytes does flash attention save in a training step of GPT-2 medium?",
    y="dram_bytes",
    expect=of_bytes,
    needs=("cuda", "counters"),
    claims=("001-30", "001-32"),
    notes=("published on A100: 40.3 GB eager, 4.4 GB flash, with mask and dropout",),
)
