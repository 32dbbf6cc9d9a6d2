"""How is a gate's report shown: on a terminal, as markdown, as JSON, as JUnit XML?"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from gpuperf.gate.verdict import CaseVerdict, GateReport
from gpuperf.model.codec import encode
from gpuperf.report.caption import contracts_text
from gpuperf.report.plain import plain_table
from gpuperf.report.text import clean, shorten
from gpuperf.units import format_time

__all__ = ["GateFormat", "headline", "render_gate", "worst_first"]

LONGEST = 110  # characters of a case
ORDER = ("REGRESSED", "NOT_COMPARABLE", "INCONCLUSIVE", "IMPROVED", "UNCHANGED")
HEADS = ["case", "verdict", "base", "head", "change", "95 %", "q", "detectable"]


class GateFormat(StrEnum):
    """How a gate is printed."""

    TABLE = "table"
    JSON = "json"
    MD = "md"
    JUNIT = "junit"
    GITHUB = "github"


def render_gate(report: GateReport, format: GateFormat) -> str:
    """*report* as text that ends with a newline."""
    if format == GateFormat.JSON:
        return encode(report).decode() + "\n"
    if format == GateFormat.JUNIT:
        return ""
    cases = worst_first(report)
    title = headline(report)
    table = plain_table([], HEADS, [_cells(case) for case in cases], "table", _notes(report),
                        ("verdict",))  # fmt: skip
    return f"{title}\n\n{table}"


def worst_first(report: GateReport) -> list[CaseVerdict]:
    """The cases by verdict, the greatest slowdown first."""
    return sorted(
        report.cases, key=lambda c: (ORDER.index(c.judged.verdict), -(c.judged.change or 0.0))
    )


def headline(report: GateReport) -> str:
    """The outcome in one line."""
    why = f": {clean(report.reasons[0])}" if report.reasons else ""
    return f"{report.outcome.upper()}{why}"


def _cells(case: CaseVerdict) -> list[str]:
    judged = case.judged
    return [
        shorten(clean(case.case), LONGEST), judged.verdict, _time(case.base_s), _time(case.head_s),
        _percent(judged.change), _interval(judged.low, judged.high),
        f"{judged.q:.2g}" if judged.change is not None else "–", _percent(judged.detectable, ""),
    ]  # fmt: skip


def _time(value: float | None) -> str:
    return "–" if value is None else format_time(value)


def _percent(value: float | None, sign: str = "+") -> str:
    return "–" if value is None else f"{value * 100:{sign}.2f} %"


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{low * 100:+.2f} … {high * 100:+.2f}"


def _notes(report: GateReport) -> Sequence[str]:
    rule = report.rule
    notes = [f"because {clean(reason)}" for reason in report.reasons[1:]]
    for case in worst_first(report):
        if case.cause is not None:
            notes.append(f"{shorten(clean(case.case), LONGEST)}: {case.cause.kind}: "
                         f"{clean(case.cause.text)}")  # fmt: skip
        if case.judged.verdict == "NOT_COMPARABLE":
            notes.append(f"{shorten(clean(case.case), LONGEST)}: {clean(case.judged.reason)}")
    notes += [f"{clean(name)} left out: {clean(why)}" for name, why in report.left_out.items()]
    notes += [f"pair {d.pair} discarded: {clean(d.reason)}" for d in report.discarded]
    notes += [clean(note) for note in report.notes]
    notes.append(
        f"{report.suite} on {clean(report.device)}: base {clean(report.base.told)}, head "
        f"{clean(report.head.told)}; {report.pairs} pairs of fresh processes in "
        f"{report.took_s / 60:.1f} min"
    )
    notes.append(
        f"{rule.screen_pairs} pairs of all cases, {rule.confirm_pairs} of the suspicious; slower "
        f"than {rule.margin * 100:g} %, at {rule.alpha:g} over all cases; seed {rule.seed}"
    )
    notes.append(contracts_text([report.contract]))
    notes.append(report.calibration or "the error rate was not calibrated here: gate calibrate")
    return notes
