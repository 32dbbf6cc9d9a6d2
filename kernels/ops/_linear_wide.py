"""Compute x·Wᵀ of many rows of x with Triton on Hopper, whose TMA moves the tiles of x and W.

Each program computes a tile of the transpose, W·xᵀ, since the first factor of a product of tensor
cores may be in registers: there codes of W are converted, and never written to shared memory.
Another candidate writes W in the dtype of x to memory, and then multiplies unquantized weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.kernels._codes_triton import PTX, factors, half_factors, half_operands, operand
from gpuperf.kernels._matmul_triton import place
from gpuperf.kernels._quantized import AS_X, Inputs, format_of, group_of
from gpuperf.kernels.matmul import has_tma

from gpuperf import Point
from gpuperf.jit import INTERPRETED, jit, tl, triton
from gpuperf.units import itemsize

Call = Callable[[], torch.Tensor]
Tile = Mapping[str, int]

PLAIN, PACKED, WHOLE = 0, 1, 2  # codes are factors, or two of a byte, or are summed exactly
ROW_ALIGNMENT = 16  # bytes of which a row of x and of W is a multiple, for TMA
RESTORED = 4096  # codes, or bytes of int4, that a program restores
RESTORED_FROM = 512  # rows of x from which weights that are restored in memory are a candidate
LARGEST_HEIGHT = 256  # of a tile of y
KINDS = {"int4": PACKED, "int8-dynamic": WHOLE}

# Sums of fp8 are added in fp32 after PROMOTE products, or never if it is 0. RESTORE is 1 for
# weights that are restored in memory. BK counts bytes of int4.
KEYS = ("BM", "BN", "BK", "warps", "stages", "PROMOTE", "RESTORE")
# The fastest for 32 to 4096 rows and weights of 16384² on an H200, of 13 to 21 that were tried.
# Those of unquantized weights and of int8-dynamic were not compared with others.
PLAIN_TILES = (
    (32, 128, 64, 8, 5, 0, 0),
    (64, 128, 64, 8, 5, 0, 0),
    (64, 256, 64, 8, 4, 0, 0),
    (128, 128, 64, 8, 4, 0, 0),
    (128, 256, 64, 8, 3, 0, 0),
    (128, 256, 64, 8, 4, 0, 0),
    (256, 128, 64, 8, 4, 0, 0),
)
RESTORING_TILES = ((128, 256, 64, 8, 3, 0, 1), (256, 128, 64, 8, 4, 0, 1))
TILES = {
    AS_X: PLAIN_TILES,
    "int8": (
        (32, 64, 128, 4, 5, 0, 0),
        (64, 64, 128, 4, 4, 0, 0),
        (64, 128, 128, 8, 4, 0, 0),
        (128, 128, 64, 8, 4, 0, 0),
        (128, 128, 128, 8, 3, 0, 0),
        *RESTORING_TILES,
    ),
    "int4": (
        (32, 64, 128, 4, 4, 0, 0),
        (64, 64, 64, 4, 4, 0, 0),
        (64, 128, 128, 8, 3, 0, 0),
        (128, 128, 64, 8, 3, 0, 0),
        *RESTORING_TILES,
    ),
    "int8-dynamic": (
        (32, 128, 128, 8, 5, 0, 0),
        (64, 128, 128, 8, 4, 0, 0),
        (128, 128, 128, 8, 4, 0, 0),
        (128, 256, 128, 8, 3, 0, 0),
        (256, 128, 128, 8, 4, 0, 0),
    ),
    "fp8": (
        (32, 64, 256, 4, 4, 256, 0),
        (64, 128, 128, 8, 5, 512, 0),
        (128, 128, 128, 8, 4, 512, 0),
    ),
}


@jit
def scaled(sums, scale, x_scale, i, j, STEP: tl.constexpr, X_STEP: tl.constexpr):
    """Multiply sums by the scale of row j of W and by that of row i of x; a step of −1: none."""
    total = sums.to(tl.float32)
    if STEP >= 0:
        total *= tl.load(scale + j * STEP).to(tl.float32)
    if X_STEP >= 0:
        total *= tl.load(x_scale + i * X_STEP).to(tl.float32)
    return total


# Assembly without an instruction, whose result is its operand.
NOTHING = tl.constexpr("// $0") if tl else ""


@jit
def finished(sums, FINISH: tl.constexpr):
    """Return *sums* after the tensor cores have written them.

    ptxas runs products one by one if their first factor is in registers and a step of the loop ends
    before its products do (its message C7515).
    """
    if FINISH:
        sums = tl.inline_asm_elementwise(
            NOTHING, "=r,0", [sums], dtype=sums.dtype, is_pure=True, pack=1
        )
    return sums


@jit
def packed_step(
    sums,
    x,
    weight,
    scales,
    at,
    line,
    row,
    width,
    GROUP: tl.constexpr,
    FACTOR: tl.constexpr,
    FAST: tl.constexpr,
):
    """Add the products of the bytes *at* columns of a tile, whose halves are two tiles of codes."""
    codes = weight.load([row, at])
    right = x.load([line, at]).to(FACTOR).T
    upper = x.load([line, width + at]).to(FACTOR).T
    scales += at // GROUP
    first = tl.load(scales).to(FACTOR)[:, None]
    second = tl.load(scales + width // GROUP).to(FACTOR)[:, None]
    low, high = half_operands(codes, FACTOR, FAST)
    sums = tl.dot(low * first, right, sums, input_precision="ieee")
    return tl.dot(high * second, upper, sums, input_precision="ieee")


@jit
def wide_kernel(
    x,
    weight,
    scale,
    x_scale,
    y,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PROMOTE: tl.constexpr,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    STEP: tl.constexpr,
    X_STEP: tl.constexpr,
    FACTOR: tl.constexpr,
    FAST: tl.constexpr,
    FINISH: tl.constexpr,
):
    """Compute a tile (BM, BN) of y in each program; x and weight are tensor descriptors.

    Elements beyond a matrix are read as zeros. BK divides GROUP, and k/2 of bytes of int4.
    """
    tile, column = place(tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN), 8)
    line, row = tile * BM, column * BN
    j = (row + tl.arange(0, BN)).to(tl.int64)
    inner = tl.minimum(j, n - 1)
    sums = tl.zeros((BN, BM), tl.int32 if KIND == 2 else tl.float32)
    total = sums
    width = k // 2 if KIND == 1 else k
    for at in range(0, width, BK):
        if KIND == 1:
            scales = scale + inner * (k // GROUP)
            sums = packed_step(sums, x, weight, scales, at, line, row, width, GROUP, FACTOR, FAST)
        elif KIND == 2:
            sums = tl.dot(weight.load([row, at]), x.load([line, at]).T, sums, out_dtype=tl.int32)
        else:
            codes = operand(weight.load([row, at]), FACTOR, FAST)
            right = x.load([line, at]).to(FACTOR).T
            sums = tl.dot(codes, right, sums, input_precision="ieee")
        if PROMOTE > 0:
            if (at + BK) % PROMOTE == 0:
                total += sums
                sums = tl.zeros((BN, BM), tl.float32)
        else:
            sums = finished(sums, FINISH)
    if PROMOTE > 0:
        sums += total
    i = (line + tl.arange(0, BM)).to(tl.int64)[:, None]
    j, inner, outer = j[None, :], inner[None, :], tl.minimum(i, m - 1)
    result = scaled(sums.T, scale, x_scale, outer, inner, STEP, X_STEP)
    tl.store(y + i * n + j, result.to(y.dtype.element_ty), (i < m) & (j < n))


@jit
def restore_kernel(
    weight,
    scale,
    restored,
    width,
    group,
    PACKED: tl.constexpr,
    FAST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the weights of BLOCK codes of a row, or of BLOCK bytes times their scales."""
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    codes = tl.load(weight + row * width + at, inside, 0)
    dtype: tl.constexpr = restored.dtype.element_ty
    if PACKED:
        low, high = half_factors(codes, dtype, FAST)
        scales = scale + row * (2 * width // group)
        low *= tl.load(scales + at // group, inside, 0.0).to(dtype)
        high *= tl.load(scales + (width + at) // group, inside, 0.0).to(dtype)
        restored += row * 2 * width + at
        tl.store(restored, low, inside)
        tl.store(restored + width, high, inside)
    else:
        tl.store(restored + row * width + at, factors(codes, dtype, FAST), inside)


def wide_tiles(x: torch.Tensor, point: Point) -> list[Tile]:
    """Return the tiles for *x* (m, k) as it is multiplied; none where TMA cannot move them."""
    rows = x.element_size() * point.k, bytes_of_row(point)
    if not has_tma(x.device) or x.element_size() > 2 or any(size % ROW_ALIGNMENT for size in rows):
        return []
    every = (dict(zip(KEYS, tile, strict=True)) for tile in TILES[format_of(point)])
    return [tile for tile in every if suits(tile, point)]


def bytes_of_row(point: Point) -> int:
    """Return the bytes of a row of W, as TMA reads it."""
    kind, k = format_of(point), int(point.k)
    return k // 2 if kind == "int4" else k * itemsize(point.dtype) if kind == AS_X else k


def suits(tile: Tile, point: Point) -> bool:
    """Return whether *tile* has about as many rows as y, or many, and is within a group of int4."""
    m, k, group = int(point.m), int(point.k), group_of(point)
    if tile["RESTORE"]:
        return m >= RESTORED_FROM
    if format_of(point) == "int4" and (group % tile["BK"] or k // 2 % group):
        return False
    return min(m, LARGEST_HEIGHT) <= 2 * tile["BM"] and tile["BM"] < 2 * m


def wide_call(
    x: torch.Tensor, x_scale: Any, inputs: Inputs, point: Point, y: torch.Tensor, tile: Tile
) -> Call:
    """Return the call of `wide_kernel`, after that of `restore_kernel` if the tile says so."""
    from triton.tools.tensor_descriptor import TensorDescriptor  # `import triton` does not load it

    m, n, k, depth = point.m, point.n, point.k, tile["BK"]
    weight, scale, kind = inputs["weight"], inputs.get("scale"), KINDS.get(format_of(point), PLAIN)
    restore: Callable[[], Any] | None = None
    if tile["RESTORE"]:
        weight = torch.empty((n, k), dtype=x.dtype, device=x.device)
        restore = restore_call(inputs, point, weight)
        scale, kind = None if kind == PACKED else scale, PLAIN
    constants = {name: tile[name] for name in ("BM", "BN", "BK", "PROMOTE")}
    constants |= {"num_warps": tile["warps"], "num_stages": tile["stages"]}
    constants |= steps(scale, x_scale, kind) | wide_product(x, weight, point, kind)
    blocks = ((x, tile["BM"]), (weight, tile["BN"]))
    moved = [TensorDescriptor.from_tensor(whole, [rows, depth]) for whole, rows in blocks]
    # A kernel without scales gets x in their place, and does not read it.
    operands = (*moved, *(x if some is None else some for some in (scale, x_scale)), y, m, n, k)
    grid = (triton.cdiv(m, tile["BM"]) * triton.cdiv(n, tile["BN"]),)

    def call() -> torch.Tensor:
        if restore is not None:
            restore()
        wide_kernel[grid](*operands, **constants)
        return y

    return call


def steps(scale: Any, x_scale: Any, kind: int) -> dict[str, int]:
    """Return the distances of the scales of rows that a result is multiplied with; −1: none."""
    return {
        "STEP": -1 if scale is None or kind == PACKED else min(1, scale.dim()),
        "X_STEP": -1 if x_scale is None else x_scale.dim(),
    }


def wide_product(x: torch.Tensor, weight: torch.Tensor, point: Point, kind: int) -> dict[str, Any]:
    """Return how `wide_kernel` multiplies the codes of *weight*."""
    factor = factor_dtype(x)
    converts = kind != WHOLE and weight.dtype != x.dtype
    return {
        "KIND": kind,
        "GROUP": group_of(point) if kind == PACKED else 1,
        "FACTOR": factor,
        "FAST": PTX and converts and factor is tl.bfloat16,
        "FINISH": PTX and converts,
    }


def restore_call(inputs: Inputs, point: Point, restored: torch.Tensor) -> Callable[[], Any]:
    """Return the call that writes the weights to *restored*, those of int8 without their scale."""
    weight, packed = inputs["weight"], format_of(point) == "int4"
    width = weight.shape[1]
    block = min(RESTORED, triton.next_power_of_2(width))
    constants = {"PACKED": packed, "FAST": PTX and restored.dtype == torch.bfloat16}
    grid = (triton.cdiv(width, block), len(weight))
    operands = (weight, inputs["scale"], restored, width, group_of(point))
    return lambda: restore_kernel[grid](*operands, **constants, BLOCK=block)


def factor_dtype(x: torch.Tensor) -> Any:
    """Return the dtype in which *x* and the weights are multiplied.

    Triton's interpreter multiplies floating-point numbers of under 32 bits wrongly, or not at all.
    """
    if INTERPRETED and x.is_floating_point():
        return tl.float32
    return {
        torch.float32: tl.float32,
        torch.bfloat16: tl.bfloat16,
        torch.float16: tl.float16,
        torch.float8_e4m3fn: tl.float8e4nv,
        torch.int8: tl.int8,
    }[x.dtype]
