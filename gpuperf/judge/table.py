"""Make the table of a verdict: a row for each case, and its facts below it."""

from __future__ import annotations

from gpuperf.judge.fact import Fact
from gpuperf.judge.score import Light, Score
from gpuperf.judge.verdict import JudgedCase, Verdict
from gpuperf.model.codec import to_builtins
from gpuperf.model.text import clean, shorten
from gpuperf.show.table import Column, Mood, Table, fill, notes_of
from gpuperf.units import format_time

COLUMNS = (
    Column("status", left=True),
    Column("case", left=True, identity=True, code=True),
    Column("time"),
    Column("reference", keep=4),
    Column("speed-up"),
    Column("95 %", keep=3),
    Column("over compiled", keep=3),
    Column("of roof", keep=3),
    Column("audited", keep=2),
    Column("grade", keep=1),
)
GRADES = {
    "A": "hardware counters agree with the times",
    "B": "no hardware counters were read",
    "C": "the evidence is that of a CPU: clocks, results, and processor time",
}
OPTIONAL = ("over compiled", "of roof")  # columns that an empty table lacks
LONGEST = 300  # characters of a sentence
GOOD, DOUBTED = ("valid",), ("suspect", "inconclusive", "unfair-task")


def verdict_table(verdict: Verdict, verbose: bool = False) -> Table:
    """Return the table of *verdict*; with *verbose*, all facts and restrictions."""
    rows = [_cells(case) for case in verdict.cases]
    shown = [i for i, c in enumerate(COLUMNS) if c.head not in OPTIONAL or any(r[i] for r in rows)]
    rows = [[row[i] for i in shown] for row in rows]
    columns = list(fill([COLUMNS[i] for i in shown], rows))
    moods: tuple[Mood, ...] = tuple(
        "" if row[0] in GOOD else "doubt" if row[0] in DOUBTED else "failure" for row in rows
    )
    columns[0] = Column("status", cells=columns[0].cells, left=True, moods=moods)
    return Table(
        tuple(columns),
        lead=(_headline(verdict),),
        details=tuple(tuple(_details(case, verbose)) for case in verdict.cases),
        notes=notes_of(*_notes(verdict, verbose)),
        rows=[to_builtins(verdict)],
    )


def _headline(verdict: Verdict) -> str:
    name = shorten(clean(verdict.submission.name), 60)
    against = shorten(clean(verdict.reference.name), 60)
    score = f", {_speedup(verdict.score)}" if verdict.score else ""
    return f"{name} against {against}: {verdict.status}{score}"


def _cells(case: JudgedCase) -> list[str]:
    judged, evidence = case.judgement, case.evidence
    audits = str(len(evidence.decided))
    name = shorten(clean(evidence.case), 48)
    score = judged.score
    if score is None:
        return [judged.status, name, "", "", "", "", "", "", audits, evidence.grade]
    interval = f"{score.low:.3g} … {score.high:.3g}"
    times = format_time(score.time_s), format_time(score.reference_s)
    compiled = _speedup(judged.compiled) if judged.compiled else ""
    light = f"{judged.light.share * 100:.3g} %" if judged.light else ""
    more = [_speedup(score), interval, compiled, light, audits, evidence.grade]
    return [judged.status, name, *times, *more]


def _speedup(score: Score) -> str:
    return f"{score.speedup:.3g}×"


def _details(case: JudgedCase, verbose: bool) -> list[str]:
    """Return the reason, and each fact that failed; with *verbose*, all facts."""
    judged = case.judgement
    sentences = [_said(judged.reason)] if judged.reason else []
    for fact in judged.facts:
        if verbose or (fact.result == "failed" and fact.text != judged.reason):
            sentences.append(_said(f"{fact.name}: {_of_fact(fact)}"))
    sentences += [_said(note) for note in case.evidence.notes]
    return sentences


def _of_fact(fact: Fact) -> str:
    seen = (
        f" ({fact.seen:.3g}, bound {fact.bound:.3g})" if None not in (fact.seen, fact.bound) else ""
    )
    text = f", {fact.text}" if fact.text else ""
    return f"{fact.result}{seen}{text}"


def _of_light(light: Light) -> str:
    over = "; over 100 %: the data lie in a cache, or a roof is too low" if light.share > 1 else ""
    return f"of roof: the least time of the cost by the {light.source}, over the time{over}"


def _said(text: str) -> str:
    return shorten(clean(text), LONGEST)


def _notes(verdict: Verdict, verbose: bool) -> list[str]:
    restrictions = verdict.cases[0].evidence.restrictions
    notes = [f"grade {verdict.grade}: {GRADES[verdict.grade]}"]
    lights = [case.judgement.light for case in verdict.cases]
    notes += sorted({_of_light(light) for light in lights if light is not None})
    scores = [score for case in verdict.cases if (score := case.judgement.score) is not None]
    if any(not score.low <= score.reference_s / score.time_s <= score.high for score in scores):
        notes.append(
            "the speed-up is over pairs of windows, one of each side soon after the other, and the "
            "times are medians of each side: on a machine that is not quiet they may disagree"
        )
    if verdict.cases[0].evidence.started == "forked":
        notes.append("its processes are forks of one process, and differ less than other processes")
    if verdict.score is not None and verdict.score.over == "windows":
        notes.append("the interval is that of one process; more --processes show how they differ")
    lacking = f"; not available: {', '.join(restrictions.unavailable)}"
    notes.append(f"isolation {restrictions.level}" + (lacking if restrictions.unavailable else ""))
    if verbose and restrictions.in_force:
        notes.append(f"in force: {', '.join(restrictions.in_force)}")
    return [_said(note) for note in notes]
