"""What does a gate say: of each case, of the whole, and by which exit code?

A `GateReport` is all that any output shows. It holds the pairs themselves, so that `recheck` can
judge them again: a verdict that is not that of its own evidence is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Literal

from gpuperf.errors import UsageError
from gpuperf.files import read_regular, write_atomically
from gpuperf.gate.bounds import refuse_unbounded
from gpuperf.gate.evidence import Discarded
from gpuperf.gate.rule import Evidence, Judged, Pairs, Rule, are_times, judge, moved, unsteady
from gpuperf.gate.stored import Sets, judge_stored
from gpuperf.model.codec import decode, encode
from gpuperf.model.contract import Contract

SCHEMA = 1
LARGEST = 32 << 20  # bytes of a verdict: 10,000 cases of 26 pairs have 20 MB
Value = str | int | float | bool | None

Outcome = Literal[
    "passed", "regressed", "not comparable", "inconclusive", "contaminated", "incomplete"
]
EXIT_CODES: Mapping[Outcome, int] = {
    "passed": 0,
    "regressed": 1,
    "not comparable": 3,
    "inconclusive": 4,
    "contaminated": 4,
    "incomplete": 4,
}


@dataclass(frozen=True)
class Cause:
    """Why a case is slower: one word of the field, the figures, before and after."""

    kind: str
    text: str
    figures: Mapping[str, tuple[Value, Value]] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseVerdict:
    """One case: what was judged, on which evidence, the seconds of each side, and why."""

    case: str
    judged: Judged
    evidence: Evidence | None = None
    sets: Sets | None = None
    base_s: float | None = None
    head_s: float | None = None
    owner: str = ""
    cause: Cause | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SideTold:
    """One side: in words, its commit, its software, and its run file."""

    told: str
    commit: str = ""
    soft: Mapping[str, Value] = field(default_factory=dict)
    file: str = ""


@dataclass(frozen=True)
class GateReport:
    """Everything that a gate found.

    `ended` says what stopped it early, `left_out` the cases that are on neither side's account
    (skipped on both, each with its reason), `target` the slowdown that must be detectable in every
    case. `earlier` is the outcome of an earlier gate of the same code, if there was one; `advisory`
    why the whole is advice and no verdict. `slowed` are cases that were slowed down on purpose, to
    see them caught.
    """

    id: str
    created: str
    gpuperf: str
    kind: Literal["ab", "compare"]
    base: SideTold
    head: SideTold
    device: str
    suite: str
    contract: Contract
    rule: Rule
    cases: tuple[CaseVerdict, ...]
    outcome: Outcome = "incomplete"
    reasons: tuple[str, ...] = ()
    target: float = 0.1
    sentinels: Mapping[str, Pairs] = field(default_factory=dict)
    discarded: tuple[Discarded, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    calibration: str = ""
    ended: str = ""
    earlier: str = ""
    advisory: str = ""
    overruled: str = ""
    slowed: Mapping[str, float] = field(default_factory=dict)
    pairs: int = 0
    took_s: float = 0.0
    schema: int = SCHEMA


def conclude(report: GateReport) -> GateReport:
    """*report* with its outcome, and the reasons in the order of their weight."""
    found = [*_whole(report), *_by_case(report)]
    if not found:
        return replace(report, outcome="passed", reasons=())
    return replace(report, outcome=found[0][0], reasons=tuple(reason for _, reason in found))


def _whole(report: GateReport) -> list[tuple[Outcome, str]]:
    """What is wrong with the gate as a whole."""
    found: list[tuple[Outcome, str]] = []
    if report.ended:
        found.append(("incomplete", report.ended))
    if report.advisory:
        found.append(("inconclusive", f"{report.advisory}: this is advice, and no verdict"))
    for name, pairs in report.sentinels.items():
        change = moved(pairs, report.rule, len(report.sentinels))
        if change is not None:
            told = f"{name}, which no change can touch, moved by {change * 100:+.1f} %"
            found.append(("contaminated", told))
        elif unsteady(pairs, report.rule) > report.target:
            told = f"{name}, which no change can touch, is too noisy to tell whether it moved"
            found.append(("inconclusive", told))
    return found


def _by_case(report: GateReport) -> list[tuple[Outcome, str]]:
    """What is wrong with its cases: regressions first."""
    by: dict[str, list[CaseVerdict]] = {}
    for case in report.cases:
        by.setdefault(case.judged.verdict, []).append(case)
    found: list[tuple[Outcome, str]] = []
    if slower := by.get("REGRESSED"):
        found.append(("regressed", f"{_named(slower)} slower"))
    if missing := by.get("NOT_COMPARABLE"):
        found.append(("not comparable", f"{_named(missing)} not comparable"))
    if len(report.cases) == len(by.get("NOT_COMPARABLE", ())):
        found.append(("not comparable", "no case was judged"))
    blind = [case for case in report.cases if hides(case, report.target)]
    if blind:
        told = f"{_named(blind)} too noisy: a slowdown of {report.target * 100:g} % could be missed"
        found.append(("inconclusive", told))
    if report.earlier == "regressed" and not slower and not report.overruled:
        told = f"an earlier gate of the same code was {report.earlier}: one of the two is wrong"
        found.append(("inconclusive", told))
    return found


def hides(case: CaseVerdict, target: float) -> bool:
    """Whether the case was too noisy: a slowdown of *target* could be missed."""
    judged = case.judged
    blind = judged.detectable is None or judged.detectable > target
    return judged.verdict == "INCONCLUSIVE" and blind


def _named(cases: Sequence[CaseVerdict]) -> str:
    first = max(cases, key=lambda case: case.judged.change or 0.0).case[:200]
    if len(cases) == 1:
        return f"{first} is"
    return f"{len(cases)} cases, {first} among them, are"


def exit_code(report: GateReport) -> int:
    """0 passed, 1 regressed and nothing else, 3 not comparable, 4 everything in between."""
    return EXIT_CODES[report.outcome]


def write_report(report: GateReport, path: Path) -> None:
    """Write *report* whole or not at all. Raises: UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, encode(report) + b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", "another --out") from None


def read_report(path: Path) -> GateReport:
    """The report in *path*. Raises: UsageError for what is none."""
    hint = "a verdict is what `gpuperf gate ab` writes; without one nothing passed"
    try:
        data = read_regular(path, LARGEST)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint) from None
    try:
        schema = json.loads(data).get("schema") if len(data) < 1 << 20 else SCHEMA
        report = decode(data, GateReport)
    except (ValueError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is no verdict: {str(error)[:200]}", hint) from None
    if schema != SCHEMA or report.schema != SCHEMA:
        raise UsageError(f"{path} has schema {str(schema)[:20]}", f"this gpuperf reads {SCHEMA}")
    refuse_unbounded(report)
    return report


def recheck(report: GateReport) -> GateReport:
    """*report* judged anew from its own evidence. Raises: UsageError where it says otherwise."""
    again = replace(report, cases=tuple(_judged_again(report)))
    again = conclude(again)
    for then, now in zip(report.cases, again.cases, strict=True):
        if then.judged.verdict != now.judged.verdict:
            raise UsageError(
                f"the verdict on {then.case[:200]} is {then.judged.verdict}, and its evidence says "
                f"{now.judged.verdict}",
                "the file was changed, or another gpuperf wrote it: run the gate again",
            )
    if again.outcome != report.outcome:
        raise UsageError(
            f"the outcome is {report.outcome!r}, and the evidence says {again.outcome!r}",
            "the file was changed, or another gpuperf wrote it: run the gate again",
        )
    return again


def _judged_again(report: GateReport) -> list[CaseVerdict]:
    paired = {c.case: c.evidence for c in report.cases if c.evidence is not None}
    stored = {c.case: c.sets for c in report.cases if c.sets is not None}
    if len({case.case for case in report.cases}) < len(report.cases):
        raise UsageError("a case is judged twice", "the file was changed: run the gate again")
    try:
        judged = {**judge(paired, report.rule), **judge_stored(stored, report.rule)}
    except ValueError as error:
        raise UsageError(f"the evidence is not whole: {error}", "run the gate again") from None
    return [_replaced(case, judged.get(case.case)) for case in report.cases]


def _replaced(case: CaseVerdict, judged: Judged | None) -> CaseVerdict:
    """*case* with what its evidence says, its times included."""
    judged = judged or Judged("NOT_COMPARABLE")
    if judged.verdict == "NOT_COMPARABLE":
        judged = replace(judged, reason=case.judged.reason or judged.reason)
    base_s, head_s = middles(case.evidence, case.sets)
    return replace(case, judged=judged, base_s=base_s, head_s=head_s)


def middles(evidence: Evidence | None, sets: Sets | None) -> tuple[float | None, float | None]:
    """The geometric mean of the seconds of each side, over the processes that the verdict is of:
    their ratio is the change."""
    found = sets if evidence is None else evidence.confirm or evidence.screen
    if found is None or not (are_times(found.base) and are_times(found.head)):
        return None, None
    if not found.base or not found.head:
        return None, None
    return geometric_mean(found.base), geometric_mean(found.head)
