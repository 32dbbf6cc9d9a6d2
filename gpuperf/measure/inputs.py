"""Where do a workload's tensors come from?

`make(shape, dtype)` is what a workload's `inputs` function is given: bound to device, seed and
data, or only counting bytes, so that a size that cannot fit is refused before it is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gpuperf.model.contract import Data
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
    "int64": torch.int64,
    "bool": torch.bool,
}

DRAWN = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

# `randn` in integers is a rounded normal distribution that fills int8 without clipping much.
INTEGER_SIGMA = 32.0
UNIFORM_INTEGER, SMALL_INTEGER = 127.0, 8  # the largest of `uniform` in integers, and of `ints`


class TooLarge(Exception):
    """No tensor of this shape can exist."""


def torch_dtype(dtype: str) -> torch.dtype:
    """torch's name of *dtype*. Raises: ValueError when unknown."""
    itemsize(dtype)
    return _TORCH[dtype]


def bind_make(
    device: torch.device, seed: int, data: Data = "randn"
) -> Callable[..., torch.Tensor]:
    """Return a `make(shape, dtype, high=None)` that draws *data* on *device*, from *seed*.

    `randn` is standard normal (integers: sigma 32), `uniform` in [−1, 1] (integers: −127 … 127),
    `ints` whole numbers from −8 to 8. With `high`, integers are uniform from 0 to high − 1, as
    indices are; `bool` is true or false evenly.
    """
    generator = torch.Generator(device=device).manual_seed(seed)

    def make(shape: tuple[int, ...], dtype: str, high: int | None = None) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=torch_dtype(dtype), device=device)
        most = 2 if tensor.dtype == torch.bool else _checked(high, tensor.dtype)
        if most is None or data == "zeros":
            _fill(tensor, generator, data)
        else:
            tensor.random_(0, most, generator=generator)
        return tensor

    return make


def _checked(high: int | None, dtype: torch.dtype) -> int | None:
    """*high*, where integers of *dtype* can be below it. Raises: ValueError."""
    if high is None:
        return None
    if dtype.is_floating_point:
        raise ValueError(f"high={high} is for integers, and the dtype is {dtype}")
    if not 0 < high <= torch.iinfo(dtype).max + 1:
        raise ValueError(f"high={high} is not from 1 to the largest {dtype}")
    return high


class Counter:
    """A `make` that allocates nothing and counts."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(
        self, shape: tuple[int, ...], dtype: str, high: int | None = None
    ) -> torch.Tensor:
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


def _fill(tensor: torch.Tensor, generator: torch.Generator, data: Data) -> None:
    """Values of *data*; dtypes that cannot draw them are rounded from fp32 by rows."""
    if data == "zeros" or not tensor.numel():
        tensor.zero_()
        return
    if data == "randn" and tensor.dtype in DRAWN:
        tensor.normal_(generator=generator)
        return
    flat = tensor if tensor.dim() else tensor.view(1)
    rows = max(1, (1 << 26) // max(1, flat[0].numel()))  # at most 256 MiB of fp32 at once
    for start in range(0, flat.shape[0], rows):
        part = flat[start : start + rows]
        drawn = torch.empty(part.shape, dtype=torch.float32, device=tensor.device)
        _draw(drawn, generator, data)
        if not tensor.dtype.is_floating_point:
            limits = torch.iinfo(tensor.dtype)
            scale = {"randn": INTEGER_SIGMA, "uniform": UNIFORM_INTEGER}.get(data, 1.0)
            drawn = (drawn * scale).round_().clamp_(limits.min, limits.max)
        part.copy_(drawn)


def _draw(drawn: torch.Tensor, generator: torch.Generator, data: Data) -> None:
    if data == "randn":
        drawn.normal_(generator=generator)
    elif data == "uniform":
        drawn.uniform_(-1, 1, generator=generator)
    else:
        drawn.random_(-SMALL_INTEGER, SMALL_INTEGER + 1, generator=generator)
