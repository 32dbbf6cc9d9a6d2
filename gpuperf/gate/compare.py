"""Judge a stored run against another one, after checking that the two may be compared.

The runs must agree in the contract and in every hard fact of the device. Runs of two hosts come
from two cards, so their difference is reported as advice and not as a verdict on the code.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import gpuperf
from gpuperf.errors import CannotMeasure
from gpuperf.gate.causes import alike, cause_of
from gpuperf.gate.evidence import DiscardedPair, disturbance
from gpuperf.gate.prime import TOLERATED, differing
from gpuperf.gate.project import FILE, Project
from gpuperf.gate.rule import Judged, Rule
from gpuperf.gate.stored import ENOUGH, Sets, judge_stored
from gpuperf.gate.verdict import CaseVerdict, Cause, GateReport, SideSummary, conclude, middles
from gpuperf.model.contract import Contract
from gpuperf.model.record import Header, Record
from gpuperf.model.summary import RecordSummary, RunSummary

BUSY = 0.5  # processors that other work keeps busy, from which on a CPU's times are no verdict
Key = str  # the id of a case, followed by its regime, cache and data if the run has several


def compare_runs(
    base: RunSummary,
    head: RunSummary,
    rule: Rule,
    target: float,
    project: Project | None = None,
    names: tuple[str, str] = ("", ""),
) -> GateReport:
    """Return the report on *head* against *base*, which *names* call so.

    *target* is the slowdown that must be detectable in every case (0.1: 10 %). Raises:
    CannotMeasure if the runs are one, or differ in contract or device.
    """
    reasons = incomparable(base.header, head.header)
    if base.header.run == head.header.run:
        reasons.append(f"both are the run {base.header.run[:200]}")
    if reasons:
        why = "; ".join(reasons)
        raise CannotMeasure(
            f"the runs are not comparable: {why}", "measure a new baseline on this device"
        )
    cases, left_out, sides = _judged(base, head, rule, project or Project())
    problems = [*base.problems, *head.problems]
    ended = f"{len(problems)} lines cannot be read: {problems[0][:150]}" if problems else ""
    return conclude(
        GateReport(
            id=f"{head.header.run}-against-{base.header.run}"[:200],
            created=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            gpuperf=gpuperf.__version__,
            kind="compare",
            base=_summary(base, names[0]),
            head=_summary(head, names[1]),
            device=head.header.device.name,
            suite="stored runs",
            contract=head.header.contract,
            rule=rule,
            cases=cases,
            target=target,
            left_out=left_out,
            ended=ended,
            discarded=tuple(d for side in sides for d in side.discarded),
            notes=(
                *differing(base.header.fingerprint.soft, head.header.fingerprint.soft),
                *_narrow(cases, rule),
                *_borrowed(cases),
            ),
            advisory=_advisory(base.header, head.header) or _contended(base, head),
        )
    )


def _narrow(cases: Iterable[CaseVerdict], rule: Rule) -> tuple[str, ...]:
    """Return a note on the cases whose own margin is under that of *rule*, which replaces it."""
    margins = [c.sets.margin for c in cases if c.sets is not None and c.sets.margin is not None]
    narrow = sum(margin < rule.margin for margin in margins)
    why = "two sessions of unchanged code differ by about 1 %"
    note = f"{narrow} margins of {FILE} are under {rule.margin * 100:g} %, which is used: {why}"
    return (note,) if narrow else ()


def _borrowed(cases: Iterable[CaseVerdict]) -> tuple[str, ...]:
    """Return a note on the cases that are judged by the scatter of earlier processes."""
    judged = [c.sets for c in cases if c.sets is not None and c.judged.detectable is not None]
    few = [sets for sets in judged if not sets.scatter_known]
    if not few:
        return ()
    base, head = min((len(sets.base), len(sets.head)) for sets in few)
    count = f"{len(few)} of {len(judged)} cases have {base} and {head} processes"
    return (f"{count}: their scatter is that of earlier ones; --passes {ENOUGH} measures it",)


def _contended(base: RunSummary, head: RunSummary) -> str:
    """Return which run of a CPU shared its processors in most of its records; empty if none did."""
    for name, run in (("base", base), ("head", head)):
        loads = [r.telemetry.other_load for r in run.records if r.telemetry is not None]
        busy = sum(load is not None and load > BUSY for load in loads)
        if 2 * busy > len(run.records):
            return (
                f"other processes computed beside {busy} of {len(run.records)} cases of the {name}"
            )
    return ""


def _judged(
    base: RunSummary, head: RunSummary, rule: Rule, project: Project
) -> tuple[tuple[CaseVerdict, ...], dict[str, str], tuple[_Side, _Side]]:
    """Return the verdicts, the cases that neither run could measure (with why), and both runs."""
    sides = _Side(base), _Side(head)
    keys = dict.fromkeys((*sides[0].planned, *sides[1].planned))
    project.refuse_unmatched(keys)
    margins, owners = project.margins_of(keys), project.owners_of(keys)
    sets: dict[str, Sets] = {}
    unfit: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in keys:
        why, tolerated = _unfit(sides, name)
        if tolerated:
            left_out[name] = why
        elif why:
            unfit[name] = why
        else:
            sets[name] = _sets(sides, name, margins.get(name))
    judged = judge_stored(sets, rule)
    cases = [_verdict(name, judged[name], sets[name], sides) for name in sets]
    cases += [CaseVerdict(n, Judged("NOT_COMPARABLE", reason=why)) for n, why in unfit.items()]
    fields = {case.id: case for run in (base, head) for case in run.header.plan}
    named = (
        replace(case, owner=owners.get(case.case, ""), fields=fields.get(case.case))
        for case in cases
    )
    return tuple(named), left_out, sides


def incomparable(base: Header, head: Header) -> list[str]:
    """Return a sentence for each difference of two runs in the contract or the device."""
    sentences = []
    both = _contracts(base), _contracts(head)
    if len(both[0]) != len(both[1]):
        sentences.append(f"{len(both[0])} contracts and {len(both[1])}")
    for first, second in zip(*both, strict=False):
        for name in (item.name for item in dataclasses.fields(Contract)):
            values = getattr(first, name), getattr(second, name)
            if values[0] != values[1]:
                sentences.append(f"{name} is {values[0]!r} and {values[1]!r}")
    return [*sentences, *differing(base.fingerprint.hard, head.fingerprint.hard)]


def _contracts(header: Header) -> tuple[Contract, ...]:
    return (header.contract, *header.variants)


@dataclass
class _Side:
    """The records of a run by case and contract, without those of disturbed processes."""

    run: RunSummary
    records: dict[Key, list[RecordSummary]] = field(default_factory=dict)
    discarded: list[DiscardedPair] = field(default_factory=list)  # processes, which have no pairs

    def __post_init__(self) -> None:
        for record in self.run.records:
            if reason := disturbance(record):
                case = record.case.id[:200]
                self.discarded.append(DiscardedPair(record.pass_index, f"{case}: {reason}"))
                continue
            key = self.key(record.case.id, record.contract)
            self.records.setdefault(key, []).append(record)

    @cached_property
    def _several(self) -> bool:
        return len(_contracts(self.run.header)) > 1

    def key(self, case: str, contract: Contract) -> Key:
        """Return the id of *case*, with regime, cache and data if the run has several contracts."""
        if not self._several:
            return case
        return f"{case} {contract.regime} {contract.cache} {contract.data}"

    @cached_property
    def planned(self) -> Mapping[Key, None]:
        """Return the keys that the run planned, then others that it measured."""
        header = self.run.header
        plan = (self.key(case.id, c) for case in header.plan for c in _contracts(header))
        return dict.fromkeys((*plan, *self.records))

    @cached_property
    def whole(self) -> dict[Key, Record]:
        """Return the last undisturbed record of each case with all its fields, read from the run
        file."""
        whole = (record for record in self.run.whole().records if not disturbance(record))
        return {self.key(record.case.id, record.contract): record for record in whole}


def _unfit(sides: tuple[_Side, _Side], key: Key) -> tuple[str, bool]:
    """Return why a case cannot be compared, and whether both sides have one `TOLERATED` status."""
    both = [side.records.get(key, []) for side in sides]
    if not all(both):
        return " and ".join(
            f"the {name} {'lacks it' if key in side.planned else 'has no such case'}"
            for name, side, records in zip(("base", "head"), sides, both, strict=True)
            if not records
        ), False
    failed = [
        next((r for r in records if r.status != "ok" or r.samples is None), None)
        for records in both
    ]
    if failed[0] is None and failed[1] is None:
        base, head = both[0][-1], both[1][-1]
        primary = {"time": base.primary}, {"time": head.primary}
        times = [] if _same_time(sides, key) else differing(*primary)
        return ", ".join((*differing(base.hard, head.hard), *times)), False
    texts = [f"{r.status} {r.reason}".strip()[:150] if r else "ok" for r in failed]
    statuses = {record.status for records in both for record in records}
    if len(statuses) == 1 and statuses <= set(TOLERATED):
        return texts[0], True
    return f"base: {texts[0]}; head: {texts[1]}", False


def _same_time(sides: tuple[_Side, _Side], key: Key) -> bool:
    """Return whether the primary times of both sides have one definition for this case.

    The timer `auto` takes CUPTI's record of a call of one kernel, and a window from the first start
    to the last end of a call of several: for one kernel both are the same.
    """
    names = {side.records[key][-1].primary for side in sides}
    if names != {"busy", "window"}:
        return len(names) == 1
    whole = {record.primary: record for record in (side.whole[key] for side in sides)}
    traced = "span" in whole["window"].times  # else its window has the floor of other calls
    return traced and sum(kernel.count for kernel in whole["busy"].kernels) == 1


def _sets(sides: tuple[_Side, _Side], key: Key, margin: float | None) -> Sets:
    base, head = (side.records[key] for side in sides)
    noise = max(
        (r.noise for r in (base[-1], head[-1]) if r.noise is not None),
        key=lambda n: n.between,
        default=None,
    )
    return Sets(
        _medians(base),
        _medians(head),
        noise.between if noise else None,
        noise.processes if noise else 0,
        margin,
    )


def _medians(records: Sequence[RecordSummary]) -> tuple[float, ...]:
    return tuple(median for r in records if (median := r.median_s) is not None)


def _verdict(name: Key, judged: Judged, sets: Sets, sides: tuple[_Side, _Side]) -> CaseVerdict:
    cause: Cause | None = None
    notes: tuple[str, ...] = ()
    if judged.verdict == "REGRESSED":
        base, head = (side.whole[name] for side in sides)
        cause = cause_of(base, head, sides[0].run.header.peaks)
        same = alike(base, head)
        notes = (same,) if same else ()
    return CaseVerdict(name, judged, None, sets, *middles(None, sets), cause=cause, notes=notes)


def _summary(run: RunSummary, name: str) -> SideSummary:
    header = run.header
    text = f"{name}: {header.run}" if name else header.run
    return SideSummary(text, "", dict(header.fingerprint.soft), f"{header.run}.jsonl")


def _advisory(base: Header, head: Header) -> str:
    """Return why the verdict is only advice; empty if both runs come from one host."""
    hosts: list[object] = [h.fingerprint.live.get("host") for h in (base, head)]
    if None in hosts:
        return "the runs do not say whether they come from one host"
    return "" if hosts[0] == hosts[1] else "the runs come from two hosts"
