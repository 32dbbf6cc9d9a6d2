"""What does a person read of a gate's report, on a terminal as in a pull request?

The words and figures that all renderers share: the outcome, the cases worst first, how each is
told, and the remarks that must stand under them. Everything from outside is cleaned here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpuperf.gate.rule import Pairs, Verdict
from gpuperf.gate.verdict import CaseVerdict, GateReport, SideTold, hides
from gpuperf.model.text import clean, shorten
from gpuperf.show.axes import Names
from gpuperf.show.contract import contracts_text
from gpuperf.units import format_time

ORDER: tuple[Verdict, ...] = (
    "REGRESSED",
    "NOT_COMPARABLE",
    "INCONCLUSIVE",
    "IMPROVED",
    "UNCHANGED",
)
WORDS: Mapping[Verdict, str] = {v: v.lower().replace("_", " ") for v in ORDER}
SUSPECTED = "looks slower"
HEADS = ("base", "head", "change", "95 %", "q", "detectable")
NOTHING = "–"
LONGEST = 400  # characters of a reason, a cause, a remark
MOST = 12  # remarks of one kind
NAME = 120  # characters of a side, a suite or a device
LARGEST = 100.0  # log ratio that is still a slowdown


def names_of(report: GateReport, most: int) -> Names:
    """What its cases and its sentinels are called, in at most *most* characters."""
    return Names((*(case.case for case in report.cases), *report.sentinels), most)


def worst_first(report: GateReport) -> list[CaseVerdict]:
    """The cases by verdict; of each the greatest slowdown first, of what is inconclusive that which
    could hide most."""
    return sorted(report.cases, key=_badness)


def _badness(case: CaseVerdict) -> tuple[int, float]:
    judged = case.judged
    bad = judged.change or 0.0
    if judged.verdict == "INCONCLUSIVE":
        bad = float("inf") if judged.detectable is None else judged.detectable
    return ORDER.index(judged.verdict), -bad


def suspected(report: GateReport) -> int:
    """How many cases look slower in a gate that comes to no verdict."""
    if report.outcome == "regressed":
        return 0
    return sum(case.judged.verdict == "REGRESSED" for case in report.cases)


def words_of(report: GateReport) -> Mapping[Verdict, str]:
    """How each verdict is called: without a verdict of the gate a case can but look slower."""
    return {**WORDS, "REGRESSED": SUSPECTED} if suspected(report) else WORDS


def headline(report: GateReport, names: Names) -> str:
    """The outcome in one line, with its first reason."""
    why = _told(report.reasons[0], names) if report.reasons else ""
    if count := suspected(report):
        cases = "1 case looks" if count == 1 else f"{count:,} cases look"
        unquiet = report.outcome in ("inconclusive", "contaminated")
        but = report.advisory or (f"the machine was not quiet ({why})" if unquiet else why)
        why = f"{cases} slower beyond doubt, but {_told(but, names)}: no verdict"
    return f"{report.outcome.upper()}{f': {why}' if why else ''}"


def counts(cases: Iterable[CaseVerdict], words: Mapping[Verdict, str] = WORDS) -> str:
    """`2 regressed, 18 unchanged`, worst first."""
    found = Counter(case.judged.verdict for case in cases)
    return ", ".join(f"{found[v]} {words[v]}" for v in ORDER if found[v]) or "no case"


def cells(case: CaseVerdict) -> list[str]:
    """What stands under `HEADS` of *case*."""
    judged = case.judged
    # q is of slower: of a case that became faster it tells nothing.
    tested = judged.change is not None and judged.verdict != "IMPROVED"
    return [
        _time(case.base_s),
        _time(case.head_s),
        percent(judged.change),
        _interval(judged.low, judged.high),
        f"{judged.q:.2g}" if tested else NOTHING,
        percent(judged.detectable, ""),
    ]


def figures(case: CaseVerdict) -> str:
    """`3.595 µs → 3.701 µs, +2.95 % (+2.51 … +3.40 %), q 0.0003`; nothing where none are known."""
    base, head, change, interval, q, _ = cells(case)
    if case.judged.change is None:
        return ""
    times = f"{base} → {head}, " if NOTHING not in (base, head) else ""
    within = f" ({interval})" if interval != NOTHING else ""
    return f"{times}{change}{within}{f', q {q}' if q != NOTHING else ''}"


def reason_of(case: CaseVerdict, report: GateReport) -> list[str]:
    """Why the case is as it is, a sentence each: the cause, what hinders a verdict, notes."""
    found = []
    if case.cause is not None:
        found.append(f"{clean(case.cause.kind)}: {clean(case.cause.text)}")
    elif case.judged.verdict == "REGRESSED" and not suspected(report):
        found.append("the cause is not known")
    if hides(case, report.target):
        found.append(f"too noisy: a slowdown of {report.target * 100:g} % could be missed")
    elif case.judged.verdict == "INCONCLUSIVE" and (case.judged.high or 0.0) > 0:
        most = percent(case.judged.high, "")
        found.append(f"not clear: a slowdown of {most} could be here")
    found += [clean(text) for text in (case.judged.reason, *case.notes) if text]
    return [shorten(text, LONGEST) for text in found if text]


def remarks(report: GateReport, names: Names) -> list[str]:
    """What a reader must not miss beside the cases: at most some of each kind, and how many more
    there are; at last how often this gate errs."""
    left_out = [f"{_name(n)} left out: {clean(why)}" for n, why in report.left_out.items()]
    discarded = [f"pair {d.pair} discarded: {clean(d.reason)}" for d in report.discarded]
    found = [
        *_some([f"also: {_told(reason, names)}" for reason in report.reasons[1:]], "reasons"),
        *_some([clean(note) for note in report.notes], "notes"),
        *_some(left_out, "cases left out"),
        *_some(discarded, "pairs discarded"),
    ]
    if report.earlier:
        found.append(f"an earlier gate of the same code: {clean(report.earlier)}")
    if report.overruled:
        found.append(f"overruled: {clean(report.overruled)}")
    found.append(clean(report.calibration) or NOT_CALIBRATED)
    return [shorten(text, 2 * LONGEST) for text in found]


LEGEND = (
    "base and head: the geometric mean over the processes judged; change: of the head over the "
    "base, with its 95 % interval; q: the rate of false alarms among all cases called slower, were "
    "this one called so"
)
NOT_CALIBRATED = "the error rate of this suite was not calibrated here: gpuperf gate calibrate"


def conditions(report: GateReport, names: Names) -> list[str]:
    """What was compared with what, on what, how, by which rule; and how to read it."""
    processes = "pairs of fresh processes" if report.kind == "ab" else "processes of stored runs"
    done = f"{report.pairs:,} {processes} in " if report.pairs else ""
    took = f", {done}{report.took_s / 60:.1f} min" if report.took_s else ""
    found = [
        f"base {_side(report.base)}, head {_side(report.head)}",
        f"suite {_name(report.suite)} on {_name(report.device)}{took}",
        rule_text(report),
        *_steady(report, names),
        contracts_text([report.contract]),
        LEGEND,
        f"detectable: the slowdown that would be found with a probability of {report.rule.power:g};"
        f" {report.target * 100:g} % must be, in every case",
        *_fixed(names),
        f"gate {clean(report.id)}, {clean(report.created)}, gpuperf {clean(report.gpuperf)}",
    ]
    return [shorten(text, 2 * LONGEST) for text in found]


def rule_text(report: GateReport) -> str:
    """The rule in a sentence."""
    rule = report.rule
    floor = f" and by {format_time(rule.floor_s, 3)}" if rule.floor_s else ""
    least = f"{rule.margin * 100:g} %{floor}"
    limit = f"red where slower than {least}, at {rule.alpha:g} over all cases"
    if report.kind == "compare":
        return f"processes of two runs, not paired; {limit}"
    return (
        f"{rule.screen_pairs} pairs of all cases, {rule.confirm_pairs} fresh ones of the "
        f"suspicious; {limit}; seed {rule.seed}"
    )


def _steady(report: GateReport, names: Names) -> Iterable[str]:
    told = [
        f"{names.of(name)} {percent(mean_change(pairs))}"
        for name, pairs in list(report.sentinels.items())[:MOST]
    ]
    if told:
        yield f"sentinels, which no change can touch: {', '.join(told)}"


def mean_change(pairs: Pairs) -> float | None:
    """The slowdown of the head, as the mean ratio less 1, where there are sound pairs."""
    if not pairs.sound:
        return None
    logs = [math.log(h) - math.log(b) for b, h in zip(pairs.base, pairs.head, strict=True)]
    mean = math.fsum(logs) / len(logs)
    return math.expm1(mean) if mean < LARGEST else None


def _fixed(names: Names) -> Iterable[str]:
    by_axes: dict[str, list[str]] = {}
    for op, axes in names.fixed.items():
        by_axes.setdefault(axes, []).append(op)
    if told := "; ".join(f"{', '.join(ops)}: {axes}" for axes, ops in by_axes.items()):
        yield f"the same in all cases, and left out of their names: {told}"


def _some(found: Sequence[str], what: str) -> list[str]:
    if len(found) <= MOST:
        return list(found)
    return [*found[:MOST], f"and {len(found) - MOST:,} more {what}; verdict.json has all"]


def _told(text: str, names: Names) -> str:
    return shorten(names.replace_ids(text), LONGEST)


def _name(text: str) -> str:
    return shorten(clean(text), NAME)


def _side(side: SideTold) -> str:
    commit = clean(side.commit)[:10]
    told = _name(side.told)
    return f"{told} ({commit})" if commit and commit not in told else told


def _time(value: float | None) -> str:
    return NOTHING if value is None else format_time(value)


def percent(value: float | None, sign: str = "+") -> str:
    """`+2.95 %`."""
    return NOTHING if value is None else f"{_hundredths(value, sign)} %"


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return NOTHING
    return f"{_hundredths(low)} … {_hundredths(high)} %"


def _hundredths(fraction: float, sign: str = "+") -> str:
    """In percent: `+2.95`, and short for what is off any scale."""
    return f"{fraction * 100:{sign}{'.2f' if abs(fraction) < 100 else '.3g'}}"
