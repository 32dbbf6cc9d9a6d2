"""Transpose a matrix: through registers alone, and through tiles of shared memory.

`naive` writes columns: each element is a request to the L2, and such a part of a sector takes two
cycles of a slice (`docs/measured/partial_writes.txt`). `tiled` has 32 conflicts of banks in a tile
[32][32], a cycle each; `padded`, with a tile [32][33], has none, and is bounded by a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from gpuperf.lab_experiments._cuda import cuda_call, lacks_cuda

from gpuperf import (
    Axis,
    Bytes,
    Control,
    Cost,
    Expected,
    Experiment,
    Implementation,
    Numbers,
    Point,
    Workload,
    about,
    at_most,
)
from gpuperf.theory.bandwidth import copy_bandwidth, l2_bandwidth

TILE, ROWS, SIZE, SHARE = 32, 8, 4, 0.75  # 8 rows of a tile in a block; of its bound to be reached
SLICE_BYTES, PART_CYCLES = 64, 2  # of an L2 slice: bytes a cycle (A100 white paper), cycles a part

CUDA = """
template <int WIDE>
__device__ void through_tile(const float* x, float* y, unsigned n, unsigned flip) {
    __shared__ float tile[32][WIDE];
    const unsigned all = n / 32, row = blockIdx.x / all * 32, column = blockIdx.x % all * 32;
    const unsigned t = threadIdx.x % 32, w = threadIdx.x / 32;
    x += row * (size_t)n + column, y += flip ? column * (size_t)n + row : row * (size_t)n + column;
    for (unsigned r = w; r < 32; r += 8) tile[r][t] = x[r * (size_t)n + t];
    __syncthreads();
    for (unsigned r = w; r < 32; r += 8) y[r * (size_t)n + t] = flip ? tile[t][r] : tile[r][t];
}
#define KERNEL(f) extern "C" __global__ void f(const float* x, float* y, unsigned n, unsigned flip)
KERNEL(tiled) { through_tile<32>(x, y, n, flip); }
KERNEL(padded) { through_tile<33>(x, y, n, flip); }
KERNEL(naive) {
    unsigned row = blockIdx.x / (n / 32) * 32, at = blockIdx.x % (n / 32) * 32 + threadIdx.x % 32;
    for (unsigned r = row + threadIdx.x / 32; r < row + 32; r += 8)
        y[flip ? at * (size_t)n + r : r * (size_t)n + at] = x[r * (size_t)n + at];
}
"""


def transpose(
    name: str, inputs: Mapping[str, torch.Tensor], point: Point, options: object
) -> Callable[[], torch.Tensor]:
    """Build the transposition by the kernel *name*, with a block for each tile."""
    y = torch.empty_like(inputs["x"])
    values = (inputs["x"], y, point.n, int(point.turned == "yes"))
    return cuda_call(CUDA, name, y, (point.n // TILE) ** 2, TILE * ROWS, *values)


def copied(numbers: Numbers) -> float:
    """Return the byte/s of a copy."""
    return copy_bandwidth(numbers["copy_bandwidth"], numbers.source("copy_bandwidth"))


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the highest rate: of DRAM, of requests to the L2, or of shared memory."""
    moved, sms, clock = 2 * SIZE, numbers["sms"], numbers["clock"]
    limits = {f"a copy ({numbers.source('copy_bandwidth')})": copied(numbers)}
    if at.implementation == "naive":
        slices = numbers.get("l2_bandwidth", l2_bandwidth(sms, clock)) / SLICE_BYTES
        limits["a request to the L2 an element"] = slices / PART_CYCLES * moved
    if at.implementation == "tiled":
        limits["bank conflicts"] = moved / (1 + 1 / TILE) * sms * clock
    which = min(limits, key=limits.__getitem__)
    return at_most(limits[which], "byte/s", f"limited by {which}", SHARE)


TURNED = Workload(
    name="turned",
    summary="transposition of a square matrix",
    formula="8·n² bytes",
    axes=(
        Axis("n", 16384, "rows and columns", main=True),
        Axis("turned", "yes", "whether rows become columns", choices=("yes", "no")),
        Axis("dtype", "fp32", "dtype of the matrix", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((point.n, point.n), point.dtype)},
    reference=lambda inputs, p: (inputs["x"].T if p.turned == "yes" else inputs["x"]).double(),
    cost=lambda point: Cost(bytes=(Bytes(SIZE * point.n**2, SIZE * point.n**2),)),
    implementations=tuple(
        Implementation(name, partial(transpose, name), f"CUDA C, {name}", lacks_cuda)
        for name in ("naive", "tiled", "padded")
    ),
    terms=lambda point: 1,
)
COPY = Control(
    "copy",
    {"turned": "no"},
    "the same kernel turns nothing",
    lambda at, numbers: about(copied(numbers), "byte/s", "a copy through the tile", 0.2),
    ("padded",),
)
TRANSPOSE = Experiment(
    name="transpose",
    question="What do strided writes and bank conflicts cost a transposition?",
    workload=TURNED,
    axes={"n": (16384,)},
    x="implementation",
    y="bytes_per_s",
    series="turned",
    steps=lambda at: 2 * SIZE * at.n**2,
    expect=expect,
    controls=(COPY,),
)
