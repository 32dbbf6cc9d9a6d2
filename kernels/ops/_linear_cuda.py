"""Compute x·Wᵀ of few rows of x in bf16 and weights in int4 or int8 with `kernels/cuda/linear.cu`.

The kernel is compiled for the format, the group and the shape of a block. It reads whole steps of a
row of W, each with one scale, by loads of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.kernels._linear_triton import linear_triton
from gpuperf.kernels._quantized import Inputs, format_of, group_of, torch_dtype

from gpuperf import Point
from gpuperf.jit import tune
from gpuperf.nvrtc import POINTER, U32, Kernel, kernel_in, read_source

Call = Callable[[], torch.Tensor]
Shape = Mapping[str, int]

ROWS = 8  # rows of x in an operand of the tensor cores
MOST_ROWS = 2 * ROWS
TILE = 16  # rows of W in a tile
CHUNK = 64  # bytes of a row of W that a warp loads at a time
OLDEST = 8  # major compute capability from which on tensor cores take bf16

# The constants of linear.cu that say who computes what. The fastest of these was within 1 % of the
# best of all that were tried for 1, 8 and 16 rows and weights of 8192² and 16384² on an H200. Those
# with one chunk serve groups and rows that no pair of chunks divides.
KEYS = ("TILES", "ACROSS", "ALONG", "CHUNKS")
FEW = ((1, 1, 4, 2), (1, 4, 4, 2), (1, 2, 4, 2), (2, 2, 4, 2), (2, 2, 8, 1))
MORE = ((2, 1, 6, 2), (2, 2, 3, 2), (1, 2, 4, 2), (1, 4, 4, 2), (2, 2, 8, 1))
# Of codes of 8 bits and few rows, with twice the threads on an SM: one row takes 4 % less time.
BUSY, BUSIER = 512, 1024
CROWDED = ((1, 1, 8, 2), (1, 2, 8, 2))


def linear_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the kernel with the fastest shape of a block."""
    y = torch.empty((point.m, point.n), dtype=torch_dtype(point.dtype), device=inputs["x"].device)
    return tune(lambda shape: launch(inputs, point, y, shape), shapes(point))


def shapes(point: Point) -> list[Shape]:
    """Return the shapes whose steps fill the groups and the rows of *point*."""
    few = point.m <= ROWS
    crowded = CROWDED if few and format_of(point) == "int8" else ()
    every = [dict(zip(KEYS, shape, strict=True), BUSY=BUSIER) for shape in crowded]
    every += [dict(zip(KEYS, shape, strict=True), BUSY=BUSY) for shape in (FEW if few else MORE)]
    width = row_bytes(point)
    group = group_of(point)
    return [s for s in every if group % step(s) == 0 and width % step(s) == 0]


def step(shape: Shape) -> int:
    """Return the bytes of a row of W that a warp multiplies before it applies scales."""
    return CHUNK * shape["CHUNKS"]


def row_bytes(point: Point) -> int:
    """Return the bytes of a row of W."""
    return int(point.k) // (2 if format_of(point) == "int4" else 1)


def source_of(point: Point, shape: Shape) -> str:
    """Return the CUDA C text of the kernel for *point* and *shape*."""
    packed = format_of(point) == "int4"
    constants = {
        **shape,
        "PACKED": int(packed),
        "GROUP": group_of(point) if packed else 1,  # int8 has no groups: one kernel for every k
        "COLUMNS": 1 if point.m <= ROWS else 2,
    }
    defined = "".join(f"#define {name} {value}\n" for name, value in constants.items())
    return defined + read_source("linear.cu")


def launch(inputs: Inputs, point: Point, y: torch.Tensor, shape: Shape) -> Call:
    """Return the call of the kernel that is compiled for *shape*."""
    x, weight, scale = inputs["x"], inputs["weight"], inputs["scale"]
    major, minor = torch.cuda.get_device_capability(x.device)
    kernel: Kernel = kernel_in(source_of(point, shape), f"sm_{major}{minor}", "linear")
    grid = -(-point.n // (TILE * shape["TILES"] * shape["ACROSS"]))
    threads = 32 * shape["ACROSS"] * shape["ALONG"]
    types = (POINTER,) * 4 + (U32,) * 3

    def call() -> torch.Tensor:
        tensors = (x.data_ptr(), weight.data_ptr(), scale.data_ptr(), y.data_ptr())
        stream = torch.cuda.current_stream(x.device).cuda_stream
        kernel.launch(stream, grid, threads, (*tensors, point.m, point.n, point.k), types)
        return y

    return call


def cuda_supports(point: Point, device: Any) -> str | None:
    """Return why the kernel cannot run the point, or None where it can."""
    if device.kind != "cuda":
        return "CUDA C needs an NVIDIA GPU"
    if int(device.capability.split(".")[0]) < OLDEST:
        return f"needs compute capability {OLDEST}.0"
    return refusal(point)


def refusal(point: Point) -> str | None:
    """Return why the kernel cannot run the point on any GPU, or None where it can."""
    if format_of(point) not in ("int4", "int8") or point.dtype != "bf16":
        return "takes x in bf16 and weights in int4 or int8"
    if point.m > MOST_ROWS:
        return f"takes up to {MOST_ROWS} rows of x"
    if row_bytes(point) % CHUNK or group_of(point) % CHUNK:
        return f"needs rows of W of multiples of {CHUNK} bytes, and groups of multiples of {CHUNK}"
    return None


def linear_best(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the product by this kernel where it can run, as it is the fastest there, else by
    Triton."""
    x = inputs["x"]
    nvidia = x.is_cuda and not torch.version.hip
    if nvidia and torch.cuda.get_device_capability(x.device)[0] >= OLDEST and not refusal(point):
        return linear_cuda(inputs, point, options)
    product: Call = linear_triton(inputs, point, options)
    return product
