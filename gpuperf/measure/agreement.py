"""Compare the results of two callables, neither of which is a reference."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from gpuperf.measure.checks import dtype_name
from gpuperf.measure.deviation import UNIT_ROUNDOFF, WrongResult, deviation
from gpuperf.model.record import Caveat

# How far apart two results may be, in roundings: in a short dtype both round their last few
# operations; a sum in fp32 or fp64 of 65,536 terms in another order differs by the root of that.
ROUNDINGS, SHORT_ROUNDINGS = 256, 8
UNCHECKED = Caveat(
    "unchecked",
    "the call returns no tensor, so its result was not compared with that of the baseline",
    "let it return what it computes",
)
SHORT = ("fp16", "bf16", "fp8")


def disagreement(got: Any, wanted: Any, tolerance: float | None = None) -> str:
    """Return how *got* differs from *wanted*, as the end of a sentence; empty if they agree.

    The errors are relative to the size of comparable values. *tolerance* is by default that of the
    shorter of the two dtypes. Results without tensors are not compared.
    """
    mine, others = _tensors_in(got), _tensors_in(wanted)
    if not (mine and others) and type(got) is not type(wanted):
        return f"is a {type(got).__name__}"
    if len(mine) != len(others):
        return f"has {len(mine)} tensors instead of {len(others)}"
    for one, other in zip(mine, others, strict=True):
        if one.shape != other.shape:
            return f"has the shape {tuple(one.shape)} instead of {tuple(other.shape)}"
        if why := _difference(one.detach(), other.detach(), tolerance):
            return why
    return ""


def has_tensors(result: Any) -> bool:
    """Return whether *result* is or holds tensors, which `disagreement` compares."""
    return bool(_tensors_in(result))


def _tensors_in(result: Any) -> list[torch.Tensor]:
    """Return the tensors in *result*, which may be nested in lists, tuples and dicts."""
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _difference(got: torch.Tensor, wanted: torch.Tensor, tolerance: float | None) -> str:
    allowed = tolerance
    if allowed is None:
        names = {dtype_name(got.dtype) or "fp64", dtype_name(wanted.dtype) or "fp64"}
        allowed = max(_roundings(name) * UNIT_ROUNDOFF[name] for name in names)
    try:
        check = deviation(got, wanted, allowed)
    except WrongResult as wrong:
        return str(wrong)
    if check.error <= check.tolerance:
        return ""
    return f"is off by {check.error:.3g}, over the tolerance of {check.tolerance:.3g}"


def _roundings(dtype: str) -> int:
    return SHORT_ROUNDINGS if dtype in SHORT else ROUNDINGS
