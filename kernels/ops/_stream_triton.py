"""Triton kernels of `stream.py`: copy, fill, triad and row sums, with a block in each program."""

from __future__ import annotations

from gpuperf.jit import jit, tl


@jit
def copy_kernel(y: tl.tensor, x: tl.tensor, n: tl.tensor, BLOCK: tl.constexpr) -> None:
    """Copy BLOCK elements in each program."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n), i < n)


@jit
def write_kernel(y: tl.tensor, n: tl.tensor, BLOCK: tl.constexpr) -> None:
    """Write BLOCK elements in each program."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.full((BLOCK,), 1.0, tl.float32).to(y.dtype.element_ty), i < n)


@jit
def triad_kernel(
    c: tl.tensor, a: tl.tensor, b: tl.tensor, scale: tl.tensor, n: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """Compute BLOCK elements in each program, in fp64 if c is fp64, else in fp32."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    left, right = tl.load(a + i, i < n), tl.load(b + i, i < n)
    if c.dtype.element_ty != tl.float64:
        left, right = left.to(tl.float32), right.to(tl.float32)
    tl.store(c + i, (left + scale * right).to(c.dtype.element_ty), i < n)


@jit
def read_kernel(y: tl.tensor, x: tl.tensor, n: tl.tensor, BLOCK: tl.constexpr) -> None:
    """Sum a row in each program, BLOCK elements at a time."""
    x += tl.program_id(0).to(tl.int64) * n
    i = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), y.dtype.element_ty)
    for start in range(0, n, BLOCK):
        sums += tl.load(x + start + i, start + i < n, 0.0)
    tl.store(y + tl.program_id(0), tl.sum(sums, 0))
