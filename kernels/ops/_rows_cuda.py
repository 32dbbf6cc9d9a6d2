"""Compute softmax and norms of long rows, and their gradients, with `kernels/cuda/rows.cu`.

A cluster of blocks holds a row, so that an SM works on parts of several rows at a time. A kernel is
compiled for the shape of its clusters, the dtype, and what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from gpuperf.kernels._norm_sums import sums_call
from gpuperf.kernels._norms_triton import EPS, ForwardResult

from gpuperf import Point
from gpuperf.errors import CannotMeasure
from gpuperf.nvrtc import F32, POINTER, U32, U64, Kernel, compile_together, kernel_in, read_source

Inputs = Mapping[str, torch.Tensor]
Shape = Mapping[str, int]
Call = Callable[[], Any]

WIDE = 8  # elements of a load of 16 bytes
LEAST_ROW = 8192  # elements from which on a row fills a block
MOST_BLOCKS = 8  # of a cluster, on any device that has clusters
FULLEST = 4 / 3  # elements of a cluster for each element of a row, at most
OLDEST = 9  # major compute capability from which on there are clusters
SHARED = 228 * 1024  # bytes of shared memory of an SM of a Hopper GPU
RESERVED = 1024 + 64  # of these that a block takes beside its rows and the sums of warps
SUMS = 2 * 8  # bytes for a warp of its cluster
# Threads of a block, pieces of a row that a thread holds, rows on their way, and blocks on an SM.
KEYS = ("threads", "pieces", "depth", "per_sm")
FORWARD = (
    *((128, 8, 1, 3), (128, 8, 1, 4), (256, 4, 1, 3), (256, 4, 1, 4), (256, 8, 1, 2)),
    *((512, 4, 1, 2), (512, 8, 1, 1), (256, 8, 1, 1), (1024, 4, 3, 1)),
)
BACKWARD = ((256, 4, 1, 4), (512, 4, 1, 2), (512, 2, 2, 2), (512, 8, 1, 1), (256, 2, 2, 4))
# Backward of a norm: a cluster adds the rows of dweight and dbias.
SUMMED = (
    *((128, 8, 2, 2), (256, 4, 2, 2), (256, 8, 2, 1), (128, 4, 2, 3)),
    *((512, 4, 1, 1), (256, 8, 1, 1), (256, 4, 1, 2)),
)
MOST_HELD = ((FORWARD, 2, 2), (BACKWARD, 2, 0), (SUMMED, 3, 1))  # tensors, and vectors that stay


def shapes(
    tried: Sequence[tuple[int, ...]], n: int, inputs: int, vectors: int
) -> Iterator[dict[str, int]]:
    """Yield those of the shapes *tried* that hold rows of n elements of *inputs* tensors, and
    *vectors* (n,)."""
    for values in tried:
        shape = dict(zip(KEYS, values, strict=True))
        part = part_of(shape)
        blocks = -(-n // part)
        taken = (shape["depth"] * inputs + vectors) * part * 2
        taken += RESERVED + SUMS * blocks * shape["threads"] // 32
        fits = shape["per_sm"] * taken <= SHARED and part * blocks <= FULLEST * n
        if fits and blocks <= MOST_BLOCKS:
            yield shape


def part_of(shape: Shape) -> int:
    """Return the elements of a row that a block holds."""
    return shape["threads"] * shape["pieces"] * WIDE


def supports(point: Point, device: Any) -> str | None:
    """Return why the kernels cannot run the point, or None where they can."""
    if device.kind != "cuda" or int(device.capability.split(".")[0]) < OLDEST:
        return f"needs an NVIDIA GPU of compute capability {OLDEST}.0"
    if point.dtype not in ("bf16", "fp16"):
        return "takes bf16 and fp16 only"
    if point.n < LEAST_ROW or point.n % WIDE:
        return f"takes rows of {LEAST_ROW} elements or more, in multiples of {WIDE}"
    if not all(any(shapes(tried, point.n, *held)) for tried, *held in MOST_HELD):
        return "no cluster of blocks holds rows of this length well"
    return None


def source_of(source: str, n: int, shape: Shape, **constants: bool) -> str:
    """Return the CUDA C text of the file *source* for rows of n elements in clusters of *shape*."""
    blocks = -(-n // part_of(shape))
    full = n == part_of(shape) * blocks
    defined = {**shape, **constants, "cluster": blocks, "full": full}
    lines = "".join(f"#define {key.upper()} {int(value)}\n" for key, value in defined.items())
    return lines + read_source("rows.cu") + read_source(source)


def compile_shapes(
    source: str, x: torch.Tensor, constants: Mapping[str, bool], tried: Sequence[Shape]
) -> None:
    """Compile the file *source* for rows of x in clusters of each of the shapes *tried*, all at the
    same time."""
    n, bf16 = x.shape[1], x.dtype == torch.bfloat16
    texts = [source_of(source, n, shape, bf16=bf16, **constants) for shape in tried]
    compile_together(texts, arch_of(x.device))


def arch_of(device: torch.device) -> str:
    """Return the architecture of *device* for NVRTC."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


class Rows:
    """The kernel *name* of the file *source* for tensors like *x* (m, n).

    *held* is the number of tensors of which a cluster holds a row, and of vectors (n,) that it
    holds all the time. Clusters have *shape*; *constants* are those that the file asks for. One
    launch follows another, as they count rows in one place. Raises: CannotMeasure.
    """

    def __init__(
        self,
        source: str,
        name: str,
        x: torch.Tensor,
        held: tuple[int, int],
        shape: Shape,
        **constants: bool,
    ) -> None:
        (self.m, self.n), self.device = x.shape, x.device
        part, self.threads = part_of(shape), shape["threads"]
        blocks = -(-self.n // part)
        text = source_of(source, self.n, shape, bf16=x.dtype == torch.bfloat16, **constants)
        self.kernel: Kernel = kernel_in(text, arch_of(x.device), name)
        inputs, vectors = held
        self.shared = (shape["depth"] * inputs + vectors) * part * x.element_size()
        self.kernel.allow_shared(self.shared)
        resident = self.kernel.resident_blocks(self.threads, self.shared, blocks) // blocks
        if not resident:
            raise CannotMeasure("no cluster of blocks fits the GPU")
        self.clusters = min(self.m, resident)
        self.grid = self.clusters * blocks
        # The rows that clusters have taken, and the clusters that have ended: each launch leaves 0.
        self.taken = torch.zeros(2, dtype=torch.int32, device=x.device)

    def launch(self, tensors: Sequence[torch.Tensor], stride: int, *more: float) -> None:
        """Queue the kernel on the current stream; *stride* is from a row of x to the next."""
        stream = torch.cuda.current_stream(self.device).cuda_stream
        types = (*[POINTER] * len(tensors), U32, U32, U64, *[F32] * len(more))
        values = (*[each.data_ptr() for each in tensors], self.m, self.n, stride, *more)
        self.kernel.launch(stream, self.grid, self.threads, values, types, self.shared)


def softmax_call(x: torch.Tensor, y: torch.Tensor, shape: Shape) -> Call:
    """Return the call of softmax of x to y, both (m, n)."""
    rows, stride = Rows("softmax.cu", "softmax", x, (1, 0), shape), checked(x)

    def call() -> torch.Tensor:
        rows.launch((x, y, rows.taken), stride)
        return y

    return call


def softmax_backward_call(
    y: torch.Tensor, dy: torch.Tensor, dx: torch.Tensor, shape: Shape
) -> Call:
    """Return the call of the gradient dx of softmax for its result y and dy, all (m, n)."""
    rows, stride = Rows("softmax.cu", "softmax_backward", y, (2, 0), shape), checked(dy, y)

    def call() -> torch.Tensor:
        rows.launch((y, dy, dx, rows.taken), stride)
        return dx

    return call


def norm_constants(inputs: Inputs, added: str, kept: bool = True) -> dict[str, bool]:
    """Return the constants of `norms.cu` for *inputs*; *added* names the residual, or its gradient,
    that may be one of them, and *kept* says whether mean and rstd are stored."""
    return {"centred": "bias" in inputs, "added": added in inputs, "kept": kept}


def norm_call(inputs: Inputs, result: ForwardResult, shape: Shape, kept: bool = True) -> Call:
    """Return the call of the forward: layer norm where there is a bias, else RMS norm.

    Mean and rstd are stored where they are *kept* for a backward.
    """
    x, weight = inputs["x"], inputs["weight"]
    constants = norm_constants(inputs, "residual", kept)
    held = (1 + constants["added"], 1 + constants["centred"])
    rows = Rows("norms.cu", "normalize", x, held, shape, **constants)
    given = (x, inputs.get("residual", x), weight, inputs.get("bias", weight))
    stride = checked(x, *given[1:])

    def call() -> ForwardResult:
        rows.launch((*given, *result, rows.taken), stride, EPS)
        return result

    return call


def norm_backward_call(inputs: Inputs, result: ForwardResult, shape: Shape) -> Call:
    """Return the call of the backward: dx (m, n), dweight (n,) and, with a bias, dbias (n,)."""
    x, weight, dy = result.rows, inputs["weight"], inputs["dy"]
    constants = norm_constants(inputs, "dtotal")
    held = (2 + constants["added"], 1)
    rows = Rows("norms.cu", "normalize_backward", x, held, shape, **constants)
    stride = checked(x, weight, dy, inputs.get("dtotal", dy))
    dx = x.new_empty(x.shape)
    sums = x.new_empty((1 + constants["centred"], rows.clusters, rows.n), dtype=torch.float32)
    totals = weight.new_empty((len(sums), rows.n))
    given = (x, weight, dy, inputs.get("dtotal", dy), result.mean, result.rstd, dx, sums)
    add = sums_call(sums, totals)

    def call() -> tuple[torch.Tensor, ...]:
        rows.launch(given, stride)
        add()
        return (dx, *totals)

    return call


def checked(first: torch.Tensor, *others: torch.Tensor) -> int:
    """Return the stride of the rows of *first*, which are loaded by 16 bytes; *others* have none.

    Raises: CannotMeasure.
    """
    if first.stride(0) % WIDE or any(each.data_ptr() % 16 for each in (first, *others)):
        raise CannotMeasure("the rows do not begin at multiples of 16 bytes")
    if first.stride(1) != 1 or not all(each.is_contiguous() for each in others):
        raise CannotMeasure("the elements of rows do not follow one another")
    return int(first.stride(0))
