"""Make the input tensors of a workload.

A workload's `inputs` function receives `make(shape, dtype)`: one that draws a tensor on the device,
or one that only counts bytes, so that a size too large for memory is refused before allocation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from gpuperf.model.contract import Data
from gpuperf.model.workload import Draw
from gpuperf.units import itemsize

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
EXTREME = 64.0  # factor of normal numbers, which then reach 200; exp overflows at 88 (fp16: 11)
PART = 8  # `renew_part` renews one element of this many
UNIFORM_INTEGER, SMALL_INTEGER = 127.0, 8  # largest integer of `uniform` data, and of `ints`


class TooLarge(Exception):
    """No tensor of this shape can exist."""


def torch_dtype(dtype: str) -> torch.dtype:
    """Return torch's dtype for the name *dtype*. Raises: ValueError when unknown."""
    itemsize(dtype)
    return _TORCH[dtype]


def bind_make(
    device: torch.device, seed: int, data: Data = "randn", draw: Draw | None = None
) -> Callable[..., torch.Tensor]:
    """Return a `make(shape, dtype, high=None)` that draws *data* on *device*, from *seed*.

    `randn` is standard normal (integers: sigma 32), `uniform` in [−1, 1] (integers: −127 … 127),
    `ints` whole numbers from −8 to 8. With `high`, integers are uniform from 0 to high − 1, as
    indices are; `bool` is true or false with equal chance. With a *draw*, floating-point tensors of
    two axes and more get harsher values (see `Workload.draws`).
    """
    generator = torch.Generator(device=device).manual_seed(seed)

    def make(shape: tuple[int, ...], dtype: str, high: int | None = None) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=torch_dtype(dtype), device=device)
        if high is not None and tensor.dtype != torch.bool:
            _check_high(high, tensor.dtype)
        most = 2 if tensor.dtype == torch.bool else high
        if most is None or data == "zeros":
            _fill(tensor, generator, data)
            if draw is not None and tensor.is_floating_point() and tensor.dim() > 1:
                _make_harsh(tensor, generator, draw)
        else:
            tensor.random_(0, most, generator=generator)
        return tensor

    return make


def _check_high(high: int, dtype: torch.dtype) -> None:
    if dtype.is_floating_point:
        raise ValueError(f"high={high} is for integers, and the dtype is {dtype}")
    if not 0 < high <= torch.iinfo(dtype).max + 1:
        raise ValueError(f"high={high} is not from 1 to the largest {dtype}")


class ByteCounter:
    """A `make` that counts bytes and allocates nothing."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self, shape: tuple[int, ...], dtype: str, high: int | None = None) -> torch.Tensor:
        self.bytes += math.prod(shape) * itemsize(dtype)
        try:
            return torch.empty(shape, dtype=torch_dtype(dtype), device="meta")
        except (RuntimeError, TypeError):
            raise TooLarge from None


def refill(
    inputs: Mapping[str, Any], fresh: Mapping[str, Any], silent: Collection[str] = ()
) -> None:
    """Copy the values of *fresh* into *inputs*, to which a call is bound.

    A tensor whose elements share memory (`expand`) is filled through the tensor that it expands.
    The `_version` of the inputs named in *silent* does not change.
    """
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            target, source = value, fresh[name]
            for axis, stride in enumerate(value.stride()):
                if stride == 0 and value.shape[axis] > 1:
                    target = target.narrow(axis, 0, 1)
                    source = source.narrow(axis, 0, 1)
            if name in silent and not target.is_inference():
                with torch.autograd._unsafe_preserve_version_counter(target):
                    target.copy_(source)
            else:
                target.copy_(source)


def renew_part(
    fresh: Mapping[str, Any], old: Mapping[str, Any], made: Collection[int], seed: int
) -> None:
    """Overwrite *fresh* with *old* except an eighth of each tensor, at a place drawn from *seed*.

    The first element is always an old one, so a call that recognises its inputs by one element, and
    returns a stored result, returns a wrong one. Only tensors that `make` returned (with addresses
    in *made*) are mixed: a mixture of two derived tensors may be no valid input.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, value in fresh.items():
        if not isinstance(value, torch.Tensor) or value.data_ptr() not in made:
            continue
        target, source = _in_memory_order(value), _in_memory_order(old[name])
        if target is None or source is None or len(target) < 2:
            continue
        length = max(1, len(target) // PART)
        start = 1 + int(torch.randint(len(target) - length, (1,), generator=generator).item())
        target[:start] = source[:start]
        target[start + length :] = source[start + length :]


def _in_memory_order(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the elements of *tensor* as a vector; None where its memory has gaps."""
    axes = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))
    ordered = tensor.permute(axes)
    return ordered.view(-1) if ordered.is_contiguous() else None


def _make_harsh(tensor: torch.Tensor, generator: torch.Generator, draw: Draw) -> None:
    """Scale and shift each row of *tensor* at random, or scale all to values whose exp overflows.

    *draw* is `offset` for the first, `extreme` for the second.
    """
    if draw == "extreme":
        tensor.mul_(EXTREME)
        return
    shape = (*tensor.shape[:-1], 1)
    scale, moved = (torch.empty(shape, dtype=torch.float32, device=tensor.device) for _ in range(2))
    scale.uniform_(-6, 6, generator=generator).exp2_()
    moved.normal_(0, 8, generator=generator)
    rows = max(1, (1 << 26) // max(1, tensor[0].numel()))
    for part, by, to in zip(tensor.split(rows), scale.split(rows), moved.split(rows), strict=True):
        part.copy_(part.float() * by + to)


def _fill(tensor: torch.Tensor, generator: torch.Generator, data: Data) -> None:
    """Fill *tensor* with values of *data*; a dtype that cannot draw them is rounded from fp32."""
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
