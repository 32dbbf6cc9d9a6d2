"""Judge which cases are slower in one stored run than in another.

The processes of two runs are not pairs: they ran at different times. So their medians are two
samples, compared by Welch's t-test and a permutation of lower-half means against the margin. If a
side has too few processes to estimate their scatter, that of earlier processes of the case is used
(`Record.noise`); without that the case is inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import geometric_mean

from gpuperf.gate.rule import NO_TIMES, Judged, Rule, Statistics, are_times, verdicts_of
from gpuperf.gate.significance import permuted

# The default margin. Each run is one session, and two sessions of unchanged code differ by about
# 1 %: under four times that, a difference says nothing about the code. `gate ab` tolerates 1 %.
SESSION = 0.04
ENOUGH = 6  # processes of each side that suffice to estimate their scatter
LEAST_ERROR = 1e-9  # least standard error of a log ratio, that of times that are all equal


@dataclass(frozen=True)
class Sets:
    """The median seconds of one case in each process of both runs.

    `noise` is the standard deviation between earlier `processes`, as a fraction; `margin` is the
    slowdown that the case tolerates, used if it is more than the rule's.
    """

    base: tuple[float, ...]
    head: tuple[float, ...]
    noise: float | None = None
    processes: int = 0
    margin: float | None = None

    @property
    def sound(self) -> bool:
        """Return whether each side has a time, and all values are plausible times."""
        return bool(self.base and self.head) and are_times((*self.base, *self.head))

    @property
    def scatter_known(self) -> bool:
        """Return whether each side has enough processes to estimate their scatter."""
        return min(len(self.base), len(self.head)) >= ENOUGH


def judge_stored(cases: Mapping[str, Sets], rule: Rule) -> dict[str, Judged]:
    """Return the verdict on each of *cases*, with multiplicity over those that can be judged."""
    untested = {name: _without_test(sets) for name, sets in cases.items()}
    tested = {name: sets for name, sets in cases.items() if untested[name] is None}
    judged = untested | verdicts_of(_statistics(tested, rule), rule)
    return {name: verdict for name, verdict in judged.items() if verdict is not None}


def may_be_permuted(sets: Sets, rule: Rule) -> bool:
    """Return whether judging *sets* may take a permutation test: each side has enough processes,
    and the fastest of the head is slower than the fastest of the base by more than the margin."""
    if not sets.sound or not sets.scatter_known:
        return False
    return math.log(min(sets.head)) - _margin(sets, rule) > math.log(min(sets.base))


def _without_test(sets: Sets) -> Judged | None:
    """Return the verdict on a case that cannot be tested, without times or with too few processes;
    None for a case that can be tested."""
    if not sets.sound:
        return Judged("NOT_COMPARABLE", reason=NO_TIMES)
    if sets.scatter_known or (sets.noise is not None and sets.noise > 0 and sets.processes > 2):
        return None
    reason = (
        f"{len(sets.base)} and {len(sets.head)} processes are too few to estimate their scatter: "
        f"measure with --passes {ENOUGH} or more"
    )
    change = geometric_mean(sets.head) / geometric_mean(sets.base) - 1
    return Judged("INCONCLUSIVE", change, reason=reason)


def _statistics(cases: Mapping[str, Sets], rule: Rule) -> dict[str, Statistics]:
    """Return the test statistics of all cases, computed together for equal process counts."""
    groups: dict[tuple[int, int], list[str]] = {}
    for name, sets in cases.items():
        groups.setdefault((len(sets.base), len(sets.head)), []).append(name)
    statistics: dict[str, Statistics] = {}
    for names in groups.values():
        statistics |= _of_group({name: cases[name] for name in names}, rule, len(cases))
    return {name: statistics[name] for name in cases}


def _of_group(cases: Mapping[str, Sets], rule: Rule, judged: int) -> dict[str, Statistics]:
    import numpy
    from scipy.special import stdtr, stdtrit

    base = numpy.log(numpy.array([sets.base for sets in cases.values()]))
    head = numpy.log(numpy.array([sets.head for sets in cases.values()]))
    wanted = numpy.array([_margin(sets, rule) for sets in cases.values()])
    own = all(sets.scatter_known for sets in cases.values())
    change = head.mean(axis=1) - base.mean(axis=1)
    if own:
        parts = [side.var(axis=1, ddof=1) / side.shape[1] for side in (base, head)]
        error = numpy.sqrt(parts[0] + parts[1])
        tiny = numpy.finfo(float).tiny
        freedom = (parts[0] + parts[1] + tiny) ** 2 / (
            parts[0] ** 2 / (base.shape[1] - 1) + parts[1] ** 2 / (head.shape[1] - 1) + tiny
        )
    else:
        noise = numpy.array([sets.noise for sets in cases.values()], dtype=float)
        error = noise * math.sqrt(1 / base.shape[1] + 1 / head.shape[1])
        freedom = numpy.array([sets.processes - 1 for sets in cases.values()], dtype=float)
    error = numpy.maximum(error, LEAST_ERROR)
    slower, faster, above, below = (
        stdtr(freedom, -far / error)
        for far in (change - wanted, -change - wanted, change + wanted, wanted - change)
    )
    if own:
        alike = numpy.ones(len(cases))
        for i, sets in enumerate(cases.values()):
            # No permutation has a p below its resolution: where the t-test has, it is the smaller.
            if slower[i] >= 1 / (rule.resamples + 1) and may_be_permuted(sets, rule):
                moved = head[i] - wanted[i]
                alike[i] = permuted(moved, base[i], "independent", rule.resamples, rule.seed)
        slower = numpy.minimum(1.0, 2 * numpy.minimum(slower, alike))
    level = min(0.5, rule.alpha / judged / (2 if own else 1))
    detectable = wanted + (stdtrit(freedom, rule.power) - stdtrit(freedom, level)) * error
    reach = stdtrit(freedom, 0.975) * error
    outside = numpy.maximum(above, below)
    columns = (slower, faster, outside, change, change - reach, change + reach, detectable)
    rows = zip(cases, *(column.tolist() for column in columns), strict=True)
    return {name: Statistics(*values) for name, *values in rows}


def _margin(sets: Sets, rule: Rule) -> float:
    """Return the tolerated slowdown of a case as a log ratio: the largest of the rule's, the case's
    own, and `floor_s` over the base's median."""
    wanted = max(rule.margin, sets.margin or 0.0)
    return math.log1p(max(wanted, rule.floor_s / sorted(sets.base)[len(sets.base) // 2]))
