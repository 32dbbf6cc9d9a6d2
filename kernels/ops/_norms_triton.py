"""Compute layer norm and RMS norm, and their gradients, with Triton: kernels and their launches.

Forward, each program holds rows in registers, or reads its row in pieces and again from the L1:
other programs of an SM then load while it waits for a sum. Backward, persistent programs take many
rows, with their share of dweight and dbias in registers in fp32; a second kernel adds the sums of
the programs, in an order that does not change. An SM holds both sums of rows of up to 16 Ki
elements. For longer rows one kernel computes the two means of each row, and another reads x and dy
again, by columns.

What the steps gained, in TB/s of layer norm of rows of 16 Ki elements in bf16 on H200s, where a
copy has 4.3: forward, 3.8 with rows in registers and 4.25 with rows that are read again, where
torch.compile has 4.14; backward, 2.6 with one sum of a row after the other and 4.0 with both at
once, where torch.compile has 2.0. With a residual, the backward had 3.6, and has 4.1 with a third
fewer operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from gpuperf.kernels import _rows
from gpuperf.kernels._norm_sums import sums_call
from gpuperf.kernels._rows import block_of, launch_of, programs, row_of, unpacked, widened

from gpuperf.jit import has_dependent_launch, jit, tl, triton

Inputs = Mapping[str, torch.Tensor]
Tiling = Mapping[str, int]
Call = Callable[[], Any]

EPS = 1e-5
WIDE_TILE = 4096  # elements of a tile of short rows, backward
STAGES = (1, 3)  # tiles that are computed or loaded at a time, backward
# Registers that a thread needs for each element and for anything besides: where programs load tiles
# ahead, or one tile at a time.
AHEAD, ALONE = (5, 32), (4, 0)
SPLIT = 2048  # columns of a program that does not hold whole rows
STREAMED = 8192  # elements of a row that the kernel of the means loads at a time
BACKWARD_KEYS = ("rows", "warps", "stages", "per_sm", "again", "held", "split")
# Warps, stages, programs on an SM and whether the weight is held, of candidates that convert values
# again, by the length of a row: an SM has room for their sums.
REPEATED = (
    (4096, ((4, 3, 2, 1), (4, 3, 2, 0), (4, 1, 4, 0))),
    (8192, ((8, 3, 1, 1), (16, 3, 1, 1), (4, 3, 1, 1))),
    (16384, ((8, 3, 1, 1), (16, 3, 1, 1))),
    (32768, ((16, 2, 1, 1), (32, 2, 1, 1))),
)


@jit
def added(a, b, c, d):
    """Add two pairs, element by element."""
    return a + c, b + d


@jit
def norm_kernel(
    x, residual, weight, bias, y, total, mean, rstd, m, n, stride, eps,
    CENTRED: tl.constexpr, ADDED: tl.constexpr, KEPT: tl.constexpr, FULL: tl.constexpr,
    HELD: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    AGAIN: tl.constexpr,
):  # fmt: skip
    """Normalize tiles of ROWS whole rows; programs step through the tiles by their number.

    Rows beyond the last are row m − 1 again. With ADDED the rows are x + residual, which is stored
    as *total*. With KEPT mean and rstd (m,) are stored for a backward. With FULL n is BLOCK. With
    HELD weight and bias stay in registers: a loop that loads tiles ahead would copy them for each.
    """
    i = tl.arange(0, BLOCK)[None, :]
    inside = i < (BLOCK if FULL else n)
    EARLY: tl.constexpr = not HELD and not AGAIN
    if HELD:
        w = tl.load(weight + i, inside, 0.0)
        if CENTRED:
            b = tl.load(bias + i, inside, 0.0)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = row_of(tile, m, ROWS)
        here = tl.load(x + row * stride + i, inside, 0.0, cache_modifier=".cg")
        if ADDED:
            other = tl.load(residual + row * n + i, inside, 0.0, cache_modifier=".cg")
            here = (here.to(tl.float32) + other.to(tl.float32)).to(here.dtype)
            tl.store(total + row * n + i, here, inside)
        if EARLY:  # loaded while the row is: after the sums, each row would wait for L1
            w = tl.load(weight + i, inside, 0.0, eviction_policy="evict_last")
            if CENTRED:
                b = tl.load(bias + i, inside, 0.0, eviction_policy="evict_last")
        value = here.to(tl.float32)
        if CENTRED:
            centre = tl.sum(value, 1, keep_dims=True) / n
            value = tl.where(inside, widened(here, centre, AGAIN) - centre, 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(value * value, 1, keep_dims=True) / n + eps)
        if AGAIN:
            value = widened(here, scale, AGAIN)
            if CENTRED:
                value -= centre
        if KEPT:
            tl.store(rstd + row, scale)
            if CENTRED:
                tl.store(mean + row, centre)
        if not HELD and not EARLY:  # the registers are the row's before
            w = tl.load(weight + i, inside, 0.0, eviction_policy="evict_last")
            if CENTRED:
                b = tl.load(bias + i, inside, 0.0, eviction_policy="evict_last")
        value *= scale * widened(w, scale, AGAIN and ROWS == 1)
        if CENTRED:
            value += widened(b, scale, AGAIN and ROWS == 1)
        tl.store(y + row * n + i, value.to(y.dtype.element_ty), inside)


@jit
def piece_of(x, residual, start, ADDED: tl.constexpr, POLICY: tl.constexpr):
    """Return a piece of a row, or of the sum of two, in the dtype of x."""
    piece = tl.load(x + start, eviction_policy=POLICY)
    if ADDED:
        other = tl.load(residual + start, eviction_policy=POLICY)
        piece = (piece.to(tl.float32) + other.to(tl.float32)).to(piece.dtype)
    return piece


@jit
def norm_pieces_kernel(
    x, residual, weight, bias, y, total, mean, rstd, stride, eps,
    CENTRED: tl.constexpr, ADDED: tl.constexpr, KEPT: tl.constexpr, PIECES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Normalize a row in each program, as `norm_kernel` does; n is PIECES · BLOCK.

    A row is read for its mean, if CENTRED, for its squares and for y: later mostly from the L1.
    """
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    x += row * stride + i
    residual += row * PIECES * BLOCK + i
    y += row * PIECES * BLOCK + i
    total += row * PIECES * BLOCK + i
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, PIECES * BLOCK, BLOCK):
        piece = piece_of(x, residual, start, ADDED, "evict_last")
        if ADDED:
            tl.store(total + start, piece)
        value = piece.to(tl.float32)
        sums += value if CENTRED else value * value
    if CENTRED:
        centre = tl.sum(sums, 0) / (PIECES * BLOCK)
        sums = tl.zeros((BLOCK,), tl.float32)
        for start in tl.range(0, PIECES * BLOCK, BLOCK):
            value = piece_of(x, residual, start, ADDED, "evict_last").to(tl.float32) - centre
            sums += value * value
    scale = 1.0 / tl.sqrt(tl.sum(sums, 0) / (PIECES * BLOCK) + eps)
    if KEPT:
        tl.store(rstd + row, scale)
        if CENTRED:
            tl.store(mean + row, centre)
    for start in tl.range(0, PIECES * BLOCK, BLOCK):
        value = piece_of(x, residual, start, ADDED, "evict_first").to(tl.float32)
        if CENTRED:
            value -= centre
        value *= scale * tl.load(weight + start + i, eviction_policy="evict_last").to(tl.float32)
        if CENTRED:
            value += tl.load(bias + start + i, eviction_policy="evict_last").to(tl.float32)
        tl.store(y + start, value.to(y.dtype.element_ty))


@jit
def norm_means_kernel(
    x, weight, dy, mean, rstd, means, m, n, stride, CENTRED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Compute the means (2, m) of g·u and of g of a row in each program."""
    row = tl.program_id(0).to(tl.int64)
    scale = tl.load(rstd + row)
    share = tl.zeros((BLOCK,), tl.float32)
    centre = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        steep = tl.load(dy + row * n + i, i < n, 0.0).to(tl.float32)
        steep *= tl.load(weight + i, i < n, 0.0, eviction_policy="evict_last").to(tl.float32)
        unit = tl.load(x + row * stride + i, i < n, 0.0).to(tl.float32)
        if CENTRED:
            unit -= tl.load(mean + row)
            centre += steep
        share += steep * unit * scale
    tl.store(means + row, tl.sum(share, 0) / n)
    if CENTRED:
        tl.store(means + m + row, tl.sum(centre, 0) / n)


@jit
def means_of(steep, unit, n, CENTRED: tl.constexpr):
    """Return the means of steep·unit and, with CENTRED, of steep over the rows of a tile.

    Both sums at once: rows of 16 Ki took 203 µs in place of 306 on an H200.
    """
    if CENTRED:
        share, centre = tl.reduce((steep * unit, steep), 1, added, keep_dims=True)
        return share / n, centre / n
    share = tl.sum(steep * unit, 1, keep_dims=True)
    return share / n, share * 0


@jit
def norm_backward_kernel(
    x, weight, dy, dtotal, mean, rstd, means, dx, sums, m, n, stride,
    CENTRED: tl.constexpr, ADDED: tl.constexpr, FULL: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr, AGAIN: tl.constexpr, HELD: tl.constexpr,
    GIVEN: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """Compute dx of tiles of rows, and the sums (k, programs, n) of dweight and dbias.

    With GIVEN a program has BLOCK columns, and the means of whole rows are read. With HELD the
    weight stays in registers. With ADDED the gradient *dtotal* of the rows is added to dx. With
    FULL n is a multiple of BLOCK. With OVERLAP the next kernel may start while the sums are stored.
    """
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = (i < n) | FULL
    dweight = tl.zeros((ROWS, BLOCK), tl.float32)
    dbias = tl.zeros((ROWS, BLOCK), tl.float32)
    if HELD:
        w = tl.load(weight + i, there, 0.0)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        exists = (row < m) | (ROWS == 1)
        inside = exists & there
        scale = tl.load(rstd + row, exists, 0.0)
        # In another order, without the policy, rows of 16 Ki took 1.9 times as long on an H200.
        grads = tl.load(dy + row * n + i, inside, 0.0, eviction_policy="evict_last")
        grad = unpacked(grads, scale, False)
        units = tl.load(x + row * stride + i, inside, 0.0, eviction_policy="evict_last")
        unit = unpacked(units, scale, False)
        if not HELD:
            w = tl.load(weight + i, there, 0.0, eviction_policy="evict_last")
        if CENTRED:
            middle = tl.load(mean + row, exists, 0.0)
            unit = tl.where(there, unit - middle, 0.0)
            dbias += grad
        unit *= scale
        dweight += grad * unit
        steep = grad * unpacked(w, scale, False)
        if GIVEN:
            share = tl.load(means + row, exists, 0.0)
            centre = tl.load(means + m + row, exists & CENTRED, 0.0)
        else:
            share, centre = means_of(steep, unit, n, CENTRED)
        share, centre = -share * scale, -centre * scale  # dx = steep scale + unit share + centre
        if AGAIN:  # in terms of x, of which fewer operations are computed again
            steep = unpacked(grads, share, AGAIN) * unpacked(w, share, AGAIN)
            unit = unpacked(units, share, AGAIN)
            share *= scale
            if CENTRED:
                centre -= middle * share
        slope = unit * share + (centre if CENTRED else 0.0) + steep * scale
        if ADDED:
            slope += unpacked(tl.load(dtotal + row * n + i, inside, 0.0), scale, False)
        tl.store(dx + row * n + i, slope.to(dx.dtype.element_ty), inside)
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    own = sums + tl.program_id(0) * n + i
    tl.store(own, tl.sum(dweight, 0, keep_dims=True), there)
    if CENTRED:
        tl.store(own + tl.num_programs(0) * n, tl.sum(dbias, 0, keep_dims=True), there)


class ForwardResult(NamedTuple):
    """The output y, the rows (both (m, n)), and their mean and 1/√(variance + ε), both (m,).

    The rows are x, or the sum of x and the residual.
    """

    y: torch.Tensor
    rows: torch.Tensor
    mean: torch.Tensor
    rstd: torch.Tensor


def empty_result(inputs: Inputs) -> ForwardResult:
    """Allocate the result of the forward of *inputs*."""
    x = inputs["x"]
    mean, rstd = x.new_empty((2, x.shape[0]), dtype=torch.float32)
    rows = x.new_empty(x.shape) if "residual" in inputs else x
    return ForwardResult(x.new_empty(x.shape), rows, mean, rstd)


def forward_call(
    inputs: Inputs, result: ForwardResult, tiling: Tiling, kept: bool = True
) -> Callable[[], ForwardResult]:
    """Return the call of the forward kernel: layer norm where there is a bias, else RMS norm.

    Mean and rstd are stored where they are *kept* for a backward.
    """
    x, weight, centred = inputs["x"], inputs["weight"], "bias" in inputs
    m, n = x.shape
    bias, residual = inputs.get("bias", weight), inputs.get("residual", x)
    grid, launch = (programs(tiling, x),), launch_of(tiling, n)
    y, *others = result
    launch |= {"CENTRED": centred, "ADDED": "residual" in inputs, "KEPT": kept}
    if tiling["pieces"]:
        kernel, sizes = norm_pieces_kernel, [x.stride(0)]
    else:
        kernel, sizes = norm_kernel, [m, n, x.stride(0)]
        launch |= {"FULL": n == launch["BLOCK"], "HELD": tiling["per_sm"] > 0}

    def call() -> ForwardResult:
        kernel[grid](x, residual, weight, bias, y, *others, *sizes, EPS, **launch)
        return result

    return call


def backward_tilings(n: int, size: int = 4) -> Iterator[dict[str, int]]:
    """Yield the tilings to tune among for persistent programs that fill an SM.

    *size* is the bytes of an element. With `split`, programs have SPLIT columns of each row.
    """
    block = block_of(n)
    for rows in sorted({min(_rows.MOST_ROWS, max(1, WIDE_TILE // block)), 1}, reverse=True):
        counts = {
            min(_rows.MOST_WARPS, max(1, rows * block // (32 * each))) for each in _rows.PER_THREAD
        }
        for warps in sorted(counts):
            for stages in STAGES:
                each, besides = AHEAD if stages > 1 else ALONE
                registers = besides + max(1, each * rows * block // (32 * warps))
                per_sm = max(1, _rows.REGISTERS // registers // (32 * warps))
                per_sm = min(_rows.MOST_PROGRAMS, per_sm)
                for held in (0, 1) if stages > 1 else (0,):
                    yield backward_tiling(rows, warps, stages, per_sm, 0, held, 0)
    for length, shapes in REPEATED:
        for shape in shapes if _rows.PTX and size == 2 and block == length else ():
            warps, stages, per_sm, held = shape
            yield backward_tiling(1, warps, stages, per_sm, 1, held, 0)
    if block >= _rows.WIDE_ROW:
        for rows, warps, per_sm in ((4, 8, 2), (2, 4, 4)):
            yield backward_tiling(rows, warps, 3, per_sm, 0, 1, 1)


def backward_tiling(*values: int) -> dict[str, int]:
    """Return the tiling of a backward of *values* in the order of BACKWARD_KEYS."""
    return dict(zip(BACKWARD_KEYS, values, strict=True))


def means_call(inputs: Inputs, result: ForwardResult, means: torch.Tensor) -> Call:
    """Return the call that computes the means of rows which a split backward needs."""
    rows, (m, n) = result.rows, result.rows.shape
    block = min(STREAMED, block_of(n))
    arguments = (rows, inputs["weight"], inputs["dy"], result.mean, result.rstd, means, m, n)
    constants = {"CENTRED": "bias" in inputs, "BLOCK": block, "num_warps": 16}
    return lambda: norm_means_kernel[(m,)](*arguments, rows.stride(0), **constants)


def backward_call(inputs: Inputs, result: ForwardResult, tiling: Tiling) -> Call:
    """Return the call of the backward: dx (m, n), dweight (n,) and, with a bias, dbias (n,)."""
    x, weight, dy, centred = result.rows, inputs["weight"], inputs["dy"], "bias" in inputs
    (m, n), dx, split = x.shape, x.new_empty(x.shape), tiling["split"]
    block = min(SPLIT, block_of(n)) if split else block_of(n)
    columns, means = triton.cdiv(n, block), result.rstd.new_empty((2, m))
    count = max(1, programs(tiling, x) // columns)
    sums = x.new_empty((1 + centred, count, n), dtype=torch.float32)
    totals = weight.new_empty((1 + centred, n))
    compute_means = means_call(inputs, result, means) if split else None
    constants = {name.upper(): tiling[name] for name in ("rows", "stages", "again", "held")}
    constants |= {"CENTRED": centred, "ADDED": "dtotal" in inputs, "BLOCK": block}
    constants |= {"FULL": n % block == 0, "GIVEN": bool(split), "num_warps": tiling["warps"]}
    constants["OVERLAP"] = has_dependent_launch(x.device)
    tensors = (x, weight, dy, inputs.get("dtotal", dy), result.mean, result.rstd, means, dx, sums)
    add = sums_call(sums, totals)

    def call() -> tuple[torch.Tensor, ...]:
        if compute_means is not None:
            compute_means()
        norm_backward_kernel[(count, columns)](*tensors, m, n, x.stride(0), **constants)
        add()
        return (dx, *totals)

    return call
