"""Determine from the records of both sides which pairs count, and which cases looked slower.

All records are evaluated again after each pair, in the order of the pairs, so that an interrupted
gate comes to the same state from its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuperf.gate.rule import Evidence, Pairs, Rule, settled, suspicious
from gpuperf.gate.sides import LABELS, Label
from gpuperf.model.record import Record
from gpuperf.model.summary import RecordSummary

# Reasons of a lower clock that discard a pair. Every big matmul meets the software power cap.
SPOILING = ("hardware slowdown", "thermal (software)", "thermal (hardware)", "power brake")

ById = Mapping[str, Record]


@dataclass(frozen=True)
class DiscardedPair:
    """The number of a pair whose times are not judged, and the reason."""

    pair: int
    reason: str


@dataclass(frozen=True)
class GateState:
    """The state of a gate after some of its pairs.

    It has the `evidence` by case, the `suspects` that looked slower in the screen and need more
    pairs (None until the screen is complete), the `discarded` pairs, the number of the `next` pair,
    the cases that `failed` in a process with the reason, and the pairs of each of the `sentinels`.
    """

    evidence: Mapping[str, Evidence]
    suspects: frozenset[str] | None
    discarded: tuple[DiscardedPair, ...]
    next: int
    failed: Mapping[str, str]
    sentinels: Mapping[str, Pairs]

    @property
    def complete(self) -> bool:
        """Return whether no case needs more pairs."""
        return self.suspects is not None and not self.suspects


def disturbance(record: Record | RecordSummary) -> str:
    """Return what disturbed the process that *record* comes from; empty if nothing did."""
    telemetry = record.telemetry
    if telemetry is None:
        return ""
    if telemetry.other_processes:
        return f"other processes had a context on the GPU: {telemetry.other_processes}"
    slowed = [reason for reason in telemetry.throttle if reason in SPOILING]
    return f"the clock was held down: {', '.join(slowed)}" if slowed else ""


def gather(
    records: Mapping[Label, Iterable[Record]],
    cases: Sequence[str],
    sentinels: Sequence[str],
    rule: Rule,
    margins: Mapping[str, float] | None = None,
) -> GateState:
    """Return the state of a gate of *cases* and *sentinels* after *records*; *margins* are the
    tolerated slowdowns of cases that have their own."""
    passes = {label: _by_pair(records[label]) for label in LABELS}
    last = max((index for side in passes.values() for index in side), default=-1)
    sound: list[Mapping[Label, ById]] = []
    discarded: list[DiscardedPair] = []
    margins, cut = margins or {}, rule.screen_pairs
    suspects: frozenset[str] | None = None
    ends: dict[str, int] = {}  # for each case that looked slower, how many of the pairs it needs
    wanted = [*cases, *sentinels]
    for index in range(last + 1):
        both = {label: passes[label].get(index, {}) for label in LABELS}
        if reason := _unsound(both, wanted):
            discarded.append(DiscardedPair(index, reason))
            continue
        sound.append(both)
        count = len(sound)
        if count == cut:
            screened = {
                case: Evidence(_pairs(sound, case), None, margins.get(case)) for case in cases
            }
            whole = {c: e for c, e in screened.items() if len(e.screen.base) == cut}
            whole = {case: each for case, each in whole.items() if each.screen.sound}
            suspects = frozenset(suspicious(whole, rule))
            ends = dict.fromkeys(suspects, cut + rule.confirm_pairs)
        elif suspects is not None:
            for case in suspects:
                pairs = _pairs(sound[cut:], case)
                failed = len(pairs.base) < count - cut  # it cannot be compared any more
                if failed or settled(pairs, margins.get(case), rule, len(cases)):
                    ends[case] = count
            suspects = frozenset(case for case in suspects if ends[case] > count)
        if suspects is not None:
            wanted = [*sorted(suspects), *sentinels]
    evidence = {
        case: Evidence(
            _pairs(sound[:cut], case),
            _all_pairs(sound[cut : ends[case]], case) if case in ends else None,
            margins.get(case),
        )
        for case in cases
    }
    return GateState(
        evidence,
        suspects,
        tuple(discarded),
        last + 1,
        _failures(sound, [*cases, *sentinels]),
        {name: _pairs(sound, name) for name in sentinels},
    )


def _by_pair(records: Iterable[Record]) -> dict[int, dict[str, Record]]:
    pairs: dict[int, dict[str, Record]] = {}
    for record in records:
        pairs.setdefault(record.pass_index, {})[record.case.id] = record
    return pairs


def _unsound(both: Mapping[Label, ById], wanted: Sequence[str]) -> str:
    """Return why the pair *both* does not count: disturbed, or without a case of *wanted*."""
    for label in LABELS:
        for record in both[label].values():
            if reason := disturbance(record):
                return f"{label}: {reason}"
    for label in LABELS:
        if any(case not in both[label] for case in wanted):
            return f"{label}: interrupted"
    return ""


def _pairs(sound: Sequence[Mapping[Label, ById]], case: str) -> Pairs:
    """Return the median seconds of *case* in the pairs in which both sides have one."""
    times = [tuple(_median(both[label].get(case)) for label in LABELS) for both in sound]
    timed = [(base, head) for base, head in times if base is not None and head is not None]
    return Pairs(tuple(base for base, _ in timed), tuple(head for _, head in timed))


def _all_pairs(sound: Sequence[Mapping[Label, ById]], case: str) -> Pairs:
    """Return the times of *case* in all pairs, and none at all if one of them has no time."""
    pairs = _pairs(sound, case)
    return pairs if len(pairs.base) == len(sound) else Pairs((), ())


def _median(record: Record | None) -> float | None:
    if record is None or record.status != "ok" or record.samples is None:
        return None
    return record.samples.median_s


def _failures(sound: Sequence[Mapping[Label, ById]], cases: Sequence[str]) -> dict[str, str]:
    """Return the first failure of each case that failed in a process."""
    failures: dict[str, str] = {}
    for both in sound:
        for label in LABELS:
            for case in cases:
                record = both[label].get(case)
                if record is not None and _median(record) is None:
                    failures.setdefault(case, f"{label}: {record.status}: {record.reason}"[:300])
    return failures
