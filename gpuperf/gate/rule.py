"""Which cases are slower on one side than on the other, by pairs of fresh processes?

Iterations of one process are not independent of each other: what scatters is the process. So a
replicate is a fresh process that runs the whole suite once and reduces each case to its median, and
a pair is one process of each side, taken one after the other.

- Screen: few pairs of all cases, a one-sided t-test of the log ratios, at a generous level.
- Confirm: fresh pairs of the suspicious cases, judged on those alone, against the margin: the same
  test, and a permutation within pairs of the difference of lower-half means, which a slow mode that
  fewer than half of the processes meet does not move. The smaller of the two, twice.
- Multiplicity: a case's p is the screen's level times the confirming p (1 if it was screened out);
  Benjamini and Hochberg's control over all judged cases; red at `alpha` or below.

The two stages are of separate pairs, so that under no difference p_screen ≤ level and p_confirm ≤ x
have probability level·x together.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpuperf.errors import UsageError

SAME = 1e-12  # of a log ratio: rounding
MOVED = 0.01  # of a sentinel, whatever the margin of the cases
SHORTEST_S, LONGEST_S = 1e-12, 1e9  # what can be a time of a call
Verdict = Literal["REGRESSED", "IMPROVED", "UNCHANGED", "INCONCLUSIVE", "NOT_COMPARABLE"]


@dataclass(frozen=True)
class Pairs:
    """Of one case, the median seconds of each process of the base and, beside it, of the head.

    Raises: ValueError for sides of different length.
    """

    base: tuple[float, ...]
    head: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.base) != len(self.head):
            raise ValueError(f"{len(self.base)} times of the base and {len(self.head)} of the head")

    @property
    def sound(self) -> bool:
        """Whether there are at least two, and all are times."""
        return len(self.base) > 1 and are_times((*self.base, *self.head))

    @property
    def ratios(self) -> Any:
        """ln head − ln base, pair by pair: above 0 where the head is slower."""
        import numpy

        return numpy.log(numpy.asarray(self.head)) - numpy.log(numpy.asarray(self.base))


def are_times(values: Iterable[float]) -> bool:
    """Whether all *values* can be seconds of a call."""
    return all(SHORTEST_S < value < LONGEST_S for value in values)


@dataclass(frozen=True)
class Rule:
    """How many pairs, at which levels, and what is too little to matter.

    `margin` is a slowdown that is not worth a word, and `floor_s` the seconds, whichever is more.
    The error rate is that of no difference: the screen asks for any, so that at the margin itself a
    case's p is up to 1 / `screen_level` too small.
    """

    screen_pairs: int = 6
    confirm_pairs: int = 20
    screen_level: float = 0.2
    alpha: float = 0.01
    power: float = 0.95
    margin: float = 0.01
    floor_s: float = 0.0
    equivalence: float = 0.05
    resamples: int = 9999
    seed: int = 0

    def refuse_unreachable(self, cases: int) -> None:
        """Raises: UsageError where not even the clearest slowdown of one of *cases* can be red."""
        least = 2 * max(2.0**-self.confirm_pairs, 1 / (self.resamples_of(cases) + 1))
        if min(self.screen_pairs, self.confirm_pairs) < 2:
            raise UsageError("a test needs at least 2 pairs", "the rule has 6 and 20")
        if self.screen_level * least > self.alpha / max(1, cases):
            raise UsageError(
                f"{self.confirm_pairs} pairs cannot make one of {cases} cases red at "
                f"{self.alpha:g} by permutation",
                "more confirming pairs, or fewer cases",
            )

    def resamples_of(self, cases: int) -> int:
        """How many permutations it takes for one of *cases* to be red."""
        return max(self.resamples, math.ceil(4 * self.screen_level * cases / self.alpha))

    def margin_of(self, pairs: Pairs, margin: float | None = None) -> float:
        """As a log ratio, at the median time of the base; *margin* in place of the rule's."""
        middle = sorted(pairs.base)[len(pairs.base) // 2]
        wanted = self.margin if margin is None else margin
        return math.log1p(max(wanted, self.floor_s / middle))


@dataclass(frozen=True)
class Evidence:
    """What was measured of one case; `confirm` where the screen found it suspicious, and `margin`
    where the case has its own."""

    screen: Pairs
    confirm: Pairs | None = None
    margin: float | None = None


@dataclass(frozen=True)
class Judged:
    """The verdict on one case: its slowdown (the mean ratio, less 1) with a 95 % interval, `p` as
    above and `q` after multiplicity, and the least slowdown that the confirming t-test would find
    with probability `power`, were it the only one among the judged cases."""

    verdict: Verdict
    change: float | None = None
    low: float | None = None
    high: float | None = None
    p: float = 1.0
    q: float = 1.0
    detectable: float | None = None
    reason: str = ""


def suspicious(cases: Mapping[str, Pairs], rule: Rule) -> set[str]:
    """Those of *cases*, all of as many sound pairs, that the screen sends on to be confirmed.

    Raises: ValueError for cases of different length.
    """
    import numpy
    from scipy.stats import ttest_1samp

    if not cases:
        return set()
    ratios = numpy.stack([pairs.ratios for pairs in cases.values()])
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of cases whose ratios are all the same: see below
        p = ttest_1samp(ratios, 0.0, axis=1, alternative="greater").pvalue
    same = ratios.std(axis=1) <= SAME
    slower = numpy.where(same, ratios.mean(axis=1) > SAME, p <= rule.screen_level)
    return {name for name, slow in zip(cases, slower, strict=True) if slow}


def slower_p(cases: Mapping[str, Evidence], rule: Rule) -> dict[str, float]:
    """Of each of *cases*, which are sound, the p of both stages together.

    Raises: ValueError for a suspicious case that was not confirmed.
    """
    import numpy

    sent_on = suspicious({name: evidence.screen for name, evidence in cases.items()}, rule)
    found = dict.fromkeys(cases, 1.0)
    for name in sent_on:
        confirm = cases[name].confirm
        if confirm is None:
            raise ValueError(f"{name} is suspicious, and was not confirmed")
        margin = rule.margin_of(confirm, cases[name].margin)
        base, head = (numpy.log(numpy.asarray(side)) for side in (confirm.base, confirm.head))
        resamples = rule.resamples_of(len(cases))
        either = _greater(confirm.ratios, margin)
        if either >= 1 / (resamples + 1):  # no permutation has a p below its resolution
            alike = permuted(head, base + margin, "samples", resamples, rule.seed)
            either = min(either, alike)
        found[name] = rule.screen_level * min(1.0, 2 * either)
    return found


def judge(cases: Mapping[str, Evidence], rule: Rule) -> dict[str, Judged]:
    """The verdict on each of *cases*, with multiplicity over those that can be judged.

    Raises: ValueError for a suspicious case that was not confirmed.
    """
    from scipy.stats import false_discovery_control

    sound = {
        name: evidence
        for name, evidence in cases.items()
        if evidence.screen.sound
        and len(evidence.screen.base) == rule.screen_pairs
        and (
            evidence.confirm is None
            or (evidence.confirm.sound and len(evidence.confirm.base) == rule.confirm_pairs)
        )
    }
    found = dict.fromkeys(cases, Judged("NOT_COMPARABLE", reason="times are missing or are none"))
    if not sound:
        return found
    p = slower_p(sound, rule)
    better = [
        _greater(-pairs.ratios, rule.margin_of(pairs, evidence.margin))
        for evidence in sound.values()
        for pairs in (evidence.confirm or evidence.screen,)
    ]
    slower_q = false_discovery_control(list(p.values()))
    better_q = false_discovery_control(better)
    for i, (name, evidence) in enumerate(sound.items()):
        q = float(slower_q[i]), float(better_q[i])
        found[name] = _judged(evidence, rule, len(sound), p[name], *q)
    return found


def _judged(
    evidence: Evidence, rule: Rule, cases: int, p: float, slower_q: float, better_q: float
) -> Judged:
    pairs = evidence.confirm or evidence.screen
    ratios, margin = pairs.ratios, rule.margin_of(pairs, evidence.margin)
    low, high = _interval(ratios)
    least = detectable(float(ratios.std(ddof=1)), len(ratios), margin, rule, cases)
    verdict: Verdict = "INCONCLUSIVE"
    if slower_q <= rule.alpha:
        verdict = "REGRESSED"
    elif better_q <= rule.alpha:
        verdict = "IMPROVED"
    elif max(_greater(ratios, -margin), _greater(-ratios, -margin)) <= rule.equivalence:
        verdict = "UNCHANGED"
    return Judged(
        verdict,
        math.expm1(float(ratios.mean())),
        math.expm1(low),
        math.expm1(high),
        p,
        slower_q,
        math.expm1(least),
    )


def moved(pairs: Pairs, rule: Rule, sentinels: int) -> float | None:
    """By how much a sentinel changed, where that is more than `MOVED` at `alpha` over all
    *sentinels* and both directions; 0 for one that has no times."""
    if not pairs.sound:
        return 0.0
    ratios, margin = pairs.ratios, math.log1p(MOVED)
    p = min(_greater(ratios, margin), _greater(-ratios, margin))
    if p > rule.alpha / (2 * max(1, sentinels)):
        return None
    return math.expm1(float(ratios.mean()))


def unsteady(pairs: Pairs, rule: Rule) -> float:
    """How far a sentinel may have moved without a word: half its 95 % interval, and `MOVED`."""
    low, high = _interval(pairs.ratios)
    return MOVED + math.expm1((high - low) / 2)


def _greater(ratios: Any, above: float) -> float:
    """p of the one-sided t-test that the mean is at most *above*."""
    from scipy.stats import ttest_1samp

    if float(ratios.std()) <= SAME:  # to the digit: no test, but no doubt
        return 0.0 if float(ratios.mean()) > above + SAME else 1.0
    return float(ttest_1samp(ratios, above, alternative="greater").pvalue)


def permuted(head: Any, base: Any, kind: str, resamples: int, seed: int) -> float:
    """p of the permutation of the difference of lower-half means of log times: within pairs
    (`samples`), or of two sets (`independent`)."""
    from scipy.stats import permutation_test

    def difference(one: Any, other: Any, axis: int) -> Any:
        return _lower_half(one, axis) - _lower_half(other, axis)

    if difference(head, base, 0) <= 0:
        return 1.0
    told = permutation_test(
        (head, base),
        difference,
        permutation_type=kind,
        vectorized=True,
        n_resamples=resamples,
        alternative="greater",
        random_state=seed,
    )
    return float(told.pvalue)


def _lower_half(values: Any, axis: int) -> Any:
    """The mean of the smaller half."""
    import numpy

    ordered = numpy.sort(values, axis=axis)
    half = range((ordered.shape[axis] + 1) // 2)
    return numpy.take(ordered, half, axis=axis).mean(axis=axis)


def _interval(ratios: Any) -> tuple[float, float]:
    """Of the mean log ratio, 95 %."""
    from scipy.stats import t

    reach = float(t.ppf(0.975, len(ratios) - 1)) * float(ratios.std(ddof=1))
    middle = float(ratios.mean())
    return middle - reach / math.sqrt(len(ratios)), middle + reach / math.sqrt(len(ratios))


def detectable(spread: float, known: int, margin: float, rule: Rule, cases: int) -> float:
    """The least slowdown, as a log ratio, that the confirming t-test finds with `power`, where it
    is the only one among *cases*: margin + (t(1 − level) + t(power)) · σ / √K.

    *spread* is the standard deviation of log ratios, from *known* pairs. The level is what is left
    of `alpha` for a case: of all, after the screen's, and for one of two tests.
    """
    from scipy.stats import t

    level = min(0.5, rule.alpha / max(1, cases) / rule.screen_level / 2)
    freedom = max(1, rule.confirm_pairs - 1)
    reach = float(t.ppf(1 - level, freedom)) + float(t.ppf(rule.power, max(1, known - 1)))
    return margin + reach * spread / math.sqrt(rule.confirm_pairs)
