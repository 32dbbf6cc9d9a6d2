"""Refuse a verdict with values that no gate writes, before it is judged.

A verdict may come from another machine, and its numbers go into tests and tables: a level of 0, a
margin of −1 or a million permutations of ten thousand cases would divide by zero or take hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from gpuperf.errors import UsageError
from gpuperf.gate.rule import Judged, Rule
from gpuperf.gate.stored import may_be_permuted

if TYPE_CHECKING:
    from gpuperf.gate.verdict import CaseVerdict, GateReport

MOST_CASES = 10_000
MOST_ENTRIES = 10_000  # entries of any other list or table
MOST_TIMES = 2_000_000  # times of processes, in all cases together
MOST_PAIRS = 1_000  # pairs of a stage, as on the command line
MOST_RESAMPLES = 100_000  # permutations of a test: the rule has 9999, and more for many cases
MOST_PERMUTED = 2 * 10**8  # times drawn in all permutations, which take half a minute
LEAST_LEVEL = 1e-9  # significance level of a test
LONGEST = 20_000  # characters of a case's name


def refuse_unbounded(report: GateReport) -> None:
    """Raise UsageError if *report* has a value that no gate writes, with the first such value."""
    for why in _unbounded(report):
        message = f"the verdict cannot be judged: {why}"
        raise UsageError(message, "gpuperf did not write this file: run the gate again")


def _unbounded(report: GateReport) -> Iterator[str]:
    yield from _odd_rule(report.rule)
    if not 0 < report.target <= 1:
        yield f"its target is {report.target:g}"
    if len(report.cases) > MOST_CASES:
        yield f"it has {len(report.cases):,} cases, and {MOST_CASES:,} is the most"
    for name in ("reasons", "notes", "discarded", "left_out", "sentinels", "slowed"):
        count = len(getattr(report, name))
        if count > MOST_ENTRIES:
            yield f"it has {count:,} {name}, and {MOST_ENTRIES:,} is the most"
    for side in (report.base, report.head):
        if len(side.soft) > MOST_ENTRIES:
            yield f"a side has {len(side.soft):,} facts, and {MOST_ENTRIES:,} is the most"
    if not 0 <= report.took_s < math.inf:
        yield f"it took {report.took_s:g} s"
    for case in report.cases:
        yield from _odd_case(case)
    yield from _too_much_work(report)


def _odd_rule(rule: Rule) -> Iterator[str]:
    for field in ("screen_level", "alpha", "power", "equivalence"):
        value = getattr(rule, field)
        if not LEAST_LEVEL <= value <= 1 - LEAST_LEVEL:
            yield f"its {field} is {value:g}"
    for field in ("margin", "floor_s"):
        value = getattr(rule, field)
        if not 0 <= value <= 1e9:
            yield f"its {field} is {value:g}"
    for field in ("screen_pairs", "confirm_pairs"):
        if not 2 <= getattr(rule, field) <= MOST_PAIRS:
            yield f"it asks for {getattr(rule, field)} {field}"
    if not 0 < rule.resamples <= MOST_RESAMPLES:
        yield f"it asks for {rule.resamples} permutations"
    if not 0 <= rule.seed < 2**63:
        yield f"its seed is {rule.seed}"


def _odd_case(case: CaseVerdict) -> Iterator[str]:
    if len(case.case) > LONGEST:
        yield f"the name of a case has {len(case.case):,} characters"
    if case.fields is not None and case.fields.id != case.case:
        yield f"{case.case[:200]} has the fields of {case.fields.id[:200]}"
    if max(len(case.notes), len(case.cause.figures) if case.cause else 0) > MOST_ENTRIES:
        yield f"{case.case[:200]} has more than {MOST_ENTRIES:,} notes or figures"
    for part in (case.evidence, case.sets):
        margin = part.margin if part is not None else None
        if margin is not None and not 0 <= margin <= 1e9:
            yield f"the margin of {case.case[:200]} is {margin:g}"
    sets = case.sets
    if sets is not None and not (0 <= (sets.noise or 0.0) <= 1e9 and 0 <= sets.processes < 2**31):
        yield f"the noise of {case.case[:200]} is {sets.noise} of {sets.processes} processes"
    for value in (case.base_s, case.head_s, *_figures(case.judged)):
        if value is not None and not abs(value) < math.inf:
            yield f"a figure of {case.case[:200]} is {value}"


def _figures(judged: Judged) -> Iterator[float | None]:
    for field in fields(judged):
        if field.name not in ("verdict", "reason"):
            yield getattr(judged, field.name)


def _too_much_work(report: GateReport) -> Iterator[str]:
    """Yield the number of times, or of permuted times, if it takes too long to judge so many."""
    paired = sum(case.evidence is not None for case in report.cases)
    resamples = report.rule.resamples_of(paired)
    times = sum(2 * len(pairs.base) for pairs in report.sentinels.values())
    drawn = 0
    for case in report.cases:
        if (evidence := case.evidence) is not None:
            confirm = 2 * len(evidence.confirm.base) if evidence.confirm is not None else 0
            times += 2 * len(evidence.screen.base) + confirm
            drawn += confirm * resamples
        if (sets := case.sets) is not None:
            both = len(sets.base) + len(sets.head)
            times += both
            drawn += both * report.rule.resamples if may_be_permuted(sets, report.rule) else 0
    if times > MOST_TIMES:
        yield f"it has {times:,} times, and {MOST_TIMES:,} is the most"
    if drawn > MOST_PERMUTED:
        yield f"it asks for permutations of {drawn:.2g} times, and {MOST_PERMUTED:.2g} is the most"
