"""Provide Gluon, Triton's language of explicit layouts, to kernels for Hopper.

Without Triton, or with one before 3.6, `gl` is None and `gluon_jit` returns functions unchanged.
Gluon has no interpreter, so that its kernels run on a GPU only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuperf.jit import INTERPRETED

__all__ = ["TensorDescriptor", "builtin", "constexpr_function", "fence_async_shared", "gl"]
__all__ += [
    "gluon_jit",
    "lacks_gluon",
    "mbarrier",
    "thread_barrier",
    "tma",
    "warpgroup_mma",
    "warpgroup_mma_wait",
]

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
