"""Define the energy of a call, and compute it from readings of a card's counter and its power.

The counter of a GPU's total energy moves in steps, about ten a second, so a trial lasts from one of
its edges to another, while calls follow each other. The energy of a call is the mean power between
the edges times the mean time of a call. How far counter and power are right against a meter at the
wall cannot be known here: they are compared with each other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpuperf.model.samples import student

TRIALS, TRIAL_S, TICKS = 5, 5.0, 50  # least trials, and the least seconds and edges of each
WIDE = 0.05  # half of the interval over the energy, beyond which it is no figure
DISAGREEING = 0.05  # difference of counter and integrated power that gets a caveat
MOST_TRIALS = 1000
LEAST_S, MOST = 1e-6, 1e12  # seconds of a trial, and any number of it in SI: sums stay finite


@dataclass(frozen=True)
class Edge:
    """A step of the counter: the seconds and the joules after it, and half the seconds between the
    two readings that enclose it."""

    time_s: float
    joules: float
    uncertainty_s: float = 0.0


@dataclass(frozen=True)
class Stretch:
    """What the counter and the power say of the time between two edges.

    `integrated_j` is None without readings of the power. `edge_s` is how well the length is known.
    """

    seconds: float
    counter_j: float
    integrated_j: float | None
    ticks: int
    edge_s: float = 0.0

    @property
    def power_w(self) -> float:
        """The mean power by the counter."""
        return self.counter_j / self.seconds


@dataclass(frozen=True)
class EnergyTrial(Stretch):
    """One stretch under load: the mean time of a call in it, the SM clock, and the temperature at
    its start in degrees Celsius."""

    call_s: float = 0.0
    clock_hz: float | None = None
    start_c: float | None = None

    def __post_init__(self) -> None:
        if not self.seconds >= LEAST_S:
            raise ValueError(f"a trial of energy lasts less than {LEAST_S:g} s")
        numbers = (self.seconds, self.counter_j, self.integrated_j, self.edge_s, self.call_s)
        others = (self.clock_hz, self.start_c)
        if not all(abs(number or 0) <= MOST for number in (*numbers, *others)):
            raise ValueError("a number of a trial of energy is impossibly large")

    @property
    def call_j(self) -> float:
        """The energy of one call."""
        return self.power_w * self.call_s


@dataclass(frozen=True)
class Energy:
    """The trials of one case, and the power of the idle card, which has an open context.

    `refused` is the reason why they give no figure (empty: they do).
    """

    trials: tuple[EnergyTrial, ...] = ()
    idle_w: float | None = None
    refused: str = ""

    def __post_init__(self) -> None:
        if len(self.trials) > MOST_TRIALS:
            raise ValueError(f"a case has at most {MOST_TRIALS} trials")
        if not abs(self.idle_w or 0) <= MOST:
            raise ValueError("the power of the idle card is impossibly large")


@dataclass(frozen=True)
class CallEnergy:
    """Joules of a call, gross and net of the idle card, with the half of their 95 % interval."""

    gross_j: float
    half_j: float
    net_j: float | None
    power_w: float
    idle_w: float | None
    counter_over_power: float | None


def between_edges(
    edges: Sequence[Edge], powers: Sequence[tuple[float, float]], start_s: float, end_s: float
) -> Stretch | None:
    """Return the stretch from the first edge after *start_s* to the last before *end_s*.

    *powers* are pairs of seconds and watts. None with fewer than two edges, or a counter that
    began anew.
    """
    inside = [edge for edge in edges if start_s <= edge.time_s <= end_s]
    if len(inside) < 2:
        return None
    first, last = inside[0], inside[-1]
    rising = all(b.joules > a.joules for a, b in pairwise(inside))
    if not rising:
        return None
    return Stretch(
        last.time_s - first.time_s,
        last.joules - first.joules,
        integral(powers, first.time_s, last.time_s),
        len(inside) - 1,
        math.hypot(first.uncertainty_s, last.uncertainty_s),
    )


def integral(powers: Sequence[tuple[float, float]], start_s: float, end_s: float) -> float | None:
    """Return the joules of *powers* from *start_s* to *end_s* by the trapezoidal rule.

    The first and the last reading hold beyond their ends. None with no reading in between.
    """
    inside = [(time_s, watts) for time_s, watts in powers if start_s < time_s < end_s]
    if not inside:
        return None
    points = [(start_s, _at(powers, start_s)), *inside, (end_s, _at(powers, end_s))]
    return sum(
        (later_s - time_s) * (watts + next_w) / 2
        for (time_s, watts), (later_s, next_w) in pairwise(points)
    )


def _at(powers: Sequence[tuple[float, float]], time_s: float) -> float:
    """Return the power at *time_s*, on the line between the readings around it."""
    before = [point for point in powers if point[0] <= time_s]
    after = [point for point in powers if point[0] >= time_s]
    if not before or not after:
        return (before or after)[-1 if before else 0][1]
    (left_s, left_w), (right_s, right_w) = before[-1], after[0]
    share = (time_s - left_s) / (right_s - left_s) if right_s > left_s else 0.0
    return left_w + share * (right_w - left_w)


def refusal(energy: Energy) -> str:
    """Return why *energy* gives no figure; empty if it does."""
    if energy.refused:
        return energy.refused
    if len(energy.trials) < TRIALS:
        return f"{len(energy.trials)} of {TRIALS} trials had edges of the energy counter"
    ticks = min(trial.ticks for trial in energy.trials)
    if ticks < TICKS:
        return f"the energy counter moved {ticks} times in a trial, and {TICKS} are needed"
    mean, half = _interval(energy.trials)
    if mean <= 0 or half > WIDE * mean:
        share = half / mean if mean > 0 else math.inf
        return f"the energy is known to ± {share * 100:.1f} % only"
    return ""


def call_energy(energy: Energy | None) -> CallEnergy | None:
    """Return the energy of a call; None where the trials give no figure."""
    if energy is None or refusal(energy):
        return None
    trials = energy.trials
    gross, half = _interval(trials)
    call_s = statistics.fmean(trial.call_s for trial in trials)
    integrals = [t.integrated_j for t in trials if t.integrated_j is not None]
    counted = sum(trial.counter_j for trial in trials)
    whole = len(integrals) == len(trials) and sum(integrals) > 0
    return CallEnergy(
        gross_j=gross,
        half_j=half,
        net_j=None if energy.idle_w is None else gross - energy.idle_w * call_s,
        power_w=statistics.fmean(trial.power_w for trial in trials),
        idle_w=energy.idle_w,
        counter_over_power=counted / sum(integrals) if whole else None,
    )


def _interval(trials: Sequence[EnergyTrial]) -> tuple[float, float]:
    """Return the mean energy of a call over *trials*, and half of its 95 % interval.

    It has two terms: the scatter of the trials by Student's t, and that of the edges, whose errors
    are independent.
    """
    values = [trial.call_j for trial in trials]
    mean, count = statistics.fmean(values), len(values)
    scatter = student(count - 1) * statistics.stdev(values) / math.sqrt(count)
    edges = math.hypot(*(t.call_j * t.edge_s / t.seconds for t in trials)) / count
    return mean, math.hypot(scatter, 2 * edges)
