"""Reduce arrays over torch's symmetric memory, in which a GPU's kernel reads other GPUs' memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from gpuperf import Point

Inputs = Mapping[str, torch.Tensor]
ALIGNED = 16  # bytes: each rank's part is a multiple (torch's CUDASymmetricMemoryOps.cu)
DTYPES = ("fp32", "bf16")  # of torch's kernels


def lacks_symmetric(point: Point) -> str | None:
    """Return why torch's kernels over symmetric memory do not take *point*, or None."""
    try:
        import torch.distributed._symmetric_memory
    except ImportError:
        return "this torch has no symmetric memory"
    if not hasattr(torch.ops.symm_mem, "one_shot_all_reduce"):
        return "this torch has no all-reduce over symmetric memory"
    if point.operation != "sum":
        return "torch reduces by sum alone over symmetric memory"
    if point.dtype not in DTYPES:
        return f"torch reduces {' and '.join(DTYPES)} over symmetric memory, not {point.dtype}"
    if point.bytes % (ALIGNED * point.world):
        return f"the part of a rank is not a multiple of {ALIGNED} bytes"
    if not all(
        torch.cuda.can_device_access_peer(a, b)
        for a in range(point.world)
        for b in range(point.world)
        if a != b
    ):
        return "the GPUs cannot access each other's memory"
    return None


def moved(x: torch.Tensor) -> str:
    """Move *x* to symmetric memory, which all ranks do together; return the name of their group."""
    import torch.distributed._symmetric_memory as symmetric

    group: Any = dist.group.WORLD
    name = str(group.group_name)
    enabled = getattr(symmetric, "is_symm_mem_enabled_for_group", None)
    if enabled is not None and not enabled(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # newer versions need no such call
            symmetric.enable_symm_mem_for_group(name)
    buffer = symmetric.empty(x.numel(), dtype=x.dtype, device=x.device)
    buffer.copy_(x)
    symmetric.rendezvous(buffer, name)
    x.set_(buffer)
    return name


def one_shot(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
    """Build the all-reduce in which each rank reads every array."""
    x = inputs["x"]
    name = moved(x)
    return lambda: torch.ops.symm_mem.one_shot_all_reduce(x, "sum", name)


def two_shot(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
    """Build the all-reduce in which each rank reduces a part, in place."""
    x = inputs["x"]
    name = moved(x)

    def call() -> torch.Tensor:
        torch.ops.symm_mem.two_shot_all_reduce_(x, "sum", name)
        return x

    return call
