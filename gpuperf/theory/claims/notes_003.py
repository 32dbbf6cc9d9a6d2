"""Claims of the notes on FlashAttention and torch.compile, each with its check."""

from __future__ import annotations

from gpuperf.theory.attention import eager
from gpuperf.theory.claims import checks_003 as checks
from gpuperf.theory.claims.checks_002 import held_ratio
from gpuperf.theory.claims.claim import CONTEXT, Claim, Known, Query, near, over, under
from gpuperf.theory.online_softmax import PASSES

SCALED = frozenset({"scale"})

CLAIMS = (
    Claim(
        "003-01",
        'causal keeps P_ij "(i>j)"',
        "scores that a causal mask keeps, i ≥ j, beside those with i > j",
        figures=checks.causal_pairs,
        why="Off by the diagonal: the first row would be empty.",
    ),
    Claim(
        "003-02",
        'standard: "O(Nd+N²) HBM accesses"',
        "elements of eager attention over N·d + N²: constant as N grows",
        near(4),
        checks.standard_constant,
        queries=(
            Query(
                *("attention", "eager", "dram_bytes"),
                at={"batch": 4, "heads": 16, "seq": 4096, "head_dim": 64, "mode": "fwd"},
                label="6·u + 4·v: the scale is a kernel",
                says=near(eager(4096, 64, 64, 2, SCALED)[1], 0.01),
                unit="byte",
            ),
        ),
        waits="lab attention_io",
    ),
    Claim(
        "003-03",
        '3-pass softmax: "3N²" accesses',
        "reads and writes of a safe softmax",
        near(3, 0.02),
        lambda: {"safe": sum(PASSES["safe"])},
        "N²",
        why="Three reads, and the write.",
        queries=(Query("softmax", "safe", "passes", at={"n": 2**20}, label="DRAM, 1 Mi columns"),),
    ),
    Claim(
        "003-04",
        "online: 2 passes; fused: 1",
        "passes that read the row",
        figures=checks.softmax_accesses,
        joint=True,
        why="With the write, 3 and 2 accesses.",
        queries=(
            Query(
                *("softmax", "online", "passes"),
                at={"n": 2**20},
                label="online, with the write",
                says=near(3, 0.02),
            ),
            Query(
                *("softmax", "fused", "passes"),
                at={"mode": None},
                label="fused, with the write",
                says=near(2, 0.02),
            ),
        ),
    ),
    Claim(
        "003-05",
        "B_c = ⌈M/4d⌉, B_r = min(⌈M/4d⌉, d)",
        "tiles of 192 KB in fp16",
        figures=checks.formula_blocks,
        joint=True,
        why="As FlashAttention 1 has it; real kernels use 64 to 128.",
    ),
    Claim(
        "003-06",
        "dV = PᵀdO, dP = dOVᵀ, dS = P∘(dP − rowsum), dQ = dSK, dK = dSᵀQ",
        "largest difference from central differences in float64",
        under(1e-6),
        checks.gradients,
        joint=True,
        why="The scale 1/√d is left out.",
    ),
    Claim(
        "003-07",
        "dPᵀP = dOᵀO",
        "largest difference of each row in float64",
        under(1e-12),
        checks.row_identity,
    ),
    Claim(
        "003-08",
        'FlashAttention wins when d² ≪ "M⁻¹"',
        "largest width with n²·d²/M below n², in elements of 192 KB",
        figures=checks.winning_width,
        why="d² ≪ M: the exponent.",
        waits="lab attention_io",
    ),
    Claim(
        "003-09",
        'advantage at d = 64–256, none at "d ≥ 512" (192 KB)',
        "n²·d²/M over n²; fused over eager bytes of DRAM",
        figures=checks.advantages,
        why="Of the accesses beyond the SM; in DRAM the fused form wins at 512 too.",
        waits="lab attention_io",
    ),
    Claim(
        "003-10",
        "memory O(Nd + N²) against O(Nd)",
        "exponents in n of the memory that is held",
        figures=checks.held_slopes,
        joint=True,
        queries=(
            Query(
                *("attention", "eager", "held_bytes"),
                at={"mode": "fwd", "causal": "no"},
                over={"implementation": "triton_flash"},
                label="eager / fused, held",
                says=over(1),
            ),
        ),
    ),
    Claim(
        "003-11",
        'memory-efficient backend "only … not HBM accesses"',
        "bytes of DRAM of eager attention / of a kernel that stores no scores",
        near(1, 0.2),
        lambda: {"n 4096, d 64": held_ratio(4096, 64)},
        why="Scores that are never stored are never loaded; it is slower for other reasons.",
        queries=(
            Query(
                *("attention", "eager", "dram_bytes"),
                at={"mode": "fwd"},
                over={"implementation": "sdpa_efficient"},
                label="eager / efficient, DRAM",
            ),
        ),
    ),
    Claim(
        "003-12",
        "flash helps prefill (TTFT)",
        "least time of a prefill of Llama-3-8B on an H200 with scores in DRAM / without",
        over(1),
        checks.prefill_times,
        waits="theory inference",
    ),
    Claim(
        "003-13",
        'CUDA graphs "hardware-level"',
        "years from the V100 (2017) to the CUDA 10.0 (2018) that brought graphs to it",
        near(0, 0),
        lambda: {"CUDA 10.0 − V100": 2018 - 2017},
        "years",
        why="A software feature of driver and runtime.",
    ),
    Claim(
        "003-14",
        'replay sends "one single command"',
        "calls of the driver in a trace of a replay; about 1 µs and 0.5 to 1.3 µs a node follow",
        known=Known("right", "CUDA Runtime API: one cudaGraphLaunch"),
        waits="lab graph_amortisation",
    ),
    Claim(
        "003-15",
        "eager 0.0157, graphs 0.0856, no graphs 0.0025 s",
        "µs of one of 100 calls",
        CONTEXT,
        checks.per_call,
        "µs",
        known=Known("open", "measured wrongly: the second call, which records, is in the time"),
        waits="lab graph_amortisation",
    ),
    Claim(
        "003-16",
        '"Speedup: 0.18x"',
        "S(n) = n·t_e / (C + n·t_g) with t_e, t_g and C from the printed times",
        near(0.18),
        checks.graph_gains,
        why="0.18 at 100 calls alone, with the recording inside; 1 near 640 calls.",
        waits="lab graph_amortisation",
    ),
    Claim(
        "003-17",
        '"6.32x"',
        "0.0157 / 0.0025, which rounding leaves open by 2.3 %",
        near(6.32, 0.023),
        lambda: {"eager / compiled": 0.0157 / 0.0025},
    ),
    Claim(
        "003-18",
        'graphs "overkill for small functions"',
        "steady gain of a graph; without a gain it is overkill",
        under(1),
        checks.small_gains,
        why="One fused kernel gains nothing, many small kernels gain most.",
        waits="lab graph_amortisation",
    ),
    Claim(
        "003-19",
        "`torch.compile` is a superset of CUDA graphs",
        "graphs are its mode `reduce-overhead`; it skips them for mutation, CPU tensors and "
        "dynamic shapes",
        known=Known("right", "documentation of torch.compile, modes"),
        waits="lab dispatcher",
    ),
    Claim(
        "003-20",
        "`dynamo.explain` reports breaks",
        "graphs and breaks that torch._dynamo.explain returns for the notes' function",
        known=Known("right", "documentation of torch._dynamo.explain"),
        waits="lab dispatcher",
    ),
)
