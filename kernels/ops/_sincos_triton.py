"""Kernel of `sincos.py` in Triton, with a reduction of the argument of its own."""

from __future__ import annotations

from typing import Any

from gpuperf.jit import jit, tl


@jit
def sine_and_cosine(x: tl.tensor) -> Any:
    """Return sin x and cos x up to their signs, by one reduction of x to [−π/4, π/4].

    The error is 1e-7 for |x| ≤ 10³ and 5e-7 up to 10⁴. The library's sin and cos reduce x twice,
    which makes the kernel compute-bound. The reduction subtracts π/2 in three parts, the first with
    few digits (Cody and Waite); the polynomials are those of Cephes (S. L. Moshier).
    """
    turns = tl.floor(x * 0.6366197723675814 + 0.5)
    r = ((x - turns * 1.5703125) - turns * 4.837512969970703e-4) - turns * 7.549789948768648e-8
    r2 = r * r
    odd = r + r * r2 * (-1.6666654611e-1 + r2 * (8.3321608736e-3 - r2 * 1.9515295891e-4))
    even = 4.166664568298827e-2 - r2 * (1.388731625493765e-3 - r2 * 2.443315711809948e-5)
    even = 1.0 - 0.5 * r2 + r2 * r2 * even
    swapped = (turns.to(tl.int32) & 1) != 0
    return tl.where(swapped, even, odd), tl.where(swapped, odd, even)


@jit
def sincos_kernel(
    x: tl.tensor, b: tl.tensor, y: tl.tensor, n: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """Compute BLOCK elements in each program, in fp64 if x is fp64, else in fp32."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, i < n, 0.0)
    if x.dtype.element_ty == tl.float64:
        sine, cosine = tl.sin(value), tl.cos(value)
    else:
        sine, cosine = sine_and_cosine(value.to(tl.float32))
    factor = tl.load(b).to(sine.dtype)
    tl.store(y + i, (sine * sine + factor * (cosine * cosine)).to(y.dtype.element_ty), i < n)
