"""Make the table at the end of a session: time, interval, share of the roof, budget, verdict."""

from __future__ import annotations

from collections.abc import Sequence

from gpuperf.gate.wording import percent
from gpuperf.model.text import shorten
from gpuperf.pytest_plugin.session import Session, Taken
from gpuperf.show.contract import contracts_text
from gpuperf.show.screen import Screen
from gpuperf.show.table import Column, Mood, Table, notes_of
from gpuperf.show.terminal import to_terminal
from gpuperf.units import format_interval, format_percent, format_time

WIDTH = 100  # the most characters of a line
NAME, SHORT_NAME = 40, 26
CPU = "on a CPU: times by the wall timer, and no GPU was measured"
LOUD = ("OVER", "ERROR", "SLOWER")


def render(session: Session, width: int, color: bool) -> str:
    """Return the table of *session* for a terminal of *width* characters."""
    return to_terminal(table(session), Screen(min(width, WIDTH), color))


def table(session: Session) -> Table:
    """Return a row for each measurement, with the sentences of budget and baseline below it."""
    taken = list(session.taken.values())
    rows = [_Row(one, session) for one in taken]
    names = _names(taken)
    columns = [
        Column(
            "measurement",
            cells=tuple(shorten(name, NAME) for name in names),
            short=tuple(shorten(name, SHORT_NAME) for name in names),
            left=True,
            identity=True,
        ),
        Column("time", cells=tuple(row.time for row in rows)),
        Column("95 %", cells=tuple(row.interval for row in rows), keep=5),
        Column("of roof", cells=tuple(row.fraction for row in rows), keep=6),
        Column("budget", cells=tuple(row.budget for row in rows), keep=8),
        Column("change", cells=tuple(row.change for row in rows), keep=7),
        Column("verdict", cells=tuple(row.verdict for row in rows), left=True, moods=_moods(rows)),
    ]
    kept = (c for c in columns if any(cell not in ("", "–") for cell in c.cells))
    notes = session.comparison.notes if session.comparison else ()
    return Table(
        tuple(kept),
        lead=_head(session, taken),
        details=tuple(row.sentences for row in rows),
        notes=notes_of(*notes),
        more="--gpuperf-save RUN keeps them",
    )


class _Row:
    """The cells of one measurement."""

    def __init__(self, taken: Taken, session: Session) -> None:
        measurement, comparison = taken.measurement, session.comparison
        case, samples = measurement.record.case.id, measurement.record.samples
        sound = measurement.record.status == "ok" and samples is not None
        self.time = self.interval = "–"
        if sound and samples is not None:
            self.time = format_time(samples.median_s)
            self.interval = format_interval(samples.median_s, *samples.interval_s)
        placed = measurement.placement if sound else None
        share = placed.fraction if placed is not None else None
        self.fraction = "–" if share is None else format_percent(share)
        self.budget = str(taken.budget)
        decision = taken.decision
        words: list[str] = [decision.word]
        sentences = [decision.sentence]
        self.change = "–"
        if comparison is not None:
            verdict = comparison.verdicts.get(case)
            self.change = percent(verdict.judged.change) if verdict else "–"
            words.append(comparison.word(case))
            sentences.append(comparison.reason(case))
        self.verdict = ", ".join(dict.fromkeys(filter(None, words)))
        self.sentences = tuple(part for s in sentences for part in s.splitlines() if part)


def _moods(rows: Sequence[_Row]) -> tuple[Mood, ...]:
    def mood(verdict: str) -> Mood:
        if any(word in verdict for word in LOUD):
            return "failure"
        return "doubt" if "not decided" in verdict or "not comparable" in verdict else ""

    return tuple(mood(row.verdict) for row in rows)


def _names(taken: Sequence[Taken]) -> list[str]:
    """Return the labels, without the file if all measurements are of one file."""
    files = {one.node.partition("::")[0] for one in taken}
    labels = [one.label for one in taken]
    return [label.partition("::")[2] or label for label in labels] if len(files) == 1 else labels


def _head(session: Session, taken: Sequence[Taken]) -> tuple[str, ...]:
    """Return what was measured, on which device and how, and which files hold it."""
    devices = dict.fromkeys(one.measurement.opened.device.name for one in taken)
    contracts = list(dict.fromkeys(one.measurement.record.contract for one in taken))
    lines = [f"{', '.join(devices)}: {contracts_text(contracts)}"]
    if any(one.measurement.opened.device.kind == "cpu" for one in taken):
        lines.append(CPU)
    if session.passes > 1:
        lines.append(f"the first of {session.passes} processes; the run has all of them")
    if session.path is not None:
        lines.append(f"run: {session.path}")
    if session.baseline:
        lines.append(f"baseline: {session.baseline}")
    return tuple(lines)
