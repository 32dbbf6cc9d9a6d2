"""The workload of a stream with a known number of bytes in flight.

Each thread has `unroll` independent loads of `size` bytes in flight, and begins the next ones when
all have arrived. `threads` are those of an SM.

- `independent`: as described.
- `dependent`: each load waits for the one before, so that a thread has one in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gpuperf.lab_experiments._cuda import CudaCall, block_count, cuda_call, lacks_cuda

from gpuperf import Point
from gpuperf.nvrtc import U64

BLOCK, WIDEST = 256, 64  # threads; bytes of a thread's loads, which fit its 32 registers
SLOTS = 128  # SMs for which `rounds` is meant; a device divides the same bytes among its own
SIZES, UNROLLS = (4, 8, 16), (1, 2, 4, 8, 16)
CUDA = """
typedef unsigned long long u64;
__device__ void load(float (&v)[1], const float* from) {
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(v[0]) : "l"(from));
}
__device__ void load(float (&v)[2], const float* from) {
    asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "l"(from));
}
__device__ void load(float (&v)[4], const float* from) {
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "l"(from));
}
template <int W, int U, bool DEPENDENT>
__device__ void stream(const float* x, float* y, unsigned mask, u64 rounds, unsigned zero) {
    const unsigned threads = gridDim.x * blockDim.x, id = blockIdx.x * blockDim.x + threadIdx.x;
    const u64 last = (blockIdx.x + 1) * rounds / gridDim.x;
    float sum = 0;
    unsigned at = id;  // overflows at a multiple of the mask
#pragma unroll 1
    for (u64 round = blockIdx.x * rounds / gridDim.x; round < last; ++round) {
        float v[U][W];
#pragma unroll
        for (int k = 0; k < U; ++k) {
            load(v[k], x + (u64)(at + k * threads & mask) * W);
            if (DEPENDENT) at += __float_as_uint(v[k][0]) & zero;
        }
#pragma unroll  // a tree, since each addition of a chain would add 4 cycles to the latency
        for (int half = U * W / 2; half > 0; half /= 2)
            for (int k = 0; k < half; ++k) v[k / W][k % W] += v[(k + half) / W][(k + half) % W];
        sum += v[0][0];
        // `zero` is 0, which the compiler cannot see: no later load begins before these arrive.
        at += U * threads + (__float_as_uint(sum) & zero);
    }
    y[id] = sum;
}
#define KERNEL(name, S, U, dependent)                                                             \\
    extern "C" __global__ void __launch_bounds__(256, 8) name(                                    \\
        const float* x, float* y, unsigned mask, u64 rounds, unsigned zero) {                     \\
        stream<S / 4, U, dependent>(x, y, mask, rounds, zero);                                    \\
    }
#define LOADS(S, U) \\
    KERNEL(independent_##S##_##U, S, U, false) KERNEL(dependent_##S##_##U, S, U, true)
LOADS(4, 1) LOADS(4, 2) LOADS(4, 4) LOADS(4, 8) LOADS(4, 16)
LOADS(8, 1) LOADS(8, 2) LOADS(8, 4) LOADS(8, 8)
LOADS(16, 1) LOADS(16, 2) LOADS(16, 4)
"""


def build(kind: str) -> Any:
    """Return the function that builds the stream whose loads are of *kind*."""

    def built(inputs: Mapping[str, torch.Tensor], point: Point, options: object) -> CudaCall:
        x, name = inputs["x"], f"{kind}_{point.size}_{point.unroll}"
        block, grid, rounds = shape(point, x)
        y = torch.empty(grid * block, device=x.device)
        mask = 4 * point.n // point.size - 1
        return cuda_call(CUDA, name, y, grid, block, x, y, mask, (rounds, U64), 0)

    return built


def shape(point: Point, x: torch.Tensor) -> tuple[int, int, int]:
    """Return the threads of a block, the blocks, and the rounds of all blocks together."""
    block = min(point.threads, BLOCK)
    of_sm = point.threads // block
    return block, block_count(x, of_sm), SLOTS * of_sm * point.rounds


def reference(inputs: Mapping[str, torch.Tensor], point: Point) -> torch.Tensor:
    """Sum what each thread loads in float64."""
    x, (block, grid, rounds) = inputs["x"], shape(point, inputs["x"])
    loads = x.view(-1, point.size // 4).sum(1, dtype=torch.float64)
    ids = torch.arange(grid * block, device=x.device)
    blocks = ids // block
    counts = point.unroll * ((blocks + 1) * rounds // grid - blocks * rounds // grid)
    sums = torch.zeros(grid * block, dtype=torch.float64, device=x.device)
    for k in range(int(counts.max())):
        sums += loads[(ids + k * grid * block) % len(loads)] * (k < counts)
    return sums


def supports(point: Point, device: Any) -> str | None:
    """Return why the point cannot run, or None."""
    if point.size not in SIZES or point.unroll not in UNROLLS or point.size * point.unroll > WIDEST:
        return f"takes loads of {SIZES} bytes, {UNROLLS} of them, up to {WIDEST} bytes together"
    if point.threads % min(point.threads, BLOCK) or point.n & (point.n - 1):
        return f"takes a power of two as n, and whole blocks of {BLOCK} threads"
    return lacks_cuda(point, device)
