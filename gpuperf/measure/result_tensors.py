"""Refuse a result by the type, dtype, device and memory of its tensors, or for changed inputs.

`checks` compares the numbers of a result, and would miss these: a subclass of `Tensor` that
computes only when it is read, an expanded tensor, whose elements share one address, and a result of
a shorter dtype, which has a wider tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from gpuperf.measure.checks import dtype_name
from gpuperf.measure.deviation import UNIT_ROUNDOFF, WrongResult
from gpuperf.measure.inputs import torch_dtype
from gpuperf.measure.result_shape import tensors_of
from gpuperf.model.workload import Implementation, Point, Workload

CHUNK = 2**24  # elements compared at a time
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def refuse_bad_tensors(
    workload: Workload,
    point: Point,
    inputs: Mapping[str, Any],
    output: Any,
    device: torch.device,
    implementation: Implementation | None = None,
) -> None:
    """Check everything about *output* except its numbers. Raises: WrongResult."""
    of_point = implementation.on_host if implementation else None
    on_host = of_point(point) if of_point else workload.on_host
    for tensor in tensors_of(output):
        if type(tensor) is not torch.Tensor:
            kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
            raise WrongResult(f"is a {kind}, a subclass of torch.Tensor that may compute when read")
        _refuse_place(tensor, "cpu" if on_host else device.type)
        _refuse_dtype(workload, point, tensor)
        if overlaps_itself(tensor):
            raise WrongResult(
                f"has several elements at one address (strides {tuple(tensor.stride())})"
            )
        for name, value in inputs.items():
            allowed = name in workload.mutated(point) or name in workload.aliases
            if not allowed and isinstance(value, torch.Tensor) and share_memory(tensor, value):
                raise WrongResult(
                    f"lies in the memory of the input {name!r}",
                    f'write to memory of its own, or let the Workload declare aliases=("{name}",)',
                )


def refuse_changed_inputs(
    workload: Workload, point: Point, inputs: Mapping[str, Any], before: Mapping[str, Any]
) -> None:
    """Compare *inputs* bit by bit with *before*. Raises: WrongResult for an undeclared change."""
    for name, value in inputs.items():
        if name in workload.mutated(point) or not isinstance(value, torch.Tensor):
            continue
        if not _same_bits(value, before[name]):
            raise WrongResult(
                f"came with a change of the input {name!r}, which the workload does not declare",
                f'leave the input as it is, or let the Workload declare mutates=("{name}",)',
            )


def share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether the address ranges of two tensors overlap, even if their storages differ."""
    if not a.numel() or not b.numel() or a.device != b.device:
        return False
    (a_start, a_end), (b_start, b_end) = _extent(a), _extent(b)
    return a_start < b_end and b_start < a_end


def is_an_input(output: Any, inputs: Mapping[str, Any]) -> bool:
    """Return whether the result shares the memory of an input, as when changed in place."""
    given = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
    return any(share_memory(tensor, value) for tensor in tensors_of(output) for value in given)


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Return whether two elements of *tensor* may share an address, as those of `expand` do."""
    reach = 0
    axes = zip(tensor.stride(), tensor.shape, strict=True)
    for stride, size in sorted((stride, size) for stride, size in axes if size > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    axes = zip(tensor.stride(), tensor.shape, strict=True)
    reach = 1 + sum(stride * (size - 1) for stride, size in axes)
    return tensor.data_ptr(), tensor.data_ptr() + reach * tensor.element_size()


def _refuse_place(tensor: torch.Tensor, right: str) -> None:
    if tensor.layout != torch.strided:
        raise WrongResult(f"has the layout {tensor.layout} in place of dense strides")
    if tensor.device.type != right:
        raise WrongResult(f"is on the device {tensor.device}, and {right!r} is right")


def _refuse_dtype(workload: Workload, point: Point, tensor: torch.Tensor) -> None:
    """Require the declared dtype, or a float dtype at least as fine as that of the case.

    Otherwise an implementation could choose its own tolerance. Raises: WrongResult.
    """
    declared = workload.result(point)
    if declared:
        if tensor.dtype != torch_dtype(declared):
            raise WrongResult(f"has the dtype {tensor.dtype}, and {declared} is right")
        return
    dtype, returned = str(point["dtype"]), dtype_name(tensor.dtype)
    if dtype not in UNIT_ROUNDOFF or not tensor.dtype.is_floating_point:
        return
    stored = "fp32" if dtype == "tf32" else dtype  # tf32 is a way to multiply tensors of fp32
    if returned is None or UNIT_ROUNDOFF[returned] > UNIT_ROUNDOFF[stored]:
        raise WrongResult(
            f"has the dtype {tensor.dtype} in a case of {dtype}, whose tolerance is narrower",
            f"return {dtype}, or let the Workload declare result=lambda point: "
            f'"{returned or "its dtype"}"',
        )


def _same_bits(value: torch.Tensor, before: torch.Tensor) -> bool:
    return all(bool(torch.equal(a, b)) for a, b in _bit_pieces(value, before))


def _bit_pieces(
    value: torch.Tensor, before: torch.Tensor
) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """Return pieces of both tensors, some leading rows each, as integers: a NaN equals itself."""
    if value.is_complex():
        value, before = torch.view_as_real(value), torch.view_as_real(before)
    if value.dtype.is_floating_point:
        bits = BITS[value.dtype.itemsize]
        value, before = value.detach().view(bits), before.detach().view(bits)
    if not value.dim() or not value.numel():
        return [(value, before)]
    rows = max(1, CHUNK // max(1, math.prod(value.shape[1:])))
    return zip(value.split(rows), before.split(rows), strict=True)
