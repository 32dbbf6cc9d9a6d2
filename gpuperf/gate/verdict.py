"""Define the report of a gate: the verdict on each case, the outcome, and the exit code.

A `GateReport` has all that any output shows, and the pairs of times themselves, so that `recheck`
can judge them again: it refuses a verdict that does not follow from its own evidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Literal

from gpuperf.errors import UsageError
from gpuperf.files import read_regular, write_atomically
from gpuperf.gate.bounds import refuse_unbounded
from gpuperf.gate.evidence import DiscardedPair
from gpuperf.gate.rule import Evidence, Judged, Pairs, Rule, are_times, judge, moved, undetected
from gpuperf.gate.stored import Sets, judge_stored
from gpuperf.model.codec import decode, encode
from gpuperf.model.contract import Contract
from gpuperf.model.workload import Case

SCHEMA = 1
LARGEST = 32 << 20  # bytes: a verdict on 10,000 cases of 26 pairs has 20 MB
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
    """The cause of a slowdown: its kind, a sentence, and the figures of base and head."""

    kind: str
    text: str
    figures: Mapping[str, tuple[Value, Value]] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseVerdict:
    """The verdict on one case with its evidence, the seconds of each side, and the cause.

    `case` is its id, and `fields` the case itself (None in a file of an older gpuperf). The
    evidence of a gate in pairs is `evidence`, that of two stored runs `sets`.
    """

    case: str
    judged: Judged
    evidence: Evidence | None = None
    sets: Sets | None = None
    base_s: float | None = None
    head_s: float | None = None
    owner: str = ""
    cause: Cause | None = None
    notes: tuple[str, ...] = ()
    fields: Case | None = None


@dataclass(frozen=True)
class SideSummary:
    """One side: its name (`told` in the file), its commit, its software, and its run file."""

    told: str
    commit: str = ""
    soft: Mapping[str, Value] = field(default_factory=dict)
    file: str = ""


@dataclass(frozen=True)
class GateReport:
    """The result of a gate.

    `ended` is why it stopped early, `left_out` the cases that neither side can run (each with its
    reason), `target` the slowdown that must be detectable in every case. `earlier` is the outcome
    of an earlier gate of the same code, and `overruled` the reason why that does not count;
    `advisory` is why the report is advice and not a verdict. `slowed` are the cases that were
    slowed down on purpose, each with the fraction.
    """

    id: str
    created: str
    gpuperf: str
    kind: Literal["ab", "compare"]
    base: SideSummary
    head: SideSummary
    device: str
    suite: str
    contract: Contract
    rule: Rule
    cases: tuple[CaseVerdict, ...]
    outcome: Outcome = "incomplete"
    reasons: tuple[str, ...] = ()
    target: float = 0.1
    sentinels: Mapping[str, Pairs] = field(default_factory=dict)
    discarded: tuple[DiscardedPair, ...] = ()
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
    """Return *report* with its outcome, which is that of the first reason not to pass, and all
    reasons: first those of the gate, then those of its cases."""
    reasons = [*_reasons_of_gate(report), *_reasons_of_cases(report)]
    outcome = reasons[0][0] if reasons else "passed"
    return replace(report, outcome=outcome, reasons=tuple(reason for _, reason in reasons))


def _reasons_of_gate(report: GateReport) -> Iterator[tuple[Outcome, str]]:
    """Yield (outcome, reason) for each thing that keeps the gate as a whole from passing."""
    if report.ended:
        yield "incomplete", report.ended
    if report.advisory:
        yield "inconclusive", f"{report.advisory}: this is advice, and no verdict"
    for name, pairs in report.sentinels.items():
        change = moved(pairs, report.rule, len(report.sentinels))
        if change is not None:
            yield (
                "contaminated",
                f"{name}, which no change can touch, moved by {change * 100:+.1f} %",
            )
        elif undetected(pairs) > report.target:
            yield "inconclusive", f"{name}, which no change can touch, is too noisy to judge"


def _reasons_of_cases(report: GateReport) -> Iterator[tuple[Outcome, str]]:
    """Yield (outcome, reason) for the cases that keep the gate from passing, regressions first."""
    by: dict[str, list[CaseVerdict]] = {}
    for case in report.cases:
        by.setdefault(case.judged.verdict, []).append(case)
    slower, missing = by.get("REGRESSED", []), by.get("NOT_COMPARABLE", [])
    if slower:
        yield "regressed", f"{_named(slower)} slower"
    if missing:
        yield "not comparable", f"{_named(missing)} not comparable"
    if len(report.cases) == len(missing):
        yield "not comparable", "no case was judged"
    if noisy := [case for case in report.cases if hides(case, report.target)]:
        missed = f"a slowdown of {report.target * 100:g} % could be missed"
        yield "inconclusive", f"{_named(noisy)} too noisy: {missed}"
    if report.earlier == "regressed" and not slower and not report.overruled:
        earlier = "an earlier gate of the same code was regressed: one of the two is wrong"
        yield "inconclusive", earlier


def hides(case: CaseVerdict, target: float) -> bool:
    """Return whether *case* is inconclusive, and may hide a slowdown of *target* (0.05: 5 %)."""
    judged = case.judged
    blind = judged.detectable is None or judged.detectable > target
    return judged.verdict == "INCONCLUSIVE" and blind


def _named(cases: Sequence[CaseVerdict]) -> str:
    first = max(cases, key=lambda case: case.judged.change or 0.0).case[:200]
    if len(cases) == 1:
        return f"{first} is"
    return f"{len(cases)} cases, {first} among them, are"


def exit_code(report: GateReport) -> int:
    """Return 0 if the gate passed, 1 if it regressed, 3 if it is not comparable, else 4."""
    return EXIT_CODES[report.outcome]


def write_report(report: GateReport, path: Path) -> None:
    """Write *report* to *path*, whole or not at all. Raises: UsageError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, encode(report) + b"\n")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", "choose another --out"
        ) from None


def read_report(path: Path) -> GateReport:
    """Read the report in *path*. Raises: UsageError if it is no report that a gate wrote."""
    hint = "use the verdict.json of `gpuperf gate ab`; without a verdict nothing passed"
    try:
        data = _inside_page(read_regular(path, LARGEST))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint) from None
    try:
        peek = json.loads(data) if len(data) < 1 << 20 else {"schema": SCHEMA}
        if not isinstance(peek, dict):
            raise ValueError("it holds no JSON object")
        schema = peek.get("schema")
        report = decode(data, GateReport)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a verdict: {str(error)[:200]}", hint) from None
    if schema != SCHEMA or report.schema != SCHEMA:
        raise UsageError(f"{path} has schema {str(schema)[:20]}", f"this gpuperf reads {SCHEMA}")
    refuse_unbounded(report)
    return report


def _inside_page(data: bytes) -> bytes:
    """Return the verdict inside the HTML page *data* (gate/page.py), or *data* of another file."""
    if data[:14].lower() != b"<!doctype html":
        return data
    _, _, content = data.partition(b'id="gpuperf-verdict">')
    return content.partition(b"</script>")[0]


def recheck(report: GateReport) -> GateReport:
    """Judge *report* again from the times in it, and return the new report.

    Raises: UsageError if a verdict or the outcome differs.
    """
    hint = "the file was changed, or another gpuperf wrote it: run the gate again"
    again = conclude(replace(report, cases=tuple(_judged_again(report))))
    for then, now in zip(report.cases, again.cases, strict=True):
        if then.judged.verdict != now.judged.verdict:
            raise UsageError(
                f"the verdict on {then.case[:200]} is {then.judged.verdict}, and its evidence says "
                f"{now.judged.verdict}",
                hint,
            )
    if again.outcome != report.outcome:
        raise UsageError(
            f"the outcome is {report.outcome!r}, and the evidence says {again.outcome!r}", hint
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
    """Return *case* with the verdict and the times that follow from its evidence."""
    judged = judged or Judged("NOT_COMPARABLE")
    if judged.verdict == "NOT_COMPARABLE":
        judged = replace(judged, reason=case.judged.reason or judged.reason)
    base_s, head_s = middles(case.evidence, case.sets)
    return replace(case, judged=judged, base_s=base_s, head_s=head_s)


def middles(evidence: Evidence | None, sets: Sets | None) -> tuple[float | None, float | None]:
    """Return for base and head the geometric mean of the judged processes' seconds, whose ratio is
    1 + `change`; (None, None) without times."""
    judged = sets if evidence is None else evidence.judged
    if judged is None or not (judged.base and judged.head):
        return None, None
    if not are_times((*judged.base, *judged.head)):
        return None, None
    return geometric_mean(judged.base), geometric_mean(judged.head)
