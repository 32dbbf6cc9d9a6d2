"""Compute x·Wᵀ of quantized weights with Triton: a GEMV for few rows of x, and tensor cores.

The kernels here take any shape on any device; `_linear_wide` multiplies many rows of x on Hopper.
All read the codes of W (n, k), or the bytes (n, k/2) of int4, whose low halves belong to the first
half of a row of x and whose high halves to the second. Codes are converted in registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.kernels._codes_triton import PTX, factors, floats, half_factors, half_sums
from gpuperf.kernels._linear_wide import (
    KINDS,
    PACKED,
    PLAIN,
    factor_dtype,
    scaled,
    steps,
    wide_call,
    wide_tiles,
)
from gpuperf.kernels._matmul_triton import place
from gpuperf.kernels._quantized import Inputs, format_of, group_of, torch_dtype

from gpuperf import Point
from gpuperf.jit import INTERPRETED, jit, tl, triton, tune

Call = Callable[[], torch.Tensor]
Tile = Mapping[str, int]

FEW_ROWS = 16  # rows of x up to which the GEMV is among the candidates
WIDEST_PRODUCT = 4  # rows of x up to which the GEMV, which reads W once a row, can be the fastest

# BM is 0 in a tile of the GEMV. BK counts bytes of a row of W.
KEYS = ("BM", "BN", "BK", "warps", "stages")
GEMV_TILES = (
    (0, 4, 1024, 4, 1),
    (0, 8, 512, 2, 1),
    (0, 8, 256, 1, 1),
    (0, 16, 256, 1, 1),
    (0, 16, 256, 4, 1),
    (0, 32, 64, 4, 1),
)
THIN_TILES = (
    (16, 32, 256, 4, 4),
    (16, 32, 128, 4, 5),
    (16, 64, 128, 4, 4),
    (16, 64, 64, 4, 5),
    (16, 128, 64, 4, 4),
)
WIDE_TILES = (
    (32, 64, 128, 4, 4),
    (64, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (128, 128, 64, 8, 3),
    (128, 128, 32, 4, 4),
    (128, 256, 64, 8, 3),
)
INTERPRETED_TILES = ((32, 32, 32, 4, 1),)  # small, since whole tiles are computed
INTERPRETED_GEMV = ((0, 16, 32, 4, 1),)

ALONG = 8  # elements of a row of W in a thread, and of x, whose loads are of 16 bytes in bf16
PROMOTE_AFTER = 128  # products in fp8 after which sums, which have few bits, are added in fp32
ROUNDER = tl.constexpr(1.5 * 2**23) if tl else 0.0  # fp32 numbers of this size are whole


@jit
def group_scales(scale, row, at, start, inside, per_row, group, ALIGNED: tl.constexpr):
    """Load the scales of the weights *at* columns of *row*; one a row if all are in one group."""
    if ALIGNED:
        loaded = tl.load(scale + row * per_row + start // group)
    else:
        loaded = tl.load(scale + row * per_row + at // group, inside, 0.0)
    return loaded


@jit
def gemv_kernel(
    x,
    weight,
    scale,
    x_scale,
    y,
    n,
    k,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STEP: tl.constexpr,
    X_STEP: tl.constexpr,
    FAST: tl.constexpr,
    ALONG: tl.constexpr,
):
    """Compute BN elements of a row of y in each program, without tensor cores."""
    i = tl.program_id(1).to(tl.int64)
    j = (tl.program_id(0) * BN + tl.arange(0, BN)).to(tl.int64)
    row = tl.minimum(j, n - 1)[:, None]
    sums = tl.zeros((BN, BK), tl.float32)
    for start in range(0, k, BK):
        at = start + tl.arange(0, BK)[None, :]
        inside = at < k
        at = tl.max_contiguous(at, (1, ALONG))  # equal layouts of x and W: nothing is exchanged
        codes = tl.load(weight + row * k + at, inside, 0.0)
        sums += floats(codes, FAST) * tl.load(x + i * k + at, inside, 0.0).to(tl.float32)
    total = scaled(tl.sum(sums, 1), scale, x_scale, i, tl.minimum(j, n - 1), STEP, X_STEP)
    tl.store(y + i * n + j, total.to(y.dtype.element_ty), j < n)


@jit
def packed_gemv_kernel(
    x,
    weight,
    scale,
    y,
    n,
    k,
    GROUP: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    FAST: tl.constexpr,
    ALONG: tl.constexpr,
):
    """Compute BN elements of a row of y from int4; ALONG bytes have one scale for each half."""
    i = tl.program_id(1).to(tl.int64)
    j = (tl.program_id(0) * BN + tl.arange(0, BN)).to(tl.int64)
    row = tl.minimum(j, n - 1)
    width = k // 2
    sums = tl.zeros((BN, BK // ALONG), tl.float32)
    for start in range(0, width, BK):
        part = start + tl.arange(0, BK // ALONG) * ALONG
        inside = (part < width)[None, :, None]
        at = part[None, :, None] + tl.arange(0, ALONG)[None, None, :]
        at = tl.max_contiguous(at, (1, 1, ALONG))
        codes = tl.load(weight + row[:, None, None] * width + at, inside, 0)
        left = tl.load(x + i * k + at, inside, 0.0).to(tl.float32)
        right = tl.load(x + i * k + width + at, inside, 0.0).to(tl.float32)
        first, second = half_sums(codes, left, right, FAST)
        inside = (part < width)[None, :]
        of_row = scale + row[:, None] * (k // GROUP)
        first *= tl.load(of_row + (part // GROUP)[None, :], inside, 0.0).to(tl.float32)
        upper = tl.load(of_row + ((width + part) // GROUP)[None, :], inside, 0.0)
        sums += first + second * upper.to(tl.float32)
    tl.store(y + i * n + j, tl.sum(sums, 1).to(y.dtype.element_ty), j < n)


@jit
def linear_kernel(
    x,
    weight,
    scale,
    x_scale,
    y,
    m,
    n,
    k,
    group,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    KIND: tl.constexpr,
    ALIGNED: tl.constexpr,
    STEP: tl.constexpr,
    X_STEP: tl.constexpr,
    FACTOR: tl.constexpr,
    FAST: tl.constexpr,
    PROMOTE: tl.constexpr,
):
    """Compute a tile (BM, BN) of y in each program; factors are multiplied in the dtype FACTOR."""
    tile, column = place(tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN), 8)
    i = (tile * BM + tl.arange(0, BM)).to(tl.int64)[:, None]
    j = (column * BN + tl.arange(0, BN)).to(tl.int64)[None, :]
    # Rows beyond the end repeat the last one, so that only the columns need a mask.
    line, row = tl.minimum(i, m - 1), tl.minimum(j, n - 1)
    width = k // 2 if KIND == 1 else k
    sums = tl.zeros((BM, BN), tl.int32 if KIND == 2 else tl.float32)
    for start in range(0, width, BK):
        along = start + tl.arange(0, BK)
        across, at = along[None, :], along[:, None]
        codes = tl.load(weight + row * width + at, at < width, 0.0)
        left = tl.load(x + line * k + across, across < width, 0.0).to(FACTOR)
        if KIND == 1:
            right = tl.load(x + line * k + width + across, across < width, 0.0).to(FACTOR)
            low, high = half_factors(codes, FACTOR, FAST)
            inside = at < width
            first = group_scales(scale, row, at, start, inside, k // group, group, ALIGNED)
            at += width
            second = group_scales(scale, row, at, start + width, inside, k // group, group, ALIGNED)
            if ALIGNED:
                sums += tl.dot(left, low, input_precision="ieee") * first.to(tl.float32)
                sums += tl.dot(right, high, input_precision="ieee") * second.to(tl.float32)
            else:
                sums = tl.dot(left, low * first.to(FACTOR), sums, input_precision="ieee")
                sums = tl.dot(right, high * second.to(FACTOR), sums, input_precision="ieee")
        elif KIND == 2:
            sums += tl.dot(left, codes, out_dtype=tl.int32)
        else:
            right = factors(codes, FACTOR, FAST)
            sums = tl.dot(left, right, sums, input_precision="ieee", max_num_imprecise_acc=PROMOTE)
    total = scaled(sums, scale, x_scale, line, row, STEP, X_STEP)
    tl.store(y + i * n + j, total.to(y.dtype.element_ty), (i < m) & (j < n))


@jit
def quantize_kernel(x, codes, scale, k, BLOCK: tl.constexpr):
    """Quantize a row of x to int8 in each program, with the scale of its largest magnitude."""
    i = tl.program_id(0).to(tl.int64)
    along = tl.arange(0, BLOCK)
    largest = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, k, BLOCK):
        value = tl.load(x + i * k + start + along, start + along < k, 0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(value))
    step = tl.div_rn(tl.max(largest, 0), 127.0)
    step = tl.where(step == 0.0, 1.0, step)
    for start in range(0, k, BLOCK):
        value = tl.load(x + i * k + start + along, start + along < k, 0.0).to(tl.float32)
        whole = (tl.div_rn(value, step) + ROUNDER) - ROUNDER  # to the nearest, halves to even
        tl.store(codes + i * k + start + along, whole.to(tl.int8), start + along < k)
    tl.store(scale + i, step)


def linear_triton(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the fastest of the kernels and tiles; int8-dynamic quantizes x in a kernel before."""
    x, kind = inputs["x"], format_of(point)
    y = torch.empty((point.m, point.n), dtype=torch_dtype(point.dtype), device=x.device)
    if kind != "int8-dynamic":
        return tune(
            lambda tile: launch(x, inputs.get("x_scale"), inputs, point, y, tile), tiles(x, point)
        )
    codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    x_scale = torch.empty((point.m,), dtype=torch.float32, device=x.device)
    block = min(4096, triton.next_power_of_2(point.k))

    def make(tile: Tile) -> Call:
        multiply = launch(codes, x_scale, inputs, point, y, tile)

        def call() -> torch.Tensor:
            quantize_kernel[(point.m,)](x, codes, x_scale, point.k, BLOCK=block)
            return multiply()

        return call

    return tune(make, tiles(codes, point))


def tiles(x: torch.Tensor, point: Point) -> list[Tile]:
    """Return the tiles to tune among, by the rows of x, and by its device and dtype."""
    few = point.m <= FEW_ROWS
    gemv = INTERPRETED_GEMV if INTERPRETED else GEMV_TILES
    products = INTERPRETED_TILES if INTERPRETED else THIN_TILES if few else WIDE_TILES
    if few and (INTERPRETED or point.m <= WIDEST_PRODUCT):
        products = (*gemv, *products)
    wide = [] if few else wide_tiles(x, point)
    return wide or [dict(zip(KEYS, tile, strict=True)) for tile in products]


def launch(
    x: torch.Tensor, x_scale: Any, inputs: Inputs, point: Point, y: torch.Tensor, tile: Tile
) -> Call:
    """Return the call of the kernel of *tile* on the activations *x* and their scale, if any."""
    if "PROMOTE" in tile:
        wide: Call = wide_call(x, x_scale, inputs, point, y, tile)
        return wide
    kind, m, n, k = format_of(point), point.m, point.n, point.k
    weight, scale, group = inputs["weight"], inputs.get("scale"), group_of(point)
    packed, columns = kind == "int4", triton.cdiv(n, tile["BN"])
    constants = {"BN": tile["BN"], "BK": tile["BK"]}
    constants |= {"num_warps": tile["warps"], "num_stages": tile["stages"]}
    # A kernel without scales gets x in their place, and does not read it.
    operands = (x, weight, *(x if some is None else some for some in (scale, x_scale)), y)
    distances = steps(scale, x_scale, PACKED if packed else PLAIN)
    fast = PTX and weight.dtype == torch.int8
    if tile["BM"]:
        kernel, grid = linear_kernel, (columns * triton.cdiv(m, tile["BM"]), 1)
        arguments: tuple[Any, ...] = (*operands, m, n, k, group)
        constants |= {"BM": tile["BM"], **distances, **products(x, point, tile["BK"], fast)}
    elif packed:
        kernel, grid = packed_gemv_kernel, (columns, m)
        arguments = (x, weight, scale, y, n, k)
        along = math.gcd(ALONG, group, k // 2)
        fast = fast and along == ALONG and x.element_size() == 2
        constants |= {"GROUP": group, "ALONG": along, "FAST": fast}
    else:
        kernel, grid = gemv_kernel, (columns, m)
        arguments = (*operands, n, k)
        constants |= {"ALONG": ALONG, **distances, "FAST": fast}

    def call() -> torch.Tensor:
        kernel[grid](*arguments, **constants)
        return y

    return call


def products(x: torch.Tensor, point: Point, depth: int, fast: bool) -> dict[str, Any]:
    """Return how the kernel with tensor cores multiplies tiles of *depth* bytes of a row of W."""
    kind, group = format_of(point), group_of(point)
    width = point.k // 2 if kind == "int4" else point.k
    factor = factor_dtype(x)
    return {
        "KIND": KINDS.get(kind, PLAIN),
        "ALIGNED": group % depth == 0 and width % depth == 0,
        "FACTOR": factor,
        "FAST": fast and factor is tl.bfloat16,
        "PROMOTE": min(PROMOTE_AFTER, depth) if factor is tl.float8e4nv else None,
    }
