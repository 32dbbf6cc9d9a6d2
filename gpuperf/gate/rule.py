"""Judge which cases became slower, from pairs of fresh processes of both sides.

The samples of one process depend on each other: the independent unit is the process. So a replicate
is a fresh process that runs the whole suite once and reduces each case to its median, and a pair is
one process of each side, taken one after the other.

- Screen: a few pairs of all cases, with a one-sided t-test of the log ratios at a generous level.
- Confirm: fresh pairs of the suspicious cases, judged on those pairs alone, against the margin: by
  the same test, and by a permutation within pairs of the difference of lower-half means, which a
  slow mode in fewer than half of the processes does not move. The confirming p is twice the smaller
  one of the two.
- Multiplicity: the p of a case is the screen's level times the confirming p (1 if it was screened
  out). Benjamini and Hochberg's procedure controls the rate of false discoveries over all judged
  cases; a case has regressed if its q is `alpha` or below.

The two stages have separate pairs, so that without a difference p_screen ≤ level and p_confirm ≤ x
together have the probability level·x.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpuperf.errors import UsageError
from gpuperf.gate.significance import each_greater, greater, interval, permuted
from gpuperf.model.samples import LONGEST_S, SHORTEST_S

LOOKS = 4  # parts of the confirming stage, after each of which a case may be done
DECISIVE = 8  # pairs, from which on a look may find a case slower
LOOK_LEVEL = 0.02  # share of the level that such a look has; the last one has what is left
# Shares of `equivalence`: of the screen for a case that looks slower, of each look, of all pairs.
SCREENED, CLEARED, CONFIRMED = 1 / 2, 1 / 12, 1 / 4
MOVED = 0.01  # change of a sentinel that contaminates a gate, whatever the margin of the cases
Verdict = Literal["REGRESSED", "IMPROVED", "UNCHANGED", "INCONCLUSIVE", "NOT_COMPARABLE"]
NO_TIMES = "times are missing, or are not positive numbers"


@dataclass(frozen=True)
class Pairs:
    """The median seconds of one case in each process of the base, and in that of the head with
    which it is paired.

    Raises: ValueError for sides of different length.
    """

    base: tuple[float, ...]
    head: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.base) != len(self.head):
            raise ValueError(f"{len(self.base)} times of the base and {len(self.head)} of the head")

    @property
    def sound(self) -> bool:
        """Return whether there are at least two pairs, and all values are plausible times."""
        return len(self.base) > 1 and are_times((*self.base, *self.head))

    @property
    def ratios(self) -> Any:
        """Return ln head − ln base of each pair, which is above 0 if the head is slower."""
        import numpy

        return numpy.log(numpy.asarray(self.head)) - numpy.log(numpy.asarray(self.base))


def are_times(values: Iterable[float]) -> bool:
    """Return whether all *values* are plausible seconds of a call."""
    return all(SHORTEST_S < value < LONGEST_S for value in values)


@dataclass(frozen=True)
class Rule:
    """The rule of a gate: numbers of pairs, levels of the tests, and the slowdown it tolerates.

    The tolerated slowdown is the fraction `margin` or `floor_s` seconds, whichever is more. A case
    regressed if its q is at most `alpha`, and is unchanged if its p for being outside of the margin
    is at most `equivalence`, or at most a part of that if it was tested several times. `power` is
    the probability with which detectable slowdowns are detected. The error rate `alpha` is that of
    unchanged code: the screen tests for any slowdown, so for a slowdown of just the margin the p of
    a case is up to 1 / `screen_level` too small.

    A case that looks slower is confirmed, unless the same pairs show that it is within the margin.
    After each quarter of the confirming pairs a case is done if they show that it is within the
    margin, which makes unchanged code red less often. From `DECISIVE` pairs on it is also done if
    they show that it is slower, at `LOOK_LEVEL` of the level.
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
        """Raise UsageError if by this rule no slowdown of one of *cases* could be significant."""
        least = 2 * max(2.0**-self.confirm_pairs, 1 / (self.resamples_of(cases) + 1))
        if min(self.screen_pairs, self.confirm_pairs) < 2:
            raise UsageError("a test needs at least 2 pairs", "the rule has 6 and 20")
        if self.screen_level * least / self.last_level > self.alpha / max(1, cases):
            raise UsageError(
                f"{self.confirm_pairs} pairs cannot make one of {cases} cases significant at "
                f"{self.alpha:g} by permutation",
                "use more confirming pairs (--confirm-pairs), or fewer cases",
            )

    @property
    def looks(self) -> tuple[int, ...]:
        """Return the numbers of confirming pairs after which a case may be done early."""
        parts = (self.confirm_pairs * part // LOOKS for part in range(1, LOOKS))
        return tuple(sorted({count for count in parts if count > 1}))

    @property
    def decisive(self) -> tuple[int, ...]:
        """Return those of the looks that may find a case slower."""
        return tuple(count for count in self.looks if count >= DECISIVE)

    @property
    def last_level(self) -> float:
        """Return the share of the level that the test of all confirming pairs has."""
        return 1 - LOOK_LEVEL * len(self.decisive)

    def resamples_of(self, cases: int) -> int:
        """Return the number of permutations for which one of *cases* can be significant."""
        wanted = 4 * self.screen_level * cases / self.alpha / self.last_level
        return max(self.resamples, math.ceil(wanted))

    def margin_of(self, pairs: Pairs, margin: float | None = None) -> float:
        """Return the tolerated log ratio: *margin* (None: the rule's), or `floor_s` if more."""
        wanted = self.margin if margin is None else margin
        return math.log1p(max(wanted, self.floor_s / sorted(pairs.base)[len(pairs.base) // 2]))


@dataclass(frozen=True)
class Evidence:
    """The pairs of one case, with confirming ones if it looked slower (`confirm`), and the slowdown
    that it tolerates, if not the rule's (`margin`)."""

    screen: Pairs
    confirm: Pairs | None = None
    margin: float | None = None

    @property
    def judged(self) -> Pairs:
        """Return the pairs on which the verdict is based: the confirming ones, if any."""
        return self.confirm or self.screen


@dataclass(frozen=True)
class Judged:
    """The verdict on one case: its `change` (the mean ratio of head to base, less 1) with a 95 %
    interval, `p` for being slower and `q` after multiplicity, and the least slowdown that the test
    detects with the rule's `power`, if no other case is slower (`detectable`)."""

    verdict: Verdict
    change: float | None = None
    low: float | None = None
    high: float | None = None
    p: float = 1.0
    q: float = 1.0
    detectable: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Statistics:
    """The p values of one case for being slower, for being faster, and for being outside of the
    margin; its mean log ratio with a 95 % interval, and the least log ratio that is detected."""

    slower: float
    faster: float
    outside: float
    change: float
    low: float
    high: float
    detectable: float


def verdicts_of(cases: Mapping[str, Statistics], rule: Rule) -> dict[str, Judged]:
    """Return the verdict on each of *cases*, after multiplicity over all of them."""
    slower_q = adjusted([statistics.slower for statistics in cases.values()])
    faster_q = adjusted([statistics.faster for statistics in cases.values()])
    judged: dict[str, Judged] = {}
    for (name, statistics), slower, faster in zip(cases.items(), slower_q, faster_q, strict=True):
        verdict: Verdict = "INCONCLUSIVE"
        if slower <= rule.alpha:
            verdict = "REGRESSED"
        elif faster <= rule.alpha:
            verdict = "IMPROVED"
        elif statistics.outside <= rule.equivalence:
            verdict = "UNCHANGED"
        judged[name] = Judged(
            verdict,
            math.expm1(statistics.change),
            math.expm1(statistics.low),
            math.expm1(statistics.high),
            statistics.slower,
            slower,
            math.expm1(statistics.detectable),
        )
    return judged


def adjusted(p: Sequence[float]) -> list[float]:
    """Return the q of each of *p* by Benjamini and Hochberg: the least rate of false discoveries at
    which it is a discovery. (Importing the function of scipy.stats takes as long as judging 10,000
    cases.)
    """
    import numpy

    values = numpy.asarray(p, float)
    order = values.argsort()[::-1]
    scaled = values[order] * (len(values) / numpy.arange(len(values), 0, -1))
    q = numpy.empty(len(values))
    q[order] = numpy.minimum(numpy.minimum.accumulate(scaled), 1.0)
    return [float(value) for value in q]


def suspicious(cases: Mapping[str, Evidence], rule: Rule) -> set[str]:
    """Return those of *cases* that look slower in the screen, and may be slower than tolerated.

    All screens have equally many sound pairs. Raises: ValueError for screens of different length.
    """
    import numpy

    if not cases:
        return set()
    p = each_greater(numpy.stack([each.screen.ratios for each in cases.values()]), 0.0)
    slower = (
        item for item, slow in zip(cases.items(), p <= rule.screen_level, strict=True) if slow
    )
    return {
        name
        for name, each in slower
        if not _within(each.screen, each.margin, SCREENED * rule.equivalence, rule)
    }


def settled(confirm: Pairs, margin: float | None, rule: Rule, cases: int) -> bool:
    """Return whether a suspicious one of *cases* with these confirming pairs needs no more."""
    count = len(confirm.base)
    if count >= rule.confirm_pairs or count not in rule.looks or not confirm.sound:
        return count >= rule.confirm_pairs
    slower = rule.screen_level * _looked(confirm, margin, rule) <= rule.alpha / max(1, cases)
    return slower or _within(confirm, margin, CLEARED * rule.equivalence, rule)


def _looked(confirm: Pairs, margin: float | None, rule: Rule) -> float:
    """Return the p for being slower of the looks at the first confirming pairs; 1.0 without any."""
    counts = [count for count in rule.decisive if count <= len(confirm.base)]
    first = [Pairs(confirm.base[:count], confirm.head[:count]) for count in counts]
    each = [greater(pairs.ratios, rule.margin_of(pairs, margin)) for pairs in first]
    return min((p / LOOK_LEVEL for p in each), default=1.0)


def _within(pairs: Pairs, margin: float | None, level: float, rule: Rule) -> bool:
    """Return whether *pairs* show at this *level* that the case is not slower by the margin."""
    return greater(-pairs.ratios, -rule.margin_of(pairs, margin)) <= level


def slower_p(cases: Mapping[str, Evidence], rule: Rule) -> dict[str, float]:
    """Return the p for being slower, of both stages together, of each of *cases*, all sound.

    Raises: ValueError for a suspicious case that was not confirmed.
    """
    sent_on = suspicious(cases, rule)
    both_stages = dict.fromkeys(cases, 1.0)
    for name in sent_on:
        confirm = cases[name].confirm
        if confirm is None:
            raise ValueError(f"{name} is suspicious, and was not confirmed")
        p = _looked(confirm, cases[name].margin, rule)
        if len(confirm.base) >= rule.confirm_pairs:
            p = min(p, 2 * _least(confirm, cases[name].margin, rule, len(cases)) / rule.last_level)
        both_stages[name] = rule.screen_level * min(1.0, p)
    return both_stages


def _least(confirm: Pairs, margin: float | None, rule: Rule, cases: int) -> float:
    """Return the lesser p of the t-test and of the permutation test of all confirming pairs."""
    import numpy

    above = rule.margin_of(confirm, margin)
    base, head = (numpy.log(numpy.asarray(side)) for side in (confirm.base, confirm.head))
    resamples = rule.resamples_of(cases)
    least = greater(confirm.ratios, above)
    if least >= 1 / (resamples + 1):  # no permutation has a p below its resolution
        least = min(least, permuted(head, base + above, "samples", resamples, rule.seed))
    return least


def judge(cases: Mapping[str, Evidence], rule: Rule) -> dict[str, Judged]:
    """Return the verdict on each of *cases*, with multiplicity over those that can be judged.

    Raises: ValueError for a suspicious case that was not confirmed.
    """
    sound = {name: each for name, each in cases.items() if _is_sound(each, rule, len(cases))}
    p = slower_p(sound, rule)
    statistics = {name: _statistics(e, rule, len(sound), p[name]) for name, e in sound.items()}
    return dict.fromkeys(cases, Judged("NOT_COMPARABLE", reason=NO_TIMES)) | verdicts_of(
        statistics, rule
    )


def _is_sound(evidence: Evidence, rule: Rule, cases: int) -> bool:
    screen, confirm = evidence.screen, evidence.confirm
    if not screen.sound or len(screen.base) != rule.screen_pairs:
        return False
    if confirm is None:
        return True
    wanted = len(confirm.base) <= rule.confirm_pairs and settled(
        confirm, evidence.margin, rule, cases
    )
    return confirm.sound and wanted


def _statistics(evidence: Evidence, rule: Rule, cases: int, p: float) -> Statistics:
    pairs = evidence.judged
    ratios, margin = pairs.ratios, rule.margin_of(pairs, evidence.margin)
    outside = max(greater(ratios, -margin), greater(-ratios, -margin))
    return Statistics(
        p,
        greater(-ratios, margin),
        outside / CONFIRMED if evidence.confirm is not None else outside,
        float(ratios.mean()),
        *interval(ratios),
        detectable(float(ratios.std(ddof=1)), len(ratios), margin, rule, cases),
    )


def moved(pairs: Pairs, rule: Rule, sentinels: int) -> float | None:
    """Return the change of a sentinel if it is significantly more than `MOVED`, else None.

    The test is at `alpha` over all *sentinels* and both directions. A sentinel without times has a
    change of 0.0, which counts as moved.
    """
    if not pairs.sound:
        return 0.0
    ratios, margin = pairs.ratios, math.log1p(MOVED)
    p = min(greater(ratios, margin), greater(-ratios, margin))
    if p > rule.alpha / (2 * max(1, sentinels)):
        return None
    return math.expm1(float(ratios.mean()))


def undetected(pairs: Pairs) -> float:
    """Return by what fraction a sentinel may have changed undetected: `MOVED` and half the width of
    its 95 % interval."""
    low, high = interval(pairs.ratios)
    return MOVED + math.expm1((high - low) / 2)


def detectable(spread: float, known: int, margin: float, rule: Rule, cases: int) -> float:
    """Return the least slowdown, as a log ratio, that the confirming t-test detects with `power` if
    only one of *cases* is slower: margin + (t(1 − level) + t(power)) · σ / √K.

    *spread* (σ) is the standard deviation of the log ratios of *known* pairs, K the number of
    confirming pairs. The level is the last test's share of `alpha` over the cases, over the
    screen's level, and over 2.
    """
    from scipy.special import stdtrit

    level = min(0.5, rule.last_level * rule.alpha / max(1, cases) / rule.screen_level / 2)
    freedom = max(1, rule.confirm_pairs - 1)
    reach = float(stdtrit(freedom, 1 - level)) + float(stdtrit(max(1, known - 1), rule.power))
    return margin + reach * spread / math.sqrt(rule.confirm_pairs)
