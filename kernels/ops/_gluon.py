"""Provide Gluon, Triton's language of explicit layouts, and what kernels for Hopper share.

Without Triton, or with one before 3.6, `gl` is None and `gluon_jit` returns functions unchanged.
Gluon has no interpreter, so that its kernels run on a GPU only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gpuperf.jit import INTERPRETED

__all__ = ["TensorDescriptor", "barriers", "builtin", "constexpr_function", "descriptor"]
__all__ += ["fast_tanh", "fence_async_shared", "gl", "gluon_jit", "lacks_gluon", "left_operand"]
__all__ += ["mbarrier", "packed", "processors_of", "sums_layout", "thread_barrier", "tma"]
__all__ += ["warpgroup_mma", "warpgroup_mma_wait"]

try:
    import triton.experimental.gluon.language as gl
    from triton.experimental import gluon
    from triton.experimental.gluon.language._core import builtin
    from triton.experimental.gluon.language.nvidia.hopper import (
        fence_async_shared,
        mbarrier,
        tma,
        warpgroup_mma,
        warpgroup_mma_wait,
    )
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    thread_barrier = getattr(gl, "thread_barrier", None) or gl.barrier  # renamed by Triton 3.7
    gluon_jit: Callable[..., Any] = gluon.jit
    constexpr_function: Callable[[Any], Any] = gluon.constexpr_function
except ImportError:
    gl = TensorDescriptor = fence_async_shared = mbarrier = tma = None
    thread_barrier = warpgroup_mma = warpgroup_mma_wait = None

    def gluon_jit(function: Any = None, **options: Any) -> Any:
        return (lambda kernel: kernel) if function is None else function

    builtin = constexpr_function = gluon_jit


def lacks_gluon(point: Any, device: Any) -> str | None:
    """Return why a Gluon kernel for Hopper cannot run on *device* (a `DeviceFacts`), or None."""
    if device.kind != "cuda" or INTERPRETED or not device.capability.startswith("9."):
        return "needs a Hopper GPU"
    return "needs Triton 3.6 or newer" if gl is None else None


@constexpr_function
def sums_layout(n):
    """Return the layout of n columns of a warpgroup's sums."""
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, n, 16])


@gluon_jit
def fast_tanh(x):
    """Return the hyperbolic tangent of x with a relative error of 2⁻¹¹."""
    return gl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], gl.float32, True, 1)


@gluon_jit
def packed(x, dtype: gl.constexpr):
    """Return x (m, n) rounded, two neighbours to an element: a loop copies halves of registers."""
    low, high = gl.split(gl.reshape(x, [x.shape[0], x.shape[1] // 2, 2]))
    KIND: gl.constexpr = "bf16x2" if dtype == gl.bfloat16 else "f16x2"
    return gl.inline_asm_elementwise(
        "cvt.rn." + KIND + ".f32 $0, $2, $1;", "=r,r,r", [low, high], gl.int32, True, 1
    )


@gluon_jit
def left_operand(x, dtype: gl.constexpr, D: gl.constexpr):
    """Return the elements that are packed in x as the left operand of products with D columns."""
    low = x.to(gl.int16).to(dtype, bitcast=True)
    high = (x >> 16).to(gl.int16).to(dtype, bitcast=True)
    both = gl.reshape(gl.join(low, high), [x.shape[0], 2 * x.shape[1]])
    return gl.convert_layout(both, gl.DotOperandLayout(0, sums_layout(D), 2), True)


@gluon_jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """Allocate COUNT barriers that complete a phase after ARRIVALS arrivals."""
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for n in gl.static_range(COUNT):
        mbarrier.init(made.index(n), count=ARRIVALS)
    return made


def descriptor(x: torch.Tensor, rows: int, columns: int = 256) -> object:
    """Return the TMA descriptor of blocks of *rows* rows and at most *columns* columns of one head
    of x (b, h, n, d)."""
    layout = gl.NVMMASharedLayout(128, 8 * x.element_size(), rank=4)
    block = [1, 1, rows, min(x.shape[3], columns)]
    return TensorDescriptor(x, list(x.shape), list(x.stride()), block, layout)


def processors_of(device: torch.device) -> int:
    """Return the number of multiprocessors of *device*."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
