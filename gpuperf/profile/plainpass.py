"""Which steps of the plain passes tell what a step of the program takes?

The first plain pass comes before any profiler. A second one follows all other passes, where the
program still runs: it has more steps, and a card that is as warm as it will be. But CUPTI stays in
the process, where each launch takes longer, so that it only counts where launches hardly matter.
Steps of either before its times became steady do not count. What a step takes is the mean of the
others: that of a clock around the program's loop, with whatever the loop does between steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from gpuperf.model.changepoints import LEAST, find_change_points
from gpuperf.model.program import PassResult
from gpuperf.model.record import Caveat
from gpuperf.model.samples import Samples, mean_precision
from gpuperf.units import format_time

FEWEST = 10  # steps of a second pass that counts
AHEAD = 0.9  # of its steps that the device had not begun when they ended: launches do not matter
BEHIND_S, HARDLY = 2.5e-6, 0.005  # what a launch takes more behind a trace; the share that may be
MOST_BLOCKS = 100  # of steps, whose medians are searched for a change of level
SOME = 5  # steps of which a scatter is told
SCATTERS, CHANGES = 0.02, 0.02  # half-width of the mean's interval; of medians between thirds
ODD = 1.5  # times the median: a step that takes longer is odd
PHASES = 0.05  # a change of level of so much is told


def choose_plain_pass(
    passed: Sequence[PassResult], launches: float, cuda: bool
) -> tuple[PassResult, ...]:
    """*passed* with one plain pass at the most: that which tells more, of a step with so many
    *launches*, from where its steps became steady."""
    plain = _telling(passed, launches, cuda)
    rest = tuple(one for one in passed if one.name != "plain")
    return rest if plain is None else (_steady(plain), *rest)


def _telling(passed: Sequence[PassResult], launches: float, cuda: bool) -> PassResult | None:
    plain = [one for one in passed if one.name == "plain"]
    if not plain:
        return None
    first, later = plain[0], plain[-1]
    if len(plain) > 1 and later.steps >= FEWEST and _trusted(later, launches, cuda):
        return replace(later, reason="")
    return first


def _trusted(later: PassResult, launches: float, cuda: bool) -> bool:
    mean_s = later.wall_s / later.steps
    ahead = later.ahead >= AHEAD * later.steps
    return not cuda or ahead or launches * BEHIND_S < HARDLY * mean_s


def _steady(plain: PassResult) -> PassResult:
    """*plain* without the steps before its level last changed, if it never does in the second
    half."""
    cuts = _changes(plain.steps_s)
    half = len(plain.steps_s) / 2
    if not cuts or cuts[-1] > half:  # a time that goes on changing is of the program
        return plain
    times, cut = plain.steps_s, cuts[-1]
    left = len(times) - cut
    share = left / len(times)
    return replace(
        plain,
        steps=left,
        steps_s=times[cut:],
        wall_s=sum(times[cut:]),
        ahead=min(left, round(plain.ahead * share)),
        data_s=plain.data_s * share,
    )


def step_s(samples: Samples) -> float:
    """Seconds of a step: the mean."""
    return statistics.fmean(samples.values_s)


@lru_cache(maxsize=8)
def _changes(times: tuple[float, ...]) -> list[int]:
    """Before which steps the level of *times* changes."""
    if len(times) < 2 * LEAST or min(times) <= 0:
        return []
    size = -(-len(times) // MOST_BLOCKS)
    blocks = [statistics.median(times[i : i + size]) for i in range(0, len(times), size)]
    return [one.at * size for one in find_change_points([blocks])[0]]


def phases_caveat(passed: Sequence[PassResult], launches: float, cuda: bool) -> Caveat | None:
    """Whether the steps of the plain pass that counts took one time first and another later."""
    plain = _telling(passed, launches, cuda)
    cuts = _changes(plain.steps_s) if plain else []
    if plain is None or not cuts:
        return None
    times = plain.steps_s
    means = [statistics.fmean(times[a:b]) for a, b in pairwise((0, *cuts, len(times)))]
    if max(means) <= (1 + PHASES) * min(means):
        return None
    later = f"later ones {format_time(means[1])}"
    if len(means) > 2:
        least, most = format_time(min(means[1:])), format_time(max(means[1:]))
        later = f"later ones between {least} and {most}"
    counted = _steady(plain).steps
    which = f"of the last {counted}" if counted < plain.steps else "the mean of all"
    return Caveat(
        "phases",
        f"steps take another time later: the first {cuts[0]} of {len(times)} took "
        f"{format_time(means[0])}, {later}",
        f"the time of a step is {which}: --warmup and --steps choose others",
    )


def scatter_caveat(plain: PassResult) -> Caveat | None:
    """What makes the time of a step uncertain, where it is."""
    if len(plain.steps_s) < SOME:
        return None
    samples = Samples(plain.steps_s)
    if mean_precision(samples.values_s) <= SCATTERS:
        return None
    third = max(1, samples.size // 3)
    begin, end = (
        statistics.median(part) for part in (samples.values_s[:third], samples.values_s[-third:])
    )
    odd = [value for value in samples.values_s if value > ODD * samples.median_s]
    if odd:
        what = f"{len(odd)} of {samples.size} take up to {format_time(max(odd))}"
        hint = "give --steps more where such steps belong to the program"
    elif abs(end / begin - 1) > CHANGES:
        what = f"they went from {format_time(begin)} to {format_time(end)} in the plain pass"
        hint = "a card that warms up has a falling clock: give --warmup and --steps more"
    else:
        low, high = samples.quantile_s(0.1), samples.quantile_s(0.9)
        what = f"most take between {format_time(low)} and {format_time(high)}"
        hint = "give --steps more, and the machine no other work"
    return Caveat("scatter", f"the times of steps scatter: {what}", hint)
