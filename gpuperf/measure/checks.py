"""Compare a result with the workload's float64 reference, before any time is taken.

The reference is computed from the same (already rounded) inputs. Inputs are drawn afresh and the
first call's output is poisoned before the checked call, so that neither a cached result nor an
unwritten output can pass.

Tolerance. The error of an element is relative to the largest of four values: |reference|, and the
rms of the reference over all elements, over the element's row, and over that row in all heads and
batches; a sum that happens to cancel is no more exact than its neighbours. (Under a causal mask the
first rows, of few keys, are far larger than later rows, and the gradients of two keys in one head
may cancel to nothing.) Where addends cancel by the formula, the workload gives their size, a lower
bound of that value.
Four roundings are allowed for, with u the unit roundoff of a dtype (half the spacing at 1):

- the output's own, u_out, and at most three more of the same size where partial sums are kept in
  the output's dtype (cuBLAS's split-K): 4·u_out;
- the sum's: n terms of random sign accumulate an error of about u_acc·√(n/2) of the rms (each of n
  partial sums of size √j adds one rounding); over many elements the worst is some six standard
  deviations out: 6·√n·u_acc. A dropped term changes an element by about 1/√n of the rms, far above
  it in fp32;
- that of intermediate results, where an implementation keeps them in the output's dtype (eager
  attention its scores and softmax): 4·u_out each;
- the inputs', where the hardware rounds them to a shorter dtype (tf32): 6·u_in.

A workload that declares nothing of its rounding is allowed `APPROXIMATE` beside in fp32.

Integers must be exact, and so must be sums that the workload declares to have no terms. The root
mean square of the errors may be a quarter of the tolerance of an element (more for few elements);
that of a correct result is under an eighth.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gpuperf.errors import WorkloadError
from gpuperf.measure.deviation import UNIT_ROUNDOFF, WrongResult, check_product, deviation
from gpuperf.measure.pieces import largest_error, mean_square
from gpuperf.measure.result_shape import tensors_of, whole_reference
from gpuperf.model.record import Check
from gpuperf.model.workload import Implementation, Point, Workload

# A big result is compared on this many rows first, or on rows that hold this many elements.
ROWS = 32
ELEMENTS = 2**12
LARGE = 2**18  # elements of a result of few rows, from which on its reference takes long
# The whole result is compared next, this many elements at a time and for this many seconds.
PIECE = 2**22
WHOLE_S = 0.5

# On harsh inputs, one correct kernel may err by this many times the rounding of the inputs more
# than another (the mean of a row by Welford's algorithm and by a tree).
GRANTED = 8.0

# Libraries approximate special functions in fp32 with an absolute error: oneDNN's gelu has 1.2e-6
# on a CPU with AVX-512. A workload that declares its rounding is held to what it declares.
APPROXIMATE = 4e-6

TF32_ERRORS = 1e-4, 1e-2  # relative errors of products whose factors have 11 bits
TF32 = (
    "TF32 may be on: torch rounds the inputs of convolutions to it unless "
    "torch.backends.cudnn.allow_tf32 = False, those of matmuls if "
    "torch.backends.cuda.matmul.allow_tf32 is set"
)

UNSTEADY = 0.01  # of the rms: reordering a sum changes a result by less, a random number by more

# An error up to this many times the tolerance may be rounding that the workload does not declare.
NEARLY = 100.0
WIDEN = (
    "nothing was timed; if this is rounding, the Workload declares how much: terms=lambda point: "
    "addends of one element, roundings=lambda point: results in between kept in the output's dtype"
)

_TORCH_NAME = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
}


def dtype_name(dtype: torch.dtype) -> str | None:
    """Return gpuperf's name of a floating-point *dtype*, such as `bf16`; None for others."""
    return _TORCH_NAME.get(dtype)


def tolerance(
    output: str, accumulate: str, terms: int, rounds_inputs_to: str = "", roundings: int = 0
) -> float:
    """Return the largest relative error allowed to an element; see the module's derivation.

    *terms* are the addends of an element's sum, *roundings* the intermediate results.
    """
    return (
        4 * (1 + roundings) * UNIT_ROUNDOFF[output]
        + 6 * math.sqrt(terms) * UNIT_ROUNDOFF[accumulate]
        + (6 * UNIT_ROUNDOFF[rounds_inputs_to] if rounds_inputs_to else 0.0)
    )


def poison(output: Any) -> None:
    """Overwrite an earlier output with NaN (integers: the least value), in place.

    A tensor of another device is overwritten before this returns: calls on the current device do
    not wait for its stream.
    """
    for tensor in tensors_of(output):
        if tensor.dtype.is_floating_point:
            tensor.fill_(math.nan)
        elif tensor.dtype == torch.bool:
            tensor.logical_not_()
        else:
            tensor.fill_(torch.iinfo(tensor.dtype).min)
        if tensor.is_cuda and tensor.get_device() != torch.cuda.current_device():
            torch.cuda.synchronize(tensor.device)


def compare(
    workload: Workload,
    point: Point,
    inputs: Mapping[str, Any],
    output: Any,
    accumulate: str,
    pick: Callable[[int, int], torch.Tensor],
    implementation: Implementation | None = None,
    whole_s: float = WHOLE_S,
    harsh: bool = False,
    again: bool = False,
) -> Check:
    """Compare *output* with the reference of *inputs* (as they were before the call).

    `pick(count, n)` draws *count* row numbers below *n* on the host. A result of many rows is
    compared on some rows, and then whole: a product by Freivalds's test, another result by pieces
    in random order, for *whole_s* seconds at most. The result of *harsh* inputs is compared on some
    rows, and may also err as rounding these inputs would make it err. A result that is checked
    *again*, after its samples, is compared on some rows, or on one row of few large ones. Raises:
    WrongResult.
    """
    outputs = tensors_of(output)
    comparison = Comparison(workload, point, accumulate, implementation, harsh)
    some = _some_rows(workload, inputs, outputs, pick, again)
    if some is None:
        return comparison.whole(inputs, outputs)
    _check_whole(workload, point, inputs, outputs)
    check = comparison.rows(inputs, outputs, some)
    if workload.factors is not None and not harsh:
        allowed = comparison.allowed(outputs[0])
        check_product(*workload.factors(inputs, point), outputs[0], allowed, pick)
    elif not harsh and not again:
        began, every = time.perf_counter(), _pieces(outputs, pick)
        for rows in every:
            if time.perf_counter() - began > whole_s:
                break
            check = _worse(check, comparison.rows(inputs, outputs, rows))
    return check


@dataclass(frozen=True)
class Comparison:
    """Comparison of one implementation's results with the reference."""

    workload: Workload
    point: Point
    accumulate: str
    implementation: Implementation | None
    harsh: bool

    def rows(
        self, inputs: Mapping[str, Any], outputs: list[torch.Tensor], rows: torch.Tensor
    ) -> Check:
        """Compare *rows* (numbers along the first axis) of *outputs*. Raises: WrongResult."""
        assert self.workload.narrow is not None
        few = self.workload.narrow(inputs, rows)
        assert few is not None
        return self.whole(few, [tensor[rows] for tensor in outputs])

    def whole(self, inputs: Mapping[str, Any], outputs: list[torch.Tensor]) -> Check:
        """Compare all elements. Raises: WrongResult."""
        references = tensors_of(self.workload.reference(inputs, self.point))
        _check_count(outputs, references)
        moved = self._moved(inputs, outputs) if self.harsh else [None] * len(outputs)
        sizes_of = self.workload.sizes
        sizes = sizes_of(inputs, self.point) if sizes_of is not None else [None] * len(outputs)
        checks = []
        for got, want, shifted, size in zip(outputs, references, moved, sizes, strict=True):
            _check_shape(got, want)
            granted = None if shifted is None else _largest_of_rows(shifted, want)
            checks.append(deviation(got, want, self.allowed(got), granted, size))
        worst = max(checks, key=_share)
        refuse(worst, self.point, outputs[0].is_cuda)
        return worst

    def allowed(self, got: torch.Tensor) -> float:
        """Return the largest error allowed to an element of *got*. Raises: WrongResult."""
        exact = self.workload.terms is not None and not self.workload.terms(self.point)
        if exact or not got.dtype.is_floating_point:
            return 0.0
        name = dtype_name(got.dtype)
        if name is None:
            raise WrongResult(f"has the dtype {got.dtype}, for which no tolerance is known")
        undeclared = name == "fp32" and not self.workload.declares_rounding
        return (APPROXIMATE if undeclared else 0.0) + tolerance(
            name,
            self._sums(name),
            self.workload.terms_of(self.point),
            self.workload.rounds_inputs_to(self.point),
            self._roundings(),
        )

    def _moved(
        self, inputs: Mapping[str, Any], outputs: list[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """Return the reference of *inputs* changed by the rounding of intermediate results."""
        name = dtype_name(outputs[0].dtype) or "fp32"
        off = UNIT_ROUNDOFF[self._sums(name)] + self._roundings() * UNIT_ROUNDOFF[name]
        near = {
            key: value.double() * (1 + GRANTED * off * _signs(value))
            if isinstance(value, torch.Tensor) and value.is_floating_point()
            else value
            for key, value in inputs.items()
        }
        return [*tensors_of(self.workload.reference(near, self.point))]

    def _roundings(self) -> int:
        roundings = self.implementation.roundings if self.implementation is not None else None
        return (roundings or self.workload.roundings_of)(self.point)

    def _sums(self, output: str) -> str:
        """Return the dtype of sums: that of the cost, else that of the output.

        If a workload does not declare its rounding, sums are in fp32 or fp64, as in libraries.
        """
        if self.accumulate:
            return self.accumulate
        return output if self.workload.declares_rounding or output == "fp64" else "fp32"


def refuse(check: Check, point: Point, on_gpu: bool) -> None:
    """Raise WrongResult for an error over its bound."""
    if not check.error <= check.tolerance:
        off, bound, kind = check.error, check.tolerance, ""
    elif not check.rms <= check.rms_tolerance:
        off, bound, kind = check.rms, check.rms_tolerance, ", in its root mean square,"
    else:
        return
    hint = WIDEN if off <= NEARLY * bound else "nothing was timed"
    if on_gpu and point.get("dtype") == "fp32" and TF32_ERRORS[0] <= off <= TF32_ERRORS[1]:
        hint = TF32
    raise WrongResult(
        f"differs from the float64 reference{kind} by {off:.3g} of the values' size, "
        f"over the tolerance of {bound:.3g}",
        hint,
    )


def _largest_of_rows(shifted: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Return the largest difference in each row, since one element may differ little by chance."""
    off = (shifted.double() - want.double()).abs().nan_to_num_(0.0)
    return off.amax(-1, keepdim=True) if off.dim() else off


def _signs(like: torch.Tensor) -> torch.Tensor:
    """Return ones and minus ones in the shape of *like*, the same each time."""
    count = torch.arange(like.numel(), device=like.device).reshape(like.shape)
    return 1.0 - 2.0 * ((count * 2654435761 >> 13) & 1).double()


def _share(check: Check) -> float:
    return max(
        math.inf if math.isnan(off) else off / max(bound, 1e-300)
        for off, bound in ((check.error, check.tolerance), (check.rms, check.rms_tolerance))
    )


def _worse(a: Check, b: Check) -> Check:
    return replace(max(a, b, key=_share), rows=a.rows + b.rows)


def _some_rows(
    workload: Workload,
    inputs: Mapping[str, Any],
    outputs: list[torch.Tensor],
    pick: Callable[[int, int], torch.Tensor],
    again: bool,
) -> torch.Tensor | None:
    """Pick rows of a result that has many, with the first and the last among them; else None."""
    rows = _rows(outputs[0]) if workload.narrow is not None and outputs else 0
    if again and not rows and outputs and outputs[0].numel() > LARGE and len(outputs[0]) > 1:
        rows = 1
    if workload.narrow is None or not rows:
        return None
    chosen = pick(rows, outputs[0].shape[0])
    if rows > 1:
        chosen[0], chosen[-1] = 0, outputs[0].shape[0] - 1  # where a kernel's tail goes wrong
    chosen = chosen.to(outputs[0].device)
    return chosen if workload.narrow(inputs, chosen[:1]) is not None else None


def _pieces(
    outputs: list[torch.Tensor], pick: Callable[[int, int], torch.Tensor]
) -> Iterator[torch.Tensor]:
    """Yield all rows, some neighbours at a time, in an order that *pick* draws."""
    total, device = outputs[0].shape[0], outputs[0].device
    each = max(1, PIECE * total // max(1, outputs[0].numel()))
    starts = [*range(0, total, each)]
    random.Random(int(pick(1, 2**31).item())).shuffle(starts)
    for start in starts:
        yield torch.arange(start, min(start + each, total), device=device)


def _rows(output: torch.Tensor) -> int:
    """Return how many rows of *output* are compared first; 0 if all rows are compared at once."""
    if output.dim() == 0:
        return 0
    total = output.shape[0]
    rows = max(ROWS, math.ceil(ELEMENTS * total / max(1, output.numel())))
    return rows if rows < total else 0


def _check_whole(
    workload: Workload, point: Point, inputs: Mapping[str, Any], outputs: list[torch.Tensor]
) -> None:
    """Check what a few rows cannot show: the whole shape, and NaN (or poison) anywhere.

    Raises: WrongResult.
    """
    references = whole_reference(workload, point, inputs)
    _check_count(outputs, references)
    for got, want in zip(outputs, references, strict=True):
        _check_shape(got, want)
        # amax returns NaN if there is one and allocates nothing; torch lacks it for 8-bit floats.
        scannable = got.dtype.is_floating_point and got.dtype.itemsize > 1 and got.numel()
        if scannable and torch.isnan(got.amax()):
            raise WrongResult("has elements that are NaN or were left unwritten")


def _check_count(outputs: list[torch.Tensor], references: list[torch.Tensor]) -> None:
    if len(outputs) != len(references):
        raise WrongResult(f"is {len(outputs)} tensors where the reference is {len(references)}")


def differ_much(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> bool:
    """Return whether two results of a call differ by more than the order of sums explains."""
    for a, b in zip(before, after, strict=False):
        if a.shape != b.shape:
            return True
        if a.numel() and largest_error(a, b) > UNSTEADY * math.sqrt(mean_square(a)):
            return True
    return False


def _check_shape(got: torch.Tensor, want: torch.Tensor) -> None:
    if want.is_floating_point() and want.dtype != torch.float64:
        raise WorkloadError(
            f"the reference is computed in {dtype_name(want.dtype) or want.dtype}, not in float64",
            'let it convert its inputs first: inputs["x"].double()',
        )
    if got.shape != want.shape:
        raise WrongResult(f"has the shape {tuple(got.shape)} where {tuple(want.shape)} is right")
