"""Keep elements of a few timed results, and compare them with the checked result afterwards.

Both the samples and the elements are drawn at random. A result is read between two samples, never
within one, and then overwritten, so that a call that skips its work returns a wrong result.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gpuperf.measure.checks import poison
from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.result_shape import tensors_of
from gpuperf.measure.timers.timer import Call
from gpuperf.model.record import Check

ELEMENTS = 2**14  # of each tensor of a result
MOST_PICKS = 4
EXPECTED_PICKS = 2.0  # the n-th sample is kept with a probability of this over n
LEEWAY = 2.0  # tolerances that two results may differ by, since both are rounded

Elements = list[torch.Tensor]


@dataclass
class SpotChecks:
    """Elements of timed results; nothing is kept unless *active*.

    `copy` returns the number of the copy of the inputs that the latest call used. `begin` runs
    before each call whose result may be kept, and sets torch's random generators to the state of
    the checked call if the call has dropout. `expected` has, for each copy, elements of its checked
    result and their tolerance; `picks` has the number of a copy and elements of a timed result.
    """

    seed: int
    active: bool
    copy: Callable[[], int] = lambda: 0
    begin: Callable[[], object] = lambda: None
    expected: list[tuple[Elements, float]] = field(default_factory=list)
    picks: list[tuple[int, Elements]] = field(default_factory=list)
    _output: Any = None
    _samples: int = 0
    _again: bool = False  # a result was overwritten, so the next one is kept too

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def expect(self, output: Any, check: Check) -> None:
        """Keep elements of *output*, the result of the next copy, which has passed *check*."""
        if self.active:
            self.expected.append((self._elements(output), check.tolerance))

    def wrap(self, call: Call) -> Call:
        """Return *call*, or for a few random samples a call that keeps its result for `read`."""
        self.read()
        if not self.active:
            return call
        self._samples += 1
        if not self._again and self._random.random() > EXPECTED_PICKS / self._samples:
            return call

        def keeping() -> Any:
            if self._output is not None:  # a further call of the same sample
                self.begin()
            self._output = None  # frees the memory of the last result before the next is made
            self._output = call()
            return self._output

        self.begin()  # before the sample, so that its time leaves this out
        return keeping

    def read(self) -> None:
        """Read the result that was kept, if there is one. Call this between two samples only."""
        output, self._output = self._output, None
        if output is None:
            return
        pick = (self.copy(), self._elements(output))
        if len(self.picks) < MOST_PICKS:
            self.picks.append(pick)
        else:
            self.picks[self._random.randrange(MOST_PICKS)] = pick
        self._again = not self._again
        poison(output)

    def judge(self) -> None:
        """Compare the kept elements with the expected ones. Raises: WrongResult."""
        self.read()
        for copy, elements in self.picks:
            expected, tolerance = self.expected[copy]
            if len(elements) != len(expected):
                raise WrongResult(f"is {len(elements)} tensors and was {len(expected)}")
            for got, want in zip(elements, expected, strict=True):
                _refuse_difference(got, want, tolerance)

    def _elements(self, output: Any) -> Elements:
        return [self._some(tensor) for tensor in tensors_of(output)]

    def _some(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return elements of *tensor*, at the same places for each tensor of one shape."""
        if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
            return self._some(tensor.view(torch.int8)).view(tensor.dtype)
        count = tensor.numel()
        if count <= ELEMENTS:
            return tensor.detach().reshape(-1).clone()
        generator = torch.Generator().manual_seed(self.seed + count)
        places = torch.randint(count, (ELEMENTS,), generator=generator)
        if tensor.is_contiguous():
            return tensor.detach().view(-1)[places.to(tensor.device)]
        return tensor.detach()[_indexes(places.to(tensor.device), tensor.shape)]


def _indexes(places: torch.Tensor, shape: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Return the indexes of *places*, which count elements of *shape* row by row.

    `torch.unravel_index` does the same after an import of sympy, which takes 0.7 s.
    """
    along: list[torch.Tensor] = []
    for size in reversed(shape):
        along.append(places % size)
        places = places // size
    return tuple(reversed(along))


def _refuse_difference(got: torch.Tensor, want: torch.Tensor, tolerance: float) -> None:
    """Compare the rms of the differences with that of *want*, over all kept elements.

    A single element may be the small difference of large addends, and so inexact.

    Raises: WrongResult.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        raise WrongResult("has another shape or dtype than in the check")
    if not got.numel():
        return
    values, right = got.cpu().double(), want.cpu().double()  # few: see `deviation.FEW`
    met = (values == right) | (torch.isnan(values) & torch.isnan(right))
    finite = torch.isfinite(right)
    error = torch.where(met, 0.0, torch.where(finite, values - right, math.inf))
    size = torch.where(finite, right, 0.0).square().mean().sqrt().clamp_min(1e-300)
    off = (error.square().mean().sqrt() / size).item()
    if not off <= LEEWAY * tolerance:
        raise WrongResult(f"differs by {off:.3g} of the values' size from the one that was checked")
