"""The workload of chains of mma.sync m16n8k16 in bf16, each of which adds to its own sums.

- `cuda`: inline PTX; a warp has `chains` tiles of 16 × 8 sums, a scheduler `warps` warps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gpuperf.lab_experiments._cuda import CudaCall, block_count, cuda_call, lacks_cuda

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Workload

SCHEDULERS, WARP, BODY, M, N, K = 4, 32, 48, 16, 8, 16
CHAINS = (1, 2, 3, 4, 6, 8, 16)
CUDA = """
__device__ unsigned pair(const signed char* from, int apart) {  // two elements, 0 or 1, in bf16
    return (from[0] ? 0x3f80u : 0u) | (from[apart] ? 0x3f800000u : 0u);
}
template <int C>
__device__ void run(const signed char* x, const signed char* w, float* y, unsigned links) {
    const int lane = threadIdx.x % 32, row = lane / 4, col = lane % 4 * 2;
    const signed char* tile = x + row * 16 + col;  // fragments as in the PTX manual, m16n8k16
    const signed char* under = tile + 128;
    const unsigned a[4] = {pair(tile, 1), pair(under, 1), pair(tile + 8, 1), pair(under + 8, 1)};
    const unsigned b[2] = {pair(w + col * 8 + row, 8), pair(w + (col + 8) * 8 + row, 8)};
    float d[C][4];
#pragma unroll
    for (int c = 0; c < C; ++c)
        for (int i = 0; i < 4; ++i) d[c][i] = c;  // equal chains would become one
    for (unsigned k = 0; k < links; k += 48 / C) {
#pragma unroll
        for (int i = 0; i < 48 / C; ++i) {
#pragma unroll
            for (int c = 0; c < C; ++c)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                             "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                             : "+f"(d[c][0]), "+f"(d[c][1]), "+f"(d[c][2]), "+f"(d[c][3])
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        }
    }
    float* to = y + (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 128 + row * 8 + col;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float sum = 0;
        for (int c = 0; c < C; ++c) sum += d[c][i];
        to[i / 2 * 64 + i % 2] = sum;
    }
}
#define MMA(C)                                                                                 \\
    extern "C" __global__ void __launch_bounds__(512) mma_##C(                                 \\
        const signed char* x, const signed char* w, float* y, unsigned links) {                \\
        run<C>(x, w, y, links);                                                                \\
    }
MMA(1) MMA(2) MMA(3) MMA(4) MMA(6) MMA(8) MMA(16)
"""


def build(inputs: Mapping[str, torch.Tensor], point: Point, options: object) -> CudaCall:
    """Build the call of the kernel with as many chains."""
    x, warps = inputs["x"], SCHEDULERS * point.warps
    grid = block_count(x, max(1, warps // 16))
    y = torch.empty(grid, min(warps, 16), M, N, device=x.device)
    name, block = f"mma_{point.chains}", WARP * min(warps, 16)
    return cuda_call(CUDA, name, y, grid, block, x, inputs["w"], y, point.links)


def supports(point: Point, device: Any) -> str | None:
    """Return why the point cannot run, or None."""
    if point.chains not in CHAINS or point.warps not in (1, 2, 3, 4, 8, 16):
        return f"takes {CHAINS} chains, and 1 to 4, 8 or 16 warps"
    return (
        f"links must be a multiple of {BODY}" if point.links % BODY else lacks_cuda(point, device)
    )


def reference(inputs: Mapping[str, torch.Tensor], point: Point) -> torch.Tensor:
    """Compute the sums of the chains of each warp; they are whole numbers below 2²⁴, so exact."""
    x, w, warps = inputs["x"].double(), inputs["w"].double(), SCHEDULERS * point.warps
    tile = point.chains * point.links * (x @ w) + point.chains * (point.chains - 1) / 2
    return tile.expand(block_count(x, max(1, warps // 16)), min(warps, 16), M, N)


MMA_CHAINS = Workload(
    name="mma_chains",
    summary="independent chains of mma.sync m16n8k16 in bf16",
    formula="4096·4·warps·chains·links FLOP on each SM",
    axes=(
        Axis("chains", 1, "independent chains of a warp", main=True),
        Axis("warps", 1, "warps of a scheduler"),
        Axis("links", 256 * BODY, "products of a chain, which take 200 µs or more"),
        Axis("dtype", "bf16", "dtype of the factors", choices=("bf16",)),
    ),
    inputs=lambda point, make: {n: make((16, s), "int8", high=2) for n, s in (("x", K), ("w", N))},
    reference=reference,
    cost=lambda point: Cost(
        (Flops(16384 * point.warps * point.chains * point.links, "matmul", "bf16", "fp32"),),
        (Bytes(M * K + K * N, 2048 * point.warps),),
    ),
    implementations=(Implementation("cuda", build, "CUDA C, inline PTX", supports),),
    result=lambda point: "fp32",
    terms=lambda point: 16,
)
