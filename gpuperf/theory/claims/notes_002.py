"""Claims of the reading group on GPU architecture, CUDA and NCCL, each with its check."""

from __future__ import annotations

from gpuperf.theory.access import serial_paths, strided, useful_share
from gpuperf.theory.claims import checks_002 as checks
from gpuperf.theory.claims.checks_000 import recomputing_gain
from gpuperf.theory.claims.claim import CONTEXT, ONE, Claim, Query, between, near, over, under
from gpuperf.theory.claims.devices import ridge
from gpuperf.theory.claims.published import FLASH_TFLOPS, HOST_GBIT

CLAIMS = (
    Claim(
        "002-01",
        'GPU latencies "much slower than on a CPU"',
        "published latencies of an H100 / of a CPU at 4 GHz; from twice on is much",
        over(2),
        checks.latencies,
        waits="lab latency",
    ),
    Claim(
        "002-02",
        'a few to "100+ SMs"',
        "SMs of the device files",
        over(100),
        checks.sm_counts,
        "SMs",
        joint=True,
    ),
    Claim(
        "002-03",
        'warp: 32 threads; divergent paths "serialize"',
        "paths that a warp runs one after another, for so many paths",
        figures=lambda: {
            f"{p} paths": (serial_paths([lane % p for lane in range(32)]), near(p, 0))
            for p in (2, 8, 32)
        },
        waits="lab divergence",
    ),
    Claim(
        "002-04",
        "scheduler swaps warps to hide latency",
        "min(bytes in flight / latency, bandwidth) of an H200 with twice the warps, by "
        "Little's law",
        near(2),
        checks.warps_hide,
        why="With 16-byte loads 805 threads an SM suffice; with 4-byte loads 2,048 do not.",
        waits="lab little",
    ),
    Claim(
        "002-05",
        '"Global < L2 < L1/Shared < Registers < FMA < Tensor Cores"',
        "throughput of an H100 over that of the level before; latency of an FMA / of an MMA",
        over(1),
        checks.hierarchy,
        why="The order is that of throughput; an MMA has a longer latency than an FMA.",
        waits="lab latency",
    ),
    Claim(
        "002-06",
        'DCN "around 50 Gbps"',
        "published network of a host with few GPUs, and of one with eight",
        near(50, 0.2),
        lambda: HOST_GBIT,
        "Gbit/s",
        why="Of a small virtual machine; hosts with 8 GPUs have 400 Gbit/s a GPU.",
        waits="links",
    ),
    Claim(
        "002-07",
        '"PCIe is 128 GB/s"',
        "PCIe 5.0: 32 GT/s · 16 lanes · 128/130 / 8, within 1 %",
        near(128, 0.01),
        checks.pcie,
        "GB/s",
        why="A copy has one direction, 63; 128 is the sum of both before the line code.",
        queries=tuple(
            Query(
                *(op, "torch", "result_byte_per_s"),
                label=label,
                unit="byte/s",
                says=near(128e9, 0.01),
            )
            for op, label in (("h2d", "host to device"), ("d2h", "device to host"))
        ),
        waits="links",
    ),
    Claim(
        "002-08",
        'device memory "80 GB", "3.35 TB/s"',
        "device file of the H100 SXM",
        figures=checks.h100_memory,
        joint=True,
        why="Between DRAM and the SMs is the L2.",
    ),
    Claim(
        "002-09",
        'NVLink "900 GB/s"',
        "links of an H100 in both directions, and in one",
        near(900, 0.01),
        checks.nvlink,
        "GB/s",
        why="Both directions together.",
        waits="links",
    ),
    Claim(
        "002-10",
        "bottleneck: hosts' connection",
        "bandwidth of a link over that of the next slower one, one direction",
        over(1),
        checks.slower_links,
        waits="links",
    ),
    Claim(
        "002-11",
        'workload ratio "< ⇒ not compute-bound, ≈ ⇒ likely compute-bound"',
        "1 where the quote's verdict is that of min(1, intensity / ridge)",
        near(1, 0),
        checks.verdicts,
        why="From the ridge on, not near it: a larger intensity is compute-bound too.",
    ),
    Claim(
        "002-12",
        'imbalance "grows as we use lower precision"',
        "fp8 over bf16 on an H200",
        over(1.01),
        checks.precision_growth,
        why="In FLOP/byte; the critical tokens stay, as the bytes of a weight fall too.",
    ),
    Claim(
        "002-13",
        'MFU "between 0 and 1"',
        "min(1, intensity / ridge) at the roof",
        between(0, 1),
        lambda: {f"{x:g} ridges": min(1, x * ridge("H200") / ridge("H200")) for x in (0.01, 1, 9)},
        why="A value above 1 is a fault of the denominator.",
        queries=(Query("matmul", "torch", "peak_share", at={"dtype": "bf16"}, label="matmul"),),
    ),
    Claim(
        "002-14",
        "naive CUDA matmul listing",
        "its index arithmetic, and the useful share of the bytes of neighbouring columns",
        near(0),
        lambda: {**checks.naive_listing(), "columns, useful": (useful_share(strided(1)), ONE)},
        queries=(
            Query("matmul", "naive", "flop_per_s", label="naive", says=CONTEXT, unit="FLOP/s"),
        ),
    ),
    Claim(
        "002-15",
        '"large speedup on big matrices" (CPU against GPU)',
        "fp32: a naive kernel that loads 2 words from L1 for 2 FLOP / CPU code, by arithmetic",
        over(10),
        checks.cpu_gains,
        why="It depends on the CPU code.",
    ),
    Claim(
        "002-16",
        "AllReduce, AllGather, ReduceScatter meanings",
        "integers on four ranks: all-reduce less the all-gather of the reduce-scatter",
        near(0),
        checks.collectives,
        waits="links",
    ),
    Claim(
        "002-17",
        "(implied) AllReduce = ReduceScatter + AllGather",
        "2·(n − 1)/n over twice (n − 1)/n",
        ONE,
        checks.collective_bytes,
        why="In bytes; published for two H200, one call is 1.25 to 1.7 times as fast.",
        waits="lab allreduce",
    ),
    Claim(
        "002-18",
        '"faster to recompute than to load"',
        "time of three stored functions / of recomputed ones, on an H200",
        over(1),
        recomputing_gain,
        why="Where memory binds.",
        waits="lab recomputation",
    ),
    Claim(
        "002-19",
        'scores too large at "32k/64k"',
        "n² scores of one head in bf16 / L2 of an H200",
        over(1),
        checks.score_bytes,
    ),
    Claim(
        "002-20",
        "softmax unchanged by subtracting the max",
        "largest difference in float64",
        under(1e-12),
        checks.shifted_softmax,
    ),
    Claim(
        "002-21",
        "listing of tiled attention",
        "largest error of queries outside, tiles of keys inside, in float64",
        under(1e-12),
        checks.tiled_listing,
        why="FlashAttention 2's order; in 1 the keys are outside.",
    ),
    Claim(
        "002-22",
        'tensor cores so fast that pointwise "relatively cheap"',
        "time of n² exponentials / of 4·n²·d FLOPs of matmul; cheap is below a tenth",
        under(0.1),
        checks.exponential_shares,
        why="Reversed: the faster the tensor cores, the more the exponentials cost.",
        waits="lab softmax_exp",
    ),
    Claim(
        "002-23",
        "FA2 swaps loops: parallel over Q tiles",
        "blocks b·h·⌈n / B_r⌉ over b·h, n 4096, B_r 64",
        over(1),
        lambda: {"b·h = 8": 8 * -(-4096 // 64) / 8},
    ),
    Claim(
        "002-24",
        'causal: stop "at the diagonal"',
        "kept scores / n² = ½·(1 + 1/n)",
        near(0.5, 0.001),
        checks.causal_share,
        queries=tuple(
            Query(
                *("attention", name, "time_s"),
                at={"causal": "yes", "mode": "fwd"},
                over={"causal": "no"},
                label=f"causal / full, {name}",
                says=between(0.5, 0.6),
            )
            for name in ("sdpa_cudnn", "triton_flash")
        ),
    ),
    Claim(
        "002-25",
        "FA3: async, tensor-core pipelining",
        "published forward TFLOP/s of FA3 / FA2 on an H100",
        over(1),
        lambda: {"FA3 / FA2": FLASH_TFLOPS["FA3"] / FLASH_TFLOPS["FA2"]},
        queries=(
            Query(
                *("attention", "sdpa_flash", "time_s"),
                at={"mode": "fwd", "causal": "no"},
                over={"implementation": "sdpa_cudnn"},
                label="FA2 / cuDNN, time",
            ),
        ),
    ),
)
