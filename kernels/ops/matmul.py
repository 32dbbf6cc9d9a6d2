"""Compute the matrix product C = A·B of A (m, k) and B (k, n); C is (m, n).

2·m·n·k FLOP; each of A, B and C crosses DRAM at least once.

- `naive`: CUDA C; each thread computes one element of C, with two loads for each product.
- `tiled`: CUDA C; tiles of 64 x 64 in shared memory, each thread computes a column of 8 elements.
- `triton`: Triton on tensor cores, tuned over the tiles. From Hopper on TMA moves the tiles, and
  persistent programs store one tile while the next is loaded.
- `gluon`: Gluon on Hopper, also in fp8; a warp loads, and warpgroups multiply
  (`_matmul_hopper.py`).
- `cuda`: CUDA C on Hopper, also in fp8, with tiles of any width and blocks that share loads
  (`_matmul_clusters.py`).
- `compile`: torch.compile's choice among Triton's templates and the library.
- `torch`: `torch.mm` (cuBLAS, oneDNN), `torch._scaled_mm` in fp8, `torch._int_mm` in int8.
- `cublaslt_heuristic`: cuBLASLt by the algorithm that its heuristic takes for the fastest.
- `cublaslt`: cuBLASLt by the algorithm that a search finds fastest. Its speed-up over the one
  before is what the heuristic loses, its speed-up over `torch` what torch's choice loses.

fp32 and tf32 are two dtypes of the same fp32 tensors: in tf32 tensor cores may round them to 11
bits. fp8 is e4m3 with unit scales and a bf16 result; int8 has an int32 result.

Only `triton` (`_matmul_triton.py`) and `gluon` import their kernels, and with them Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.kernels._cublaslt_search import CUBLASLT
from gpuperf.kernels._matmul_clusters import clusters_supports, matmul_clusters

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Workload
from gpuperf.errors import Unsupported
from gpuperf.jit import INTERPRETED, compiled, lacks_compiler, lacks_triton, tune
from gpuperf.nvrtc import POINTER, U64, kernels_of
from gpuperf.units import itemsize

DTYPES = ("bf16", "fp16", "fp32", "tf32", "fp64", "fp8", "int8")
SLICE = 4096  # columns of A that the reference multiplies at a time
RESULT = {"fp8": "bf16", "int8": "int32"}
ACCUMULATE = {"fp64": "fp64", "int8": "int32"}

Make = Callable[[tuple[int, ...], str], torch.Tensor]
Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]
Build = Callable[[Inputs, Point, object], Call]
Tile = Mapping[str, int]

TRITON_DTYPES = ("bf16", "fp16", "fp32", "tf32")
CUDA_DTYPES = ("fp32", "bf16", "fp16")
CUDA_NAMES = tuple(f"{name}_{dtype}" for name in ("naive", "tiled") for dtype in CUDA_DTYPES)
NAIVE_THREADS, TILED_THREADS, TILE = 256, 512, 64  # the launches that matmul.cu is written for

# TMA is the number of programs on an SM if TMA moves the tiles, and 0 if threads do.
KEYS = ("BM", "BN", "BK", "GROUP", "warps", "stages", "TMA")
TMA_TILES = (
    (128, 256, 64, 8, 8, 3, 1),
    (128, 256, 64, 8, 8, 4, 1),
    (256, 128, 64, 8, 8, 3, 1),
    (256, 128, 64, 8, 8, 4, 1),
    (128, 128, 64, 8, 8, 4, 1),
    (128, 128, 64, 8, 4, 3, 2),
    (64, 256, 64, 8, 4, 4, 1),
    (64, 128, 64, 8, 4, 4, 2),
    (64, 64, 128, 8, 4, 4, 1),
)
HALF_TILES = (
    (128, 256, 64, 8, 8, 3, 0),
    (128, 128, 64, 8, 8, 3, 0),
    (128, 128, 32, 8, 4, 4, 0),
    (64, 128, 64, 8, 4, 4, 0),
    (64, 64, 64, 8, 4, 4, 0),
    (16, 64, 128, 8, 4, 4, 0),
)
TF32_TILES = (
    (128, 256, 32, 8, 8, 3, 0),
    (128, 128, 32, 8, 8, 3, 0),
    (128, 128, 32, 8, 4, 3, 0),
    (64, 128, 32, 8, 4, 4, 0),
    (64, 64, 32, 8, 4, 4, 0),
    (16, 64, 64, 8, 4, 4, 0),
)
FP32_TILES = (
    (128, 128, 16, 8, 8, 3, 0),
    (64, 128, 16, 8, 8, 3, 0),
    (64, 64, 16, 8, 4, 3, 0),
    (32, 32, 32, 8, 4, 3, 0),
)
PINNED = tuple(
    dict.fromkeys(
        "x".join(map(str, tile[:3])) for tile in (*TMA_TILES, *HALF_TILES, *TF32_TILES, *FP32_TILES)
    )
)
INTERPRETED_TILES = ((32, 32, 32, 2, 4, 1, 0),)  # small, since whole tiles are computed


def matmul_cuda(name: str, threads: int, blocks: Callable[[Point], int]) -> Build:
    """Return the build of the CUDA C kernel *name*, launched with *threads* and `blocks(point)`."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        a, b = inputs["a"], inputs["b"]
        c = torch.empty((point.m, point.n), dtype=a.dtype, device=a.device)
        major, minor = torch.cuda.get_device_capability(a.device)
        kernels = kernels_of("matmul.cu", f"sm_{major}{minor}", CUDA_NAMES)
        kernel, grid = kernels[f"{name}_{point.dtype}"], blocks(point)
        args = (a.data_ptr(), b.data_ptr(), c.data_ptr(), point.m, point.n, point.k)
        types = (POINTER, POINTER, POINTER, U64, U64, U64)

        def call() -> torch.Tensor:
            stream = torch.cuda.current_stream(a.device).cuda_stream
            kernel.launch(stream, grid, threads, args, types)
            return c

        return call

    return build


def matmul_triton(inputs: Inputs, point: Point, options: Mapping[str, Any]) -> Call:
    """Build the Triton kernel with the fastest tile, or with the one that the option `tile` names.

    Raises: Unsupported if no tile of this dtype has that name.
    """
    from gpuperf.kernels import _matmul_triton as kernels

    a, b = inputs["a"], inputs["b"]
    c = torch.empty((point.m, point.n), dtype=a.dtype, device=a.device)

    def make(tile: Tile) -> Call:
        launch = kernels.with_tma if tile["TMA"] else kernels.with_pointers
        call: Call = launch(a, b, c, point, tile)
        return call

    pinned = str(options.get("tile", ""))
    candidates = [tile for tile in tiles(a, point, pinned) if pinned in ("", tile_name(tile))]
    if not candidates:
        raise Unsupported(f"has no tile {pinned} for {point.dtype}")
    return tune(make, candidates[:1] if pinned else candidates)


def tile_name(tile: Tile) -> str:
    """Return a name like `128x256x64`: rows and columns of C, and elements of k at a time."""
    return f"{tile['BM']}x{tile['BN']}x{tile['BK']}"


def tiles(a: torch.Tensor, point: Point, pinned: str = "") -> list[Tile]:
    """Return the tiles to tune among; TMA needs rows of a multiple of 16 bytes, and Hopper."""
    rows = {"fp32": FP32_TILES, "tf32": TF32_TILES}.get(point.dtype, HALF_TILES)
    if INTERPRETED and pinned:
        rows = (*((*tile[:-1], 0) for tile in TMA_TILES), *HALF_TILES, *TF32_TILES, *FP32_TILES)
    elif INTERPRETED:
        rows = INTERPRETED_TILES
    elif a.element_size() == 2 and point.n % 8 == 0 and point.k % 8 == 0 and has_tma(a.device):
        rows = TMA_TILES + HALF_TILES
    return [dict(zip(KEYS, tile, strict=True)) for tile in rows]


def has_tma(device: torch.device) -> bool:
    """Return whether *device* is an NVIDIA GPU with the tensor memory accelerator (TMA)."""
    if device.type != "cuda" or torch.version.hip:
        return False
    return bool(torch.cuda.get_device_capability(device) >= (9, 0))


def matmul_gluon(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the Gluon kernel."""
    from gpuperf.kernels import _matmul_hopper

    call: Call = _matmul_hopper.matmul_gluon(inputs, point, options)
    return call


def gluon_supports(point: Point, device: Any) -> str | None:
    """Return why the Gluon kernel cannot run the point, or None where it can."""
    from gpuperf.kernels import _matmul_hopper

    lacking: str | None = _matmul_hopper.gluon_supports(point, device)
    return lacking


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a·b, as the function that torch.compile compiles."""
    return torch.mm(a, b)


def matmul_compile(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the product with torch.compile, autotuned."""
    a, b = inputs["a"], inputs["b"]
    allow_tf32(a, point)
    function = compiled(product, "max-autotune-no-cudagraphs")
    function(a, b)  # so that the measured call does not compile
    return lambda: function(a, b)


def allow_tf32(a: torch.Tensor, point: Point) -> None:
    """Allow tensor cores to round fp32 to tf32 if the point's dtype is tf32."""
    if a.is_cuda:
        torch.backends.cuda.matmul.allow_tf32 = point.dtype == "tf32"


def matmul_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the product with the library that torch calls."""
    a, b = inputs["a"], inputs["b"]
    if point.dtype == "int8":
        return lambda: torch._int_mm(a, b)
    if point.dtype == "fp8":
        one = torch.ones((), device=a.device)
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)
    allow_tf32(a, point)
    return lambda: torch.mm(a, b)


def cuda_supports(point: Point, device: Any) -> str | None:
    """Return why the CUDA C kernels cannot run the point, or None where they can."""
    if device.kind != "cuda":
        return "CUDA C needs an NVIDIA GPU"
    return None if point.dtype in CUDA_DTYPES else f"takes {', '.join(CUDA_DTYPES)} only"


def triton_supports(point: Point, device: Any) -> str | None:
    """Return why the Triton kernels cannot run the point, or None where they can."""
    if point.dtype not in TRITON_DTYPES:
        return f"takes {', '.join(TRITON_DTYPES)} only"
    if INTERPRETED and device.kind == "cpu" and point.dtype == "bf16":
        return "Triton's interpreter multiplies bf16 as integers"
    return lacks_triton(point, device)


def compile_supports(point: Point, device: Any) -> str | None:
    """Return why torch.compile cannot run the point, or None where it can."""
    if point.dtype in ("fp8", "int8"):
        return f"torch.mm does not take {point.dtype}"
    return lacks_compiler(point, device)


def torch_supports(point: Point, device: Any) -> str | None:
    """Return why torch cannot run the point, by the rules of torch 2.11 for fp8 and int8."""
    m, n, k = point.m, point.n, point.k
    if point.dtype == "fp8" and (n % 16 or k % 16):
        return "torch._scaled_mm needs multiples of 16 for n and k"
    if point.dtype == "int8" and device.kind != "cpu" and (m <= 16 or n % 8 or k % 8):
        return "torch._int_mm needs m above 16, and multiples of 8 for n and k"
    return None


def reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """Compute the product in float64, which is exact for int8, in slices of k to save memory."""
    slices = zip(inputs["a"].split(SLICE, 1), inputs["b"].split(SLICE, 0), strict=True)
    return sum(a.double() @ b.double() for a, b in slices)


def narrow(inputs: Inputs, rows: torch.Tensor) -> Inputs:
    """Return the inputs of some rows of C: those rows of A, and all of B."""
    return {"a": inputs["a"][rows], "b": inputs["b"]}


def make_inputs(point: Point, make: Make) -> Inputs:
    """Draw A (m, k) and B (k, n), row-major; in fp8 and int8 B is column-major.

    `_scaled_mm` requires a column-major B, and `_int_mm` runs at full rate only with one.
    """
    a = make((point.m, point.k), point.dtype)
    if point.dtype in ("fp8", "int8"):
        return {"a": a, "b": make((point.n, point.k), point.dtype).t()}
    return {"a": a, "b": make((point.k, point.n), point.dtype)}


def cost(point: Point) -> Cost:
    """Return the cost: 2·m·n·k FLOP, m·k + k·n elements read, m·n written."""
    m, n, k, dtype = point.m, point.n, point.k, point.dtype
    read, written = itemsize(dtype), itemsize(RESULT.get(dtype, dtype))
    return Cost(
        flops=(Flops(2 * m * n * k, "matmul", dtype, ACCUMULATE.get(dtype, "fp32")),),
        bytes=(Bytes(read=(m * k + k * n) * read, written=m * n * written),),
    )


MATMUL = Workload(
    name="matmul",
    summary="matrix product C = A·B",
    formula="2·m·n·k FLOP; (m·k + k·n + m·n)·s bytes",
    axes=(
        Axis("m", 4096, "rows of A and C", main=True),
        Axis("n", 4096, "columns of B and C", main=True),
        Axis("k", 4096, "columns of A and rows of B", main=True),
        Axis("dtype", "auto", "dtype of A and B", choices=DTYPES),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation(
            "naive",
            matmul_cuda("naive", NAIVE_THREADS, lambda p: -(-p.m * p.n // NAIVE_THREADS)),
            "CUDA C, one element of C in each thread",
            cuda_supports,
        ),
        Implementation(
            "tiled",
            matmul_cuda("tiled", TILED_THREADS, lambda p: -(-p.m // TILE) * -(-p.n // TILE)),
            "CUDA C, tiles in shared memory",
            cuda_supports,
        ),
        Implementation(
            "triton",
            matmul_triton,
            "Triton on tensor cores, tuned tiles",
            triton_supports,
            options={"tile": ("", *PINNED)},
        ),
        Implementation("gluon", matmul_gluon, "Gluon, for Hopper", gluon_supports),
        Implementation(
            "cuda", matmul_clusters, "CUDA C in clusters of blocks, for Hopper", clusters_supports
        ),
        Implementation("compile", matmul_compile, "torch.compile, autotuned", compile_supports),
        Implementation(
            "torch", matmul_torch, "torch.mm: cuBLAS or oneDNN", supports=torch_supports
        ),
        *CUBLASLT,
    ),
    narrow=narrow,
    terms=lambda point: point.k,
    rounds_inputs_to=lambda point: "tf32" if point.dtype == "tf32" else "",
    factors=lambda inputs, point: (inputs["a"], inputs["b"]),
    result=lambda point: RESULT.get(point.dtype, point.dtype),
    standard=("torch",),
)
