"""Make the inputs of a task for some contents, the same in every process and at any time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gpuperf.judge.inside.draws import NOMINAL, change, change_one
from gpuperf.judge.inside.layout import put_together, take_apart
from gpuperf.judge.inside.problem import Problem
from gpuperf.judge.protocol import Contents
from gpuperf.measure.pieces import is_large


def inputs_of(problem: Problem, contents: Contents) -> tuple[Any, list[torch.Tensor]]:
    """Return the skeleton and the tensors of *contents*, in memory of their own."""
    if contents.twin is not None:
        seed, kind = contents.twin
        skeleton, tensors = _made(problem, seed, kind)
        change_one(tensors, contents.seed, far=contents.far)
        return skeleton, tensors
    return _made(problem, contents.seed, contents.kind)


def _made(problem: Problem, seed: int, kind: str) -> tuple[Any, list[torch.Tensor]]:
    if problem.make_kind is not None:
        tree: Sequence[Any] = problem.make_kind(seed, kind)
    else:
        tree = problem.make(seed)
    tensors: list[torch.Tensor] = []
    skeleton = take_apart(list(tree), tensors)
    tensors = [tensor.clone() for tensor in tensors]
    if problem.make_kind is None and kind != NOMINAL:
        change(tensors, kind, seed)
    return skeleton, tensors


def copies_of(problem: Problem, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return *tensors* for a call of the reference: copies, but large ones that it leaves as they
    are themselves, as gigabytes have no room for copies."""
    return [t if problem.pure and is_large(t) else t.clone() for t in tensors]


def arguments_of(problem: Problem, contents: Contents) -> list[Any]:
    """Return the positional arguments of a call with *contents*."""
    arguments: list[Any] = put_together(*inputs_of(problem, contents))
    return arguments
