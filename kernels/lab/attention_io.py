"""Predict the bytes that attention moves: from the L2 to the SMs, and through DRAM.

Each block of B_r queries reads all keys and values, so that the SMs read (2·n/B_r + 1)·v from the
L2 for tensors of v bytes: quadratic in n. The slices of the L2 serve less on Hopper, where one
access is for all SMs that ask for a sector at the same time, and take more, as FlashAttention-2
spills registers there. DRAM sees 4·v, linear in n, as long as the keys and values of the heads that
run at a time fit the L2. Eager attention moves the scores, u bytes, six times: q·kᵀ, its scale, the
softmax and the product each in a kernel of its own.
"""

from __future__ import annotations

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, exactly
from gpuperf.theory.attention import eager, fused
from gpuperf.theory.attention_io import sm_read_bytes
from gpuperf.units import itemsize

# Queries of a block of FlashAttention-2 in torch by width, without dropout, on sm_80 and sm_90:
# Dao-AILab/flash-attention, csrc/flash_attn/src/flash_fwd_launch_template.h, run_mha_fwd_hdim*.
ROWS = {64: 128, 128: 128, 256: 64}
WIDEST_IN_REGISTERS = 128  # wider heads of `sdpa_efficient` sum in fp32 in memory
QUERIES, KEYS = 32, 128  # of a block there: fmha_cutlassF_bf16_aligned_32x128_gmem_sm80
# Of 4·v: for heads of 128 and 4096 tokens, ncu counts 954 MB of spilled registers, and DRAM is
# written 18 MB more than o and the log-sum-exp. Blocks of 64 queries do not spill, and there DRAM
# is read 31 MB more than q, k and v.
SPILLED = 0.15
SCALED = frozenset({"scale"})


def heads_of(at: Point) -> int:
    return int(at.batch * at.heads)


def of_reads(at: Point, numbers: Numbers) -> Expected:
    """Predict the bytes that the SMs read from the L2."""
    rows, size = ROWS[at.head_dim], itemsize(at.dtype)
    moved = sm_read_bytes(at.seq, at.head_dim, heads_of(at), size, rows)
    return exactly(moved, "byte", f"(2·{at.seq}/{rows} + 1)·v", 0.02)  # spills are read again


def of_dram(at: Point, numbers: Numbers) -> Expected:
    """Predict the bytes through DRAM."""
    shape = (at.seq, at.head_dim, heads_of(at), itemsize(at.dtype))
    if at.implementation == "eager":
        return exactly(eager(*shape, SCALED)[1], "byte", "6·u + 4·v", 0.05)
    moved = fused(*shape)[1]
    if at.implementation == "sdpa_efficient" and at.head_dim > WIDEST_IN_REGISTERS:
        sums = at.seq * at.head_dim * heads_of(at) * 4
        turns = at.seq / KEYS
        most = moved + 2 * sums * turns + 2 * moved / 4 * at.seq / QUERIES
        because = (
            f"4·v, and as far as they leave the L2 a write and a read of sums in fp32 for each of "
            f"{turns:g} blocks of keys, and k and v for each block of {QUERIES} queries"
        )
        return Expected(moved, 0.95 * moved, 1.05 * most, "byte", "exact", because)
    if at.implementation == "sdpa_flash":
        because = "4·v, and as far as they leave the L2 spilled registers, and keys read again"
        return Expected(moved, 0.93 * moved, (1 + SPILLED) * moved, "byte", "exact", because)
    return exactly(moved, "byte", "4·v", 0.07)  # clean lines that stay in L2 are not written yet


ATTENTION_IO = Experiment(
    name="attention_io",
    question="Is what the SMs read from the L2 in flash attention quadratic in n?",
    workload="attention",
    axes={"head_dim": (64, 128, 256), "seq": (1024, 2048, 4096), "dtype": ("bf16",)},
    implementations=("sdpa_flash",),
    x="seq",
    series="head_dim",
    y="sm_read_bytes",
    expect=of_reads,
    controls=(
        Control(
            "one block",
            {"head_dim": (64, 128), "seq": 128, "batch": 64},
            "one block has all queries of a head, and reads each key once: 3·v",
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
    needs=("cuda", "counters"),
    claims=("001-16", "003-02", "003-09"),
)
