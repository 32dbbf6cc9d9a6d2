"""Which steps of the plain passes tell what a step of the program takes?

The first plain pass comes before any profiler. A second one follows all other passes, where the
program still runs: it has more steps, and a card that is as warm as it will be. But CUPTI stays in
the process, where each launch takes longer, so that it only counts where launches hardly matter.
Steps of either before its times became steady do not count.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from gpuperf.analysis.steps import LEAST, find_steps
from gpuperf.model.program import Passed
from gpuperf.model.record import Caveat
from gpuperf.model.samples import Samples
from gpuperf.units import format_time

__all__ = ["chosen", "scatter", "step_s"]

FEWEST = 10  # steps of a second pass that counts
AHEAD = 0.9  # of its steps that the device had not begun when they ended: launches do not matter
BEHIND_S, HARDLY = 2.5e-6, 0.005  # what a launch takes more behind a trace; the share that may be
MOST_BLOCKS = 100  # of steps, whose medians are searched for a change of level
SOME = 5  # steps of which a scatter is told
SCATTERS, CHANGES = 0.02, 0.02  # half-width of the interval, and of medians between thirds
ODD = 1.5  # times the median: a step that takes longer is odd
UNLIKE = 0.01  # what median and mean may differ before the mean is what a step takes


def chosen(passed: Sequence[Passed], launches: float, cuda: bool) -> tuple[Passed, ...]:
    """*passed* with one plain pass at the most: that which tells more, of a step with so many
    *launches*, from where its steps became steady."""
    plain = [one for one in passed if one.name == "plain"]
    rest = tuple(one for one in passed if one.name != "plain")
    if not plain:
        return rest
    first, later = plain[0], plain[-1]
    if len(plain) > 1 and later.steps >= FEWEST and _trusted(later, launches, cuda):
        first = replace(later, reason="")
    return (_steady(first), *rest)


def _trusted(later: Passed, launches: float, cuda: bool) -> bool:
    mean_s = later.wall_s / later.steps
    ahead = later.ahead >= AHEAD * later.steps
    return not cuda or ahead or launches * BEHIND_S < HARDLY * mean_s


def _steady(plain: Passed) -> Passed:
    """*plain* without the steps before its level last changed in the first half."""
    times = plain.steps_s
    if len(times) < 2 * LEAST or min(times) <= 0:
        return plain
    size = -(-len(times) // MOST_BLOCKS)
    blocks = [statistics.median(times[i : i + size]) for i in range(0, len(times), size)]
    early = [one.at for one in find_steps([blocks])[0] if one.at <= len(blocks) / 2]
    if not early:
        return plain
    cut = early[-1] * size
    left = len(times) - cut
    share = left / len(times)
    return replace(
        plain, steps=left, steps_s=times[cut:], wall_s=sum(times[cut:]),
        ahead=min(left, round(plain.ahead * share)), data_s=plain.data_s * share,
    )  # fmt: skip


def step_s(samples: Samples) -> float:
    """Seconds of a step: the median, or the mean where some steps take longer again and again, as
    those do that wait for data. A single odd step is left out of the mean."""
    median_s, values = samples.median_s, samples.values_s
    odd = [value for value in values if value > ODD * median_s]
    if len(odd) == 1 and samples.size >= SOME:
        values = tuple(value for value in values if value != odd[0])
    mean_s = statistics.fmean(values)
    return mean_s if abs(mean_s / median_s - 1) > UNLIKE else median_s


def scatter(plain: Passed) -> Caveat | None:
    """What makes the time of a step uncertain, where it is."""
    if len(plain.steps_s) < SOME:
        return None
    samples = Samples(plain.steps_s)
    if samples.precision <= SCATTERS:
        return None
    third = max(1, samples.size // 3)
    begin, end = (statistics.median(part) for part in (samples.values_s[:third],
                                                       samples.values_s[-third:]))  # fmt: skip
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
