"""Is the result right? Asked before any time is taken.

The result is held against the workload's float64 reference, computed from the same (already
rounded) inputs. Inputs are drawn afresh and the first call's output is poisoned before the checked
call, so that neither a cached result nor an unwritten output can pass.

Tolerance. The error of an element is taken relative to the largest of |reference| and of the
reference's rms: over all, over its row, and over its row in all heads and batches; a sum that
happens to cancel is no more exact than its neighbours. (Under a causal mask the first rows, of few
keys, are far larger than the rest; and of two keys, a head's gradients may cancel to nothing.)
Four roundings count, with u the unit roundoff of a dtype (half the spacing at 1):

- the output's own, u_out, and at most three more of the same size where partial sums are kept in
  the output's dtype (cuBLAS's split-K): 4·u_out;
- the sum's: n terms of random sign accumulate an error of about u_acc·√(n/2) of the rms (each of n
  partial sums of size √j adds one rounding); over many elements the worst is some six standard
  deviations out: 6·√n·u_acc. A dropped term changes an element by about 1/√n of the rms, far above
  it in fp32;
- that of results in between, where an implementation keeps them in the output's dtype (eager
  attention its scores and shares): 4·u_out each;
- the inputs', where the hardware rounds them to a shorter dtype (tf32): 6·u_in.

Integers must be exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gpuperf.model.record import Check
from gpuperf.model.workload import Implementation, Point, Workload

__all__ = [
    "UNIT_ROUNDOFF", "WrongResult", "compare", "dtype_name", "poison", "tensors_of", "tolerance",
]  # fmt: skip

# Of a big result so many rows are compared, and rows enough to hold so many elements.
ROWS = 32
ELEMENTS = 2**12

# An error so many times the tolerance may be rounding that the workload does not declare.
NEARLY = 100.0
WIDEN = (
    "nothing was timed; if this is rounding, the Workload declares how much: terms=lambda point: "
    "addends of one element, roundings=lambda point: results in between kept in the output's dtype"
)

# Half the spacing of numbers just above 1: 2^-p with p bits of significand, the hidden one counted.
UNIT_ROUNDOFF = {
    "fp64": 2.0**-53, "fp32": 2.0**-24, "tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8,
    "fp8": 2.0**-4,
}  # fmt: skip

_TORCH_NAME = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
}


def dtype_name(dtype: torch.dtype) -> str | None:
    """Our name of a floating *dtype*; None for another."""
    return _TORCH_NAME.get(dtype)


class WrongResult(Exception):
    """The result is not what the reference says; the message says how it differs."""

    def __init__(self, message: str, hint: str = "nothing was timed") -> None:
        super().__init__(message)
        self.hint = hint


def tolerance(
    output: str, accumulate: str, terms: int, rounds_inputs_to: str = "", roundings: int = 0
) -> float:
    """The largest relative error allowed; see the module's derivation."""
    return (
        4 * (1 + roundings) * UNIT_ROUNDOFF[output]
        + 6 * math.sqrt(terms) * UNIT_ROUNDOFF[accumulate]
        + (6 * UNIT_ROUNDOFF[rounds_inputs_to] if rounds_inputs_to else 0.0)
    )


def poison(output: Any) -> None:
    """Overwrite an earlier output with NaN (integers: the least value), in place."""
    for tensor in tensors_of(output):
        if tensor.dtype.is_floating_point:
            tensor.fill_(math.nan)
        elif tensor.dtype == torch.bool:
            tensor.logical_not_()
        else:
            tensor.fill_(torch.iinfo(tensor.dtype).min)


def compare(
    workload: Workload,
    point: Point,
    inputs: Mapping[str, Any],
    output: Any,
    accumulate: str,
    pick: Callable[[int, int], torch.Tensor],
    implementation: Implementation | None = None,
) -> Check:
    """Hold *output* against the reference of *inputs* (as they were before the call).

    `pick(count, n)` draws *count* row numbers below *n*. Raises: WrongResult.
    """
    outputs = tensors_of(output)
    rows = _rows(outputs[0]) if workload.narrow is not None and outputs else 0
    if workload.narrow is not None and rows:
        _check_whole(workload, point, inputs, outputs)
        chosen = pick(rows, outputs[0].shape[0])
        chosen[0], chosen[-1] = 0, outputs[0].shape[0] - 1  # where a kernel's tail goes wrong
        inputs = workload.narrow(inputs, chosen)
        outputs = [tensor[chosen] for tensor in outputs]
    references = tensors_of(workload.reference(inputs, point))
    _check_count(outputs, references)
    checks = [
        _compare_one(workload, point, got, want, accumulate, implementation)
        for got, want in zip(outputs, references, strict=True)
    ]
    worst = max(checks, key=lambda c: c.error / max(c.tolerance, 1e-300))
    if not worst.error <= worst.tolerance:
        raise WrongResult(
            f"differs from the float64 reference by {worst.error:.3g} of the values' size, "
            f"over the tolerance of {worst.tolerance:.3g}",
            WIDEN if worst.error <= NEARLY * worst.tolerance else "nothing was timed",
        )
    return worst


def _rows(output: torch.Tensor) -> int:
    """How many rows of *output* are compared; 0 where it is small enough to take whole."""
    if output.dim() == 0:
        return 0
    total = output.shape[0]
    rows = max(ROWS, math.ceil(ELEMENTS * total / max(1, output.numel())))
    return rows if rows < total else 0


def _check_whole(
    workload: Workload, point: Point, inputs: Mapping[str, Any], outputs: list[torch.Tensor]
) -> None:
    """What a few rows cannot show: the shape of it all, and NaN (or poison) anywhere.

    The shape is the reference's on meta tensors, which costs nothing.
    """
    shapes = {
        name: value.to("meta") if isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
    }
    references = tensors_of(workload.reference(shapes, point))
    _check_count(outputs, references)
    for got, want in zip(outputs, references, strict=True):
        _check_shape(got, want)
        # amax hands NaN on and needs no memory; torch has none for one-byte floats.
        scannable = got.dtype.is_floating_point and got.dtype.itemsize > 1 and got.numel()
        if scannable and torch.isnan(got.amax()):
            raise WrongResult("has elements that are NaN or were left unwritten")


def _check_count(outputs: list[torch.Tensor], references: list[torch.Tensor]) -> None:
    if len(outputs) != len(references):
        raise WrongResult(f"is {len(outputs)} tensors where the reference is {len(references)}")


def _check_shape(got: torch.Tensor, want: torch.Tensor) -> None:
    if got.shape != want.shape:
        raise WrongResult(f"has the shape {tuple(got.shape)} where {tuple(want.shape)} is right")


def _compare_one(
    workload: Workload,
    point: Point,
    got: torch.Tensor,
    want: torch.Tensor,
    accumulate: str,
    implementation: Implementation | None,
) -> Check:
    _check_shape(got, want)
    got = got.to(want.device)
    rows = got.shape[0] if got.dim() else 1
    if not got.dtype.is_floating_point:
        error = (got.double() - want.double()).abs().max().item() if got.numel() else 0.0
        return Check(error=error, tolerance=0.0, rows=rows)
    name = dtype_name(got.dtype)
    if name is None:
        raise WrongResult(f"has the dtype {got.dtype}, which no tolerance is known for")
    roundings = implementation.roundings if implementation is not None else None
    allowed = tolerance(
        name, accumulate or _usual_sum(workload, name), workload.terms_of(point),
        workload.rounds_inputs_to(point), (roundings or workload.roundings_of)(point),
    )  # fmt: skip
    values, want = got.double(), want.double()
    unwritten = int(torch.isnan(values).sum().item() - torch.isnan(want).sum().item())
    if unwritten > 0:
        raise WrongResult(f"left {unwritten} of {values.numel()} checked elements NaN or unwritten")
    if not values.numel():
        return Check(error=0.0, tolerance=allowed, rows=rows)
    # An infinity or a NaN of the reference (a masked row's log-sum-exp) has to be met exactly.
    finite = torch.isfinite(want)
    met = (values == want) | (torch.isnan(values) & torch.isnan(want))
    rms = torch.where(finite, want, 0.0).square().sum() / finite.sum().clamp_min(1)
    size = want.abs().clamp_min(1e-300).clamp_min(rms.sqrt())
    if want.dim() > 1:
        row = torch.where(finite, want, 0.0).square().mean(-1, keepdim=True)
        alike = row.mean([dim for dim in range(want.dim()) if dim != want.dim() - 2], keepdim=True)
        size = size.maximum(row.sqrt()).maximum(alike.sqrt())
    error = torch.where(met, 0.0, torch.where(finite, (values - want).abs() / size, math.inf))
    return Check(error=error.max().item(), tolerance=allowed, rows=rows)


def _usual_sum(workload: Workload, output: str) -> str:
    """The dtype of sums where the cost names none: the output's; for a workload that says nothing
    of its rounding at least fp32, as libraries keep them."""
    if workload.declares_rounding or output == "fp64":
        return output
    return "fp32"


def tensors_of(output: Any) -> list[torch.Tensor]:
    """The tensors of a result. Raises: WrongResult for anything else."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, tuple | list) and all(isinstance(t, torch.Tensor) for t in output):
        return list(output)
    raise WrongResult(f"is a {type(output).__name__}, not a tensor or a tuple of tensors")
