"""Move vectors with next to no arithmetic, which measures the bandwidth of DRAM, L2 and L1.

- `copy`   y ← x              one tensor read, one written
- `read`   y_i ← Σ_j x_ij     one read
- `write`  y ← 1              one written
- `triad`  c ← a + 2·b        two read, one written; 2 FLOP for each element
- `l2`     y ← Σ of x, `passes` times: x is read from DRAM once, and then from L2
- `l1`     y_i ← Σ_j x_ij, `passes` times: x is read from DRAM once, and then from L1

The bandwidth of a copy is the most that a program can have; on an H200 it is a tenth below the data
sheet.

- `torch`: torch's kernel.
- `cuda`: a CUDA C kernel for fp32; each thread moves 16 bytes at a time.
- `triton`: a Triton kernel of any dtype, tuned over the block.

Only `triton` imports its kernels (`_stream_triton.py`), and with them Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.kernels._blocks import in_blocks

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Workload
from gpuperf.jit import lacks_triton
from gpuperf.nvrtc import F32, POINTER, U32, U64, kernels_of
from gpuperf.units import itemsize

Make = Callable[[tuple[int, ...], str], torch.Tensor]
Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]

THREADS = 512
BLOCKS_PER_SM = 8
SCALE = 2.0
L2_STEP = 98_317  # a prime, so that each pass takes a thread to lines of another slice of L2

NAMES = ("write_vector", "copy_vector", "triad_vector", "sum_rows", "sum_passes", "sum_rows_in_l1")


def cuda_supports(point: Point, device: Any) -> str | None:
    """Return why the CUDA C kernel cannot run the point, or None where it can."""
    if device.kind != "cuda":
        return "CUDA C needs an NVIDIA GPU"
    return None if point.dtype == "fp32" else "takes fp32 only"


def kernel_on(tensor: torch.Tensor, name: str, grid: int) -> Callable[[list[Any], list[Any]], None]:
    """Return the launch of the CUDA C kernel *name*, given its arguments and their types."""
    major, minor = torch.cuda.get_device_capability(tensor.device)
    kernel = kernels_of("stream.cu", f"sm_{major}{minor}", NAMES)[name]

    def launch(args: list[Any], types: list[Any]) -> None:
        stream = torch.cuda.current_stream(tensor.device).cuda_stream
        kernel.launch(stream, grid, THREADS, args, types)

    return launch


def whole_grid(tensor: torch.Tensor) -> int:
    """Return the number of blocks that the device of *tensor* runs at a time."""
    properties = torch.cuda.get_device_properties(tensor.device)
    return int(properties.multi_processor_count) * BLOCKS_PER_SM


def copy_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the copy by torch into an output that is allocated once."""
    x = inputs["x"]
    y = torch.empty_like(x)
    return lambda: y.copy_(x)


def copy_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the copy by the CUDA C kernel."""
    x = inputs["x"]
    y = torch.empty_like(x)
    launch = kernel_on(x, "copy_vector", whole_grid(x))

    def call() -> torch.Tensor:
        launch([x.data_ptr(), y.data_ptr(), point.n], [POINTER, POINTER, U64])
        return y

    return call


def copy_triton(inputs: Inputs, point: Point, options: object) -> Any:
    """Build the copy by the Triton kernel."""
    from gpuperf.kernels import _stream_triton as kernels

    return in_blocks(kernels.copy_kernel, point.n, torch.empty_like(inputs["x"]), inputs["x"])


def read_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the row sums by torch."""
    return lambda: torch.sum(inputs["x"], 1)


def read_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the row sums by the CUDA C kernel, with a block for each row."""
    x = inputs["x"]
    y = torch.empty(point.m, device=x.device)
    launch = kernel_on(x, "sum_rows", point.m)

    def call() -> torch.Tensor:
        launch([x.data_ptr(), y.data_ptr(), point.n], [POINTER, POINTER, U64])
        return y

    return call


def read_triton(inputs: Inputs, point: Point, options: object) -> Any:
    """Build the row sums by the Triton kernel, with a program for each row."""
    from gpuperf.kernels import _stream_triton as kernels

    x = inputs["x"]
    return in_blocks(kernels.read_kernel, point.n, x.new_empty(point.m), x, programs=point.m)


def write_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the fill by torch."""
    return lambda: inputs["y"].fill_(1.0)


def write_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the fill by the CUDA C kernel."""
    y = inputs["y"]
    launch = kernel_on(y, "write_vector", whole_grid(y))

    def call() -> torch.Tensor:
        launch([y.data_ptr(), point.n, 1.0], [POINTER, U64, F32])
        return y

    return call


def write_triton(inputs: Inputs, point: Point, options: object) -> Any:
    """Build the fill by the Triton kernel."""
    from gpuperf.kernels import _stream_triton as kernels

    return in_blocks(kernels.write_kernel, point.n, inputs["y"])


def triad_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the triad by torch into an output that is allocated once."""
    a, b = inputs["a"], inputs["b"]
    c = torch.empty_like(a)
    return lambda: torch.add(a, b, alpha=SCALE, out=c)


def triad_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the triad by the CUDA C kernel."""
    a, b = inputs["a"], inputs["b"]
    c = torch.empty_like(a)
    launch = kernel_on(a, "triad_vector", whole_grid(a))

    def call() -> torch.Tensor:
        args = [a.data_ptr(), b.data_ptr(), c.data_ptr(), point.n, SCALE]
        launch(args, [POINTER, POINTER, POINTER, U64, F32])
        return c

    return call


def triad_triton(inputs: Inputs, point: Point, options: object) -> Any:
    """Build the triad by the Triton kernel."""
    from gpuperf.kernels import _stream_triton as kernels

    a, b = inputs["a"], inputs["b"]
    return in_blocks(kernels.triad_kernel, point.n, torch.empty_like(a), a, b, SCALE)


def l2_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the sums over L2: in each pass a thread adds another row of four elements."""
    x = inputs["x"]
    y = torch.empty(point.n, device=x.device)
    step = L2_STEP % point.n
    launch = kernel_on(x, "sum_passes", -(-point.n // THREADS))

    def call() -> torch.Tensor:
        args = [x.data_ptr(), y.data_ptr(), point.n, point.passes, step]
        launch(args, [POINTER, POINTER, U64, U64, U64])
        return y

    return call


def l2_reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """Compute the sums of the rows that each thread adds."""
    sums = inputs["x"].double().sum(1)
    return sum(sums.roll(-(L2_STEP % point.n) * i) for i in range(point.passes))


def l1_supports(point: Point, device: Any) -> str | None:
    """Return why the kernel cannot run the point; each thread needs a share of every row."""
    if point.n % (4 * THREADS):
        return f"n must be a multiple of {4 * THREADS}"
    return cuda_supports(point, device)


def l1_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the row sums over L1, with a block for each row."""
    x = inputs["x"]
    y = torch.empty(point.m, device=x.device)
    launch = kernel_on(x, "sum_rows_in_l1", point.m)
    count = point.n // 4

    def call() -> torch.Tensor:
        args = [x.data_ptr(), y.data_ptr(), count, point.passes * (count // THREADS)]
        launch(args, [POINTER, POINTER, U32, U32])
        return y

    return call


def l1_cost(point: Point) -> Cost:
    """Return the cost: x (m, n) goes through DRAM once, and through L1 in each pass."""
    size = point.m * point.n * itemsize(point.dtype)
    sums = point.m * itemsize(point.dtype)
    return Cost(bytes=(Bytes(size, sums), Bytes(point.passes * size, sums, channel="l1")))


def vector(name: str) -> Callable[[Point, Make], Inputs]:
    """Return the `inputs` of one vector (n,)."""
    return lambda point, make: {name: make((point.n,), point.dtype)}


def moved(read: int, written: int) -> Callable[[Point], Cost]:
    """Return the cost of *read* tensors (n,) read and *written* tensors written."""

    def cost(point: Point) -> Cost:
        size = point.n * itemsize(point.dtype)
        return Cost(bytes=(Bytes(read * size, written * size),))

    return cost


def triad_cost(point: Point) -> Cost:
    """Return the cost: a multiply-add for each element; a and b are read, c is written."""
    size = point.n * itemsize(point.dtype)
    return Cost((Flops(2 * point.n, "elementwise", point.dtype),), (Bytes(2 * size, size),))


def read_cost(point: Point) -> Cost:
    """Return the cost: n − 1 additions for each row; x is read, the row sums are written."""
    size = itemsize(point.dtype)
    flops = Flops(point.m * (point.n - 1), "elementwise", point.dtype)
    return Cost((flops,), (Bytes(point.m * point.n * size, point.m * size),))


def l2_cost(point: Point) -> Cost:
    """Return the cost: x (n, 4) goes through DRAM once, and through L2 in each pass."""
    size = 4 * point.n * itemsize(point.dtype)
    return Cost(bytes=(Bytes(size, size // 4), Bytes(point.passes * size, size // 4, channel="l2")))


DTYPES = ("fp32", "bf16", "fp16", "fp64", "int8")
LENGTH = Axis("n", 2**26, "elements", main=True)
DTYPE = Axis("dtype", "auto", "dtype of the vectors", choices=DTYPES)
FLOATS = Axis("dtype", "auto", "dtype of the vectors", choices=("fp32", "bf16", "fp16", "fp64"))

COPY = Workload(
    name="copy",
    summary="vector copy y ← x",
    formula="0 FLOP; 2·n·s bytes",
    axes=(LENGTH, DTYPE),
    inputs=vector("x"),
    reference=lambda inputs, point: inputs["x"].double(),
    cost=moved(1, 1),
    implementations=(
        Implementation("torch", copy_torch, "torch, Tensor.copy_"),
        Implementation("cuda", copy_cuda, "CUDA C, 16 bytes at a time", cuda_supports),
        Implementation("triton", copy_triton, "Triton, tuned blocks", lacks_triton),
    ),
    narrow=lambda inputs, rows: {"x": inputs["x"][rows]},
    terms=lambda point: 1,
)

READ = Workload(
    name="read",
    summary="row sums y_i ← Σ_j x_ij: reads alone",
    formula="m·(n−1) FLOP; (m·n + m)·s bytes",
    axes=(
        Axis("m", 4096, "rows", main=True),
        Axis("n", 2**16, "columns"),
        Axis("dtype", "auto", "dtype of x and y", choices=("fp32", "fp64")),
    ),
    inputs=lambda point, make: {"x": make((point.m, point.n), point.dtype)},
    reference=lambda inputs, point: inputs["x"].double().sum(1),
    cost=read_cost,
    implementations=(
        Implementation("torch", read_torch, "torch, torch.sum"),
        Implementation("cuda", read_cuda, "CUDA C, a block for each row", cuda_supports),
        Implementation("triton", read_triton, "Triton, a program for each row", lacks_triton),
    ),
    narrow=lambda inputs, rows: {"x": inputs["x"][rows]},
    terms=lambda point: point.n,
)

WRITE = Workload(
    name="write",
    summary="fill y ← 1: writes alone",
    formula="0 FLOP; n·s bytes",
    axes=(LENGTH, DTYPE),
    inputs=vector("y"),
    reference=lambda inputs, point: torch.ones_like(inputs["y"], dtype=torch.float64),
    cost=moved(0, 1),
    implementations=(
        Implementation("torch", write_torch, "torch, Tensor.fill_"),
        Implementation("cuda", write_cuda, "CUDA C, 16 bytes at a time", cuda_supports),
        Implementation("triton", write_triton, "Triton, tuned blocks", lacks_triton),
    ),
    narrow=lambda inputs, rows: {"y": inputs["y"][rows]},
    mutates=("y",),
    terms=lambda point: 1,
)

TRIAD = Workload(
    name="triad",
    summary="c ← a + 2·b, as in STREAM",
    formula="2·n FLOP; 3·n·s bytes",
    axes=(LENGTH, FLOATS),
    inputs=lambda point, make: {name: make((point.n,), point.dtype) for name in "ab"},
    reference=lambda inputs, point: inputs["a"].double() + SCALE * inputs["b"].double(),
    cost=triad_cost,
    implementations=(
        Implementation("torch", triad_torch, "torch, torch.add with alpha"),
        Implementation("cuda", triad_cuda, "CUDA C, 16 bytes at a time", cuda_supports),
        Implementation("triton", triad_triton, "Triton, tuned blocks", lacks_triton),
    ),
    narrow=lambda inputs, rows: {name: inputs[name][rows] for name in "ab"},
    terms=lambda point: 2,
)

L2 = Workload(
    name="l2",
    summary="repeated sums of x (n, 4), from L2",
    formula="n·5·s bytes of DRAM; passes·n·4·s bytes of L2",
    axes=(
        Axis("n", 2**19, "rows of four elements", main=True),
        Axis("passes", 64, "times that x is read"),
        Axis("dtype", "fp32", "dtype of x and y", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((point.n, 4), point.dtype)},
    reference=l2_reference,
    cost=l2_cost,
    implementations=(
        Implementation("cuda", l2_cuda, "CUDA C, loads that bypass L1", cuda_supports),
    ),
    terms=lambda point: 4 * point.passes,
)

L1 = Workload(
    name="l1",
    summary="repeated row sums of x (m, n), from L1",
    formula="m·(n+1)·s bytes of DRAM; passes·m·n·s bytes of L1",
    axes=(
        Axis("m", 2048, "rows", main=True),
        Axis("n", 4096, "columns; the rows of all blocks on an SM must fit its L1"),
        Axis("passes", 512, "times that x is read"),
        Axis("dtype", "fp32", "dtype of x and y", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((point.m, point.n), point.dtype)},
    reference=lambda inputs, point: point.passes * inputs["x"].double().sum(1),
    cost=l1_cost,
    implementations=(Implementation("cuda", l1_cuda, "CUDA C, a block for each row", l1_supports),),
    narrow=lambda inputs, rows: {"x": inputs["x"][rows]},
    terms=lambda point: point.n * point.passes,
)
