"""Examine a task before anyone is judged by it: the kinds of values it allows, and its fairness.

A task is unfair if its check passes a result that needs no computation: the answer to other inputs
(a constant), zeros, the mean, an input, or the answer without one of the inputs. A task whose
reference returns two results for equal inputs, or overflows, cannot be judged.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gpuperf.judge.evidence import Unfair
from gpuperf.judge.inside.comparison import (
    accepts,
    answer_of,
    is_inexact,
    is_sound,
    overflows,
    own_of,
)
from gpuperf.judge.inside.contents import copies_of, inputs_of
from gpuperf.judge.inside.draws import CHANGES, NOMINAL
from gpuperf.judge.inside.layout import put_together
from gpuperf.judge.inside.problem import Problem
from gpuperf.judge.protocol import Contents
from gpuperf.measure.checks import differ_much
from gpuperf.measure.error_origin import is_no_memory

OWN_CONSTANT = "the reference's output is constant for the values that the task draws"
BY_NOMINAL = ("random", "overflow")  # what nominal values show, whatever others do
CONSTANT, TRIVIAL = "constant", ("zeros", "the mean", "an input")  # results without computation
SEEDS = (101, 202)  # added to the seed of the examination
# Draws of each kind of values that the reference must compute exactly: products of many numbers
# overflow in some only. The first two are always drawn, others for so many seconds.
LEAST_DRAWS, DRAWS, DRAWING_S = 2, 8, 1.0


def kinds_of(problem: Problem, seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the kinds of values for which the reference computes something finite and exact, and
    those whose answers do not fit in memory."""
    if problem.kinds is not None:
        return problem.kinds, ()
    kinds, crowded = [NOMINAL], []
    for kind in CHANGES:
        try:
            if _allows_draws(problem, seed, kind):
                kinds.append(kind)
        except Exception as error:
            if is_no_memory(error):
                crowded.append(kind)
            # Otherwise the task does not allow these values.
    return tuple(kinds), tuple(crowded)


def twins_of(problem: Problem, kinds: Sequence[str], seed: int) -> str:
    """Return which contents may differ from others in one element: `far` with an element of any
    value, `near` with one of the task's values, or none.

    Other values than the task draws are allowed where a shift of all is.
    """
    for name in ("far", "near") if "offset" in kinds else ("near",):
        with contextlib.suppress(Exception):  # they are no valid inputs, or do not fit in memory
            if _allows_draws(problem, seed, "twin", (seed, kinds[0]), name == "far"):
                return name
    return ""


def _allows_draws(
    problem: Problem, seed: int, kind: str, twin: tuple[int, str] | None = None, far: bool = False
) -> bool:
    """Return whether the reference computes something exact for several draws of *kind*."""
    ends = time.monotonic() + DRAWING_S
    for draw in range(DRAWS):
        if draw >= LEAST_DRAWS and time.monotonic() > ends:
            break
        if not _allows(problem, Contents(0, seed + draw, kind, twin, far)):
            return False
    return True


def _allows(problem: Problem, contents: Contents) -> bool:
    """Return whether the reference computes something exact for *contents*, which also shows
    whether all that a check of them needs fits in memory."""
    skeleton, tensors = inputs_of(problem, contents)
    if not any(t.is_floating_point() and t.element_size() > 1 for t in tensors):
        return False
    answer = answer_of(problem, put_together(skeleton, tensors), harsh=True)
    refused = answer.wide and answer.moved is None  # by the reference, near these values
    return not refused and is_sound(answer)


def unfair_ways(problem: Problem, kinds: Sequence[str], seed: int) -> Iterator[Unfair]:
    """Yield the ways to pass the check for all *kinds* of values without the computation."""
    left: list[str | int] = []
    for number, kind in enumerate(kinds):  # one at a time, as its answers may fill the memory
        trial = _Trial(problem, kind, seed)
        if not number:
            if trial.is_random():
                yield Unfair("random", "the reference returns two results for equal inputs")
                return
            if overflows(trial.answer):
                yield Unfair(
                    "overflow", "the reference is infinite or NaN where it is not in float64"
                )
                return
            if trial.is_constant():
                yield Unfair("constant", OWN_CONSTANT)
                return
            left = [CONSTANT, *range(len(trial.tensors)), *TRIVIAL]
        left = [way for way in left if trial.has(way)]
        if not left:
            return
        del trial
    if CONSTANT in left:
        yield Unfair("constant", "the reference's output is constant: it does not depend on inputs")
        return
    for way in left:
        if isinstance(way, int):
            text = f"the output does not depend on input {way + 1} within the tolerance"
            yield Unfair("input", text)
        else:
            yield Unfair("trivial", f"a result that is {way} passes the check of the task")


class _Trial:
    """Two draws of one kind of values, and the answers to both."""

    def __init__(self, problem: Problem, kind: str, seed: int) -> None:
        self.problem, self.harsh = problem, kind != NOMINAL
        self.skeleton, self.tensors = inputs_of(problem, Contents(0, seed + SEEDS[0], kind))
        _, self.others = inputs_of(problem, Contents(0, seed + SEEDS[1], kind))
        self.answer = answer_of(self.problem, self._arguments(self.tensors), self.harsh)
        self.other = self._own(self.others)

    def _own(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return own_of(self.problem, self._arguments(tensors))

    def has(self, way: str | int) -> bool:
        """Return whether the check is passed in this *way*: `CONSTANT`, the number of an input that
        the output does not depend on, or one of `TRIVIAL`."""
        if way == CONSTANT:
            return self.passes(self.other)
        if isinstance(way, int):
            return self.ignores(way)
        return any(self.passes(guess) for guess in self.guesses(way))

    def _arguments(self, tensors: Sequence[torch.Tensor]) -> Any:
        return put_together(self.skeleton, copies_of(self.problem, tensors))

    def passes(self, outputs: list[torch.Tensor]) -> bool:
        """Return whether *outputs* are accepted for the first draw."""
        return accepts(self.problem, self._arguments(self.tensors), outputs, self.answer)

    def is_random(self) -> bool:
        """Return whether the reference disagrees with itself."""
        return differ_much(self.answer.own, self._own(self.tensors))

    def is_constant(self) -> bool:
        """Return whether two draws of unequal inputs have the same floating-point results, bit for
        bit."""
        pairs = list(zip(self.answer.own, self.other, strict=True))
        if all(map(torch.equal, self.tensors, self.others)):
            return False  # the task draws one value only
        floats = all(is_inexact(a) and a.numel() > 1 for a, _ in pairs)
        return floats and all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs)

    def ignores(self, index: int) -> bool:
        """Return whether the answer is still right with another draw of one input."""
        mixed = [self.others[i] if i == index else t for i, t in enumerate(self.tensors)]
        if torch.equal(self.others[index], self.tensors[index]):
            return False  # the task draws one value only
        try:
            return self.passes(self._own(mixed))
        except Exception as error:
            if is_no_memory(error):
                raise
            return False  # this mixture is no valid input

    def guesses(self, name: str) -> Iterator[list[torch.Tensor]]:
        """Yield the outputs that need no computation, by the name of their kind."""
        own, other = self.answer.own, self.other
        if name == "zeros":
            yield [torch.zeros_like(t) for t in own]
        elif name == "the mean":
            if all(t.is_floating_point() for t in own):
                means = [each.mean(dtype=torch.float64).item() for each in other]
                yield [torch.full_like(t, mean) for t, mean in zip(own, means, strict=False)]
        elif len(own) == 1:
            alike = (t for t in self.tensors if (t.shape, t.dtype) == (own[0].shape, own[0].dtype))
            yield from ([t.clone()] for t in alike)
