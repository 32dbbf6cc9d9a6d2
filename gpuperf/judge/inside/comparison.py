"""Compare results of a submission with the answers of a task's reference.

The answer is the reference in float64, or in its own dtype where it does not run in float64. The
bound of an element is four roundings of the result's dtype and of one result in between, and those
of a sum of products in fp32 (`measure.checks`), plus what libraries' special functions may be off.
On top of that, an element may be off as far as four times the largest error of the reference itself
in that row. Values that are not nominal may amplify roundings: then it may also be off as far as a
change of the inputs by `NEAR` roundings (`NEAR_FP32` of fp32) moves its row, or up to a hundredth
of the row's size as far as that moves any row, for their sizes. One change shows too little of one
row: where it moves the two largest scores of a softmax alike, it does not move the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gpuperf.judge.inside.layout import take_apart
from gpuperf.judge.inside.problem import Problem
from gpuperf.judge.inside.wide_casts import WideCasts
from gpuperf.measure.checks import APPROXIMATE, dtype_name, tolerance
from gpuperf.measure.deviation import UNIT_ROUNDOFF, WrongResult, deviation
from gpuperf.measure.pieces import is_large, pairs, parts, row_errors, row_sizes
from gpuperf.measure.result_shape import tensors_of
from gpuperf.measure.result_tensors import share_memory

WIDE = (torch.float64, torch.complex128)  # dtypes of results of a reference in float64
# A reference in float64 has no finer answer that shows its own error. A sum of 16 Mi numbers, one
# after the other, is off by about √(16 Mi) = 4096 roundings.
FP64_ROUNDINGS = 4096
ROUNDINGS = 8  # four of the result, and four of one result in between
# Roundings of an input; one to TF32 is 8192 of fp32. Partial sums are kept in fp32, and those of a
# row of equal numbers are all rounded in one direction; a layer norm divides the error of its mean
# by √1e-5 there.
NEAR, NEAR_FP32 = 8.0, 128.0
GRANTED = 4.0  # times the reference's own error in a row
LENT = 1e-2  # of a row's size, at most, for what moves other rows
WORST = 1e-2  # error of a reference, over the values' size, from which it says nothing
# Share of the elements in which a reference is finite and a right result may be infinite or NaN: in
# products of 32 Ki normal numbers, joined from 4 to 64 parts, at most 0.40 at nine scales.
MOST_EXCUSED = 0.5


@dataclass(frozen=True)
class Answer:
    """The right results for some contents, the results of the reference in its own dtype, and those
    in float64 for inputs that are off by some roundings (None: not granted)."""

    exact: list[torch.Tensor]
    own: list[torch.Tensor]
    wide: bool
    moved: list[torch.Tensor] | None = None
    harsh: bool = False


def answer_of(problem: Problem, arguments: Sequence[Any], harsh: bool = False) -> Answer:
    """Compute the answer for *arguments*, whose values are *harsh* or nominal.

    Raises: WrongResult, and what the reference raises.
    """
    exact, moved = _exact_of(problem, arguments, harsh)
    own = own_of(problem, arguments)
    shapes = [(t.shape, t.is_floating_point()) for t in own]
    wide = shapes == [(t.shape, t.is_floating_point()) for t in exact]
    wide = wide and any(t.dtype in WIDE for t in exact)
    if moved and [t.shape for t in moved] != [t.shape for t in exact]:
        moved = None  # the sizes of results depend on the values
    return Answer(exact if wide else own, own, wide, moved if wide else None, harsh)


def is_sound(answer: Answer) -> bool:
    """Return whether the reference in its own dtype is finite and near to that in float64."""
    return all(map(_is_near, answer.own, answer.exact))


def is_inexact(tensor: torch.Tensor) -> bool:
    """Return whether elements of *tensor* are rounded: real or complex floating-point numbers."""
    return bool(tensor.is_floating_point() or tensor.is_complex())


def overflows(answer: Answer) -> bool:
    """Return whether the reference is infinite or NaN where it is not in float64."""
    for own, want in zip(answer.own, answer.exact, strict=True):
        if is_inexact(own):
            for _, one, other in pairs(*_parts_of(own, want)):
                if (torch.isfinite(other) & ~torch.isfinite(one)).any():
                    return True
    return False


def _parts_of(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return *tensors*, of which complex ones have their real and imaginary parts side by side."""
    return tuple(map(_as_real, tensors)) if tensors[0].is_complex() else tensors


def _is_near(own: torch.Tensor, want: torch.Tensor) -> bool:
    if not is_inexact(own) or not own.numel():
        return True
    total, off, finite = 0.0, 0.0, True
    for _, one, other in pairs(*_parts_of(own, want)):
        total += float(other.square().sum())
        off += float((one - other).square_().sum())
        finite = finite and bool(torch.isfinite(one).all())
    return finite and off <= WORST**2 * max(total, own.numel() * 1e-300)


def is_excused(
    problem: Problem, arguments: Sequence[Any], outputs: list[torch.Tensor], answer: Answer
) -> bool:
    """Return whether *outputs* differ only where nothing can be said of them.

    That is where the reference or they themselves are infinite or NaN, in tensors in which the
    reference is not near to that in float64: a scan that joins products of parts multiplies zero by
    infinity where one that goes from element to element has zero. Integers of the same shape, such
    as the places of maxima, are excused in the same elements. A task's own comparison excuses what
    it has to.
    """
    if problem.compare or problem.check or len(outputs) != len(answer.own):
        return False
    try:
        known, left = _known_of(outputs, answer)
    except WrongResult:
        return False
    return accepts(problem, arguments, known, left)


def _known_of(outputs: list[torch.Tensor], answer: Answer) -> tuple[list[torch.Tensor], Answer]:
    """Return *outputs* and *answer* with zeros where nothing can be said. Raises: WrongResult."""
    unknown: list[torch.Tensor | None] = []
    of_shape: dict[torch.Size, torch.Tensor] = {}
    for got, want, own in zip(outputs, answer.exact, answer.own, strict=True):
        unknown.append(None)
        if got.shape == own.shape and not _is_near(own, want):
            known, finite = torch.isfinite(own) & torch.isfinite(want), torch.isfinite(got)
            if (known & ~finite).sum() > MOST_EXCUSED * known.sum():
                raise WrongResult("is infinite or NaN where the reference is not")
            unknown[-1] = ~(known & finite)
            of_shape[own.shape] = of_shape.get(own.shape, False) | unknown[-1]
    masks = [
        mask if is_inexact(own) else of_shape.get(own.shape)
        for mask, own in zip(unknown, answer.own, strict=True)
    ]

    def left_of(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        left = zip(tensors, masks, strict=True)
        return [
            t if mask is None or mask.shape != t.shape else t.masked_fill(mask, 0)
            for t, mask in left
        ]

    moved = answer.moved and left_of(answer.moved)
    left = replace(answer, exact=left_of(answer.exact), own=left_of(answer.own), moved=moved)
    return left_of(outputs), left


def _exact_of(
    problem: Problem, arguments: Sequence[Any], harsh: bool
) -> tuple[list[torch.Tensor], list[torch.Tensor] | None]:
    """Return the results in float64, and for *harsh* values those of inputs off by some roundings;
    no results where the reference does not run in float64.

    They come before the results in the reference's own dtype, as large ones need most memory.
    """
    if problem.exact is None:
        return [], None
    given = arguments if problem.pure else [_cloned(argument) for argument in arguments]
    try:
        with WideCasts():
            results = tensors_of(problem.exact(*given))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError):
        return [], None
    # Nothing is computed by it again before the comparison, unless the values are harsh.
    held = not harsh and _is_alone(results, given)
    exact = list(map(_resolved if held else _copied, results))
    del results
    if not harsh or not any(tensor.dtype in WIDE for tensor in exact):
        return exact, None
    near = [_moved(argument if problem.pure else _cloned(argument)) for argument in arguments]
    try:
        with WideCasts():
            return exact, list(map(_copied, tensors_of(problem.exact(*near))))
    except torch.OutOfMemoryError:
        raise
    except Exception:  # the reference does not take the moved inputs
        return exact, None


def _cloned(value: Any) -> Any:
    """Return *value* with copies of its tensors."""
    if isinstance(value, list | tuple):
        return type(value)(map(_cloned, value))
    return value.clone() if isinstance(value, torch.Tensor) else value


def own_of(problem: Problem, arguments: Sequence[Any]) -> list[torch.Tensor]:
    """Return the results of the reference in its own dtype, in memory of their own."""
    return list(map(_copied, tensors_of(problem.call(*arguments))))


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return *tensor* in memory of its own."""
    return _resolved(tensor).clone()


def _resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Return *tensor*, conjugated and negated now where it would be when it is read."""
    return tensor.resolve_conj().resolve_neg()


def own_tolerance(
    problem: Problem, arguments: Sequence[Any], outputs: Sequence[torch.Tensor]
) -> float | None:
    """Return the tolerance of *outputs* if a tensor of them is large and all are the reference's
    own results, bit for bit; else None.

    What the reference itself is off is granted, unless the task declares tolerances, so that the
    answer in float64, which takes most of the time and memory of a comparison, is not needed.
    """
    if problem.compare or problem.check or problem.relative or problem.absolute:
        return None
    if not any(map(is_large, outputs)):
        return None
    results = tensors_of(problem.call(*arguments))
    kinds = [[(t.shape, t.dtype) for t in tensors] for tensors in (outputs, results)]
    if kinds[0] != kinds[1] or not all(map(torch.equal, outputs, results)):
        return None
    floats = [tensor.dtype for tensor in outputs if tensor.is_floating_point()]
    allowed = (allowed_of(dtype, problem.tf32, problem.terms) for dtype in floats)
    return min(allowed, default=0.0)


def _is_alone(results: Sequence[torch.Tensor], arguments: Sequence[Any]) -> bool:
    """Return whether *results* are one large tensor, in memory of its own."""
    given: list[torch.Tensor] = []
    take_apart(list(arguments), given)
    if len(results) != 1 or not is_large(results[0]):
        return False
    return not any(share_memory(results[0], each) for each in given)


def _moved(value: Any) -> Any:
    """Return *value* with floating-point tensors in float64, off by some roundings."""
    if isinstance(value, list | tuple):
        return type(value)(map(_moved, value))
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    unit = UNIT_ROUNDOFF.get(dtype_name(value.dtype) or "", 0.0)
    unit *= NEAR_FP32 if value.dtype == torch.float32 else NEAR
    generator = torch.Generator(value.device).manual_seed(1)
    moved = value.to(torch.float64, copy=True)
    if not value.dim():
        return moved * (1 + unit)
    for part in parts(value):
        shape = moved[part].shape
        signs = torch.randint(2, shape, generator=generator, device=value.device) * 2.0 - 1.0
        moved[part] *= 1 + unit * signs
    return moved


def accepts(
    problem: Problem, arguments: Sequence[Any], outputs: list[torch.Tensor], answer: Answer
) -> bool:
    """Return whether *outputs* are right by *answer*."""
    try:
        compare(problem, arguments, outputs, answer)
    except WrongResult:
        return False
    return True


def compare(
    problem: Problem, arguments: Sequence[Any], outputs: list[torch.Tensor], answer: Answer
) -> tuple[float, float]:
    """Return the worst error of *outputs* and its bound. Raises: WrongResult."""
    if problem.compare is not None:
        return problem.compare(arguments, outputs, answer.harsh)
    if problem.check is not None:
        refused = problem.check(arguments, outputs)
        if refused:
            raise WrongResult(f"is refused by the task's own check: {refused[:200]}")
        return 0.0, 0.0
    if len(outputs) != len(answer.own):
        raise WrongResult(f"is {len(outputs)} tensors where the reference is {len(answer.own)}")
    worst = (0.0, 0.0)
    moved = answer.moved or answer.exact
    for got, want, own, near in zip(outputs, answer.exact, answer.own, moved, strict=True):
        worst = max(worst, _compare_one(problem, got, want, own, near), key=_share)
    return worst


def _compare_one(
    problem: Problem, got: torch.Tensor, want: torch.Tensor, own: torch.Tensor, near: torch.Tensor
) -> tuple[float, float]:
    if got.shape != own.shape:
        raise WrongResult(f"has the shape {tuple(got.shape)} where {tuple(own.shape)} is right")
    if got.dtype != own.dtype:
        raise WrongResult(f"has the dtype {got.dtype} where {own.dtype} is right")
    if got.is_complex():
        one, right, theirs, moved = _parts_of(got, want, own, near)
        return _compare_one(problem, one, right, theirs, moved)
    if not got.is_floating_point():
        if not torch.equal(got, own):
            raise WrongResult("differs from the reference, and integers must be equal")
        return 0.0, 0.0
    if problem.relative or problem.absolute:
        return _by_declared(problem, got, want)
    granted = GRANTED * row_errors(own, want)
    if near is not want:
        granted = granted.maximum(_moves(near, want))
    allowed = allowed_of(got.dtype, problem.tf32, problem.terms)
    check = deviation(got, want, allowed, granted)
    if not check.error <= check.tolerance:
        raise WrongResult(f"is off by {check.error:.3g} of the values' size, {_over(check)}")
    if not check.rms <= check.rms_tolerance:
        raise WrongResult(f"is off by {check.rms:.3g} in its root mean square, {_over(check)}")
    return check.error, check.tolerance


def _as_real(values: torch.Tensor) -> torch.Tensor:
    """Return complex *values* as rows of twice as many real ones."""
    pairs_of = torch.view_as_real(values.resolve_conj())
    return pairs_of.flatten(-2) if values.dim() else pairs_of


def _over(check: Any) -> str:
    return f"over the tolerance of {check.tolerance:.3g}"


def _by_declared(problem: Problem, got: torch.Tensor, want: torch.Tensor) -> tuple[float, float]:
    """Compare by the tolerances that the task declares; all elements must be within them."""
    worst = 0.0
    for _, one, other in pairs(got, want):
        share = (one - other).abs()
        share /= (problem.absolute + problem.relative * other.abs()).clamp_min(1e-300)
        same = (one == other.to(got.dtype).double()) | (one.isnan() & other.isnan())
        share = torch.where(same, 0.0, share).nan_to_num(nan=torch.inf)
        worst = max(worst, share.max().item()) if share.numel() else worst
    if not worst <= 1.0:
        raise WrongResult(f"is off by {worst:.3g} times the tolerance that the task declares")
    return worst, 1.0


def _moves(near: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Return how far each row of *want* may be off, as *near* shows for it and for other rows."""
    own = row_errors(near, want)
    if not own.numel():
        return own
    size = row_sizes(want)
    return own.maximum((own / size).max().clamp_max(LENT) * size)


def allowed_of(dtype: torch.dtype, tf32: bool = False, terms: int = 0) -> float:
    """Return the relative error allowed to an element of *dtype*, which adds *terms* products, and
    whose products of fp32 may round to TF32 with *tf32*. Raises: WrongResult."""
    name = dtype_name(dtype)
    if name is None:
        raise WrongResult(f"has the dtype {dtype}, for which no tolerance is known")
    if tf32 and name == "fp32":
        return ROUNDINGS * UNIT_ROUNDOFF["tf32"]
    if name == "fp64":
        return FP64_ROUNDINGS * UNIT_ROUNDOFF[name]
    allowed = tolerance(name, "fp32", terms, roundings=1)
    return allowed + (APPROXIMATE if name == "fp32" else 0.0)


def _share(pair: tuple[float, float]) -> float:
    return pair[0] / pair[1] if pair[1] else 0.0
