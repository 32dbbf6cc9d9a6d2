"""Where do a workload's tensors come from?

`make(shape, dtype)` is what a workload's `inputs` function is given: bound to device, seed and
data, or only counting bytes, so that a size that cannot fit is refused before it is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gpuperf.units import itemsize

__all__ = ["Counter", "TooLarge", "bind_make", "refill", "torch_dtype"]

_TORCH = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
    "int8": torch.int8,
    "int32": torch.int32,
}

# Integers are drawn from a rounded normal distribution that fills int8 without clipping much.
INTEGER_SIGMA = 32.0


class TooLarge(Exception):
    """No tensor of this shape can exist."""


def torch_dtype(dtype: str) -> torch.dtype:
    """torch's name of *dtype*. Raises: ValueError when unknown."""
    itemsize(dtype)
    return _TORCH[dtype]


def bind_make(
    device: torch.device, seed: int
) -> Callable[[tuple[int, ...], str], torch.Tensor]:
    """A `make` that draws standard-normal values on *device*, from *seed*."""
    generator = torch.Generator(device=device).manual_seed(seed)

    def make(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=torch_dtype(dtype), device=device)
        _fill(tensor, generator)
        return tensor

    return make


class Counter:
    """A `make` that allocates nothing and counts."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        self.bytes += math.prod(shape) * itemsize(dtype)
        try:
            return torch.empty(shape, dtype=torch_dtype(dtype), device="meta")
        except (RuntimeError, TypeError):
            raise TooLarge from None


def refill(inputs: Mapping[str, Any], fresh: Mapping[str, Any]) -> None:
    """Put the values of *fresh* in the place of those of *inputs*, which a call is bound to.

    A tensor whose elements share memory (`expand`) is filled through what it is expanded from.
    """
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            target, source = value, fresh[name]
            for axis, stride in enumerate(value.stride()):
                if stride == 0 and value.shape[axis] > 1:
                    target = target.narrow(axis, 0, 1)
                    source = source.narrow(axis, 0, 1)
            target.copy_(source)


def _fill(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Standard-normal values; dtypes that cannot draw them are rounded from fp32 by rows."""
    if tensor.dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        tensor.normal_(generator=generator)
        return
    flat = tensor if tensor.dim() else tensor.view(1)
    rows = max(1, (1 << 26) // max(1, flat[0].numel()))  # at most 256 MiB of fp32 at once
    for start in range(0, flat.shape[0], rows):
        part = flat[start : start + rows]
        drawn = torch.empty(part.shape, dtype=torch.float32, device=tensor.device)
        drawn.normal_(generator=generator)
        if not tensor.dtype.is_floating_point:
            limits = torch.iinfo(tensor.dtype)
            drawn = (drawn * INTEGER_SIGMA).round_().clamp_(limits.min, limits.max)
        part.copy_(drawn)
