"""Observe calls of a task's reference, which show what the rest of the judge must know of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from gpuperf.errors import CannotMeasure
from gpuperf.judge.inside.comparison import answer_of
from gpuperf.judge.inside.contents import copies_of, inputs_of
from gpuperf.judge.inside.draws import CHANGES, NOMINAL
from gpuperf.judge.inside.layout import is_scattered, put_together, spec_of
from gpuperf.judge.inside.problem import Problem
from gpuperf.judge.protocol import ITEM_BYTES, Contents, TensorSpec
from gpuperf.measure.checks import dtype_name
from gpuperf.measure.result_shape import tensors_of
from gpuperf.measure.result_tensors import BITS, share_memory
from gpuperf.model.cost import Bytes, Cost, Flops


@dataclass(frozen=True)
class FirstCalls:
    """What calls of the reference show: its results, the numbers of the inputs that it changed,
    whether it runs in float64 too, whether a result shares memory with an input, its FLOPs by
    operator, the bytes of the inputs' elements that are not zero, its cost, the products that an
    element of one operator's result adds, at most, and whether a result is a view that is no dense
    tensor."""

    results: tuple[TensorSpec, ...]
    changed: frozenset[int]
    wide: bool
    aliases: bool
    operations: Mapping[Any, int]
    nonzero_bytes: float
    cost: Cost
    terms: int
    views: bool = False


def first_calls(problem: Problem, seed: int) -> FirstCalls:
    """Call the reference on usual contents, and on each other kind of values to see which inputs it
    changes.

    Raises: what it raises on usual contents; CannotMeasure where no seat can give its result.
    """
    kind, *others = problem.kinds or (NOMINAL, *CHANGES)
    given, tensors = inputs_of(problem, Contents(0, seed, kind))
    used = [tensor.clone() for tensor in tensors]
    returned = tensors_of(problem.call(*put_together(given, used)))
    changed = _changed(used, tensors)
    aliases = any(share_memory(a, b) for a in returned for b in used)
    views = any(map(_is_view, returned))
    del used, returned
    for other in others if any(t.is_floating_point() for t in tensors) else ():
        try:
            changed |= _changed_by(problem, Contents(0, seed, other))
        except torch.OutOfMemoryError:
            raise
        except Exception:  # the task does not allow these values
            continue
    problem = replace(problem, pure=not changed)
    counted = operations_of(problem, tensors, given)
    nonzero = sum(_nonzero_bytes(tensor) for tensor in tensors)
    answer = answer_of(problem, put_together(given, tensors))
    results = tuple(spec_of(tensor) for tensor in answer.own)
    for spec in results:
        if spec.dtype not in ITEM_BYTES:
            raise CannotMeasure(f"it returns a tensor of {spec.dtype}, which the judge cannot copy")
    cost = _cost(problem, tensors, counted.flops, results)
    return FirstCalls(
        results, changed, answer.wide, aliases, counted.flops, nonzero, cost, counted.terms, views
    )


def _is_view(tensor: torch.Tensor) -> bool:
    """Return whether *tensor* is conjugated or negated when it is read, or no dense tensor."""
    return bool(tensor.is_conj() or tensor.is_neg() or is_scattered(tensor))


def _changed_by(problem: Problem, contents: Contents) -> frozenset[int]:
    """Return the numbers of the inputs that the reference changes: `relu_` those below zero."""
    given, tensors = inputs_of(problem, contents)
    used = [tensor.clone() for tensor in tensors]
    problem.call(*put_together(given, used))
    return _changed(used, tensors)


def _changed(used: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> frozenset[int]:
    pairs = zip(used, tensors, strict=True)
    return frozenset(i for i, (a, b) in enumerate(pairs) if not same_bits(a, b))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors have the same bits."""
    first, second = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return bool(torch.equal(first.to(second.device), second))


def _nonzero_bytes(tensor: torch.Tensor) -> float:
    """Return the bytes of the elements of *tensor* that are not zero, which a call must read."""
    # torch does not count those of fp8 and of all unsigned integers
    unsigned = (torch.uint16, torch.uint32, torch.uint64)
    if tensor.element_size() == 1 or tensor.dtype in unsigned:
        tensor = tensor.contiguous().view(BITS[tensor.element_size()])
    return float(int(torch.count_nonzero(tensor).item()) * int(tensor.element_size()))


class Operations(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped there
    """Counts FLOPs by operator (`flops`), by torch's formulas, which know products and convolutions
    alone; `terms` are the most products that an element of one operator's first result adds."""

    def __init__(self) -> None:
        super().__init__()
        self.flops: dict[Any, int] = {}
        self.terms = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:
                parts = func.decompose(*args, **named)
            return func(*args, **named) if parts is NotImplemented else parts
        result = func(*args, **named)
        count, elements = (
            int(formula(*args, **named, out_val=result)),
            tensors_of(result)[0].numel(),
        )
        self.flops[func._overloadpacket] = self.flops.get(func._overloadpacket, 0) + count
        self.terms = max(self.terms, count // (2 * max(1, elements)))
        return result


def operations_of(problem: Problem, tensors: list[torch.Tensor], skeleton: Any) -> Operations:
    """Return the operations of the reference; none where it does not run in their mode."""
    counted = Operations()
    with contextlib.suppress(Exception), counted:
        problem.call(*put_together(skeleton, copies_of(problem, tensors)))
        return counted
    return Operations()


def rounds_to_tf32(operations: Mapping[Any, int]) -> bool:
    """Return whether a reference of these *operations* may round fp32 to TF32, as torch's
    convolutions do by default. cuDNN does so in some of its algorithms, of which it takes one by
    the memory that is free: the reference's own error may be smaller than that of an equal call."""
    convolves = any("conv" in str(operation) for operation in operations)
    return convolves and bool(torch.backends.cudnn.allow_tf32)


def _cost(
    problem: Problem,
    tensors: list[torch.Tensor],
    operations: Mapping[Any, int],
    results: tuple[TensorSpec, ...],
) -> Cost:
    """Return a cost of the least bytes, inputs read once and results written once, and the FLOPs of
    the reference's *operations*."""
    read = sum(t.numel() * t.element_size() for t in (*tensors, *problem.state.values()))
    moved = Bytes(read=read, written=sum(spec.bytes for spec in results))
    floats = [name for t in tensors if (name := dtype_name(t.dtype))]
    count = int(sum(operations.values()))
    return Cost((Flops(count, "matmul", floats[0]),) if count and floats else (), (moved,))
