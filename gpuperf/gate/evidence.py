"""What do the records of two sides say: which pairs count, and which cases are suspicious?

Everything is found anew from the records, in the order of their pairs: a gate that was interrupted
goes on where its files end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuperf.gate.rule import Evidence, Pairs, Rule, suspicious
from gpuperf.gate.sides import LABELS, Label
from gpuperf.model.record import Record
from gpuperf.model.summary import RecordSummary

# What discards a pass: not the software power cap, which every big matmul meets.
SPOILING = ("hardware slowdown", "thermal (software)", "thermal (hardware)", "power brake")

ById = Mapping[str, Record]


@dataclass(frozen=True)
class Discarded:
    """A pair that does not count, and why."""

    pair: int
    reason: str


@dataclass(frozen=True)
class Found:
    """What is known so far.

    `evidence` by case, `suspects` of the screen (None while it is not complete), `discarded` pairs,
    `next` the number of the next pair, `failed` the cases that lost a pass, with the reason, and
    `steady` the pairs of each sentinel in all passes.
    """

    evidence: Mapping[str, Evidence]
    suspects: frozenset[str] | None
    complete: bool
    discarded: tuple[Discarded, ...]
    next: int
    failed: Mapping[str, str]
    steady: Mapping[str, Pairs]


def disturbance(record: Record | RecordSummary) -> str:
    """What disturbed the pass that *record* is of; nothing where nothing did."""
    seen = record.telemetry
    if seen is None:
        return ""
    if seen.other_processes:
        return f"{seen.other_processes} other processes used the GPU"
    slowed = [reason for reason in seen.throttle if reason in SPOILING]
    return f"the clock was held down: {', '.join(slowed)}" if slowed else ""


def gather(
    records: Mapping[Label, Iterable[Record]],
    cases: Sequence[str],
    sentinels: Sequence[str],
    rule: Rule,
    margins: Mapping[str, float] | None = None,
) -> Found:
    """What the records of both sides say of *cases* (those to be judged) and *sentinels*."""
    passes = {label: _by_pair(records[label]) for label in LABELS}
    last = max((index for side in passes.values() for index in side), default=-1)
    sound: list[Mapping[Label, ById]] = []
    discarded: list[Discarded] = []
    suspects: frozenset[str] | None = None
    wanted = [*cases, *sentinels]
    for index in range(last + 1):
        both = {label: passes[label].get(index, {}) for label in LABELS}
        reason = _unsound(both, wanted)
        if reason:
            discarded.append(Discarded(index, reason))
            continue
        sound.append(both)
        if len(sound) == rule.screen_pairs and suspects is None:
            screened = {case: _pairs(sound, case) for case in cases}
            whole = {c: p for c, p in screened.items() if len(p.base) == len(sound) and p.sound}
            suspects = frozenset(suspicious(whole, rule))
            wanted = [*sorted(suspects), *sentinels]
    screen, confirm = sound[: rule.screen_pairs], sound[rule.screen_pairs :][: rule.confirm_pairs]
    margins = margins or {}
    evidence = {
        case: Evidence(
            _pairs(screen, case),
            _pairs(confirm, case) if suspects and case in suspects else None,
            margins.get(case),
        )
        for case in cases
    }
    complete = suspects is not None and (not suspects or len(confirm) == rule.confirm_pairs)
    return Found(
        evidence,
        suspects,
        complete,
        tuple(discarded),
        last + 1,
        _failures(sound, wanted if suspects is None else [*cases, *sentinels]),
        {name: _pairs(sound, name) for name in sentinels},
    )


def _by_pair(records: Iterable[Record]) -> dict[int, dict[str, Record]]:
    found: dict[int, dict[str, Record]] = {}
    for record in records:
        found.setdefault(record.pass_index, {})[record.case.id] = record
    return found


def _unsound(both: Mapping[Label, ById], wanted: Sequence[str]) -> str:
    """Why a pair does not count."""
    for label in LABELS:
        for record in both[label].values():
            if reason := disturbance(record):
                return f"{label}: {reason}"
    for label in LABELS:
        if any(case not in both[label] for case in wanted):
            return f"{label}: interrupted"
    return ""


def _pairs(sound: Sequence[Mapping[Label, ById]], case: str) -> Pairs:
    """The medians of *case* where both sides have one."""
    times = [tuple(_median(both[label].get(case)) for label in LABELS) for both in sound]
    kept = [(base, head) for base, head in times if base is not None and head is not None]
    return Pairs(tuple(base for base, _ in kept), tuple(head for _, head in kept))


def _median(record: Record | None) -> float | None:
    if record is None or record.status != "ok" or record.samples is None:
        return None
    return record.samples.median_s


def _failures(sound: Sequence[Mapping[Label, ById]], cases: Sequence[str]) -> dict[str, str]:
    """The first failure of each case that lost a pass."""
    found: dict[str, str] = {}
    for both in sound:
        for label in LABELS:
            for case in cases:
                record = both[label].get(case)
                if record is not None and _median(record) is None:
                    found.setdefault(case, f"{label}: {record.status}: {record.reason}"[:300])
    return found
