"""Moving vectors, and next to no arithmetic: copy, read, write, triad; from DRAM, L2 or L1.

- `copy`   y ← x              one tensor read, one written
- `read`   y_i ← Σ_j x_ij     one read
- `write`  y ← 1              one written
- `triad`  c ← a + 2·b        two read, one written; 2 FLOP an element
- `l2`     y ← Σ of x, `passes` times over: x once from DRAM, and then from L2
- `l1`     y_i ← Σ_j x_ij, `passes` times over: x once from DRAM, and then from L1

What they reach is the bandwidth that a program can have, which is a tenth below the data sheet's.

- `torch`: the library's kernel.
- `cuda`: ours, 16 bytes a thread and step.
- `triton`: ours, tuned over the block; of any dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.kernels._blocks import in_blocks

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Workload
from gpuperf.jit import jit, lacks_triton, tl
from gpuperf.nvrtc import F32, POINTER, U32, U64, kernels_of
from gpuperf.units import itemsize

Make = Callable[[tuple[int, ...], str], torch.Tensor]
Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]

THREADS = 512
BLOCKS_PER_SM = 8
SCALE = 2.0
L2_STEP = 98_317  # a prime: each pass takes a thread to lines that others had, of another slice

NAMES = ("write_vector", "copy_vector", "triad_vector", "sum_rows", "sum_passes", "sum_rows_in_l1")


@jit
def copy_kernel(y: tl.tensor, x: tl.tensor, n: tl.tensor, BLOCK: tl.constexpr) -> None:
    """BLOCK elements a program."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n), i < n)


@jit
def write_kernel(y: tl.tensor, n: tl.tensor, BLOCK: tl.constexpr) -> None:
    """BLOCK elements a program."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.full((BLOCK,), 1.0, tl.float32).to(y.dtype.element_ty), i < n)


@jit
def triad_kernel(
    c: tl.tensor, a: tl.tensor, b: tl.tensor, scale: tl.tensor, n: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """BLOCK elements a program; arithmetic in fp32, or fp64 as it comes."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    left, right = tl.load(a + i, i < n), tl.load(b + i, i < n)
    if c.dtype.element_ty != tl.float64:
        left, right = left.to(tl.float32), right.to(tl.float32)
    tl.store(c + i, (left + scale * right).to(c.dtype.element_ty), i < n)


@jit
def read_kernel(y: tl.tensor, x: tl.tensor, n: tl.tensor, BLOCK: tl.constexpr) -> None:
    """A row a program, in blocks."""
    x += tl.program_id(0).to(tl.int64) * n
    i = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), y.dtype.element_ty)
    for start in range(0, n, BLOCK):
        sums += tl.load(x + start + i, start + i < n, 0.0)
    tl.store(y + tl.program_id(0), tl.sum(sums, 0))


def cuda_supports(point: Point, device: Any) -> str | None:
    """CUDA C, written for fp32."""
    if device.kind != "cuda":
        return "CUDA C needs an NVIDIA GPU"
    return None if point.dtype == "fp32" else "written for fp32"


def kernel_on(tensor: torch.Tensor, name: str, grid: int) -> Callable[[list[Any], list[Any]], None]:
    """One of ours, to be launched with its arguments and their types on torch's current stream."""
    major, minor = torch.cuda.get_device_capability(tensor.device)
    kernel = kernels_of("stream.cu", f"sm_{major}{minor}", NAMES)[name]

    def launch(args: list[Any], types: list[Any]) -> None:
        stream = torch.cuda.current_stream(tensor.device).cuda_stream
        kernel.launch(stream, grid, THREADS, args, types)

    return launch


def whole_grid(tensor: torch.Tensor) -> int:
    """As many blocks as run at a time."""
    properties = torch.cuda.get_device_properties(tensor.device)
    return int(properties.multi_processor_count) * BLOCKS_PER_SM


def copy_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """The copy by torch, into an output made once."""
    x = inputs["x"]
    y = torch.empty_like(x)
    return lambda: y.copy_(x)


def copy_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """The copy by a kernel of ours."""
    x = inputs["x"]
    y = torch.empty_like(x)
    launch = kernel_on(x, "copy_vector", whole_grid(x))

    def call() -> torch.Tensor:
        launch([x.data_ptr(), y.data_ptr(), point.n], [POINTER, POINTER, U64])
        return y

    return call


def copy_triton(inputs: Inputs, point: Point, options: object) -> Any:
    """The copy by Triton."""
    return in_blocks(copy_kernel, point.n, torch.empty_like(inputs["x"]), inputs["x"])


def read_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """Row sums by torch."""
    return lambda: torch.sum(inputs["x"], 1)


def read_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Row sums, a block a row."""
    x = inputs["x"]
    y = torch.empty(point.m, device=x.device)
    launch = kernel_on(x, "sum_rows", point.m)

    def call() -> torch.Tensor:
        launch([x.data_ptr(), y.data_ptr(), point.n], [POINTER, POINTER, U64])
        return y

    return call


def read_triton(inputs: Inputs, point: Point, options: object) -> Any:
    """Row sums by Triton."""
    x = inputs["x"]
    return in_blocks(read_kernel, point.n, x.new_empty(point.m), x, programs=point.m)


def write_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """`fill_` by torch."""
    return lambda: inputs["y"].fill_(1.0)


def write_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """A fill by a kernel of ours."""
    y = inputs["y"]
    launch = kernel_on(y, "write_vector", whole_grid(y))

    def call() -> torch.Tensor:
        launch([y.data_ptr(), point.n, 1.0], [POINTER, U64, F32])
        return y

    return call


def write_triton(inputs: Inputs, point: Point, options: object) -> Any:
    """A fill by Triton."""
    return in_blocks(write_kernel, point.n, inputs["y"])


def triad_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """`torch.add` with a factor, into an output made once."""
    a, b = inputs["a"], inputs["b"]
    c = torch.empty_like(a)
    return lambda: torch.add(a, b, alpha=SCALE, out=c)


def triad_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """The triad by a kernel of ours."""
    a, b = inputs["a"], inputs["b"]
    c = torch.empty_like(a)
    launch = kernel_on(a, "triad_vector", whole_grid(a))

    def call() -> torch.Tensor:
        args = [a.data_ptr(), b.data_ptr(), c.data_ptr(), point.n, SCALE]
        launch(args, [POINTER, POINTER, POINTER, U64, F32])
        return c

    return call


def triad_triton(inputs: Inputs, point: Point, options: object) -> Any:
    """The triad by Triton."""
    a, b = inputs["a"], inputs["b"]
    return in_blocks(triad_kernel, point.n, torch.empty_like(a), a, b, SCALE)


def l2_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """Each thread sums four elements a pass, another four each time."""
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
    """The sums of the rows that a thread comes by."""
    sums = inputs["x"].double().sum(1)
    return sum(sums.roll(-(L2_STEP % point.n) * i) for i in range(point.passes))


def l1_supports(point: Point, device: Any) -> str | None:
    """CUDA C, and rows that every thread has its share of."""
    if point.n % (4 * THREADS):
        return f"n must be a multiple of {4 * THREADS}"
    return cuda_supports(point, device)


def l1_cuda(inputs: Inputs, point: Point, options: object) -> Call:
    """A block a row, four elements a thread and step."""
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
    """x (m, n) once through DRAM, and in each pass through L1."""
    size = point.m * point.n * itemsize(point.dtype)
    sums = point.m * itemsize(point.dtype)
    return Cost(bytes=(Bytes(size, sums), Bytes(point.passes * size, sums, channel="l1")))


def vector(name: str) -> Callable[[Point, Make], Inputs]:
    """Inputs of one vector (n,)."""
    return lambda point, make: {name: make((point.n,), point.dtype)}


def moved(read: int, written: int) -> Callable[[Point], Cost]:
    """The cost of so many tensors (n,) read and written."""

    def cost(point: Point) -> Cost:
        size = point.n * itemsize(point.dtype)
        return Cost(bytes=(Bytes(read * size, written * size),))

    return cost


def triad_cost(point: Point) -> Cost:
    """A product and a sum an element."""
    size = point.n * itemsize(point.dtype)
    return Cost((Flops(2 * point.n, "elementwise", point.dtype),), (Bytes(2 * size, size),))


def read_cost(point: Point) -> Cost:
    """An addition an element; the sums are all that is written."""
    size = itemsize(point.dtype)
    flops = Flops(point.m * (point.n - 1), "elementwise", point.dtype)
    return Cost((flops,), (Bytes(point.m * point.n * size, point.m * size),))


def l2_cost(point: Point) -> Cost:
    """x (n, 4) once through DRAM, and in each pass through L2."""
    size = 4 * point.n * itemsize(point.dtype)
    return Cost(bytes=(Bytes(size, size // 4), Bytes(point.passes * size, size // 4, channel="l2")))


DTYPES = ("fp32", "bf16", "fp16", "fp64", "int8")
LENGTH = Axis("n", 2**26, "elements", main=True)
DTYPE = Axis("dtype", "auto", "of the vectors", choices=DTYPES)
FLOATS = Axis("dtype", "auto", "of the vectors", choices=("fp32", "bf16", "fp16", "fp64"))

COPY = Workload(
    name="copy",
    summary="vector copy y ← x",
    formula="0 FLOP; 2·n·s bytes",
    axes=(LENGTH, DTYPE),
    inputs=vector("x"),
    reference=lambda inputs, point: inputs["x"].double(),
    cost=moved(1, 1),
    implementations=(
        Implementation("torch", copy_torch, "device-to-device copy by torch"),
        Implementation("cuda", copy_cuda, "16 bytes a thread and step", cuda_supports),
        Implementation("triton", copy_triton, "a tuned block", lacks_triton),
    ),
    narrow=lambda inputs, rows: {"x": inputs["x"][rows]},
    terms=lambda point: 1,
)

READ = Workload(
    name="read",
    summary="row sums y_i ← Σ_j x_ij: reading, and next to no writing",
    formula="m·(n−1) FLOP; (m·n + m)·s bytes",
    axes=(
        Axis("m", 4096, "rows", main=True),
        Axis("n", 2**16, "columns"),
        Axis("dtype", "auto", "of x and y", choices=("fp32", "fp64")),
    ),
    inputs=lambda point, make: {"x": make((point.m, point.n), point.dtype)},
    reference=lambda inputs, point: inputs["x"].double().sum(1),
    cost=read_cost,
    implementations=(
        Implementation("torch", read_torch, "torch.sum"),
        Implementation("cuda", read_cuda, "a block a row", cuda_supports),
        Implementation("triton", read_triton, "a row a program", lacks_triton),
    ),
    narrow=lambda inputs, rows: {"x": inputs["x"][rows]},
    terms=lambda point: point.n,
)

WRITE = Workload(
    name="write",
    summary="fill y ← 1: writing alone",
    formula="0 FLOP; n·s bytes",
    axes=(LENGTH, DTYPE),
    inputs=vector("y"),
    reference=lambda inputs, point: torch.ones_like(inputs["y"], dtype=torch.float64),
    cost=moved(0, 1),
    implementations=(
        Implementation("torch", write_torch, "fill_ by torch"),
        Implementation("cuda", write_cuda, "16 bytes a thread and step", cuda_supports),
        Implementation("triton", write_triton, "a tuned block", lacks_triton),
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
        Implementation("torch", triad_torch, "torch.add with alpha"),
        Implementation("cuda", triad_cuda, "16 bytes a thread and step", cuda_supports),
        Implementation("triton", triad_triton, "a tuned block", lacks_triton),
    ),
    narrow=lambda inputs, rows: {name: inputs[name][rows] for name in "ab"},
    terms=lambda point: 2,
)

L2 = Workload(
    name="l2",
    summary="x (n, 4) summed `passes` times over, from L2",
    formula="n·5·s bytes of DRAM; passes·n·4·s bytes of L2",
    axes=(
        Axis("n", 2**19, "rows of four elements", main=True),
        Axis("passes", 64, "times over"),
        Axis("dtype", "fp32", "of x", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((point.n, 4), point.dtype)},
    reference=l2_reference,
    cost=l2_cost,
    implementations=(Implementation("cuda", l2_cuda, "loads that pass by L1", cuda_supports),),
    terms=lambda point: 4 * point.passes,
)

L1 = Workload(
    name="l1",
    summary="row sums y_i ← Σ_j x_ij, `passes` times over, from L1",
    formula="m·(n+1)·s bytes of DRAM; passes·m·n·s bytes of L1",
    axes=(
        Axis("m", 2048, "rows", main=True),
        Axis("n", 4096, "columns: 16 KiB, of which an L1 holds what its blocks read"),
        Axis("passes", 512, "times over"),
        Axis("dtype", "fp32", "of x", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((point.m, point.n), point.dtype)},
    reference=lambda inputs, point: point.passes * inputs["x"].double().sum(1),
    cost=l1_cost,
    implementations=(Implementation("cuda", l1_cuda, "a block a row", l1_supports),),
    narrow=lambda inputs, rows: {"x": inputs["x"][rows]},
    terms=lambda point: point.n * point.passes,
)
