"""Examine a task before anyone is judged by it: the kinds of values it allows, and its fairness.

A task is unfair if its check passes a result that needs no computation: the answer to other inputs
(a constant), zeros, the mean, an input, or the answer without one of the inputs. A task whose
reference returns two results for equal inputs cannot be judged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gpuperf.judge.evidence import Unfair
from gpuperf.judge.inside.comparison import Answer, answer_of, compare
from gpuperf.judge.inside.contents import inputs_of
from gpuperf.judge.inside.draws import CHANGES, NOMINAL
from gpuperf.judge.inside.layout import put_together
from gpuperf.judge.inside.problem import Problem
from gpuperf.judge.protocol import Contents
from gpuperf.measure.checks import differ_much
from gpuperf.measure.deviation import WrongResult

WORST = 1e-2  # error of a reference, over the values' size, at which a kind of values is dropped
SEEDS = (101, 202)  # added to the seed of the examination


def allowed_kinds(problem: Problem, seed: int) -> tuple[str, ...]:
    """Return the kinds of values for which the reference computes something finite and exact."""
    if problem.kinds is not None:
        return problem.kinds
    kinds = [NOMINAL]
    for kind in CHANGES:
        skeleton, tensors = inputs_of(problem, Contents(0, seed, kind))
        if not any(t.is_floating_point() and t.element_size() > 1 for t in tensors):
            break
        with contextlib.suppress(Exception):  # the task does not allow these values
            if _is_sound(answer_of(problem, put_together(skeleton, tensors))):
                kinds.append(kind)
    return tuple(kinds)


def _is_sound(answer: Answer) -> bool:
    """Return whether the reference in its own dtype is finite and near to that in float64."""
    for own, want in zip(answer.own, answer.exact, strict=True):
        if not own.is_floating_point() or not own.numel():
            continue
        size = want.double().square().mean().sqrt().clamp_min(1e-300)
        off = (own.double() - want.double()).square().mean().sqrt()
        if not torch.isfinite(own).all() or not off <= WORST * size:
            return False
    return True


def unfair_ways(problem: Problem, kinds: Sequence[str], seed: int) -> Iterator[Unfair]:
    """Yield the ways to pass the check for all *kinds* of values without the computation."""
    passes = [_Trial(problem, kind, seed) for kind in kinds]
    if any(trial.is_random() for trial in passes[:1]):
        yield Unfair("random", "the reference returns two results for equal inputs")
        return
    if all(trial.passes(trial.other.own) for trial in passes):
        yield Unfair("constant", "the reference's output is constant: it does not depend on inputs")
        return
    for index in range(len(passes[0].tensors)):
        if all(trial.ignores(index) for trial in passes):
            text = f"the output does not depend on input {index + 1} within the tolerance"
            yield Unfair("input", text)
    for name in ("zeros", "the mean", "an input"):
        if all(any(trial.passes(guess) for guess in trial.guesses(name)) for trial in passes):
            yield Unfair("trivial", f"a result that is {name} passes the check of the task")


class _Trial:
    """Two draws of one kind of values, and the answers to both."""

    def __init__(self, problem: Problem, kind: str, seed: int) -> None:
        self.problem, self.harsh = problem, kind != NOMINAL
        self.skeleton, self.tensors = inputs_of(problem, Contents(0, seed + SEEDS[0], kind))
        _, self.others = inputs_of(problem, Contents(0, seed + SEEDS[1], kind))
        self.answer = self._answer(self.tensors)
        self.other = self._answer(self.others)

    def _answer(self, tensors: Sequence[torch.Tensor]) -> Answer:
        return answer_of(self.problem, self._arguments(tensors), self.harsh)

    def _arguments(self, tensors: Sequence[torch.Tensor]) -> Any:
        return put_together(self.skeleton, [tensor.clone() for tensor in tensors])

    def passes(self, outputs: list[torch.Tensor]) -> bool:
        """Return whether *outputs* are accepted for the first draw."""
        try:
            compare(self.problem, self._arguments(self.tensors), outputs, self.answer)
        except WrongResult:
            return False
        return True

    def is_random(self) -> bool:
        """Return whether the reference disagrees with itself."""
        return differ_much(self.answer.own, self._answer(self.tensors).own)

    def ignores(self, index: int) -> bool:
        """Return whether the answer is still right with another draw of one input."""
        mixed = [self.others[i] if i == index else t for i, t in enumerate(self.tensors)]
        if torch.equal(self.others[index], self.tensors[index]):
            return False  # the task draws one value only
        with contextlib.suppress(Exception):  # this mixture is no valid input
            return self.passes(self._answer(mixed).own)
        return False

    def guesses(self, name: str) -> Iterator[list[torch.Tensor]]:
        """Yield the outputs that need no computation, by the name of their kind."""
        own, other = self.answer.own, self.other.own
        if name == "zeros":
            yield [torch.zeros_like(t) for t in own]
        elif name == "the mean":
            if all(t.is_floating_point() for t in own):
                yield [torch.full_like(t, o.double().mean().item()) for t, o in zip(own, other)]  # noqa: B905
        elif len(own) == 1:
            alike = (t for t in self.tensors if (t.shape, t.dtype) == (own[0].shape, own[0].dtype))
            yield from ([t.clone()] for t in alike)
