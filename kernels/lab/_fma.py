"""The workload of chains of fused multiply-adds on registers.

- `cuda`: `chains` chains in each thread, `warps` warps on each of the four schedulers of an SM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gpuperf.lab_experiments._cuda import CudaCall, block_count, cuda_call, lacks_cuda

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Workload

SCHEDULERS, WARP, MOST, BODY = 4, 32, 1024, 240
CHAINS = (1, 2, 3, 4, 6, 8, 16)
LINK = 2.0**-12  # is added exactly, so that the result counts the links
CUDA = """
template <int C>
__device__ void run(const float* x, float* y, unsigned links, float a, float b) {
    float v[C];
#pragma unroll
    for (int c = 0; c < C; ++c) v[c] = x[threadIdx.x] + c;  // equal chains would become one
    // 240 instructions an iteration: its end takes three more, which count at the full rate.
    for (unsigned k = 0; k < links; k += 240 / C) {
#pragma unroll
        for (int i = 0; i < 240 / C; ++i) {
#pragma unroll
            for (int c = 0; c < C; ++c) v[c] = fmaf(v[c], a, b);  // a and b are arguments
        }
    }
    float sum = 0;
#pragma unroll
    for (int c = 0; c < C; ++c) sum += v[c];
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
#define FMA(C)                                                                                \\
    extern "C" __global__ void __launch_bounds__(1024) fma_##C(                               \\
        const float* x, float* y, unsigned links, float a, float b) {                         \\
        run<C>(x, y, links, a, b);                                                            \\
    }
FMA(1) FMA(2) FMA(3) FMA(4) FMA(6) FMA(8) FMA(16)
"""


def shape(point: Point, x: torch.Tensor) -> tuple[int, int]:
    """Return the threads of a block, and the blocks."""
    threads = SCHEDULERS * WARP * point.warps
    return min(threads, MOST), block_count(x, -(-threads // MOST))


def build(inputs: Mapping[str, torch.Tensor], point: Point, options: object) -> CudaCall:
    """Build the call of the kernel with as many chains."""
    x, (block, grid) = inputs["x"], shape(point, inputs["x"])
    y = torch.empty(grid, block, device=x.device)
    return cuda_call(CUDA, f"fma_{point.chains}", y, grid, block, x, y, point.links, 1.0, LINK)


def supports(point: Point, device: Any) -> str | None:
    """Return why the point cannot run, or None."""
    if point.chains not in CHAINS or point.warps not in (*range(1, 9), 16):
        return f"takes {CHAINS} chains, and 1 to 8 or 16 warps"
    if point.links % BODY:
        return f"links must be a multiple of {BODY}"
    return lacks_cuda(point, device)


def reference(inputs: Mapping[str, torch.Tensor], point: Point) -> torch.Tensor:
    """Compute the sum of each thread's chains: x + c + links · 2⁻¹² for the chain c."""
    x, (block, grid), chains = inputs["x"], shape(point, inputs["x"]), point.chains
    first = chains * x[:block].double() + chains * (chains - 1) / 2
    return (first + chains * point.links * LINK).expand(grid, block)


def cost(point: Point) -> Cost:
    """Return the cost for one SM: two FLOPs for each link."""
    threads = SCHEDULERS * WARP * point.warps
    flops = Flops(2 * threads * point.chains * point.links, "elementwise", "fp32")
    return Cost((flops,), (Bytes(4 * MOST, 4 * threads),))


FMA_CHAINS = Workload(
    name="fma_chains",
    summary="independent chains of fused multiply-adds",
    formula="2·128·warps·chains·links FLOP on each SM",
    axes=(
        Axis("chains", 1, "independent chains of a thread", main=True),
        Axis("warps", 1, "warps of a scheduler"),
        Axis("links", 273 * BODY, "multiply-adds of a chain, which take 130 µs or more"),
        Axis("dtype", "fp32", "dtype of the chains", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((MOST,), point.dtype)},
    reference=reference,
    cost=cost,
    implementations=(Implementation("cuda", build, "CUDA C", supports),),
    terms=lambda point: 16,
)
