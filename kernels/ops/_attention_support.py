"""State which points each implementation of attention can run, and the reason where it cannot."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from gpuperf.kernels._gluon import lacks_gluon
from gpuperf.kernels._masks import (
    cap_of,
    dropout_of,
    has_blind_queries,
    has_documents,
    has_hidden_places,
    is_banded,
    key_count,
    mask_of,
    offset_of,
)

from gpuperf import Point
from gpuperf.jit import lacks_compiler, lacks_descriptors

FLASH_DIMS = (16, 32, 64, 128, 256)
HOPPER_DIMS = (64, 128, 256)
MOST_HEADS = 2**16 - 1  # batch · heads: CUDA's limit to the second axis of a grid


def sdpa_supports(point: Point, device: Any) -> str | None:
    """Return why torch's attention cannot run the point, or None where it can."""
    if cap_of(point):
        return "has no cap of scores"
    if mask_of(point) != "none" and has_hidden_places(point):
        return "takes a mask tensor or a causal mask, not both"
    return "gives NaN for a query without a key" if has_blind_queries(point) else None


def lacks_mask(point: Point) -> str | None:
    """Return why a kernel without a mask tensor cannot run the point, or None where it can."""
    return "takes no mask tensor" if mask_of(point) != "none" else None


def lacks_band(point: Point) -> str | None:
    """Return why a kernel without windows and documents cannot run the point, or None."""
    return "has neither windows nor documents" if is_banded(point) else None


def lacks_dropout(point: Point) -> str | None:
    """Return why a kernel without dropout cannot run the point, or None where it can."""
    return "has no dropout" if dropout_of(point) else None


def on_cuda(point: Point, device: Any) -> str | None:
    """Return why a CUDA kernel in 16 bits cannot run the point, or None where it can."""
    if device.kind != "cuda":
        return "needs an NVIDIA GPU"
    return None if point.dtype in ("bf16", "fp16") else "computes in bf16 and fp16"


def flash_2_supports(point: Point, device: Any) -> str | None:
    """Return why FlashAttention-2 in torch cannot run the point, or None where it can."""
    if reason := lacks_mask(point) or lacks_band(point):
        return reason
    return sdpa_supports(point, device) or on_cuda(point, device)


def efficient_supports(point: Point, device: Any) -> str | None:
    """Return why memory-efficient attention cannot run the point, or None; it also takes fp32."""
    if device.kind != "cuda":
        return "needs an NVIDIA GPU"
    return "takes no keys that query heads share" if point.gqa > 1 else sdpa_supports(point, device)


def cudnn_supports(point: Point, device: Any) -> str | None:
    """Return why cuDNN cannot run the point; torch calls it with an upper-left mask only."""
    if point.causal == "yes" and offset_of(point) and not is_banded(point):
        return "has no causal mask that is aligned lower right"
    return on_cuda(point, device) or sdpa_supports(point, device)


def flex_supports(point: Point, device: Any) -> str | None:
    """Return why flex_attention cannot run the point; its block mask is made when it is built."""
    if device.kind == "cpu":
        return "needs a GPU"
    return lacks_mask(point) or lacks_dropout(point) or lacks_compiler(point, device)


def flash_supports(point: Point, device: Any) -> str | None:
    """Return why gpuperf's Triton kernels cannot run the point, or None where they can."""
    if reason := lacks_mask(point) or lacks_dropout(point):
        return reason
    if point.head_dim not in FLASH_DIMS:
        return f"head-dim must be one of {', '.join(map(str, FLASH_DIMS))}"
    if point.batch * point.heads > MOST_HEADS:
        return f"takes batch · heads of at most {MOST_HEADS:,}"
    if device.kind == "cpu" and point.dtype == "bf16":
        return "Triton's interpreter does not multiply bf16"
    return lacks_descriptors(point, device)


def gluon_supports(point: Point, device: Any) -> str | None:
    """Return why gpuperf's Gluon kernels cannot run the point, or None where they can."""
    if reason := lacks_mask(point) or lacks_dropout(point) or on_cuda(point, device):
        return reason
    if point.head_dim not in HOPPER_DIMS:
        return f"head-dim must be one of {', '.join(map(str, HOPPER_DIMS))}"
    if point.head_dim == 256 and point.mode != "fwd":
        return "head-dim 256 has no backward"
    lacking: str | None = lacks_gluon(point, device)
    return lacking


def package_supports(module: str, least: int, drops: bool) -> Callable[[Point, Any], str | None]:
    """Return the `supports` of *module*, which needs compute capability *least*.0 or newer, and
    *drops* probabilities or not."""

    def supports(point: Point, device: Any) -> str | None:
        if importlib.util.find_spec(module) is None:
            return f"the package {module} is not installed"
        if reason := lacks_mask(point) or (None if drops else lacks_dropout(point)):
            return reason
        if has_documents(point):
            return "takes documents by another function"
        if point.causal == "yes" and point.align == "upper-left" and key_count(point) != point.seq:
            return "aligns a causal mask lower right"
        if reason := on_cuda(point, device):
            return reason
        too_old = int(device.capability.split(".")[0]) < least
        return f"needs compute capability {least}.0" if too_old else None

    return supports
