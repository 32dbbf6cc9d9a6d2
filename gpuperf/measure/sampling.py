"""When is a median known well enough?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gpuperf.measure.timers.timer import Call, Timer
from gpuperf.model.contract import Contract
from gpuperf.model.samples import Samples

__all__ = ["FEWEST_SAMPLES", "Taken", "take_samples"]

# However slow the call, a median of fewer says nothing of its own spread.
FEWEST_SAMPLES = 3


@dataclass(frozen=True)
class Taken:
    """The samples of one case, and why there are no more."""

    samples: Samples
    stop: Literal["precision", "budget", "samples"]


def take_samples(
    timer: Timer,
    call: Call,
    contract: Contract,
    on_sample: Callable[[int], None] = lambda count: None,
    now: Callable[[], float] = time.perf_counter,
) -> Taken:
    """Sample *call* until the median's interval is as narrow as the contract asks.

    At `precision` from `min_samples` on, at `budget_s` seconds from `FEWEST_SAMPLES` on, or at
    `max_samples`. The interval is looked at after ever longer stretches (a tenth more samples each
    time), so that looking costs little and does not itself make a stop by luck likely.
    """
    start = now()
    values: list[float] = []
    clocks: list[float | None] = []
    look_at = contract.min_samples
    while True:
        taken = timer.sample(call, contract.gap_s, contract.cache == "cold")
        values.append(taken.time_s)
        clocks.append(taken.clock_hz)
        count = len(values)
        on_sample(count)
        spent = now() - start >= contract.budget_s and count >= FEWEST_SAMPLES
        if count < look_at and not spent and count < contract.max_samples:
            continue
        look_at = count + max(1, count // 10)
        samples = Samples(
            tuple(values), tuple(clocks), timer.facts.tick_s, timer.facts.floor_uncertainty_s
        )
        if count >= contract.min_samples and samples.sampling_precision <= contract.precision:
            return Taken(samples, "precision")
        if spent or count >= contract.max_samples:
            return Taken(samples, "budget" if spent else "samples")
