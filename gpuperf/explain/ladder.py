"""Compute the ratios of neighbouring quantities between a peak and an attained rate.

The quantities are the rungs of a ladder; ratios skip unknown rungs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

How = Literal["measured", "modelled", "remainder"]
Chain = Literal["compute", "memory"]

SMALLEST, LARGEST = 1e-30, 1e40  # of a rung: a run file may hold any number

# The losses between rungs, in the order of each chain.
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
TIE = "counter pass"  # the difference between the counter pass and the timed pass, which is no loss
LAUNCHES, GAPS, CLOCK = "launches", "gaps between kernels", "clock"


class Rung(NamedTuple):
    """A quantity between peak and attained rate, and how it is known; None if it is unknown."""

    value: float | None
    how: How = "measured"


@dataclass(frozen=True)
class Factor:
    """The ratio of two neighbouring known rungs, and the losses of `STEPS` between them."""

    steps: tuple[str, ...]
    value: float
    how: How

    @property
    def name(self) -> str:
        """Return the names of the losses in `steps`, joined by commas."""
        return ", ".join(self.steps)

    @property
    def loss(self) -> float:
        """Return −log of `value`, so that the losses of several factors add up."""
        return -math.log(self.value)


def factors_of(chain: Chain, ladder: Sequence[Rung], absent: set[str]) -> tuple[Factor, ...]:
    """Return the factors between known rungs, without losses that are *absent* from the time.

    The first known rung equals peak · T, since all losses before it are absent.
    """
    known = [
        (place, rung)
        for place, rung in enumerate(ladder)
        if rung.value is not None and SMALLEST < rung.value < LARGEST
    ]
    factors = []
    for (start, above), (end, below) in pairwise(known):
        assert above.value is not None and below.value is not None  # for mypy
        steps = tuple(step for step in STEPS[chain][start:end] if step not in absent)
        if not steps:
            continue
        # The last rung, the case's own work, is exact: a factor from a modelled rung to it is
        # modelled.
        # A factor from a modelled rung to any other also holds the error of the model.
        last = end == len(ladder) - 1
        how: How = "modelled" if "modelled" in (above.how, below.how) else "measured"
        if len(steps) > 1 or (above.how == "modelled" and not last):
            how = "remainder"
        factors.append(Factor(steps, below.value / above.value, how))
    return tuple(factors)
