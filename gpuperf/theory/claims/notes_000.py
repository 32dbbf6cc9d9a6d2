"""Claims of the lecture notes on GPUs for deep learning, each with its check."""

from __future__ import annotations

from gpuperf.theory.access import serial_paths, strided, tiled_reads, useful_share
from gpuperf.theory.attention import fused
from gpuperf.theory.claims import checks_000 as checks
from gpuperf.theory.claims.claim import (
    CONTEXT,
    ONE,
    Claim,
    Known,
    Query,
    between,
    near,
    over,
    under,
)
from gpuperf.theory.claims.devices import chip
from gpuperf.theory.claims.published import CYCLES
from gpuperf.theory.occupancy import WARP
from gpuperf.tiles.alignment import HARD
from gpuperf.tiles.waves import Tiling
from gpuperf.units import itemsize

CLAIMS = (
    Claim(
        "000-01",
        '"An A100 GPU has 108 SMs"',
        "SMs of the device file",
        near(108, 0),
        lambda: {"A100": chip("A100").sms},
        "SMs",
    ),
    Claim(
        "000-02",
        'warps "of 32"',
        "threads of a warp by the CUDA C++ Programming Guide; the period of divergence shows it",
        near(32, 0),
        lambda: {"sm_70 to sm_120": WARP},
        "threads",
        waits="lab divergence",
    ),
    Claim(
        "000-03",
        'L2 "approx. 10x slower than L1/shared"',
        "published cycles and TB/s of L1 and L2; within a factor of two of 10",
        between(5, 20),
        checks.l2_ratios,
        why="Latency is meant: the bandwidth differs by 3 to 4 times.",
        queries=(
            Query("l1", "cuda", "byte_per_s", label="L1", says=CONTEXT, unit="byte/s"),
            Query("l2", "cuda", "byte_per_s", label="L2", says=CONTEXT, unit="byte/s"),
        ),
        waits="lab latency",
    ),
    Claim(
        "000-04",
        'global memory "200-300 clock cycles vs. 20"',
        "published cycles of a dependent load from DRAM, and from shared memory",
        between(200, 300),
        lambda: (
            {f"{name}, DRAM": cycles["DRAM"] for name, cycles in CYCLES.items()}
            | {f"{name}, shared": (c["shared"], near(20, 0.25)) for name, c in CYCLES.items()}
        ),
        "cycles",
        why="200 to 300 cycles are those of the L2; the ratio of 10 to 15 survives.",
        waits="lab latency",
    ),
    Claim(
        "000-05",
        'data across blocks must go through "global memory (slow)"',
        "ways between blocks by capability: global memory, from 9.0 on also clusters",
        near(1, 0),
        lambda: {
            f"{name} ({chip(name).peaks.capability})": 1
            + (float(chip(name).peaks.capability) >= 9.0)
            for name in ("A100", "H100", "B200")
        },
        "ways",
        joint=True,
        why="Right up to sm_80; from sm_90 on blocks of a cluster read each other's shared memory.",
    ),
    Claim(
        "000-06",
        '"Matmuls are >10x faster"',
        "matmul peak / fp32 vector peak; fp64 / fp64 vector",
        over(10),
        checks.matmul_gain,
        why="16-bit inputs from the A100 on; tf32, fp64 and the V100 gain less.",
        queries=(
            Query(
                *("matmul", "torch", "flop_per_s"),
                at={"dtype": "bf16"},
                over={"dtype": "fp32"},
                label="bf16 / fp32",
            ),
            Query(
                *("matmul", "torch", "flop_per_s"),
                at={"dtype": "tf32"},
                over={"dtype": "fp32"},
                label="tf32 / fp32",
            ),
        ),
    ),
    Claim(
        "000-07",
        '"FLOPs scale faster than memory"',
        "growth of the peak / growth of the bandwidth, V100 to B200",
        over(1),
        checks.growth,
        why="Tensor cores outgrew memory, vector units did not.",
    ),
    Claim(
        "000-08",
        'sin²+cos² "five separate CUDA kernels"',
        "kernels and tensor passes of sin, cos, two squares and a sum",
        near(5, 0),
        checks.separate_kernels,
        why="11 passes over memory instead of 2.",
        queries=(
            Query("sincos", "eager", "kernels", label="kernels"),
            Query("sincos", "eager", "passes", label="passes", says=near(11, 0.02)),
        ),
    ),
    Claim(
        "000-09",
        '`torch.compile` "can perform many fusions automatically"',
        "kernels of the compiled sin²+cos²",
        near(1, 0),
        known=Known("right", "docs/measured: one kernel"),
        queries=(Query("sincos", "compile", "kernels", label="kernels"),),
        waits="lab fusion",
    ),
    Claim(
        "000-10",
        'fewer bits "improves arithmetic intensity"',
        "intensity in bf16 / in fp32",
        over(1),
        checks.intensity_gains,
    ),
    Claim(
        "000-11",
        'conditionals in a warp "can be really really damaging"',
        "paths that a warp runs one after another",
        over(1),
        lambda: {
            "32 paths in a warp": serial_paths(range(WARP)),
            "2 paths": serial_paths([lane % 2 for lane in range(WARP)]),
            "path chosen by warp": serial_paths([1] * WARP),
        },
        why="Only paths within a warp; short branches are predicated and cost about nothing.",
        waits="lab divergence",
    ),
    Claim(
        "000-12",
        '"Throwing away computation can actually be optimal"',
        "three sigmoids on an H200: time of 8 passes stored / of 5 recomputed",
        over(1),
        checks.recomputing_gain,
        why="Where memory binds; where compute binds, recomputing costs half as much again.",
        waits="lab recomputation",
    ),
    Claim(
        "000-13",
        'coalesced if a warp falls "within the same burst"',
        "useful share of the 32-byte sectors that 32 lanes of 4 bytes touch",
        ONE,
        lambda: {
            "in order": useful_share(strided(1)),
            "permuted in the warp": useful_share([(7 * lane) % WARP for lane in range(WARP)]),
            "stride 8": (useful_share(strided(8)), near(1 / 8, 1e-9)),
        },
        why="The burst is a 32-byte sector of the L2, 64 bytes of DRAM.",
        waits="lab coalescing",
    ),
    Claim(
        "000-14",
        "tiling: reduced global access",
        "reads of tiles of T / reads of single threads = 1/T",
        under(1),
        lambda: {f"T = {t}": tiled_reads(4096, t) / tiled_reads(4096, 1) for t in (2, 16, 32)},
        why="At the boundary of L2 and SMs; DRAM hides a part of it.",
        queries=(
            Query(
                *("matmul", "tiled", "dram_bytes"),
                over={"implementation": "naive"},
                label="tiled / naive, DRAM",
            ),
        ),
    ),
    Claim(
        "000-15",
        'drops when not divisible by "32, 16, 8"',
        "elements of 16 bytes, the hard edge of alignment",
        between(8, 32),
        lambda: {dtype: HARD // itemsize(dtype) for dtype in ("bf16", "fp8")},
        "elements",
        queries=(
            Query(
                *("matmul", "torch", "time_s"),
                at={"m": 8191, "n": 8191, "k": 8191},
                over={"m": 8192, "n": 8192, "k": 8192},
                label="8191³ / 8192³, time",
                says=over(1),
            ),
        ),
    ),
    Claim(
        "000-16",
        'drops when "tiles exceeds the available SMs … plummet"',
        "tiles / (SMs·⌈tiles/SMs⌉) of one tile too many; to below 0.6 is a plummet",
        under(0.6),
        checks.wave_drops,
        why="Only from one wave to two; the drop shrinks as one over the waves.",
    ),
    Claim(
        "000-17",
        '"108 SMs … cannot execute all 120 tiles"',
        "waves of 256×128 tiles at n = 1793 with one block an SM",
        over(1),
        lambda: {"A100": Tiling(256, 128, 64, chip("A100").sms).waves(1793, 1793)},
        "waves",
        why="120 tiles fit one wave of 132 SMs, whose cliff is from 2048 to 2049.",
    ),
    Claim(
        "000-18",
        '"exact attention in sub quadratic HBM accesses"',
        "exponent in n, as n grows, of the theorem's accesses and of those that leave the SM",
        under(1.99),
        checks.access_slopes,
        why="DRAM alone sees a linear amount, while keys and values of the running heads fit the "
        "L2.",
        queries=(
            Query(
                *("attention", "triton_flash", "dram_bytes"),
                along="seq",
                label="fused, DRAM, exponent",
            ),
        ),
        waits="lab attention_io",
    ),
    Claim(
        "000-19",
        'attention "involves three matrix multiplies (Q, K, V)"',
        "matmuls of attention: q·kᵀ and p·v, and four projections",
        near(3, 0),
        checks.attention_products,
        "matmuls",
    ),
    Claim(
        "000-20",
        "online softmax steps on [2, 1, 5]",
        "l = l_old·exp(m_old − m) + exp(x − m)",
        figures=checks.online_steps,
        joint=True,
    ),
    Claim(
        "000-21",
        'result "[0.0466, 0.0171, 0.9363]"',
        "exp(x − m) / l with the last m and l",
        figures=checks.example_result,
        joint=True,
        why="The last digit: 0.9362.",
    ),
    Claim(
        "000-22",
        "bigger matrices → better intensity",
        "2·n/(3·s) of an n³ matmul, over that of half its n",
        over(1),
        checks.cube_growth,
    ),
    Claim(
        "000-23",
        'backward recomputes "tile by tile" instead of storing N²',
        "bytes that eager keeps, n²·s, over those of the output, n·d·s",
        over(1),
        lambda: {"n 4096, d 64": 4096**2 / (fused(4096, 64, 1, 1)[1] / 4)},
        queries=(
            Query(
                *("attention", "eager", "held_bytes"),
                at={"mode": "fwd", "causal": "no"},
                over={"implementation": "triton_flash"},
                label="eager / fused, held",
            ),
        ),
    ),
)
