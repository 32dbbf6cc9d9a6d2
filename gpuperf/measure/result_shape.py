"""Find the shape and the dtype of a whole reference without computing it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gpuperf.measure.deviation import WrongResult
from gpuperf.model.workload import Point, Workload

Inputs = Mapping[str, Any]


def whole_reference(workload: Workload, point: Point, inputs: Inputs) -> list[torch.Tensor]:
    """Return tensors without values that have the shapes and dtypes of the whole reference.

    They follow from the factors of a product, or from the references of one row and of two, since
    sizes grow by as much for each further row. Only where `narrow` does not show how many rows
    there are is the reference called on meta tensors, whose first use in a process imports torch's
    compiler (0.8 s on a CPU host, 4 to 5 s on a GPU host). Raises: WrongResult.
    """
    if workload.factors is not None:
        a, b = workload.factors(inputs, point)
        return [_empty((a.shape[0], b.shape[1]), torch.float64)]
    return _by_rows(workload, point, inputs) or _by_meta(workload, point, inputs)


def tensors_of(output: Any) -> list[torch.Tensor]:
    """Return the tensors of a result. Raises: WrongResult for anything else."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, tuple | list) and all(isinstance(t, torch.Tensor) for t in output):
        return list(output)
    raise WrongResult(f"is a {type(output).__name__}, not a tensor or a tuple of tensors")


def _by_rows(workload: Workload, point: Point, inputs: Inputs) -> list[torch.Tensor]:
    """Return the tensors by one row and by two; nothing where the number of rows is unknown."""
    one, two = _narrowed(workload, inputs, 1), _narrowed(workload, inputs, 2)
    if one is None or two is None:
        return []
    totals = {_rows(one[name], two[name], inputs[name]) for name in _tensors(inputs)} - {0}
    if len(totals) != 1 or None in totals:
        return []
    further = totals.pop() - 1  # type: ignore[operator]  # it is no None
    first, second = (tensors_of(workload.reference(some, point)) for some in (one, two))
    return [
        _empty(tuple(m + further * (n - m) for m, n in zip(a.shape, b.shape, strict=True)), a.dtype)
        for a, b in zip(first, second, strict=True)
    ]


def _narrowed(workload: Workload, inputs: Inputs, rows: int) -> Inputs | None:
    device = next(inputs[name].device for name in _tensors(inputs))
    if workload.narrow is None:
        return None
    return workload.narrow(inputs, torch.arange(rows, device=device))


def _tensors(inputs: Inputs) -> list[str]:
    return [name for name, value in inputs.items() if isinstance(value, torch.Tensor)]


def _rows(one: torch.Tensor, two: torch.Tensor, whole: torch.Tensor) -> int | None:
    """Return of how many rows *whole* is, of which *one* has one and *two* two; 0 if the tensor is
    the same for all rows, None if it does not grow along a single axis."""
    if one.shape == two.shape == whole.shape:
        return 0
    if not one.dim() == two.dim() == whole.dim():
        return None
    grown = [axis for axis in range(one.dim()) if one.shape[axis] != two.shape[axis]]
    if len(grown) != 1:
        return None
    (axis,) = grown
    each, beyond = two.shape[axis] - one.shape[axis], whole.shape[axis] - one.shape[axis]
    others = all(
        m == n for i, (m, n) in enumerate(zip(one.shape, whole.shape, strict=True)) if i != axis
    )
    return 1 + beyond // each if others and each > 0 and beyond % each == 0 else None


def _by_meta(workload: Workload, point: Point, inputs: Inputs) -> list[torch.Tensor]:
    shapes = {
        name: value.to("meta") if isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
    }
    return tensors_of(workload.reference(shapes, point))


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")
