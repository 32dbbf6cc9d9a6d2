"""The workload of a stream with a known number of bytes in flight.

Each thread has `unroll` independent loads of `size` bytes in flight: it begins another when the
oldest has arrived. `threads` are those of an SM.

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

BLOCK, WIDEST = 256, 64  # threads; bytes of a thread's loads, of which an SM holds 128 KiB
AMPERE = 8  # the compute capability from which on copies into shared memory are asynchronous
SLOTS = 128  # SMs for which `rounds` is meant; a device divides the same bytes among its own
SIZES, UNROLLS = (4, 8, 16), (1, 2, 4, 8, 16)
CUDA = """
typedef unsigned long long u64;
// Copies into shared memory arrive in order, and a thread can wait for the oldest of them. Of loads
// into registers ptxas awaits all before it begins another.
template <int W, int U, bool DEPENDENT>
__device__ void stream(
    const float* x, float* y, unsigned mask, u64 rounds, u64 each, unsigned zero) {
    __shared__ volatile float slots[U][256 * W];
    const u64 first = blockIdx.x * rounds / gridDim.x, last = (blockIdx.x + 1) * rounds / gridDim.x;
    const unsigned threads = gridDim.x * blockDim.x, id = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = id, slot = 0, none = 0;  // `at` overflows at a multiple of the mask
    auto begin = [&]() {
        const unsigned to = __cvta_generic_to_shared((float*)&slots[slot][threadIdx.x * W]);
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2; cp.async.commit_group;"
                     :: "r"(to), "l"(x + (u64)(at & mask) * W + none), "n"(4 * W) : "memory");
        at += threads;
    };
    auto take = [&]() {
        float all = 0;
        for (int w = 0; w < W; ++w) all += slots[slot][threadIdx.x * W + w];
        return all;
    };
    auto turn = [&]() { slot = slot == U - 1 ? 0 : slot + 1; };
    float sum = 0;
    for (int k = 0; k < U; ++k, turn()) begin();
#pragma unroll 1
    for (u64 i = U; i < (last - first) * each; ++i, turn()) {
        asm volatile("cp.async.wait_group %0;" :: "n"(U - 1) : "memory");
        const float next = take();
        if (DEPENDENT) none = __float_as_uint(next) & zero;  // 0, which the compiler cannot see
        begin();
        sum += next;
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    for (int k = 0; k < U; ++k, turn()) sum += take();
    y[id] = sum;
}
#define KERNEL(name, S, U, dependent)                                                             \\
    extern "C" __global__ void __launch_bounds__(256, 8) name(                                    \\
        const float* x, float* y, unsigned mask, u64 rounds, u64 each, unsigned zero) {           \\
        stream<S / 4, U, dependent>(x, y, mask, rounds, each, zero);                              \\
    }
#define LOADS(S, U) KERNEL(independent_##S##_##U, S, U, false)
LOADS(4, 1) LOADS(4, 2) LOADS(4, 4) LOADS(4, 8) LOADS(4, 16)
LOADS(8, 1) LOADS(8, 2) LOADS(8, 4) LOADS(8, 8)
LOADS(16, 1) LOADS(16, 2) LOADS(16, 4)
KERNEL(dependent_4, 4, 1, true) KERNEL(dependent_8, 8, 1, true) KERNEL(dependent_16, 16, 1, true)
"""


def build(kind: str) -> Any:
    """Return the function that builds the stream whose loads are of *kind*."""

    def built(inputs: Mapping[str, torch.Tensor], point: Point, options: object) -> CudaCall:
        x, name = inputs["x"], f"{kind}_{point.size}"
        name += f"_{point.unroll}" if kind == "independent" else ""
        block, grid, rounds = shape(point, x)
        y = torch.empty(grid * block, device=x.device)
        mask = 4 * point.n // point.size - 1
        counts = (rounds, U64), (point.unroll, U64)
        return cuda_call(CUDA, name, y, grid, block, x, y, mask, *counts, 0)

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
    if device.kind == "cuda" and int(device.capability.split(".")[0]) < AMPERE:
        return f"needs compute capability {AMPERE}.0"
    return lacks_cuda(point, device)
