"""Compare the measurements of a session with a stored run, by the rule of the stored gate.

Measurements under different contracts cannot be judged together, so each contract is a comparison
of its own; the rate of false alarms is divided among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuperf.errors import CannotMeasure
from gpuperf.gate.compare import compare_runs, incomparable
from gpuperf.gate.rule import Rule
from gpuperf.gate.stored import ENOUGH, SESSION
from gpuperf.gate.verdict import CaseVerdict, hides
from gpuperf.library.run import Run
from gpuperf.model.contract import Contract
from gpuperf.model.record import Header
from gpuperf.model.summary import RunSummary, summarize

TARGET = 0.1  # slowdown that must be detectable, as `gpuperf gate compare` has it
NEW = "the baseline does not have it"
DECIDED = ("REGRESSED", "IMPROVED", "UNCHANGED", "INCONCLUSIVE")


@dataclass(frozen=True)
class Comparison:
    """The verdicts by case, why other cases have none, and why the session fails; `problem` is
    empty if it passes."""

    verdicts: Mapping[str, CaseVerdict] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    notes: tuple[str, ...] = ()

    def word(self, case: str) -> str:
        """Return the verdict on *case* in a word, in capitals if it fails the session."""
        verdict = self.verdicts.get(case)
        if verdict is None:
            return "new" if self.unfit.get(case) == NEW else "not comparable"
        if hides(verdict, TARGET):
            return "not decided"
        words = {"REGRESSED": "SLOWER", "IMPROVED": "faster", "INCONCLUSIVE": "not slower"}
        return words.get(verdict.judged.verdict, verdict.judged.verdict.lower())

    def reason(self, case: str) -> str:
        """Return why *case* has no clear verdict; empty if it has one."""
        verdict = self.verdicts.get(case)
        if verdict is None:
            return self.unfit.get(case, "")
        if not hides(verdict, TARGET):
            return verdict.cause.text if verdict.cause else ""
        return _few(verdict) or f"too noisy: a slowdown of {TARGET * 100:g} % could be missed"


def _few(verdict: CaseVerdict) -> str:
    if verdict.judged.detectable is not None or verdict.sets is None:
        return ""
    counts = f"{len(verdict.sets.base)} and {len(verdict.sets.head)}"
    return (
        f"{counts} processes are too few to estimate their scatter: measure the baseline with "
        f"--gpuperf-passes {ENOUGH}"
    )


def compare(base: Run, head: Run | None, name: str) -> Comparison:
    """Return the comparison of *head* with *base*, which is called *name*."""
    if head is None:
        return Comparison(problem=f"nothing was measured, so nothing is compared with {name}")
    theirs = {record.case.id: record.contract for record in base.records}
    ours = {record.case.id: record.contract for record in head.records}
    unfit: dict[str, str] = {}
    groups: dict[Contract, list[str]] = {}
    for case, contract in ours.items():
        if case not in theirs:
            unfit[case] = NEW
            continue
        headers = _under(base.header, theirs[case]), _under(head.header, contract)
        if reasons := incomparable(*headers):
            unfit[case] = "; ".join(reasons)
        else:
            groups.setdefault(contract, []).append(case)
    rule = Rule(margin=SESSION, alpha=Rule.alpha / max(1, len(groups)))
    verdicts: dict[str, CaseVerdict] = {}
    for contract, cases in groups.items():
        found, refused = _group(_part(base, contract, cases), _part(head, contract, cases), rule)
        verdicts |= found
        unfit |= refused
    left = len(theirs.keys() - ours.keys())
    notes = [RATE]
    notes += [f"{left} of the {len(theirs)} cases of {name} were not measured"] if left else []
    notes += [f"{len(base.problems)} lines of {name} cannot be read"] if base.problems else []
    return Comparison(verdicts, unfit, _problem(verdicts, unfit, name), tuple(notes))


RATE = (
    f"this rule calls unchanged code SLOWER in at most {Rule.alpha * 100:g} of 100 sessions; that "
    "rate was not measured for these tests"
)


def _under(header: Header, contract: Contract) -> Header:
    return replace(header, contract=contract, variants=())


def _part(run: Run, contract: Contract, cases: Sequence[str]) -> RunSummary:
    """Return the part of *run* with *cases*, which were measured under *contract*."""
    header = replace(
        _under(run.header, contract), plan=tuple(c for c in run.header.plan if c.id in cases)
    )
    records = tuple(r for r in run.records if r.case.id in cases and r.contract == contract)
    return summarize(replace(run, header=header, records=records, problems=()))


def _group(
    base: RunSummary, head: RunSummary, rule: Rule
) -> tuple[dict[str, CaseVerdict], dict[str, str]]:
    """Return the verdicts, and the reason for each case that cannot have one."""
    cases = [case.id for case in head.header.plan]
    try:
        report = compare_runs(base, head, rule, TARGET)
    except CannotMeasure as error:
        return {}, dict.fromkeys(cases, str(error))
    if report.advisory:
        return {}, dict.fromkeys(cases, report.advisory)
    verdicts = {v.case: v for v in report.cases if v.judged.verdict in DECIDED}
    reasons = {v.case: v.judged.reason for v in report.cases if v.case not in verdicts}
    return verdicts, reasons | dict(report.left_out)


def _problem(verdicts: Mapping[str, CaseVerdict], unfit: Mapping[str, str], name: str) -> str:
    slower = [v for v in verdicts.values() if v.judged.verdict == "REGRESSED"]
    if slower:
        count = "1 measurement is" if len(slower) == 1 else f"{len(slower)} measurements are"
        return f"{count} slower than in {name}"
    if all(hides(verdict, TARGET) for verdict in verdicts.values()):
        first = next(iter(verdicts.values()), None)
        reason = next((why for why in unfit.values() if why), "") if first is None else ""
        if first is not None:
            reason = _few(first) or "the times are too noisy"
        return f"nothing could be compared with {name}: {reason}"
    return ""
