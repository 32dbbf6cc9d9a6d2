"""The workload of reads that every SM repeats over one footprint.

Each SM begins at another place of the footprint, so that a line that the L2 has lost is read from
DRAM again by the next SM. `total` bytes are read whatever the number of SMs.

- `ca`: loads that L1 keeps, 16 bytes a thread, 8 in flight.
- `cg`: loads that bypass L1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.lab_experiments._cuda import CudaCall, block_count, cuda_call, lacks_cuda

from gpuperf import Axis, Bytes, Cost, Implementation, Point, Workload

THREADS, ROW, AHEAD = 1024, 2**14, 8  # of a block; bytes that it reads at once; rows in flight
CUDA = """
// The loads are before their first use, and the place changes, so that no load leaves the loop. A
// load of 16 bytes takes L1 four cycles, in which the schedulers start 16 instructions: it has 8.
#define READ(name, cache)                                                                         \\
    extern "C" __global__ void __launch_bounds__(1024, 1)                                         \\
        name(const float4* x, float* y, unsigned rows, unsigned units) {                          \\
        const unsigned last = (blockIdx.x + 1ull) * units / gridDim.x, mask = rows * 1024 - 1;    \\
        unsigned at = (unsigned long long)blockIdx.x * rows / gridDim.x * 1024 + threadIdx.x;     \\
        float sum = 0;                                                                            \\
        _Pragma("unroll 1") for (unsigned unit = blockIdx.x * 1ull * units / gridDim.x;           \\
                                 unit < last; ++unit, at += 8192) {                               \\
            float4 v[8];                                                                          \\
            _Pragma("unroll") for (int k = 0; k < 8; ++k)                                         \\
                asm volatile("ld.global" cache ".v4.f32 {%0, %1, %2, %3}, [%4];"                  \\
                             : "=f"(v[k].x), "=f"(v[k].y), "=f"(v[k].z), "=f"(v[k].w)             \\
                             : "l"(x + (at + k * 1024 & mask)));                                  \\
            float part = 0;                                                                       \\
            _Pragma("unroll") for (int k = 0; k < 8; ++k)                                         \\
                part += (v[k].x + v[k].y) + (v[k].z + v[k].w);                                    \\
            sum += part;                                                                          \\
        }                                                                                         \\
        y[blockIdx.x * 1024 + threadIdx.x] = sum;                                                 \\
    }
READ(read_ca, "")
READ(read_cg, ".cg")
"""


def build(name: str) -> Callable[..., CudaCall]:
    """Return the function that builds the reads by the kernel *name*, with a block on each SM."""

    def built(inputs: Mapping[str, torch.Tensor], point: Point, options: object) -> CudaCall:
        x, grid = inputs["x"], block_count(inputs["x"])
        y = torch.empty(grid, THREADS, device=x.device)
        rows, units = point.footprint // ROW, point.total // (AHEAD * ROW)
        return cuda_call(CUDA, name, y, grid, THREADS, x, y, rows, units)

    return built


def supports(point: Point, device: Any) -> str | None:
    """Return why the point cannot run, or None."""
    if point.footprint < ROW or point.footprint & (point.footprint - 1):
        return f"the footprint must be a power of two from {ROW} bytes"
    if point.total % (AHEAD * ROW):
        return f"total must be a multiple of {AHEAD * ROW}"
    return lacks_cuda(point, device)


def reference(inputs: Mapping[str, torch.Tensor], point: Point) -> torch.Tensor:
    """Sum what each thread of each block reads: whole laps of the footprint, and the rest."""
    x = inputs["x"]
    rows, units, grid = point.footprint // ROW, point.total // (AHEAD * ROW), block_count(x)
    sums = x.view(rows, THREADS, 4).sum(2, dtype=torch.float64)
    lap, blocks = sums.sum(0), []
    for b in range(grid):
        count = AHEAD * ((b + 1) * units // grid - b * units // grid)
        rest = torch.arange(count % rows, device=x.device) + b * rows // grid
        blocks.append(count // rows * lap + sums[rest % rows].sum(0))
    return torch.stack(blocks)


REPEATED_READ = Workload(
    name="repeated_read",
    summary="reads of one footprint that every SM repeats",
    formula="total bytes through L1",
    axes=(
        Axis("footprint", 2**20, "bytes that are read again and again", main=True),
        Axis("total", 2**33, "bytes that all SMs read"),
        Axis("dtype", "fp32", "dtype of x and y", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((point.footprint // 4,), point.dtype)},
    reference=reference,
    cost=lambda point: Cost(bytes=(Bytes(min(point.footprint, point.total), 4 * THREADS),)),
    implementations=(
        Implementation("ca", build("read_ca"), "loads that L1 keeps", supports),
        Implementation("cg", build("read_cg"), "loads that bypass L1", supports),
    ),
    terms=lambda point: point.total // (THREADS * 4 * 64),
    standard=("ca",),
)
