"""What is left from one quantity of a ladder to the next, where not every rung is known?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

How = Literal["measured", "modelled", "remainder"]
Chain = Literal["compute", "memory"]

SMALLEST, LARGEST = 1e-30, 1e40  # a stranger's file may hold any number

# What each step is, in the order of its chain.
STEPS: Mapping[Chain, tuple[str, ...]] = {
    "compute": (
        "launches",
        "gaps between kernels",
        "clock",
        "counter pass",
        "ramp and tail",
        "feeding",
        "instruction path",
        "padding",
    ),
    "memory": (
        "launches",
        "gaps between kernels",
        "memory's own best",
        "keeping memory busy",
        "extra bytes",
    ),
}
TIE = "counter pass"  # how the pass that counted differs from the one that was timed: no cause
LAUNCHES, GAPS, CLOCK = "launches", "gaps between kernels", "clock"


class Rung(NamedTuple):
    """A quantity of the ladder and how it is known; None where it is not."""

    value: float | None
    how: How = "measured"


@dataclass(frozen=True)
class Factor:
    """One step: what is left of the rung before it, and which of `STEPS` it takes at once."""

    steps: tuple[str, ...]
    value: float
    how: How

    @property
    def name(self) -> str:
        """Its steps in words."""
        return ", ".join(self.steps)

    @property
    def loss(self) -> float:
        """−log of the factor: losses add up."""
        return -math.log(self.value)


def factors_of(chain: Chain, ladder: Sequence[Rung], absent: set[str]) -> tuple[Factor, ...]:
    """The steps between rungs that are known, but for those that are *absent*: they cannot be.

    The first rung that is known stands for peak · T, since only absent steps are before it.
    """
    known = [
        (place, rung)
        for place, rung in enumerate(ladder)
        if rung.value is not None and SMALLEST < rung.value < LARGEST
    ]
    found = []
    for (start, above), (end, below) in pairwise(known):
        assert above.value is not None and below.value is not None  # for mypy
        steps = tuple(step for step in STEPS[chain][start:end] if step not in absent)
        if not steps:
            continue
        # From a model to the asked work, which is exact, the step is the model's; to any other rung
        # it is also what the model missed.
        last = end == len(ladder) - 1
        how: How = "modelled" if "modelled" in (above.how, below.how) else "measured"
        if len(steps) > 1 or (above.how == "modelled" and not last):
            how = "remainder"
        found.append(Factor(steps, below.value / above.value, how))
    return tuple(found)
