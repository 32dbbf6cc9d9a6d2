"""Make the table of judged claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gpuperf.show.table import Column, Mood, Note, Table, fill
from gpuperf.theory.claims.claim import RULINGS, Figure, Judged
from gpuperf.theory.claims.study import Choice, Study
from gpuperf.theory.table import PREFIXED, cell
from gpuperf.theory.theory import CLAIMS, QUESTIONS, Quantity
from gpuperf.units import format_number

NAMES = (
    *("id", "notes", "quote", "check", "says", "computed", "measured", "ruling", "basis"),
    *("condition", "known_from", "waits_for", "figures", "measured_figures"),
)
BASES = {"open": "Open", "opinion": "Opinion"}
MOODS: dict[str, Mood] = {"wrong": "failure", "open": "doubt", "opinion": "doubt"}


def claims_table(study: Study, choice: Choice) -> Table:
    """Make the table of *study*: a row a claim, with the measured figures if a folder was given."""
    judged = study.judged
    columns = [
        Column("claim", left=True, identity=True),
        Column("quote", left=True, wrap=16),
        Column("check", left=True, wrap=20),
        Column("says", left=True, wrap=7),
        Column("computed", left=True, wrap=16),
        Column("measured", left=True, wrap=12),
        Column("ruling", left=True, moods=tuple(MOODS.get(each.ruling, "") for each in judged)),
    ]
    cells = [_cells(each) for each in judged]
    filled = [c for c in fill(columns, cells) if choice.run is not None or c.head != "measured"]
    return Table(
        columns=tuple(filled),
        title=f"claims: {QUESTIONS[CLAIMS]}",
        lead=(_count(judged),),
        notes=_notes(study, choice),
        rows=[_data(each) for each in judged],
        names=NAMES,
    )


def _cells(judged: Judged) -> tuple[str, ...]:
    claim = judged.claim
    return (
        claim.id,
        claim.quote,
        _check(judged),
        ",\n".join(_said(judged)),
        _shown(judged.computed, judged),
        _shown(judged.measured, judged),
        judged.ruling,
    )


def _check(judged: Judged) -> str:
    claim = judged.claim
    parts = [claim.check, claim.why.rstrip(".")]
    if judged.basis == "known" and claim.known:
        parts.append(f"{BASES.get(judged.ruling, 'Known from')}: {claim.known.source}")
    if claim.waits and judged.basis != "measured":
        parts.append(f"To measure: {claim.waits}")
    return ". ".join(filter(None, parts))


def _said(judged: Judged) -> list[str]:
    """Return the statements about the figures, each once, with their unit."""
    unit = "" if judged.claim.unit in PREFIXED else judged.claim.unit
    stated = [figure.says for figure in judged.computed]
    if not stated and judged.claim.says:
        stated = [judged.claim.says.text]
    return [f"{text} {unit}".rstrip() for text in dict.fromkeys(stated) if text]


def _shown(figures: Sequence[Figure], judged: Judged) -> str:
    """Return a line for each of *figures*; where some figures of the claim agree with the quote
    and some do not, each line says which."""
    deciding = [each for each in (*judged.computed, *judged.measured) if each.says]
    mixed = len({figure.holds for figure in deciding}) > 1
    lines = []
    for figure in figures:
        verdict = "" if not mixed or not figure.says else " (yes)" if figure.holds else " (no)"
        lines.append(f"{figure.label}: {_number(figure)}{verdict}")
    return ";\n".join(lines)


def _number(figure: Figure) -> str:
    if figure.unit in PREFIXED:
        return cell(figure.value, Quantity("", "", figure.unit))
    small = 0 < abs(figure.value) < 1e-3
    return f"{figure.value:.1e}" if small else format_number(figure.value, _digits(figure))


def _digits(figure: Figure) -> int:
    """Return as many digits as the quote has, but three at least, and all of a whole number."""
    if float(figure.value).is_integer():
        return max(1, len(str(int(abs(figure.value)))))
    said = "".join(c for c in figure.says if c.isdigit()).lstrip("0")
    return max(3, len(said)) if figure.says.replace(".", "").isdigit() else 3


def _count(judged: Iterable[Judged]) -> str:
    counts = Counter(each.ruling for each in judged)
    listed = ", ".join(f"{counts[name]} {name}" for name in RULINGS if counts[name])
    return f"{counts.total()} claims: {listed}" if counts else "no claim has all of these"


def _notes(study: Study, choice: Choice) -> tuple[Note, ...]:
    meanings = [(name, text) for name, text in RULINGS.items()]
    notes: list[Note] = [(name, text) for name, text in meanings]
    if choice.run is not None:
        filled = sum(bool(each.measured) for each in study.judged)
        text = (
            f"{filled} of {len(study.judged)} claims, from {study.records} records of {choice.run}"
        )
        notes.append(("measured", text))
    return (*notes, *(("not read", doubt) for doubt in study.doubts))


def _data(judged: Judged) -> dict[str, Any]:
    claim = judged.claim
    values = (
        claim.id,
        claim.id.partition("-")[0],
        claim.quote,
        claim.check,
        ", ".join(_said(judged)),
        _shown(judged.computed, judged).replace("\n", " "),
        _shown(judged.measured, judged).replace("\n", " "),
        judged.ruling,
        judged.basis,
        claim.why,
        claim.known.source if claim.known and judged.basis == "known" else "",
        claim.waits,
        [_figure(each) for each in judged.computed],
        [_figure(each) for each in judged.measured],
    )
    return dict(zip(NAMES, values, strict=True))


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "label": figure.label,
        "value": figure.value,
        "unit": figure.unit,
        "says": figure.says,
        "agrees": figure.holds if figure.says else None,
        **({"source": figure.source} if figure.source else {}),
    }
