"""Cases that one H200 measured, whose losses are known."""

from __future__ import annotations

from dataclasses import replace

from synthetic import h200_ceilings, h200_device, h200_peaks, header, matmul

from gpuperf.model.contract import Contract
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.record import Kernel, Launch, Record
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case

__all__ = ["ADD", "CALL", "HOT", "ODD", "SMALL", "TOP", "product"]

TOP = header(h200_device(), Contract("blocked"), h200_peaks(), ceilings=h200_ceilings())
HOT = replace(TOP.contract, cache="hot")  # whose reads the cache may serve
ALIGN1 = (
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1>"
    "(cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1::Params)"
)
NVJET = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT"


def product(
    n: int,
    time_s: float,
    clock_hz: float,
    kernel: str,
    grid: tuple[int, int, int],
    cluster: tuple[int, int, int],
    most: int,
    **counters: float,
) -> Record:
    """n³ in bf16 by one kernel."""
    launch = Launch(grid, (384, 1, 1), cluster, 168, 213188, most)
    record = matmul(TOP, n, 1.0, clock_hz, kernels=(Kernel(kernel, 1, {}, launch, time_s),))
    times = {"busy": Samples((time_s, time_s), (clock_hz, clock_hz))}
    return replace(record, times=times, primary="busy", counters=counters)


# As one H200 counted them: 1024³ by nvjet, and 8191³ by a kernel that loads element by element.
SMALL = product(
    1024,
    5.632e-6,
    1.810e9,
    NVJET,
    (2, 64, 1),
    (2, 1, 1),
    66,
    elapsed_cycles=10_300,
    active_cycles=7_520,
    tensor_cycles=3971.88,
    tensor_bf16=2 * 1024.0**3,
)
ODD = product(
    8191,
    7.2224e-3,
    1.795e9,
    ALIGN1,
    (512, 4, 3),
    (0, 0, 0),
    0,
    elapsed_cycles=12_963_164,
    active_cycles=12_826_754,
    tensor_cycles=4_083_091.4,
    tensor_bf16=2 * 8191.0**3 * 1.004274,
)
ADD = replace(
    SMALL,
    case=Case("vector_add", "torch", {"n": 2**20, "dtype": "fp32"}),
    cost=Cost((Flops(2**20, "elementwise", "fp32"),), (Bytes(2**23, 2**22),)),
    times={"busy": Samples((4.128e-6,) * 2, (1.976e9,) * 2)},
    kernels=(Kernel("add"),),
    counters={"dram_read_bytes": 8.4e6, "dram_written_bytes": 4.2e6},
)
CALL = replace(
    SMALL,
    times={
        "window": Samples((100e-6,) * 2, (1.8e9,) * 2),
        "busy": Samples((90e-6,) * 2),
        "span": Samples((99e-6,) * 2),
    },
    primary="window",
    kernels=(
        Kernel("gemm", 2, {"tensor_bf16": 2 * 1024.0**3, "tensor_cycles": 3972.0}, None, 30e-6),
        Kernel("void softmax<bf16>", 1, {"tensor_bf16": 0.0}, None, 60e-6),
        Kernel("Memset (Device)", 1),
    ),
    counters={**SMALL.counters, "elapsed_cycles": 180_000.0, "active_cycles": 150_000.0},
)
