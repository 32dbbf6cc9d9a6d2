"""Take samples until their median is precise enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from gpuperf.measure.timers.timer import Sample
from gpuperf.model.contract import Contract
from gpuperf.model.record import TimerFacts
from gpuperf.model.samples import Samples

# Fewer samples do not show their own spread, so even a slow call gets this many.
FEWEST_SAMPLES = 3

# The stopping rule computes the interval many times, and it may be narrow once by chance. In two
# cases the rule asks for more. With two modes the interval of the median is narrow as soon as the
# median lies in one of them: the ranks of the interval are then twice as far apart, and at least 40
# samples are taken. Correlated samples are worth fewer independent ones, of which ten are needed,
# unless all samples lie within half the precision. tests/roofline/test_coverage.py simulates both.
TWO_MODES_SAMPLES, TWO_MODES_WIDENED = 40, 2.0
LEAST_EFFECTIVE = 10

LONGEST_REST_S = 0.25
RECOVERED = 0.98  # of the SM clock of a rested device, from which on the clock has recovered

# Takes up to a number of samples, each after a rest of some seconds, and returns those it took.
Draw = Callable[[int, float], Sequence[Sample]]


@dataclass(frozen=True)
class SamplingResult:
    """The samples of one case, and the reason why sampling stopped."""

    samples: Samples
    stop: Literal["precision", "budget", "samples"]


@dataclass
class Rest:
    """The rest of the device before each sample, so that no sample inherits a lowered clock.

    `idle_s` seconds are the contract's gap, or more for a long call, so that the device is busy for
    at most the contract's `duty`. They double, up to `LONGEST_REST_S`, whenever the SM clock just
    before a sample was below that of a rested device; `unrecovered` counts these samples.
    """

    contract: Contract
    call_s: float
    rested_hz: float | None = None
    idle_s: float = field(init=False)
    unrecovered: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        duty_s = self.call_s * (1 / self.contract.duty - 1)
        self.idle_s = max(self.contract.gap_s, min(duty_s, LONGEST_REST_S))

    def observe(self, drawn: Sequence[Sample]) -> None:
        """Lengthen the rest if the SM clock before any of the samples *drawn* was too low."""
        if not (self.rested_hz and self.contract.gap_s):
            return
        least = RECOVERED * self.rested_hz
        slow = sum(sample.before_hz is not None and sample.before_hz < least for sample in drawn)
        self.unrecovered += slow
        if slow:
            self.idle_s = min(2 * self.idle_s, max(LONGEST_REST_S, self.contract.gap_s))


def is_known(samples: Samples, precision: float) -> bool:
    """Return whether the 95 % interval of the median is within ± *precision*, a fraction.

    Samples with two modes and correlated samples must meet stricter rules (see the constants).
    """
    if samples.sampling_precision > precision:
        return False
    if samples.has_two_modes:
        return (
            samples.size >= TWO_MODES_SAMPLES
            and samples.widened_precision(TWO_MODES_WIDENED) <= precision
        )
    width = samples.quantile_s(1.0) - samples.quantile_s(0.0)
    return (
        samples.effective_size >= min(LEAST_EFFECTIVE, samples.size)
        or width <= precision / 2 * samples.median_s
    )


def take_samples(
    draw: Draw,
    contract: Contract,
    facts: TimerFacts,
    rest: Rest,
    at_once: int = 1,
    first: Sequence[Sample] = (),
    on_sample: Callable[[int], None] = lambda count: None,
    now: Callable[[], float] = time.perf_counter,
    windows: int = 1,
) -> SamplingResult:
    """Take samples, after *first*, until the median's interval is as narrow as the contract asks.

    Sampling stops at `precision` from `min_samples` on (later where the samples have two modes or
    are correlated), at `budget_s` seconds from `FEWEST_SAMPLES` on, or at `max_samples`. The
    interval is computed again after each tenth more samples, which costs little and makes a stop by
    chance unlikely. *draw* is asked for up to *at_once* samples, as many as the budget has time
    for. The floor in *facts* is subtracted from each sample, which is the mean of *windows* windows
    around one call each.
    """
    start = now()
    taken = list(first)
    rest.observe(first)
    look_at = contract.min_samples
    while True:
        count, left_s = len(taken), contract.budget_s - (now() - start)
        spent = left_s <= 0 and count >= FEWEST_SAMPLES
        if count and (count >= look_at or spent or count >= contract.max_samples):
            samples = Samples(
                tuple(sample.time_s - facts.floor_s for sample in taken),
                tuple(sample.clock_hz for sample in taken),
                facts.tick_s / windows,  # a mean of *windows* times changes in steps of this
                facts.floor_uncertainty_s,
                windows=windows,
            )
            if count >= contract.min_samples and is_known(samples, contract.precision):
                return SamplingResult(samples, "precision")
            if spent or count >= contract.max_samples:
                return SamplingResult(samples, "budget" if spent else "samples")
            look_at = count + max(1, count // 10, min(at_once, count) // 2)
        each_s = windows * (rest.idle_s + rest.call_s)
        room = int(max(0.0, left_s) / max(each_s, 1e-6))
        wanted = min(look_at, contract.max_samples) - count
        drawn = draw(max(1, min(wanted, at_once, max(room, FEWEST_SAMPLES))), rest.idle_s)
        rest.observe(drawn)
        if not drawn:  # no further samples can be taken
            contract = replace(contract, max_samples=count)
        taken += drawn
        on_sample(len(taken))
