"""Refuses a result by its form: type, dtype, device and memory; and a call that changes its inputs.

The numbers of a result are judged in `checks`. Its form is judged first, since a subclass of
`Tensor` computes when it is read, an expanded tensor is written in one place only, and a result of
a shorter dtype would be granted that dtype's tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from gpuperf.measure.checks import dtype_name, tensors_of
from gpuperf.measure.deviation import UNIT_ROUNDOFF, WrongResult
from gpuperf.measure.inputs import torch_dtype
from gpuperf.model.workload import Point, Workload

CHUNK = 2**24  # elements compared at a time
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def refuse_form(
    workload: Workload, point: Point, inputs: Mapping[str, Any], output: Any, device: torch.device
) -> None:
    """Check everything about *output* except its numbers. Raises: WrongResult."""
    for tensor in tensors_of(output):
        if type(tensor) is not torch.Tensor:
            kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
            raise WrongResult(f"is a {kind}, a subclass of torch.Tensor that may compute when read")
        _refuse_place(workload, tensor, device)
        _refuse_dtype(workload, point, tensor)
        if overlaps_itself(tensor):
            raise WrongResult(
                f"has several elements in one place (strides {tuple(tensor.stride())})"
            )
        for name, value in inputs.items():
            allowed = name in workload.mutates or name in workload.aliases
            if not allowed and isinstance(value, torch.Tensor) and share_memory(tensor, value):
                raise WrongResult(
                    f"lies in the memory of the input {name!r}",
                    f'write to memory of its own, or let the Workload declare aliases=("{name}",)',
                )


def refuse_changed_inputs(
    workload: Workload, inputs: Mapping[str, Any], before: Mapping[str, Any]
) -> None:
    """Compare *inputs* bit by bit with *before*. Raises: WrongResult for an undeclared change."""
    for name, value in inputs.items():
        if name in workload.mutates or not isinstance(value, torch.Tensor):
            continue
        if not _same_bits(value, before[name]):
            raise WrongResult(
                f"came with a change of the input {name!r}, which the workload does not declare",
                f'leave the input as it is, or let the Workload declare mutates=("{name}",)',
            )


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the memory that two tensors reach over overlaps, whatever storage they name."""
    if not one.numel() or not other.numel() or one.device != other.device:
        return False
    (first, first_end), (second, second_end) = _extent(one), _extent(other)
    return first < second_end and second < first_end


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements of *tensor* may lie in one place, as those of `expand` do."""
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


def _refuse_place(workload: Workload, tensor: torch.Tensor, device: torch.device) -> None:
    if tensor.layout != torch.strided:
        raise WrongResult(f"has the layout {tensor.layout} in place of dense strides")
    right = "cpu" if workload.on_host else device.type
    if tensor.device.type != right:
        raise WrongResult(f"is on the device {tensor.device}, and {right!r} is right")


def _refuse_dtype(workload: Workload, point: Point, tensor: torch.Tensor) -> None:
    """A declared dtype has to be met; without one a float result is at least as fine as the case's
    dtype, so that no implementation chooses its own tolerance."""
    declared = workload.result(point)
    if declared:
        if tensor.dtype != torch_dtype(declared):
            raise WrongResult(f"has the dtype {tensor.dtype}, and {declared} is right")
        return
    asked, found = str(point["dtype"]), dtype_name(tensor.dtype)
    if asked not in UNIT_ROUNDOFF or not tensor.dtype.is_floating_point:
        return
    if found is None or UNIT_ROUNDOFF[found] > _roundoff_of_tensors(asked):
        raise WrongResult(
            f"has the dtype {tensor.dtype} in a case of {asked}: it would be held to a wider "
            "tolerance than the case's own",
            f"return {asked}, or let the Workload declare result=lambda point: "
            f'"{found or "its dtype"}"',
        )


def _roundoff_of_tensors(asked: str) -> float:
    """tf32 is a way to multiply tensors of fp32."""
    return UNIT_ROUNDOFF["fp32" if asked == "tf32" else asked]


def _same_bits(value: torch.Tensor, before: torch.Tensor) -> bool:
    return all(bool(torch.equal(a, b)) for a, b in _bit_pieces(value, before))


def _bit_pieces(
    value: torch.Tensor, before: torch.Tensor
) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """Both as integers, so that a NaN equals itself, some leading rows at a time."""
    if value.is_complex():
        value, before = torch.view_as_real(value), torch.view_as_real(before)
    if value.dtype.is_floating_point:
        bits = BITS[value.dtype.itemsize]
        value, before = value.detach().view(bits), before.detach().view(bits)
    if not value.dim() or not value.numel():
        return [(value, before)]
    rows = max(1, CHUNK // max(1, math.prod(value.shape[1:])))
    return zip(value.split(rows), before.split(rows), strict=True)
