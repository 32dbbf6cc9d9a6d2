"""Predict a training step of GPT-2 medium's attention: the bytes and the time of eager and flash.

Dao et al., FlashAttention (arXiv 2205.14135), section 5 and figure 2, on an A100 of 40 GB with mask
and dropout: 66.6 and 75.2 GFLOP, 40.3 and 4.4 GB, 41.7 and 7.3 ms. Its GFLOP are wrong by the
author's word (Dao-AILab/flash-attention, issue 741): 6 and 7 products of dense attention are 824.6
and 962.1. Ours differ in the bytes of eager, since torch scales the scores in a kernel of its own,
and in the gain, since memory became faster: eager follows bandwidth, flash its products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuperf import Control, Expected, Experiment, Numbers, Point, exactly
from gpuperf.model.workload import Value
from gpuperf.theory.attention_training import eager_step_bytes, fused_step_bytes, step_flops
from gpuperf.units import itemsize

STEP: Mapping[str, tuple[Value, ...]] = {
    "batch": (64,),
    "heads": (16,),
    "seq": (1024,),
    "head_dim": (64,),
    "mode": ("fwd+bwd",),
    "dtype": ("fp16",),
    "causal": ("no", "yes"),
    "dropout": ("0", "0.1"),
}
# FlashAttention-2 reaches 20 to 65 % of the peak in a step of d = 64 to 128, by its own figures
# (201 of 312 TFLOP/s on an A100) and for want of wgmma on Hopper (370 of 989); dropout draws more.
USUAL, LEAST, MOST = 0.35, 0.12, 0.7
# Its backward sums dq in fp32 in memory (cleared, added to, converted) and reads o and do twice.
MOST_PASSES = 24 / 12  # of a tensor, over the 12 that the inputs and results are


def shape(at: Point) -> tuple[int, int, int]:
    return at.seq, at.head_dim, at.batch * at.heads


def dropped(at: Point) -> bool:
    return str(at.get("dropout", "0")) != "0"


def step_bytes(at: Point) -> int:
    """Return the modelled bytes: of all kernels of eager, or the least of a fused step."""
    if at.implementation != "eager":
        return fused_step_bytes(*shape(at), itemsize(at.dtype))
    present = {"scale": True, "mask": at.causal == "yes", "dropout": dropped(at)}
    more = frozenset(name for name, is_there in present.items() if is_there)
    return eager_step_bytes(*shape(at), itemsize(at.dtype), more)


def flops(at: Point) -> float:
    """Return the FLOPs that are computed: flash leaves out tiles above the diagonal, half of all;
    eager computes all scores."""
    fuses = at.implementation != "eager"
    share = (1 + 1 / at.seq) / 2 if fuses and at.causal == "yes" else 1.0
    return step_flops(*shape(at), fuses) * share


def published(at: Point, figure: float, unit: str) -> str:
    """Return the published figure, which is one with mask and dropout."""
    whole = dropped(at) and at.causal == "yes" and at.batch == STEP["batch"][0]
    return f"; published {figure} {unit}" if whole else ""


def of_bytes(at: Point, numbers: Numbers) -> Expected:
    """Predict the bytes through DRAM."""
    least = step_bytes(at)
    if at.implementation == "eager":
        return exactly(least, "byte", f"all kernels{published(at, 40.3, 'GB')}", 0.06)
    because = f"12·v, or twice that with sums of dq in fp32{published(at, 4.4, 'GB')}"
    return Expected(least, 0.95 * least, MOST_PASSES * least, "byte", "exact", because)


def of_time(at: Point, numbers: Numbers) -> Expected:
    """Predict the time: eager's by its bytes, flash's by its products."""
    count = f"{flops(at) / 1e9:.1f} GFLOP"
    if at.implementation == "eager":
        bytes_s = step_bytes(at) / numbers["copy_bandwidth"]
        because = f"bytes / bandwidth, {count}{published(at, 41.7, 'ms')}"
        return Expected(bytes_s, 0.9 * bytes_s, 1.5 * bytes_s, "s", "model", because)
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
    notes=("Published on an A100: 41.7 ms eager, 7.3 ms flash, with mask and dropout.",),
)

ATTENTION_TABLE_BYTES = replace(
    ATTENTION_TABLE,
    name="attention_table_bytes",
    question="How many bytes does flash attention save in a training step of GPT-2 medium?",
    y="dram_bytes",
    expect=of_bytes,
    needs=("cuda", "counters"),
    claims=("001-30", "001-32"),
    notes=("Published on an A100: 40.3 GB eager, 4.4 GB flash, with mask and dropout.",),
)
