"""Compute the matrix product C = A·B on Hopper with `kernels/cuda/matmul_hopper.cu`.

Unlike blocks of Triton and Gluon, tiles have any number of columns that eight divides, so that some
tile fills the waves of nearly every product, and two blocks of a cluster may share what they load
of B. That counts where rows do not begin at a multiple of 128 bytes: each row of a block then costs
two requests of the L2. A product may also be turned, to Cᵀ = Bᵀ·Aᵀ: then tiles have any number of
rows of C that eight divides, and blocks of a cluster share what they load of A. The kernel is
compiled for the tile; of those that a model of requests and waves puts first, the fastest is taken.

In fp8 each block's products are added in fp32, so that a tile has half the columns, or two thirds.

What each step gained on an H200 (docs/measured/README.md):

- Two blocks of a cluster share what they load of B: tiles of 280 columns took 1.38 times as long
  without.
- L2 fetches of 128 bytes in place of 256, in 1000 x 9000 x 7000: 13 % more rate.
- Stores by TMA: 0.4 to 1.2 % of the time in bf16, 3 to 7 % in fp8.
- Additions of a block of fp8 behind the products of the next one: 4 to 6 % where registers suffice.
- Boxes with no more rows than A: 16 rows in bf16 take two thirds of the time.
- Tiles of 192 x 256 and parts of k in the last wave, in 8192 x 8192 x 8192: 2.8 % of the time, at
  a higher clock under the power limit.
- Turned products: 3 % of the time of 3072 x 3072 x 3072, 10 % of 2376 x 13808 x 6744.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from gpuperf.kernels._matmul_tiles import EIGHT, LINE, SIDE, Tile, tiles, waves

from gpuperf import Point
from gpuperf.errors import CannotMeasure
from gpuperf.jit import tune
from gpuperf.nvrtc import POINTER, U32, Kernel, compile_together, kernel_in, read_source, tensor_map

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]

ARCH = "sm_90a"  # with `wgmma`
GROUP = 8  # rows of tiles of one block that are computed together
THREADS = 128  # of a warpgroup
# By the number of warpgroups that multiply: registers of their threads and of those that load. With
# three, a launch gives a thread 128, and the assembler refuses products whose sums need more.
REGISTERS = {1: (240, 56), 2: (232, 40), 3: (160, 32)}


def multiply_source(name: str, columns: int, dtype: torch.dtype, turned: bool) -> str:
    """Return the CUDA C text of the function *name*: 32 bytes of k for 64 rows and *columns*.

    The last numbers of the instruction scale both operands by 1. For elements of two bytes, two
    more mark the operand that is not contiguous along k, which is the one made of B.
    """
    wide = ", 1, 0" if turned else ", 0, 1"
    kind, ends = {
        torch.bfloat16: ("k16.f32.bf16.bf16", "1, 1" + wide),
        torch.float16: ("k16.f32.f16.f16", "1, 1" + wide),
        torch.float8_e4m3fn: ("k32.f32.e4m3.e4m3", "1, 1"),
    }[dtype]
    count = columns // 2
    sums = ", ".join(f"%{i}" for i in range(count))
    bound = ", ".join(f'"+f"(sums[{i}])' for i in range(count))
    return f"""
__device__ static void {name}(float* sums, unsigned long long a, unsigned long long b, int adds) {{
    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"
                 "wgmma.mma_async.sync.aligned.m64n{columns}{kind} "
                 "{{{sums}}}, %{count}, %{count + 1}, p, {ends};\\n}}"
                 : {bound} : "l"(a), "l"(b), "r"(adds));
}}
"""


def source_of(tile: Tile, dtype: torch.dtype) -> str:
    """Return the CUDA C text of the kernel for *tile*."""
    name = "f16" if dtype == torch.float16 else "bf16"
    own, loader = REGISTERS[tile.members]
    width = tile.width(dtype.itemsize)
    constants = {
        "ITEM": dtype.itemsize,
        "TURNED": int(tile.turned),
        "TURN": '".trans"' if tile.turned else '""',
        "MEMBERS": tile.members,
        "COLUMNS": tile.columns,
        "WIDTH": width,
        "PIECES": tile.pieces,
        "PIECE": tile.piece,
        "CLUSTER": tile.cluster,
        "PARTS": int(tile.splits > 1),
        "STAGES": tile.stages,
        "BUFFERS": tile.buffers,
        "GROUP": GROUP // tile.cluster,
        "REGISTERS": own,
        "LOADER": loader,
        "ROUND": f'"cvt.rn.{name}x2.f32 %0, %1, %2;"',
    }
    text = "".join(f"#define {key} {value}\n" for key, value in constants.items())
    text += multiply_source("multiply", width, dtype, tile.turned)
    rest = max(EIGHT, tile.columns - width)  # named in the text also where it is not called
    text += multiply_source("multiply_rest", rest, dtype, tile.turned)
    return text + read_source("matmul_hopper.cu")


def operand_maps(a: torch.Tensor, b: torch.Tensor, tile: Tile) -> tuple[list[Any], int]:
    """Return how TMA moves boxes of the left and of the right operand, and the bytes that it
    delivers for a block of k.

    *b* is (k, n), or (n, k) in fp8, and contiguous. Raises: CannotMeasure.
    """
    left, right = (b, a) if tile.turned else (a, b)
    # Lines of 128 bytes, and boxes. A box that reaches beyond a matrix takes longer.
    boxes = [(min(left.shape[0], tile.rows), 1), (min(right.shape[0], tile.piece), tile.pieces)]
    if a.itemsize == 2 and tile.turned:
        boxes[0] = (SIDE, tile.members)
    elif a.itemsize == 2:
        boxes[1] = (SIDE // tile.cluster, tile.boxes * tile.cluster)
    maps = [
        tensor_map(operand.data_ptr(), operand.dtype, operand.shape, (lines, LINE // a.itemsize))
        for operand, (lines, _) in zip((left, right), boxes, strict=True)
    ]
    return maps, LINE * sum(lines * count for lines, count in boxes)


def multiply_by(a: torch.Tensor, b: torch.Tensor, tile: Tile) -> Call:
    """Return the call that computes a·b of A (m, k) and B (k, n) with *tile*.

    A and B are row-major; B of fp8 is column-major, and C is bf16. One call follows another, as
    they count parts in one place. Raises: CannotMeasure.
    """
    (m, k), n, device, size = a.shape, b.shape[1], a.device, a.itemsize
    stored = b.t() if size == 1 else b
    if not (a.is_contiguous() and stored.is_contiguous()):
        raise CannotMeasure("A is not row-major, or B is not stored as the kernel reads it")
    c = torch.empty((m, n), dtype=torch.bfloat16 if size == 1 else a.dtype, device=device)
    kernel: Kernel = kernel_in(source_of(tile, a.dtype), ARCH, "matmul_hopper")
    kernel.allow_shared(tile.shared)
    threads = THREADS * (tile.members + 1)
    clusters = kernel.resident_blocks(threads, tile.shared, tile.cluster) // tile.cluster
    if clusters < tile.splits:
        raise CannotMeasure("the GPU does not run all parts of a tile at a time")
    work = waves(m, n, k, tile, clusters, size)
    sums = work.rest * (work.splits - 1) * tile.cluster * tile.rows * tile.columns
    parts = torch.empty(sums, dtype=torch.float32, device=device)
    counts = torch.zeros(work.rest * tile.cluster * tile.members, dtype=torch.int32, device=device)
    maps, loaded = operand_maps(a, stored, tile)
    rest = tile.columns % SIDE or SIDE
    last, swizzled = ((rest, SIDE), True) if tile.turned else ((SIDE, rest), False)
    maps.append(tensor_map(c.data_ptr(), c.dtype, c.shape, (SIDE, SIDE)))
    maps.append(tensor_map(c.data_ptr(), c.dtype, c.shape, last, swizzled))
    pointers = [tensor.data_ptr() for tensor in (parts, counts)]
    values = (*maps, *pointers, loaded, k, *work)
    types = (*[None] * len(maps), *[POINTER] * len(pointers), *[U32] * (2 + len(work)))
    grid, shared = min(work.items, clusters) * tile.cluster, tile.shared
    held = (a, b, parts, counts)
    # In one wave, a part waits for blocks of lower numbers alone, which have started before it.
    together = work.rest * work.splits > clusters

    def call() -> torch.Tensor:
        stream = torch.cuda.current_stream(held[0].device).cuda_stream
        kernel.launch(stream, grid, threads, values, types, shared, together=together)
        return c

    return call


def matmul_clusters(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the product with the fastest of the tiles that the model puts first."""
    a, b = inputs["a"], inputs["b"]
    processors = torch.cuda.get_device_properties(a.device).multi_processor_count
    size = a.itemsize
    every = [named(tile, size) for tile in tiles(point.m, point.n, point.k, processors, size)]

    def prepare(them: Sequence[Mapping[str, int]]) -> None:
        compile_together([source_of(tile_of(chosen), a.dtype) for chosen in them], ARCH)

    return tune(lambda chosen: multiply_by(a, b, tile_of(chosen)), every, prepare)


def named(tile: Tile, size: int) -> dict[str, int]:
    """Return *tile* of elements of *size* bytes by the names of a run file."""
    rows, columns = (tile.columns, tile.rows) if tile.turned else (tile.rows, tile.columns)
    names = {"BM": rows, "BN": columns, "BK": LINE // size}
    turned = {"turned": 1} if tile.turned else {}
    return {**names, "cluster": tile.cluster, "splits": tile.splits, **turned}


def tile_of(chosen: Mapping[str, int]) -> Tile:
    """Return the tile of the names of a run file."""
    rows, columns, turned = chosen["BM"], chosen["BN"], bool(chosen.get("turned"))
    if turned:
        rows, columns = columns, rows
    return Tile(rows // SIDE, columns, chosen["cluster"], chosen["splits"], turned)


def clusters_supports(point: Point, device: Any) -> str | None:
    """Return why the kernel cannot run the point, or None where it can."""
    if device.kind != "cuda" or device.capability != "9.0":
        return "needs an NVIDIA GPU of compute capability 9.0"
    if point.dtype not in ("bf16", "fp16", "fp8"):
        return "takes bf16, fp16, fp8 only"
    whole = 16 if point.dtype == "fp8" else 8
    if point.n % whole or point.k % whole:
        return f"needs multiples of {whole} for n and k, since TMA moves rows of 16 bytes"
    return None
