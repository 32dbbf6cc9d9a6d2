"""Keeps elements of a few results of timed calls, to compare them when all samples are taken.

Which samples are kept is drawn at random, and so is which of their elements. The results are read
between two samples, never inside one; then they are overwritten, so that the call has to write the
next one again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from gpuperf.measure.checks import poison, tensors_of
from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.timers.timer import Call
from gpuperf.model.record import Check

ELEMENTS = 2**14  # of each tensor of a result
MOST_PICKS = 4
EXPECTED_PICKS = 2.0  # so many samples of those seen so far are kept on average
LEEWAY = 2.0  # times the tolerance: both results are rounded

Elements = list[torch.Tensor]


@dataclass
class SpotChecks:
    """Keeps elements of timed results where *active*; `turn` names the copy of the latest call."""

    seed: int
    active: bool
    turn: Callable[[], int] = lambda: 0
    expected: list[tuple[Elements, float]] = field(default_factory=list)
    picks: list[tuple[int, Elements]] = field(default_factory=list)
    _output: Any = None
    _seen: int = 0
    _again: bool = False  # the result was overwritten: the next one shows whether it is rewritten

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def expect(self, output: Any, check: Check) -> None:
        """Keep what the result of the next copy is, which has passed *check*."""
        if self.active:
            self.expected.append((self._elements(output), check.tolerance))

    def keeping(self, call: Call) -> Call:
        """*call*, or, now and then, a call that keeps its result until the next one."""
        self.heard()
        if not self.active:
            return call
        self._seen += 1
        if not self._again and self._random.random() > EXPECTED_PICKS / self._seen:
            return call

        def kept() -> Any:
            self._output = None  # as for a caller that drops it: the next may have its memory
            self._output = call()
            return self._output

        return kept

    def heard(self) -> None:
        """Read the result that was kept, if there is one. Call this between two samples only."""
        output, self._output = self._output, None
        if output is None:
            return
        pick = (self.turn(), self._elements(output))
        if len(self.picks) < MOST_PICKS:
            self.picks.append(pick)
        else:
            self.picks[self._random.randrange(MOST_PICKS)] = pick
        self._again = not self._again
        poison(output)

    def judge(self) -> None:
        """Compare what was kept with what was expected. Raises: WrongResult."""
        self.heard()
        for turn, found in self.picks:
            expected, tolerance = self.expected[turn]
            if len(found) != len(expected):
                raise WrongResult(f"is {len(found)} tensors and was {len(expected)}")
            for got, want in zip(found, expected, strict=True):
                _refuse_difference(got, want, tolerance)

    def _elements(self, output: Any) -> Elements:
        return [self._some(tensor) for tensor in tensors_of(output)]

    def _some(self, tensor: torch.Tensor) -> torch.Tensor:
        """Elements of *tensor*, the same of each tensor of one shape."""
        if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
            return self._some(tensor.view(torch.int8)).view(tensor.dtype)
        count = tensor.numel()
        if count <= ELEMENTS:
            return tensor.detach().reshape(-1).clone()
        generator = torch.Generator().manual_seed(self.seed + count)
        places = torch.randint(count, (ELEMENTS,), generator=generator)
        where = torch.unravel_index(places.to(tensor.device), tensor.shape)
        return tensor.detach()[where]


def _refuse_difference(got: torch.Tensor, want: torch.Tensor, tolerance: float) -> None:
    """Compare by the rms of all elements: one that cancels is no more exact than the others.

    Raises: WrongResult.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        raise WrongResult("has another shape or dtype than in the check")
    if not got.numel():
        return
    values, right = got.double(), want.double()
    met = (values == right) | (torch.isnan(values) & torch.isnan(right))
    finite = torch.isfinite(right)
    error = torch.where(met, 0.0, torch.where(finite, values - right, math.inf))
    size = torch.where(finite, right, 0.0).square().mean().sqrt().clamp_min(1e-300)
    off = (error.square().mean().sqrt() / size).item()
    if not off <= LEEWAY * tolerance:
        raise WrongResult(f"differs by {off:.3g} of the values' size from the one that was checked")
