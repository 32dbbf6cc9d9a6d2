"""Read shared memory with a stride: lanes whose words share a bank are served one after another.

Shared memory has 32 banks of 4 bytes and serves a word of each bank in a cycle (CUDA C++
Programming Guide, "Shared Memory"). Lane l reads the word l·stride, so that gcd(stride, 32) lanes
share each bank that is used, and a load takes that many cycles. Lanes that read the same word share
it at no cost.

- `cuda`: 32 warps on each SM, which sum the bits of the words, as sums of integers are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd
from typing import Any

import torch
from gpuperf.lab_experiments._cuda import cuda_call, lacks_cuda, sm_count

from gpuperf import (
    Axis,
    Bytes,
    Control,
    Cost,
    Expected,
    Experiment,
    Implementation,
    Law,
    Numbers,
    Point,
    Workload,
    about,
)

WORDS, THREADS, WARP, UNROLL, LONGEST = 4096, 1024, 32, 16, 128

CUDA = """
extern "C" __global__ void read_banks(const int* x, int* y, unsigned stride, unsigned repeats) {
    __shared__ int words[4096];
    for (unsigned i = threadIdx.x; i < 4096; i += blockDim.x) words[i] = x[i];
    __syncthreads();
    const volatile int* mine = words + threadIdx.x % 32 * stride;
    unsigned sum = 0;
    for (unsigned r = 0; r < repeats; r += 16) {
#pragma unroll
        for (int k = 0; k < 16; ++k) sum += mine[k];  // one word further: the same conflicts
    }
    if (blockIdx.x == 0) y[threadIdx.x] = sum;
}
"""


def read_cuda(
    inputs: Mapping[str, torch.Tensor], point: Point, options: object
) -> Callable[[], torch.Tensor]:
    """Build the loads: a block of 1,024 threads on each SM."""
    x = inputs["x"]
    y = torch.empty(THREADS, dtype=torch.int32, device=x.device)
    grid = sm_count(x)
    return cuda_call(CUDA, "read_banks", y, grid, THREADS, x, y, point.stride, point.repeats)


def supports(point: Point, device: Any) -> str | None:
    """Return why the point cannot run, or None."""
    if point.stride > LONGEST:
        return f"a stride over {LONGEST} reads beyond the {WORDS} words"
    if point.repeats % UNROLL:
        return f"repeats must be a multiple of {UNROLL}"
    return lacks_cuda(point, device)


def reference(inputs: Mapping[str, torch.Tensor], point: Point) -> torch.Tensor:
    """Sum the bits of the words that each lane reads, as integers modulo 2^32."""
    x = inputs["x"].view(torch.int32).long()
    lane = torch.arange(THREADS, device=x.device) % WARP
    words = lane[:, None] * point.stride + torch.arange(UNROLL, device=x.device)
    return (x[words].sum(1) * (point.repeats // UNROLL)).to(torch.int32)


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the cycles of a warp's load: a cycle for each word of the fullest bank."""
    ways = gcd(at.stride, WARP)
    return about(ways, "cycles", f"gcd({at.stride}, 32) = {ways} words in a bank, one a cycle")


SHARED_READ = Workload(
    name="shared_read",
    summary="loads from shared memory with a stride between the lanes of a warp",
    formula="repeats·1024 loads on each SM",
    axes=(
        Axis("stride", 1, "words between the loads of two lanes", main=True, minimum=0),
        Axis("repeats", 16384, "loads of each thread"),
        Axis("dtype", "fp32", "dtype of the words", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((WORDS,), point.dtype)},
    reference=reference,
    cost=lambda point: Cost(bytes=(Bytes(4 * WORDS, 4 * THREADS),)),
    implementations=(Implementation("cuda", read_cuda, "CUDA C, 32 warps on each SM", supports),),
    terms=lambda point: point.repeats,
)

BANKS = Experiment(
    name="banks",
    question="What does a bank conflict of shared memory cost?",
    workload=SHARED_READ,
    axes={"stride": (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 31, 32, 33)},
    x="stride",
    y="cycles_per_step",
    steps=lambda at: at.repeats * THREADS / WARP,
    expect=expect,
    controls=(
        Control(
            "broadcast",
            {"stride": 0},
            "all lanes read one word, which is one access",
            lambda at, numbers: about(1, "cycles", "one word for all lanes", 0.02),
        ),
    ),
    law=Law("proportional", band=0.03),
)
