"""Which cases are slower in one stored run than in another?

The processes of two runs are no pairs: they ran at other times. So their medians are two samples,
judged by Welch's t-test and a permutation of lower-half means against the margin. Where a side has
too few processes to tell how far they scatter, what earlier processes saw of the case serves
(`Record.noise`); without that there is no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuperf.gate.rule import Judged, Rule, Verdict, are_times, permuted

# A session by itself moves a time by about 1 %, and a run is of one session: what is less than four
# times that tells nothing of the code. Pairs (`gate ab`) see a quarter of it.
SESSION = 0.04
ENOUGH = 6  # processes a side: from here on they tell their own scatter


@dataclass(frozen=True)
class Sets:
    """Of one case, the median seconds of each process of both runs; how far its processes scatter
    elsewhere, as a fraction, seen over so many; and the case's own margin, which may only widen the
    rule's."""

    base: tuple[float, ...]
    head: tuple[float, ...]
    noise: float | None = None
    processes: int = 0
    margin: float | None = None

    @property
    def sound(self) -> bool:
        """Whether each side has a time, and all are times."""
        return bool(self.base and self.head) and are_times((*self.base, *self.head))


@dataclass(frozen=True)
class _Tests:
    """p of slower, of faster, of not within the margin; and what a slowdown takes to be seen."""

    slower: float
    faster: float
    outside: float
    detectable: float
    low: float
    high: float
    change: float


def judge_stored(cases: Mapping[str, Sets], rule: Rule) -> dict[str, Judged]:
    """The verdict on each of *cases*, with multiplicity over those that can be judged."""
    found = {name: _without_test(sets) for name, sets in cases.items()}
    judged = {name: sets for name, sets in cases.items() if found[name] is None}
    if judged:
        tests = _tests(judged, rule)
        slower = adjusted([test.slower for test in tests.values()])
        faster = adjusted([test.faster for test in tests.values()])
        for i, (name, test) in enumerate(tests.items()):
            found[name] = _judged(test, slower[i], faster[i], rule)
    return {name: verdict for name, verdict in found.items() if verdict is not None}


def may_be_permuted(sets: Sets, rule: Rule) -> bool:
    """Whether judging *sets* may take a permutation: its processes tell their own scatter, and the
    fastest of the head is slower than the fastest of the base by more than the margin."""
    if not sets.sound or min(len(sets.base), len(sets.head)) < ENOUGH:
        return False
    return math.log(min(sets.head)) - _margin(sets, rule) > math.log(min(sets.base))


def adjusted(p: Sequence[float]) -> list[float]:
    """Each of *p* after Benjamini and Hochberg: the least rate of false discoveries at which it
    would be one. (scipy.stats has it too, and takes as long to import as ten thousand cases take
    to be judged.)"""
    import numpy

    values = numpy.asarray(p, float)
    order = values.argsort()[::-1]
    scaled = values[order] * len(values) / numpy.arange(len(values), 0, -1)
    found = numpy.empty(len(values))
    found[order] = numpy.minimum(numpy.minimum.accumulate(scaled), 1.0)
    return [float(q) for q in found]


def _without_test(sets: Sets) -> Judged | None:
    """What is said of a case that cannot be tested."""
    if not sets.sound:
        return Judged("NOT_COMPARABLE", reason="times are missing or are none")
    if min(len(sets.base), len(sets.head)) >= ENOUGH:
        return None
    if sets.noise is not None and sets.noise > 0 and sets.processes > 2:
        return None
    change = _middle(sets.head) / _middle(sets.base) - 1
    reason = (
        f"{len(sets.base)} and {len(sets.head)} processes do not tell how far they scatter: "
        f"--passes {ENOUGH} or more"
    )
    return Judged("INCONCLUSIVE", change, reason=reason)


def _middle(values: tuple[float, ...]) -> float:
    return math.exp(math.fsum(math.log(v) for v in values) / len(values))


def _judged(test: _Tests, slower: float, faster: float, rule: Rule) -> Judged:
    verdict: Verdict = "INCONCLUSIVE"
    if slower <= rule.alpha:
        verdict = "REGRESSED"
    elif faster <= rule.alpha:
        verdict = "IMPROVED"
    elif test.outside <= rule.equivalence:
        verdict = "UNCHANGED"
    change, low, high = (math.expm1(v) for v in (test.change, test.low, test.high))
    return Judged(verdict, change, low, high, test.slower, slower, math.expm1(test.detectable))


def _tests(cases: Mapping[str, Sets], rule: Rule) -> dict[str, _Tests]:
    """The tests of all cases at once, those of as many processes together."""
    groups: dict[tuple[int, int, bool], list[str]] = {}
    for name, sets in cases.items():
        own = min(len(sets.base), len(sets.head)) >= ENOUGH
        groups.setdefault((len(sets.base), len(sets.head), own), []).append(name)
    found: dict[str, _Tests] = {}
    for (_, _, own), names in groups.items():
        found |= _group(names, cases, own, rule, len(cases))
    return {name: found[name] for name in cases}


def _group(
    names: list[str], cases: Mapping[str, Sets], own: bool, rule: Rule, judged: int
) -> dict[str, _Tests]:
    import numpy
    from scipy.special import stdtr, stdtrit

    base = numpy.log(numpy.array([cases[name].base for name in names]))
    head = numpy.log(numpy.array([cases[name].head for name in names]))
    wanted = numpy.array([_margin(cases[name], rule) for name in names])
    change = head.mean(axis=1) - base.mean(axis=1)
    if own:
        parts = [side.var(axis=1, ddof=1) / side.shape[1] for side in (base, head)]
        error = numpy.sqrt(parts[0] + parts[1])
        tiny = numpy.finfo(float).tiny
        freedom = (parts[0] + parts[1] + tiny) ** 2 / (
            parts[0] ** 2 / (base.shape[1] - 1) + parts[1] ** 2 / (head.shape[1] - 1) + tiny
        )
    else:
        noise = numpy.array([cases[name].noise for name in names], dtype=float)
        error = noise * math.sqrt(1 / base.shape[1] + 1 / head.shape[1])
        freedom = numpy.array([cases[name].processes - 1 for name in names], dtype=float)
    error = numpy.maximum(error, SMALLEST)
    slower, faster, above, below = (
        stdtr(freedom, -far / error)
        for far in (change - wanted, -change - wanted, change + wanted, wanted - change)
    )
    outside = numpy.maximum(above, below)
    if own:
        alike = numpy.ones(len(names))
        for i, name in enumerate(names):
            # No permutation has a p below its resolution: where the t-test has, it is the smaller.
            if slower[i] < 1 / (rule.resamples + 1) or not may_be_permuted(cases[name], rule):
                continue
            moved = head[i] - wanted[i]
            alike[i] = permuted(moved, base[i], "independent", rule.resamples, rule.seed)
        slower = numpy.minimum(1.0, 2 * numpy.minimum(slower, alike))
    level = min(0.5, rule.alpha / judged / (2 if own else 1))
    detectable = wanted + (stdtrit(freedom, rule.power) - stdtrit(freedom, level)) * error
    reach = stdtrit(freedom, 0.975) * error
    return {
        name: _Tests(
            float(slower[i]),
            float(faster[i]),
            float(outside[i]),
            float(detectable[i]),
            float(change[i] - reach[i]),
            float(change[i] + reach[i]),
            float(change[i]),
        )
        for i, name in enumerate(names)
    }


SMALLEST = 1e-9  # an error of a log ratio: times that agree to the digit


def _margin(sets: Sets, rule: Rule) -> float:
    """As a log ratio. A case's own margin widens the rule's, which guards against the session."""
    wanted = max(rule.margin, sets.margin or 0.0)
    return math.log1p(max(wanted, rule.floor_s / sorted(sets.base)[len(sets.base) // 2]))
