"""Put a gate's report into the words and figures that all renderers share.

These are the outcome, the order of the cases (worst first), the figures and sentences of a case,
and the remarks and conditions below them. Text from run files and programs is cleaned here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpuperf.gate.rule import Pairs, Verdict
from gpuperf.gate.verdict import CaseVerdict, GateReport, SideSummary, hides
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
NOTHING = "–"
LONGEST = 400  # characters of a reason, a cause, a remark
MOST = 12  # remarks of one kind
NAME = 120  # characters of a side, a suite or a device


def names_of(report: GateReport, most: int) -> Names:
    """Return short names for the cases and sentinels of *report*, of *most* characters or fewer."""
    cases = (case.fields or case.case for case in report.cases)
    return Names((*cases, *report.sentinels), most)


def worst_first(report: GateReport) -> list[CaseVerdict]:
    """Return the cases by verdict, the greatest slowdown first; inconclusive ones by the slowdown
    that they could hide."""

    def badness(case: CaseVerdict) -> tuple[int, float]:
        judged = case.judged
        bad = judged.change or 0.0
        if judged.verdict == "INCONCLUSIVE":
            bad = math.inf if judged.detectable is None else judged.detectable
        return ORDER.index(judged.verdict), -bad

    return sorted(report.cases, key=badness)


def notable(report: GateReport) -> list[CaseVerdict]:
    """Return the cases that somebody must look at, worst first: all that regressed or improved,
    cannot be compared, or could hide a slowdown of the target."""
    changed = ("REGRESSED", "NOT_COMPARABLE", "IMPROVED")
    return [
        case
        for case in worst_first(report)
        if case.judged.verdict in changed or hides(case, report.target)
    ]


def suspected(report: GateReport) -> int:
    """Return how many cases look slower in a gate whose outcome is not `regressed`."""
    if report.outcome == "regressed":
        return 0
    return sum(case.judged.verdict == "REGRESSED" for case in report.cases)


def words_of(report: GateReport) -> Mapping[Verdict, str]:
    """Return the word for each verdict; if the gate has none, a regression `looks slower`."""
    return {**WORDS, "REGRESSED": SUSPECTED} if suspected(report) else WORDS


def word_of(case: CaseVerdict, report: GateReport) -> str:
    """Return the word for the verdict on *case*, in capitals for a regression."""
    word = words_of(report)[case.judged.verdict]
    loud = case.judged.verdict == "REGRESSED" and not suspected(report)
    return word.upper() if loud else word


def headline(report: GateReport, names: Names) -> str:
    """Return the outcome in one line, with its first reason."""
    why = _renamed(report.reasons[0], names) if report.reasons else ""
    if count := suspected(report):
        cases = "1 case looks" if count == 1 else f"{count:,} cases look"
        unquiet = report.outcome in ("inconclusive", "contaminated")
        but = report.advisory or (f"the machine was not quiet ({why})" if unquiet else why)
        why = f"{cases} slower, but {_renamed(but, names)}: no verdict"
    return f"{report.outcome.upper()}{f': {why}' if why else ''}"


def counts(cases: Iterable[CaseVerdict], words: Mapping[Verdict, str] = WORDS) -> str:
    """Return the number of *cases* by verdict, worst first: `2 regressed, 18 unchanged`."""
    numbers = Counter(case.judged.verdict for case in cases)
    return ", ".join(f"{numbers[v]} {words[v]}" for v in ORDER if numbers[v]) or "no case"


def cells(case: CaseVerdict) -> list[str]:
    """Return base, head, change, its interval, q and the detectable slowdown of *case*."""
    judged = case.judged
    # q belongs to the test for slower: it means nothing for a case that became faster.
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
    """Return the times, the change and q of a case: `3.595 µs → 3.701 µs, +2.95 % (+2.51 … +3.40
    %), q 0.0003`; empty without a change."""
    base, head, change, interval, q, _ = cells(case)
    if case.judged.change is None:
        return ""
    times = f"{base} → {head}, " if NOTHING not in (base, head) else ""
    within = f" ({interval})" if interval != NOTHING else ""
    return f"{times}{change}{within}{f', q {q}' if q != NOTHING else ''}"


def reasons_of(case: CaseVerdict, report: GateReport) -> Iterator[str]:
    """Yield the reasons of a verdict, a sentence each: its cause, its doubts, its notes."""
    if case.cause is not None:
        yield shorten(f"{_cut(case.cause.kind)}: {_cut(case.cause.text)}", LONGEST)
    elif case.judged.verdict == "REGRESSED" and not suspected(report):
        yield "the cause is not known"
    if hides(case, report.target):
        yield f"too noisy: a slowdown of {report.target * 100:g} % could be missed"
    elif case.judged.verdict == "INCONCLUSIVE" and (case.judged.high or 0.0) > 0:
        yield f"not clear: a slowdown of {percent(case.judged.high, '')} is possible"
    texts = map(_cut, (case.judged.reason, *case.notes))
    yield from (shorten(text, LONGEST) for text in texts if text)


def remarks(report: GateReport, names: Names, most: int = MOST) -> list[str]:
    """Return remarks on the gate: further reasons, notes, cases left out, discarded pairs, at most
    *most* of each kind and the number of others; then earlier gates, and the error rate."""
    left_out, lines = list(report.left_out.items()), []
    lines += [f"also: {_renamed(reason, names)}" for reason in report.reasons[1 : most + 1]]
    lines += _rest(report.reasons[1:], most, "reasons")
    lines += [_cut(note) for note in report.notes[:most]]
    lines += _rest(report.notes, most, "notes")
    lines += [f"{_name(name)} left out: {_cut(why)}" for name, why in left_out[:most]]
    lines += _rest(left_out, most, "cases left out")
    lines += [f"pair {d.pair} discarded: {_cut(d.reason)}" for d in report.discarded[:most]]
    lines += _rest(report.discarded, most, "pairs discarded")
    if report.earlier:
        lines.append(f"an earlier gate of the same code: {_cut(report.earlier)}")
    if report.overruled:
        lines.append(f"overruled: {_cut(report.overruled)}")
    lines.append(_cut(report.calibration) or NOT_CALIBRATED)
    return [shorten(text, 2 * LONGEST) for text in lines]


LEGEND = (
    "base and head: geometric mean over the processes judged; change: head over base, less 1, with "
    "its 95 % interval; q: rate of false alarms among the cases called slower, if this one is too"
)
NOT_CALIBRATED = "the error rate of this suite was not measured here: gpuperf gate calibrate does"


def summary(report: GateReport) -> list[str]:
    """Return three lines: the sides; the suite, the device and the minutes; the rule."""
    processes = "pairs of fresh processes" if report.kind == "ab" else "processes of stored runs"
    done = f"{report.pairs:,} {processes} in " if report.pairs else ""
    took = f", {done}{report.took_s / 60:.1f} min" if report.took_s else ""
    lines = (
        f"base {_side(report.base)}, head {_side(report.head)}",
        f"suite {_name(report.suite)} on {_name(report.device)}{took}",
        rule_text(report),
    )
    return [shorten(text, 2 * LONGEST) for text in lines]


def conditions(report: GateReport, names: Names) -> list[str]:
    """Return the summary, the sentinels, the contract, and how to read the table, a line each."""
    lines = [
        *summary(report),
        *_sentinels(report, names),
        contracts_text([report.contract]),
        LEGEND,
        f"detectable: the slowdown that is detected with a probability of {report.rule.power:g}; "
        f"the target is {report.target * 100:g} % in every case",
        *_fixed(names),
        f"gate {clean(report.id)}, {clean(report.created)}, gpuperf {clean(report.gpuperf)}",
    ]
    return [shorten(text, 2 * LONGEST) for text in lines]


def rule_text(report: GateReport) -> str:
    """Return the rule as a sentence."""
    rule = report.rule
    floor = f" and by {format_time(rule.floor_s, 3)}" if rule.floor_s else ""
    least = f"{rule.margin * 100:g} %{floor}"
    limit = f"regressed where slower than {least}, at {rule.alpha:g} over all cases"
    if report.kind == "compare":
        return f"processes of two runs, not paired; {limit}"
    return (
        f"{rule.screen_pairs} pairs of all cases, up to {rule.confirm_pairs} fresh ones of the "
        f"suspicious; {limit}; seed {rule.seed}"
    )


def _sentinels(report: GateReport, names: Names) -> Iterable[str]:
    changes = [
        f"{names.of(name)} {percent(mean_change(pairs))}"
        for name, pairs in list(report.sentinels.items())[:MOST]
    ]
    if changes:
        yield f"sentinels, which no change can touch: {', '.join(changes)}"


def mean_change(pairs: Pairs) -> float | None:
    """Return the geometric mean ratio of head to base, less 1; None without sound pairs."""
    if not pairs.sound:
        return None
    logs = [math.log(h) - math.log(b) for b, h in zip(pairs.base, pairs.head, strict=True)]
    mean = math.fsum(logs) / len(logs)
    return math.expm1(mean) if mean < 100 else None  # beyond that it is no slowdown


def _fixed(names: Names) -> Iterable[str]:
    by_axes: dict[str, list[str]] = {}
    for op, axes in names.fixed.items():
        by_axes.setdefault(axes, []).append(op)
    if texts := [f"{', '.join(ops)}: {axes}" for axes, ops in by_axes.items()]:
        yield f"the same in all cases, and left out of their names: {'; '.join(texts)}"


def _rest(items: Sequence[object], most: int, noun: str) -> Iterable[str]:
    if len(items) > most:
        yield f"and {len(items) - most:,} more {noun}; verdict.json has all"


def _cut(text: str) -> str:
    """Return the cleaned beginning of *text*: cleaning megabytes would be slow."""
    return clean(shorten(text, 4 * LONGEST))


def _renamed(text: str, names: Names) -> str:
    return shorten(names.replace_ids(text), LONGEST)


def _name(text: str) -> str:
    return shorten(_cut(text), NAME)


def _side(side: SideSummary) -> str:
    commit, name = clean(side.commit)[:10], _name(side.told)
    return f"{name} ({commit})" if commit and commit not in name else name


def _time(value: float | None) -> str:
    return NOTHING if value is None else format_time(value)


def percent(value: float | None, sign: str = "+") -> str:
    """Return a change in percent: `+2.95 %`."""
    return NOTHING if value is None else f"{_hundredths(value, sign)} %"


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return NOTHING
    return f"{_hundredths(low)} … {_hundredths(high)} %"


def _hundredths(fraction: float, sign: str = "+") -> str:
    """Return *fraction* in percent: `+2.95` for 0.0295; three digits from 10,000 % on."""
    return f"{fraction * 100:{sign}{'.2f' if abs(fraction) < 100 else '.3g'}}"
