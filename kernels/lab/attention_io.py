"""Predict the bytes that attention moves: from the L2 to the SMs, and through DRAM.

Each block of B_r queries reads all keys and values, so that the traffic between L2 and SMs is
(2·n/B_r + 2)·v for tensors of v bytes: quadratic in n. DRAM sees 4·v, linear in n, as long as the
keys and values of the heads that run at a time fit the L2. Eager attention moves the scores, u
bytes, six times: q·kᵀ, its scale, the softmax and the product each in a kernel of its own.
"""

from __future__ import annotations

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, exactly
from gpuperf.theory.attention import eager, fused
from gpuperf.theory.attention_io import l2_bytes
from gpuperf.units import itemsize

# Queries of a block of FlashAttention-2 in torch by width, without dropout, on sm_80 and sm_90:
# Dao-AILab/flash-attention, csrc/flash_attn/src/flash_fwd_launch_template.h, run_mha_fwd_hdim*.
ROWS = {64: 128, 128: 128, 256: 64}
WIDEST_IN_REGISTERS = 128  # wider heads of `sdpa_efficient` sum in fp32 in memory
SCALED = frozenset({"scale"})


def heads_of(at: Point) -> int:
    return int(at.batch * at.heads)


def of_l2(at: Point, numbers: Numbers) -> Expected:
    """Predict the bytes that the SMs request of the L2."""
    rows, size = ROWS[at.head_dim], itemsize(at.dtype)
    moved = l2_bytes(at.seq, at.head_dim, heads_of(at), size, rows)
    # The log-sum-exp, and rows of the last block that are loaded but not stored, are below 3 %.
    return exactly(moved, "byte", f"(2·{at.seq}/{rows} + 2)·v", 0.05)


def of_dram(at: Point, numbers: Numbers) -> Expected:
    """Predict the bytes through DRAM."""
    shape = (at.seq, at.head_dim, heads_of(at), itemsize(at.dtype))
    if at.implementation == "eager":
        return exactly(eager(*shape, SCALED)[1], "byte", "6·u + 4·v", 0.05)
    moved = fused(*shape)[1]
    if at.implementation == "sdpa_efficient" and at.head_dim > WIDEST_IN_REGISTERS:
        most = moved + 2 * at.seq * at.head_dim * heads_of(at) * 4
        because = "4·v, and up to a write and a read of sums in fp32, as far as they leave the L2"
        return Expected(moved, 0.95 * moved, 1.05 * most, "byte", "exact", because)
    return exactly(moved, "byte", "4·v", 0.07)  # clean lines that stay in L2 are not written yet


ATTENTION_IO = Experiment(
    name="attention_io",
    question="Is the traffic of flash attention between L2 and SMs quadratic in n?",
    workload="attention",
    axes={"head_dim": (64, 128, 256), "seq": (1024, 2048, 4096, 8192), "dtype": ("bf16",)},
    implementations=("sdpa_flash",),
    x="seq",
    series="head_dim",
    y="l2_bytes",
    expect=of_l2,
    controls=(
        Control(
            "one block",
            {"head_dim": (64, 128), "seq": 128, "batch": 64},
            "one block has all queries of a head, and reads each key once: 4·v",
        ),
    ),
    law=Law("proportional", band=0.05),
    needs=("cuda", "counters"),
    claims=("000-18", "001-29", "003-08", "003-09"),
)

ATTENTION_DRAM = Experiment(
    name="attention_dram",
    question="Does fused attention keep its scores out of DRAM at every width?",
    workload="attention",
    axes={"head_dim": (64, 128, 256, 512), "seq": (4096,), "dtype": ("bf16",)},
    implementations=("eager", "sdpa_flash", "sdpa_efficient"),
    x="head_dim",
    y="dram_bytes",
    expect=of_dram,
    controls=(
        Control(
            "narrow",
            {"head_dim": 64, "seq": 8192},
            "4·v is linear in n: twice the bytes for twice the queries",
            implementations=("sdpa_flash",),
        ),
    ),
    law=Law("proportional", band=0.07),
    needs=("cuda", "counters"),
    claims=("001-16", "003-02", "003-09"),
)
