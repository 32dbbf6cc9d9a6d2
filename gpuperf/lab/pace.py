"""Share the time of `lab all --budget` among the experiments that are left."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpuperf.model.experiment import READING, ExperimentDescription

CASE_S, LEAST_S = 0.5, 0.05  # for which a case is sampled, and the least of it under a budget
BESIDE_S = 1.0  # of the build, the check and the warm-up of a case, until some have been measured


class Pace:
    """How long each case of the experiments that are left is sampled.

    What a case takes beside its samples is known once some have been measured. *budget_s* is for
    all experiments together; without it a case has `CASE_S`.
    """

    def __init__(self, budget_s: float | None, processes: int) -> None:
        self._end = None if budget_s is None else time.monotonic() + budget_s
        self._processes = processes
        self._began, self._done, self._sampled_s = time.monotonic(), 0, 0.0

    def case_s(self, left: Sequence[ExperimentDescription]) -> float | None:
        """Return the seconds of a case of the first of *left*; None if no time is left."""
        if self._end is None:
            return CASE_S
        now, cases = time.monotonic(), sum(map(self._cases, left))
        if now >= self._end:
            return None
        beside_s = BESIDE_S
        if self._done:
            beside_s = max(0.0, (now - self._began - self._sampled_s) / self._done)
        return max(LEAST_S, min(CASE_S, (self._end - now) / cases - beside_s))

    def measured(self, experiment: ExperimentDescription, case_s: float) -> None:
        """Note that the cases of *experiment* were sampled for *case_s* seconds each."""
        cases = self._cases(experiment)
        self._done += cases
        self._sampled_s += case_s * cases

    def _cases(self, experiment: ExperimentDescription) -> int:
        count = max(1, len(experiment.implementations))
        for values in experiment.axes.values():
            count *= len(values)
        return self._processes * (count + len(experiment.controls))


def by_cost(experiments: Sequence[ExperimentDescription]) -> list[ExperimentDescription]:
    """Return *experiments* with those last whose cases take longest: first those that need
    counters, then those whose calls measure something themselves, for an unknown time."""
    return sorted(
        experiments, key=lambda each: (each.y.startswith(READING), "counters" in each.needs)
    )
