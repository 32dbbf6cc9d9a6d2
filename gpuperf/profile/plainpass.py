"""Choose the steps of the plain passes that give the time of a step.

The first plain pass comes before any profiler. A second one follows all other passes, if the
program still runs: it has more steps, and the card is warm. But CUPTI stays in the process and
lengthens each launch, so the second pass only counts where launches hardly matter. Steps before the
times became steady do not count. The time of a step is the mean of the steady ones, each from the
mark at its beginning to that at its end; `gpuperf.step()` is both for two successive steps.
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
AHEAD = 0.9  # share of steps launched before the device began them: then launches do not matter
BEHIND_S, HARDLY = 2.5e-6, 0.005  # seconds that CUPTI adds to a launch; share of a step to allow
MOST_BLOCKS = 100  # blocks of steps, whose medians are searched for a change of level
SOME = 5  # steps from which on a scatter is stated
SCATTERS = 0.02  # relative half-width of the mean's interval from which on there is a caveat
CHANGES = 0.02  # relative change of the median from the first to the last third of the steps
ODD = 1.5  # times the median: a step that takes longer is odd
PHASES = 0.05  # relative change of level from which on it is a caveat


def choose_plain_pass(
    passed: Sequence[PassResult], launches: float, cuda: bool
) -> tuple[PassResult, ...]:
    """Return *passed* with one of its plain passes, cut to its steady steps, before the others.

    *launches* is the number of launches in a step, *cuda* whether a GPU was profiled.
    """
    plain = _better(passed, launches, cuda)
    rest = tuple(one for one in passed if one.name != "plain")
    return rest if plain is None else (_steady(plain), *rest)


def _better(passed: Sequence[PassResult], launches: float, cuda: bool) -> PassResult | None:
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
    """Return *plain* without the steps before its last change of level.

    If the level changes in the second half, the change belongs to the program, and all steps stay.
    """
    cuts = _changes(plain.steps_s)
    half = len(plain.steps_s) / 2
    if not cuts or cuts[-1] > half:
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
    """Return the seconds of a step, the mean of *samples*."""
    return statistics.fmean(samples.values_s)


@lru_cache(maxsize=8)
def _changes(times: tuple[float, ...]) -> list[int]:
    """Return the numbers of the steps before which the level of *times* changes."""
    if len(times) < 2 * LEAST or min(times) <= 0:
        return []
    size = -(-len(times) // MOST_BLOCKS)
    blocks = [statistics.median(times[i : i + size]) for i in range(0, len(times), size)]
    return [one.at * size for one in find_change_points([blocks])[0]]


def phases_caveat(passed: Sequence[PassResult], launches: float, cuda: bool) -> Caveat | None:
    """Return a caveat if the time of a step changed during the plain pass that counts."""
    plain = _better(passed, launches, cuda)
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
    which = f"the mean of the last {counted}" if counted < plain.steps else "the mean of all"
    return Caveat(
        "phases",
        f"the time of steps changes: the first {cuts[0]} of {len(times)} took "
        f"{format_time(means[0])} each, {later}",
        f"the time of a step is {which}: choose other steps with --warmup and --steps",
    )


def scatter_caveat(plain: PassResult) -> Caveat | None:
    """Return a caveat if the mean time of a step is uncertain by more than `SCATTERS`: how its
    steps differ, and what to do about it."""
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
        hint = "use more --steps if such steps belong to the program"
    elif abs(end / begin - 1) > CHANGES:
        what = f"they went from {format_time(begin)} to {format_time(end)} in the plain pass"
        hint = "the clock of a card falls as it warms up: use more --warmup and --steps"
    else:
        low, high = samples.quantile_s(0.1), samples.quantile_s(0.9)
        what = f"most take between {format_time(low)} and {format_time(high)}"
        hint = "use more --steps, on a machine without other work"
    return Caveat("scatter", f"the times of steps scatter: {what}", hint)
