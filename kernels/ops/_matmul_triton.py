"""Triton kernels of `matmul.py`, and their launches: loads by threads, and by TMA."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from gpuperf import Point
from gpuperf.jit import jit, tl, triton

Call = Callable[[], torch.Tensor]
Tile = Mapping[str, int]


@jit
def place(tile: tl.tensor, rows: tl.tensor, columns: tl.tensor, GROUP: tl.constexpr) -> tl.tuple:
    """Return the row and the column of a tile, counted in tiles.

    Programs take GROUP rows of tiles together, column by column, so that those that run at a time
    read few rows and columns, which stay in L2.
    """
    first = tile // (GROUP * columns) * GROUP
    height = tl.minimum(rows - first, GROUP)
    within = tile % (GROUP * columns)
    return first + within % height, within // height


@jit
def matmul_kernel(
    a, b, c, m, n, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute a tile (BM, BN) of C in each program, BK of k at a time; all accesses are masked."""
    row, column = place(tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN), GROUP)
    i = (row * BM + tl.arange(0, BM)).to(tl.int64)[:, None]
    j = (column * BN + tl.arange(0, BN)).to(tl.int64)[None, :]
    along = tl.arange(0, BK).to(tl.int64)
    left, right = a + i * k + along[None, :], b + along[:, None] * n + j
    step = tl.full((), BK, tl.int64) * n
    sums = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        x = tl.load(left, (i < m) & (along[None, :] < k - start), 0.0)
        y = tl.load(right, (along[:, None] < k - start) & (j < n), 0.0)
        sums = tl.dot(x, y, sums, input_precision=PRECISION)
        left += BK
        right += step
    tl.store(c + i * n + j, sums.to(c.dtype.element_ty), (i < m) & (j < n))


@jit
def matmul_tma_kernel(
    a, b, c, m, n, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Compute tiles of C in persistent programs; a, b and c are tensor descriptors.

    Elements beyond a matrix are read as zeros and not written. The loads of a tile begin before the
    tile before it is stored.
    """
    rows, columns = tl.cdiv(m, BM), tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
        row, column = place(tile, rows, columns, GROUP)
        sums = tl.zeros((BM, BN), tl.float32)
        for start in range(0, k, BK):
            sums = tl.dot(a.load([row * BM, start]), b.load([start, column * BN]), sums)
        # Stored in halves, to leave shared memory for a fourth stage.
        low, high = tl.split(tl.reshape(sums, (BM, 2, BN // 2)).permute(0, 2, 1))
        c.store([row * BM, column * BN], low.to(c.dtype))
        c.store([row * BM, column * BN + BN // 2], high.to(c.dtype))


def with_pointers(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, point: Point, tile: Tile
) -> Call:
    """Return the call of `matmul_kernel`, which takes any shape."""
    m, n, k = point.m, point.n, point.k
    grid = (triton.cdiv(m, tile["BM"]) * triton.cdiv(n, tile["BN"]),)
    launch = {name: tile[name] for name in ("BM", "BN", "BK", "GROUP")}
    launch |= {"num_warps": tile["warps"], "num_stages": tile["stages"]}
    precision = "tf32" if point.dtype == "tf32" else "ieee"

    def call() -> torch.Tensor:
        matmul_kernel[grid](a, b, c, m, n, k, PRECISION=precision, **launch)
        return c

    return call


def with_tma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, point: Point, tile: Tile) -> Call:
    """Return the call of `matmul_tma_kernel`; rows must be multiples of 16 bytes."""
    from triton.tools.tensor_descriptor import TensorDescriptor  # `import triton` does not load it

    m, n, k, height, width, depth = point.m, point.n, point.k, tile["BM"], tile["BN"], tile["BK"]
    blocks = ((a, height, depth), (b, depth, width), (c, height, width // 2))
    descriptors = [TensorDescriptor.from_tensor(x, [rows, columns]) for x, rows, columns in blocks]
    launch = {name: tile[name] for name in ("BM", "BN", "BK", "GROUP")}
    launch |= {"num_warps": tile["warps"], "num_stages": tile["stages"]}
    programs = triton.cdiv(m, height) * triton.cdiv(n, width)
    if a.is_cuda:
        count = torch.cuda.get_device_properties(a.device).multi_processor_count
        programs = min(programs, tile["TMA"] * count)

    def call() -> torch.Tensor:
        matmul_tma_kernel[(programs,)](*descriptors, m, n, k, **launch)
        return c

    return call
