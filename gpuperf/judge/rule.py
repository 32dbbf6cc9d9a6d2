"""Judge a case by its evidence alone: a pure function, which also judges stored evidence again.

`cheat` needs hard evidence: a result that answers earlier contents of the same addresses, replaced
functions of the clock or of gpuperf, claimed times that the clerk's clock refutes, or what the
hardware shows (`device_rule`). Weaker signs make a submission `suspect`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuperf.judge.device_rule import device_facts
from gpuperf.judge.evidence import CaseEvidence, usual
from gpuperf.judge.fact import Fact, Status, fact, unavailable, unjudged
from gpuperf.judge.score import LEAST_WINDOWS, Light, Score, light_of, score_of
from gpuperf.judge.task import Side

EXIT_CODES: Mapping[Status, int] = {
    "valid": 0,
    "wrong": 1,
    "cheat": 1,
    "suspect": 4,
    "inconclusive": 4,
    "unfair-task": 3,
    "timeout": 3,
    "oom": 3,
    "crashed": 3,
    "compile-error": 3,
}
# The worst status of several cases is the first of these.
ORDER: tuple[Status, ...] = (
    "unfair-task",
    "cheat",
    "compile-error",
    "crashed",
    "oom",
    "timeout",
    "wrong",
    "suspect",
    "inconclusive",
    "valid",
)

LEAST_AUDITS = 6  # of a case, for a verdict
MOST_UNDECIDED = 0.2  # of the audits of a case, or one, at most, for a verdict
HONEST_CLAIM = 0.5  # a seat that claims less than this share of the clerk's time lies
MISSED_S = 3e-4  # windows whose calls take fewer seconds by the clerk's clock show nothing of that
BY_CHANCE = 2e-3  # probability that all of an honest seat's windows are longer outside their calls
BUSY, BUSY_CONTROL = 0.3, 0.1  # shares of an idle pause in which a seat and the control compute
ALONE = 2.0  # a call alone may take this many times longer than in sequence, over the control
ALONE_S = 1e-3  # ... and this many seconds longer
WIDEST = 2.0  # upper over lower end of the interval of a score

NEEDS_GPU = ("kernels", "bytes", "operations", "precision", "floor", "author")


@dataclass(frozen=True)
class Judgement:
    """The status of a case, why it has this status, and its facts.

    A valid case has a score: the speed-up over the reference, that over torch.compile of the
    reference (`compiled`), and the share of the roof (`light`), where these are known.
    """

    status: Status
    reason: str
    facts: tuple[Fact, ...] = ()
    score: Score | None = None
    compiled: Score | None = None
    light: Light | None = None


def judge_case(evidence: CaseEvidence) -> Judgement:
    """Return the judgement that follows from *evidence*."""
    if evidence.unfair:
        return Judgement("unfair-task", evidence.unfair[0].text)
    facts = tuple(_facts(evidence))
    failed = {one.makes: one for one in reversed(facts) if one.result == "failed"}
    if "cheat" in failed:
        return Judgement("cheat", failed["cheat"].text, facts)
    if evidence.failure is not None:
        return Judgement(evidence.failure, evidence.reason, facts)
    status: Status
    for status in ("wrong", "suspect", "inconclusive"):
        if status in failed:
            return Judgement(status, failed[status].text, facts)
    score = score_of(evidence)
    if score is None:
        return Judgement("inconclusive", "too few windows were timed", facts)
    if score.high > WIDEST * score.low:
        reason = f"the speed-up is only known to be from {score.low:.3g} to {score.high:.3g}"
        return Judgement("inconclusive", f"{reason}: the machine is too noisy", facts)
    compiled = score_of(evidence, "compiled")
    return Judgement("valid", "", facts, score, compiled, light_of(evidence, score.time_s))


def _facts(evidence: CaseEvidence) -> Iterator[Fact]:
    """Yield every check of *evidence*, the gravest first."""
    yield _replays(evidence)
    yield _functions(evidence)
    yield fact("files", not evidence.edited, None, None, evidence.edited, "cheat")
    yield _clock(evidence)
    yield from _outputs(evidence)
    yield _after(evidence)
    yield _alone(evidence)
    if evidence.hardware is not None:
        yield from device_facts(evidence, evidence.hardware)
        return
    for name in NEEDS_GPU:
        missing = unavailable(name, "this needs the records of a GPU")
        yield unjudged(missing) if name == "author" and evidence.forbidden else missing


def _replays(evidence: CaseEvidence) -> Fact:
    count = sum(audit.replayed for audit in evidence.audits)
    total = len(evidence.audits)
    text = f"of {total} audited results, {count} answer earlier contents of the same addresses"
    return fact("replay", count == 0, count, 0, text, "cheat")


def _functions(evidence: CaseEvidence) -> Fact:
    text = f"the submission replaced {evidence.replaced}"
    return fact("functions", not evidence.replaced, None, None, text, "cheat")


def _clock(evidence: CaseEvidence) -> Fact:
    """Compare the times that the submission's process claims with those of the clerk.

    A false clock claims too little in every window; what else runs makes windows longer, also those
    of the reference, whose own claims show by how much.
    """
    mine = usual(w for w in evidence.windows if w.side == "submission")
    theirs = usual(w for w in evidence.windows if w.side == "reference")
    floor_s = _floor([w.clerk_s - w.claimed_s for w in theirs], len(mine))
    if floor_s is None:
        return Fact("clock", "unavailable", text="too few windows were timed")
    calls = [(w.claimed_s, w.clerk_s - floor_s) for w in mine]
    if any(clerk_s <= MISSED_S for _, clerk_s in calls):
        text = "the calls of a window are too short beside what else it takes"
        return Fact("clock", "unavailable", text=text)
    most = max(claimed_s / clerk_s for claimed_s, clerk_s in calls)
    text = f"its process claims {most * 100:.0f} % of the time that the clerk measured, at most"
    return fact("clock", most >= HONEST_CLAIM, most, HONEST_CLAIM, text, "cheat")


def _floor(unclaimed: Sequence[float], count: int) -> float | None:
    """Return how many seconds of an honest window may be outside its calls; None if unknown.

    All of *count* honest windows exceed this bound with the probability `BY_CHANCE` at most, given
    the *unclaimed* seconds of the reference's windows, of which it is at least the median.
    """
    known = sorted(unclaimed, reverse=True)
    everything = math.comb(len(known) + count, count)
    rank = sum(math.comb(count + k, count) <= BY_CHANCE * everything for k in range(len(known)))
    return max(known[rank - 1], statistics.median(known)) if rank and count else None


def _outputs(evidence: CaseEvidence) -> Iterator[Fact]:
    """Yield the checks of all audited results."""
    audits = evidence.decided
    if not audits:
        yield Fact("outputs", "unavailable", text="no result was audited")
    bad = [audit for audit in audits if audit.reason]
    first = f": {bad[0].reason} (values: {bad[0].kind})" if bad else ""
    text = f"{len(bad)} of {len(audits)} audited results are wrong{first}"
    if audits:
        yield fact("outputs", not bad, len(bad), 0, text, "wrong")
    changed = [audit for audit in evidence.audits if audit.changed]
    text = f"a call changed the input {changed[0].changed}" if changed else ""
    yield fact("inputs", not changed, len(changed), 0, text, "wrong")
    undecided = len(evidence.audits) - len(audits)
    few = undecided <= max(1, MOST_UNDECIDED * len(evidence.audits))
    text = f"only {len(audits)} results were audited"
    if undecided:
        text = f"{undecided} of {len(evidence.audits)} audits say nothing, as values overflow"
    enough = few and len(audits) >= LEAST_AUDITS
    yield fact("audits", enough, len(audits), LEAST_AUDITS, text, "inconclusive")


def _after(evidence: CaseEvidence) -> Fact:
    """Check that the submission does not compute while it is asked nothing."""

    def busy(side: Side) -> list[float]:
        return [i.cpu_s / i.seconds for i in evidence.idles if i.side == side and i.seconds > 0]

    mine, control = busy("submission"), busy("reference")
    if not mine or not control:
        return Fact("after", "unavailable", text="no idle pause was observed")
    share = statistics.median(mine)
    works = share > BUSY and statistics.median(control) < BUSY_CONTROL
    text = f"its processes compute for {share * 100:.0f} % of a pause after the calls returned"
    return fact("after", not works, share, BUSY, text, "suspect")


def _alone(evidence: CaseEvidence) -> Fact:
    """Compare calls alone with calls in sequence, where a call may do the work of others."""
    ratios: dict[Side, tuple[float, float]] = {}
    for side in ("submission", "reference"):
        windows = [w for w in evidence.windows if w.side == side and w.timed]
        single = [w.clerk_s for w in windows if w.calls == 1]
        many = [w.clerk_s / w.calls for w in windows if w.calls > 2]
        if not any(w.calls > 1 for w in windows) and single:
            return Fact("alone", "unavailable", text="no window has several calls")
        if len(single) < LEAST_WINDOWS or len(many) < LEAST_WINDOWS:
            text = "too few windows with one call, or with more than two"
            return Fact("alone", "unavailable", text=text)
        one, each = min(single), min(many)  # what else runs makes a window longer, not shorter
        ratios[side] = one / each, one - each
    mine, control = ratios["submission"], ratios["reference"]
    share = mine[0] / max(1.0, control[0])
    batches = share > ALONE and mine[1] - control[1] > ALONE_S
    text = f"a call alone takes {mine[0]:.3g} times as long as in sequence"
    return fact("alone", not batches, share, ALONE, text, "suspect")
