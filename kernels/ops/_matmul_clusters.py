"""Compute the matrix product C = A·B on Hopper with `kernels/cuda/matmul_hopper.cu`.

Unlike blocks of Triton and Gluon, tiles have any number of columns that eight divides, so that some
tile fills the waves of nearly every product, and two blocks of a cluster may share what they load
of B. That counts where rows do not begin at a multiple of 128 bytes: each row of a block then costs
two requests of the L2. The kernel is compiled for the tile; of those that a model of requests and
waves puts first, the fastest is taken.

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
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch

from gpuperf import Point
from gpuperf.errors import CannotMeasure
from gpuperf.jit import tune
from gpuperf.nvrtc import POINTER, U32, Kernel, compile_together, kernel_in, read_source, tensor_map

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]

ARCH = "sm_90a"  # with `wgmma`
LINE = 128  # bytes of a line of the L2, and of k in a block
SIDE = 64  # rows of A or columns of B in a box
BOX = SIDE * LINE  # bytes of a box
EIGHT = 8  # elements that a thread stores, and the least columns by which tiles differ
GROUP = 8  # rows of tiles of one block that are computed together
THREADS = 128  # of a warpgroup
SHARED = 227 * 1024 - 1024  # bytes for blocks of k; they begin at a multiple of 1024
BARRIERS = 2 * 8  # bytes for each block of k
MOST_STAGES = 8
LEAST_BUFFERS = 2  # boxes of C of a warpgroup: one is written while TMA reads the other
# By the number of warpgroups that multiply: registers of their threads and of those that load, the
# most columns of a tile, and the most of one product. With three, a launch gives a thread 128
# registers, and the assembler refuses products whose sums need more.
REGISTERS = {1: (240, 56), 2: (232, 40), 3: (160, 32)}
MOST_COLUMNS = {2: {1: 256, 2: 320, 3: 256}, 1: {1: 192, 2: 192, 3: 128}}
LEAST_COLUMNS = 64
MOST_TWICE = 128  # columns of which a thread has the sums and two products, in fp8
MOST_WIDTH = {1: 256, 2: 256, 3: 192}
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)  # parts of k in the last wave
LEAST_PART = 1024  # bytes of k in a part
# The model, in cycles: a request of the L2, the store of an element, meetings of a cluster; and for
# an element that is computed in parts, its own time and that of each part but the last, which it
# reads at 64 bytes a cycle. The first three are fitted to 93 trials on an H200, of 13 sizes, when
# stores went without TMA, which made them longer. The last two are fitted to four large tiles.
REQUEST, STORED, PAIRED = 1.8, 0.07, 3000.0
PARTED, READ = 0.4, 0.06
# Under a power limit a tile takes longer, by this times the rows and columns that it loads for an
# element: 192 x 256 ran at 1,606 to 1,628 MHz, 128 x 256 at 1,579 to 1,606, 128 x 128 at 1,484 to
# 1,534 in products of 5,120 and 8,192.
POWER = 7.0
SHARPNESS = 10  # products and requests, of which the longer counts, hinder each other if alike
PRODUCTS = 32  # elements of C whose products of a block a multiprocessor computes in a cycle
# The model of fp8: cycles of a block beside its products, and how many times as long a block takes
# in a cluster. They are estimates from trials of some tiles of nine products, and no fit.
FP8_BLOCK, FP8_PAIRED = 110.0, 1.04
TRIED = 5  # tiles that the model puts first, which are timed


class Tile(NamedTuple):
    """A tile of C: warpgroups of 64 rows, columns, blocks of a cluster, and parts of k of each tile
    of the last wave."""

    members: int
    columns: int
    cluster: int
    splits: int = 1

    @property
    def rows(self) -> int:
        """Rows of the tile of one block."""
        return 64 * self.members

    @property
    def boxes(self) -> int:
        """Boxes of 64 columns of a block of B."""
        return ceiling(self.columns, SIDE)

    @property
    def stages(self) -> int:
        """Blocks of k that shared memory holds beside boxes of C."""
        boxes = self.members * min(self.boxes, LEAST_BUFFERS)
        return min(MOST_STAGES, (SHARED - boxes * BOX) // self._stage)

    @property
    def buffers(self) -> int:
        """Boxes of C of a warpgroup that shared memory holds."""
        return min(self.boxes, (SHARED - self.stages * self._stage) // (self.members * BOX))

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block."""
        return self.stages * self._stage + self.buffers * self.members * BOX + 1024

    @property
    def _stage(self) -> int:
        return (self.members + self.boxes) * BOX + BARRIERS

    def width(self, size: int) -> int:
        """Return the columns of the first product of elements of *size* bytes. In fp8 it has all,
        if two products and their sums fit the registers, or half of them. In other dtypes it has as
        many as fit, and the second one begins at a box."""
        if size == 1:
            twice = self.members < 3 and self.columns <= MOST_TWICE
            return self.columns if twice else ceiling(self.columns, 2 * EIGHT) * EIGHT
        most = MOST_WIDTH[self.members]
        if self.columns <= most:
            return self.columns
        return 128 if self.members == 3 else 192


class Waves(NamedTuple):
    """Tiles of a cluster down and across C, those that are computed whole, the parts of k of each
    of the others, and the elements of k in a part."""

    rows: int
    columns: int
    whole: int
    splits: int
    chunk: int

    @property
    def items(self) -> int:
        """Whole tiles and parts."""
        return self.whole + self.rest * self.splits

    @property
    def rest(self) -> int:
        """Tiles that are computed in parts."""
        return self.rows * self.columns - self.whole


def ceiling(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


def waves(m: int, n: int, k: int, tile: Tile, clusters: int, size: int = 2) -> Waves:
    """Divide a product of elements of *size* bytes between *clusters* that run at a time: the last
    wave in parts of k."""
    rows, columns = ceiling(m, tile.rows * tile.cluster), ceiling(n, tile.columns)
    depth = LINE // size
    chunk = ceiling(ceiling(k, depth), tile.splits) * depth
    splits = ceiling(k, chunk)  # so that no part is empty
    tiles = rows * columns
    return Waves(
        rows, columns, tiles if splits == 1 else tiles // clusters * clusters, splits, chunk
    )


def cycles(m: int, n: int, k: int, tile: Tile, processors: int, size: int = 2) -> float:
    """Return the modelled cycles of a product of elements of *size* bytes, and more of them where a
    tile lowers the clock.

    A block of k takes about as long as its products or as its requests of the L2.
    """
    clusters, depth = processors // tile.cluster, LINE // size
    work = waves(m, n, k, tile, clusters, size)
    a_lines = b_lines = 1 + (k % depth > 0)
    if size == 2:
        b_lines = 1 + (n % depth > 0 or tile.columns % depth > 0)
    requests = min(m, tile.rows) * a_lines + SIDE * tile.boxes * b_lines / tile.cluster
    elements = tile.rows * tile.columns
    products = elements / PRODUCTS
    if size == 1:
        products = (products + FP8_BLOCK) * (FP8_PAIRED if tile.cluster > 1 else 1)
    block = (products**SHARPNESS + (REQUEST * requests) ** SHARPNESS) ** (1 / SHARPNESS)
    whole = ceiling(k, depth) * block + STORED * elements
    part = work.chunk // depth * block + (PARTED + READ * (work.splits - 1)) * elements
    total = ceiling(work.whole, clusters) * whole + PAIRED * (tile.cluster > 1)
    total += ceiling(work.rest * work.splits, clusters) * part
    return float(total * (1 + POWER * (1 / tile.rows + 1 / tile.columns)))


def tiles(m: int, n: int, k: int, processors: int, size: int = 2) -> list[Tile]:
    """Return the tiles to try for elements of *size* bytes: those with the fewest modelled cycles,
    two of a size at most."""

    def usable(tile: Tile) -> bool:
        few = tile.splits == 1 or k * size >= LEAST_PART * tile.splits
        shared = tile.cluster == 1 or m > tile.rows
        clusters = processors // tile.cluster
        if not (few and shared and tile.splits <= clusters):
            return False
        return tile.splits == 1 or waves(m, n, k, tile, clusters, size).rest > 0

    every = [
        Tile(members, columns, cluster, splits)
        for members, most in MOST_COLUMNS[size].items()
        for columns in range(LEAST_COLUMNS, most + 1, EIGHT)
        for cluster, splits in product((1, 2), SPLITS)
    ]
    modelled = {tile: cycles(m, n, k, tile, processors, size) for tile in every if usable(tile)}
    chosen: list[Tile] = []
    for tile in sorted(modelled, key=lambda tile: (modelled[tile], -tile.columns)):
        same = sum(tile[:2] == other[:2] for other in chosen)
        if same < 2 and len(chosen) < TRIED:
            chosen.append(tile)
    return chosen


def multiply_source(name: str, columns: int, dtype: torch.dtype) -> str:
    """Return the CUDA C text of the function *name*: 32 bytes of k for 64 rows and *columns* of C.

    The last numbers of the instruction scale A and B by 1; of two bytes, they also say that rows of
    A are contiguous in k, and those of B in n.
    """
    kind, ends = {
        torch.bfloat16: ("k16.f32.bf16.bf16", "1, 1, 0, 1"),
        torch.float16: ("k16.f32.f16.f16", "1, 1, 0, 1"),
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
        "MEMBERS": tile.members,
        "COLUMNS": tile.columns,
        "WIDTH": width,
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
    text += multiply_source("multiply", width, dtype)
    rest = max(EIGHT, tile.columns - width)  # named in the text also where it is not called
    text += multiply_source("multiply_rest", rest, dtype)
    return text + read_source("matmul_hopper.cu")


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
    rows = min(m, tile.rows)  # a box with rows outside of A takes longer
    loaded = rows * LINE + tile.boxes * BOX
    maps = (
        tensor_map(a.data_ptr(), a.dtype, a.shape, (rows, LINE // size)),
        tensor_map(b.data_ptr(), b.dtype, stored.shape, (SIDE // tile.cluster, LINE // size)),
        tensor_map(c.data_ptr(), c.dtype, c.shape, (SIDE, SIDE)),
        tensor_map(c.data_ptr(), c.dtype, c.shape, (SIDE, tile.columns % SIDE or SIDE), False),
    )
    pointers = [tensor.data_ptr() for tensor in (parts, counts)]
    values = (*maps, *pointers, loaded, m, n, k, *work)
    types = (*[None] * len(maps), *[POINTER] * len(pointers), *[U32] * (4 + len(work)))
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
    names = {"BM": tile.rows, "BN": tile.columns, "BK": LINE // size}
    return {**names, "cluster": tile.cluster, "splits": tile.splits}


def tile_of(chosen: Mapping[str, int]) -> Tile:
    """Return the tile of the names of a run file."""
    return Tile(chosen["BM"] // SIDE, chosen["BN"], chosen["cluster"], chosen["splits"])


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
