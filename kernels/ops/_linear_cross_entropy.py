"""Compute the cross-entropy of logits x·Wᵀ, and its gradients, without a matrix of all logits.

Forward, each program computes tiles of logits for BM rows and a slab of the vocabulary on tensor
cores, and keeps a maximum and a sum of exponentials for each row. A second kernel merges the slabs,
of which there are SLABS at most.

Backward, the logits of a chunk of the vocabulary are computed again and stored as the gradient G of
the logits, (m, chunk) in the dtype of x. Two products of the library then give the chunk's rows of
dW = Gᵀ·x, each complete, and its part of dx = G·W, which is summed in fp32. Memory beside inputs
and results: G, of CHUNK bytes at most for up to CHUNK/(LEAST·s) rows with elements of s bytes, and
sums of 8·m·k bytes at the peak, as the old and the new sum exist at once (4·m·k with one chunk).
Where the library does not multiply x's dtype to fp32, copies of G and of a chunk of W in fp32 are
added to them. The forward keeps 12 bytes for each row and slab.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from gpuperf.kernels._linear_wide import factor_dtype
from gpuperf.kernels._matmul_triton import place
from gpuperf.kernels.cross_entropy import IGNORED
from gpuperf.kernels.matmul import has_tma

from gpuperf.jit import INTERPRETED, Tuned, jit, tl, triton, tune

Inputs = Mapping[str, torch.Tensor]
Tile = Mapping[str, int]
Call = Callable[[], Any]

SLABS = 64  # parts of the vocabulary, each with a maximum and a sum for each row
CHUNK = 2**28  # bytes of the gradient of the logits that are stored at a time
LEAST = 4096  # columns of a chunk: products of fewer keep tensor cores less busy
WHOLE = 256  # columns of which a chunk is a multiple
ROW_ALIGNMENT = 16  # bytes of which a row of x and of W is a multiple, for TMA
MERGED = 16  # rows that a program merges

# TMA is 1 if TMA moves the tiles, and 0 if threads do. PROGRAMS is the number of persistent
# programs on an SM, of the kernel of the backward; 0: each program computes one tile.
KEYS = ("BM", "BV", "BK", "GROUP", "warps", "stages", "TMA", "PROGRAMS")
TMA_TILES = (
    (128, 256, 64, 16, 8, 3, 1, 1),
    (128, 256, 64, 8, 8, 4, 1, 1),
    (128, 256, 64, 16, 8, 4, 1, 1),
    (256, 128, 64, 8, 8, 3, 1, 1),
    (256, 128, 64, 8, 8, 4, 1, 1),
    (128, 128, 64, 16, 4, 3, 1, 2),
    (128, 128, 64, 16, 8, 4, 1, 1),
)
TILES = (
    (128, 128, 64, 16, 8, 3, 0, 0),
    (64, 128, 64, 16, 4, 3, 0, 0),
    (64, 64, 32, 16, 4, 3, 0, 0),
)
FP32_TILES = ((64, 64, 16, 8, 4, 3, 0, 0), (32, 32, 32, 8, 4, 3, 0, 0))
INTERPRETED_TILES = ((32, 32, 32, 2, 4, 1, 0, 2),)


@jit
def part_of(a, row, at, rows, k, ROWS: tl.constexpr, BK: tl.constexpr, TMA: tl.constexpr):
    """Load a tile (ROWS, BK) of a (rows, k); elements beyond a are zeros."""
    if TMA:
        tile = a.load([row, at])
    else:
        i, j = row + tl.arange(0, ROWS), at + tl.arange(0, BK)
        inside = (i < rows)[:, None] & (j < k)[None, :]
        tile = tl.load(a + i.to(tl.int64)[:, None] * k + j[None, :], inside, 0.0)
    return tile


@jit
def logits_of(
    x,
    weight,
    line,
    column,
    m,
    v,
    k,
    BM: tl.constexpr,
    BV: tl.constexpr,
    BK: tl.constexpr,
    TMA: tl.constexpr,
    FACTOR: tl.constexpr,
):
    """Return a tile (BM, BV) of x·Wᵀ in base 2: times log₂ e."""
    sums = tl.zeros((BM, BV), tl.float32)
    for at in range(0, k, BK):
        left = part_of(x, line, at, m, k, BM, BK, TMA).to(FACTOR)
        right = part_of(weight, column, at, v, k, BV, BK, TMA).to(FACTOR)
        sums = tl.dot(left, right.T, sums, input_precision="ieee")
    return sums * 1.4426950408889634


@jit
def slab_kernel(
    x,
    weight,
    targets,
    most,
    total,
    hit,
    m,
    v,
    k,
    tiles,
    slabs,
    BM: tl.constexpr,
    BV: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    TMA: tl.constexpr,
    FACTOR: tl.constexpr,
):
    """Compute BM rows of a slab of *tiles* tiles: maximum, sum of powers and the target's logit.

    x and weight are tensor descriptors with TMA. The results are (slabs, m), in base 2.
    """
    block, slab = place(tl.program_id(0), tl.cdiv(m, BM), slabs, GROUP)
    i = block * BM + tl.arange(0, BM)
    target = tl.load(targets + i, i < m, -1)
    peak = tl.full((BM,), -3.4028234e38, tl.float32)
    sums = tl.zeros((BM,), tl.float32)
    found = tl.zeros((BM,), tl.float32)
    last = tl.minimum((slab + 1) * tiles, tl.cdiv(v, BV))
    for tile in tl.range(slab * tiles, last, flatten=True):
        logits = logits_of(x, weight, block * BM, tile * BV, m, v, k, BM, BV, BK, TMA, FACTOR)
        j = (tile * BV + tl.arange(0, BV))[None, :]
        found += tl.sum(tl.where(j == target[:, None], logits, 0.0), 1)
        logits = tl.where(j < v, logits, float("-inf"))
        risen = tl.maximum(peak, tl.max(logits, 1))
        sums = sums * tl.exp2(peak - risen) + tl.sum(tl.exp2(logits - risen[:, None]), 1)
        peak = risen
    own = slab.to(tl.int64) * m + i
    tl.store(most + own, peak, i < m)
    tl.store(total + own, sums, i < m)
    tl.store(hit + own, found, i < m)


@jit
def merge_kernel(
    most, total, hit, targets, loss, lse, m, slabs, ignored, ROWS: tl.constexpr, SLABS: tl.constexpr
):
    """Merge the slabs of ROWS rows into their losses, and into log₂ Σ exp of their logits."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[None, :]
    slab = tl.arange(0, SLABS)[:, None]
    inside = (slab < slabs) & (i < m)
    at = slab.to(tl.int64) * m + i
    peaks = tl.load(most + at, inside, -3.4028234e38)
    peak = tl.max(peaks, 0)
    sums = tl.sum(tl.load(total + at, inside, 0.0) * tl.exp2(peaks - peak[None, :]), 0)
    found = tl.sum(tl.load(hit + at, inside, 0.0), 0)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    norm = peak + tl.log2(tl.where(row < m, sums, 1.0))
    counts = tl.load(targets + row, row < m, ignored) != ignored
    value = tl.where(counts, (norm - found) * 0.6931471805599453, 0.0)
    tl.store(lse + row, norm, row < m)
    tl.store(loss + row, value.to(loss.dtype.element_ty), row < m)


@jit
def slopes_kernel(
    x,
    weight,
    targets,
    lse,
    dy,
    slopes,
    m,
    v,
    k,
    first,
    width,
    stride,
    ignored,
    BM: tl.constexpr,
    BV: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    TMA: tl.constexpr,
    FACTOR: tl.constexpr,
):
    """Compute the gradient of *width* columns of logits from *first* on, in persistent programs."""
    rows, columns = tl.cdiv(m, BM), tl.cdiv(width, BV)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
        block, column = place(tile, rows, columns, GROUP)
        logits = logits_of(
            x, weight, block * BM, first + column * BV, m, v, k, BM, BV, BK, TMA, FACTOR
        )
        i = block * BM + tl.arange(0, BM)
        j = column * BV + tl.arange(0, BV)
        target = tl.load(targets + i, i < m, ignored)
        grad = tl.load(dy + i, i < m, 0.0).to(tl.float32)
        grad = tl.where(target == ignored, 0.0, grad)
        share = tl.exp2(logits - tl.load(lse + i, i < m, 0.0)[:, None])
        share = tl.where((first + j)[None, :] == target[:, None], share - 1.0, share)
        slope = (share * grad[:, None]).to(slopes.dtype.element_ty)
        at = i.to(tl.int64)[:, None] * stride + j[None, :]
        tl.store(slopes + at, slope, (i < m)[:, None] & (j < width)[None, :])


def tiles_for(x: torch.Tensor) -> list[Tile]:
    """Return the tiles to tune among for *x* (m, k); TMA needs rows of 16 bytes, and Hopper."""
    every: tuple[tuple[int, ...], ...] = FP32_TILES if x.element_size() == 4 else TILES
    if INTERPRETED:
        every = INTERPRETED_TILES
    elif has_tma(x.device) and x.element_size() == 2 and not x.shape[1] * 2 % ROW_ALIGNMENT:
        every = TMA_TILES
    return [dict(zip(KEYS, tile, strict=True)) for tile in every]


def launch_of(x: torch.Tensor, tile: Tile) -> dict[str, Any]:
    """Return the keyword arguments of a launch with *tile*."""
    names = ("BM", "BV", "BK", "GROUP", "TMA")
    launch: dict[str, Any] = {name: tile[name] for name in names}
    launch |= {"FACTOR": factor_dtype(x)}
    return launch | {"num_warps": tile["warps"], "num_stages": tile["stages"]}


def operands(x: torch.Tensor, weight: torch.Tensor, tile: Tile) -> tuple[Any, Any]:
    """Return x and W as the kernels take them with *tile*."""
    if not tile["TMA"]:
        return x, weight
    from triton.tools.tensor_descriptor import TensorDescriptor  # `import triton` does not load it

    blocks = ((x, tile["BM"]), (weight, tile["BV"]))
    left, right = (TensorDescriptor.from_tensor(a, [n, tile["BK"]]) for a, n in blocks)
    return left, right


def losses_call(inputs: Inputs, lse: torch.Tensor, tile: Tile) -> Call:
    """Return the call that computes the losses (m,), and *lse* (m,) in base 2."""
    x, weight, targets = inputs["x"], inputs["weight"], inputs["targets"]
    (m, k), v = x.shape, weight.shape[0]
    columns = triton.cdiv(v, tile["BV"])
    each = triton.cdiv(columns, SLABS)  # tiles of a slab
    slabs = triton.cdiv(columns, each)
    most, total, hit = x.new_empty((3, slabs, m), dtype=torch.float32)
    loss, launch = x.new_empty(m), launch_of(x, tile)
    left, right = operands(x, weight, tile)
    grid, merges = (triton.cdiv(m, tile["BM"]) * slabs,), (triton.cdiv(m, MERGED),)

    def call() -> torch.Tensor:
        slab_kernel[grid](left, right, targets, most, total, hit, m, v, k, each, slabs, **launch)
        merge_kernel[merges](
            most, total, hit, targets, loss, lse, m, slabs, IGNORED, ROWS=MERGED, SLABS=SLABS
        )
        return loss

    return call


def chunk_of(m: int, v: int, size: int) -> int:
    """Return the columns of a chunk of logits with m rows of elements of *size* bytes.

    It is a multiple of WHOLE, where v is not less: products of rows that are not aligned are slow.
    """
    return min(v // WHOLE * WHOLE or v, max(LEAST, CHUNK // (m * size) // WHOLE * WHOLE))


def slopes_call(inputs: Inputs, lse: torch.Tensor, slopes: torch.Tensor, tile: Any) -> Any:
    """Return a function of (first, width) that computes the gradient of these columns of logits."""
    x, weight = inputs["x"], inputs["weight"]
    (m, k), v = x.shape, weight.shape[0]
    left, right = operands(x, weight, tile)
    launch, per_sm, count = launch_of(x, tile), tile["PROGRAMS"], 1
    if x.is_cuda:
        count = torch.cuda.get_device_properties(x.device).multi_processor_count
    rest = (inputs["targets"], lse, inputs["dy"], slopes, m, v, k)

    def compute(first: int, width: int) -> None:
        programs = triton.cdiv(m, tile["BM"]) * triton.cdiv(width, tile["BV"])
        grid = (min(programs, per_sm * count) if per_sm else programs,)
        slopes_kernel[grid](left, right, *rest, first, width, slopes.stride(0), IGNORED, **launch)

    return compute


def gradients_call(inputs: Inputs, lse: torch.Tensor) -> Tuned:
    """Return the call that computes dx (m, k) and dW (v, k) by chunks of the vocabulary."""
    x, weight = inputs["x"], inputs["weight"]
    (m, _), v = x.shape, weight.shape[0]
    chunk = chunk_of(m, v, x.element_size())
    slopes, dweight = x.new_empty((m, chunk)), torch.empty_like(weight)

    def first_chunk(tile: Tile) -> Call:
        return partial(slopes_call(inputs, lse, slopes, tile), 0, chunk)

    tuned = tune(first_chunk, tiles_for(x))
    compute = slopes_call(inputs, lse, slopes, tuned.chosen)

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        dx: torch.Tensor | None = None
        for first in range(0, v, chunk):
            width = min(chunk, v - first)
            compute(first, width)
            part, rows = slopes[:, :width], slice(first, first + width)
            torch.mm(part.t(), x, out=dweight[rows])
            dx = added(dx, part, weight[rows])
        assert dx is not None
        return dx.to(x.dtype), dweight

    return Tuned(call, tuned.chosen)


def added(total: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return total + a·b in fp32."""
    # torch 2.8 and newer multiply bf16 to fp32, on a GPU.
    fused = a.is_cuda and hasattr(torch.ops.aten.addmm, "dtype")
    if not fused or a.dtype == torch.float32:
        product = a.float() @ b.float()
        return product if total is None else total.add_(product)
    if total is None:
        return torch.mm(a, b, out_dtype=torch.float32)
    return torch.addmm(total, a, b, out_dtype=torch.float32)
