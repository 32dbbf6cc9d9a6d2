"""Add the shares of programs of the gradients dweight and dbias of a norm, with Triton.

The order of the sums does not change. Where the GPU offers it, the kernel starts when all programs
of the one before it have computed their last row, and waits for their sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gpuperf.jit import has_dependent_launch, jit, tl, triton

# By the least number of columns: the rows and columns of the programs' sums that a program adds at
# a time, and its warps. They are from trials on an H200.
SUMS = {32768: (32, 64, 1), 0: (32, 16, 8)}


@jit
def norm_sums_kernel(
    sums, totals, count, n, COUNT: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr
):
    """Sum sums (k, count, n) over the programs to totals (k, n), BLOCK columns in each program.

    With OVERLAP it starts before the kernel of these sums ends, and waits for its end.
    """
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    sums += tl.program_id(1) * count * n
    total = tl.zeros((COUNT, BLOCK), tl.float32)
    for start in range(0, count, COUNT):
        row = start + tl.arange(0, COUNT)[:, None]
        total += tl.load(sums + row * n + i, (row < count) & (i < n), 0.0)
    total = tl.sum(total, 0, keep_dims=True)
    tl.store(totals + tl.program_id(1) * n + i, total.to(totals.dtype.element_ty), i < n)


def sums_call(sums: torch.Tensor, totals: torch.Tensor) -> Callable[[], Any]:
    """Return the call that adds *sums* (k, count, n) of programs to *totals* (k, n)."""
    k, count, n = sums.shape
    rows, columns, warps = next(shape for least, shape in SUMS.items() if n >= least)
    grid, early = (triton.cdiv(n, columns), k), has_dependent_launch(sums.device)
    constants = {"COUNT": rows, "BLOCK": columns, "OVERLAP": early, "num_warps": warps}
    if early:
        constants["launch_pdl"] = True
    return lambda: norm_sums_kernel[grid](sums, totals, count, n, **constants)
