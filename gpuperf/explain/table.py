"""Render a loss budget: each step from the peak to what was attained, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.explain.advice import advise, note
from gpuperf.explain.ladder import TIE
from gpuperf.explain.study import LossBudget, explain
from gpuperf.model.record import Run
from gpuperf.model.text import clean, shorten
from gpuperf.roofline.processes import reduced
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.units import format_flop_rate, format_rate

LONGEST = 64  # characters of a kernel's name
MOST_KERNELS = 12
MOST_CASES, MOST_DOUBTS = 200, 4
TIED = 0.02  # what the two passes may differ
STEP_COLUMNS = (
    Column("step", left=True, wrap=24),
    Column("factor"),
    Column("left"),
    Column("of the loss"),
    Column("how", left=True, keep=2),
    Column("what explains it", left=True, keep=3, wrap=24),
)
KERNEL_COLUMNS = (
    Column("kernel", left=True, wrap=24),
    Column("runs", keep=2),
    Column("of the time"),
    Column("of the peak"),
    Column("pipe busy", keep=3),
    Column("pipe's rate", keep=3),
)


def chosen(run: Run, pattern: str) -> tuple[tuple[LossBudget, ...], tuple[str, ...]]:
    """The loss budgets of the cases of *run* whose id contains *pattern*, and why others have none.

    Raises: UsageError where no case does, or none has a budget.
    """
    records = [each.record for each in reduced(run) if pattern in each.record.case.id]
    if not records:
        if not run.records:
            raise UsageError("the run has no records", "choose another file")
        ids = ", ".join(record.case.id for record in run.records[:3])
        more = f" and {len(run.records) - 3} more" if len(run.records) > 3 else ""
        raise UsageError(f"no case contains {pattern!r}", f"cases of the run: {ids}{more}")
    found, refused = [], []
    for record in records[:MOST_CASES]:
        try:
            found.append(explain(record, run.header))
        except UsageError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    left_out = [str(error) for error in refused]
    if len(records) > MOST_CASES:
        left_out.append(f"{len(records) - MOST_CASES} more cases: name a part of a case's id")
    return tuple(found), tuple(left_out)


def render_explained(found: Sequence[LossBudget], format: str, screen: Screen = WIDE) -> str:
    """The budgets as table or md, one after the other; as json or csv, a row a step."""
    if format in ("json", "csv"):
        return render([Table(rows=_rows(told)) for told in found], format, screen)
    several = len({told.record.contract for told in found}) > 1
    tables = [table for told in found for table in (_budget(told, several), *_kernels(told))]
    return render(tables, format, screen)


def unit_of(told: LossBudget, value: float) -> str:
    """`610 TFLOP/s`, or `4.29 TB/s`."""
    return format_flop_rate(value) if told.chain == "compute" else format_rate(value)


def levels(told: LossBudget) -> tuple[float, ...]:
    """The peak, and what is left of it after each step."""
    found = [told.peak]
    for factor in told.factors:
        found.append(found[-1] * factor.value)
    return tuple(found)


def _rows(told: LossBudget) -> list[dict[str, Any]]:
    left, advice = levels(told), clean(advise(told))
    return [
        {
            "case": clean(told.record.case.id),
            "chain": told.chain,
            "step": factor.name,
            "factor": factor.value,
            "how": factor.how,
            "left": left[i + 1],
            "unit": "FLOP/s" if told.chain == "compute" else "byte/s",
            "peak": told.peak,
            "peak_source": clean(told.peak_source),
            "attained": told.attained,
            "share_of_loss": _share(told, factor.loss),
            "named": told.named,
            "modelled": told.share("modelled"),
            "note": clean(_note(told, factor.steps)),
            "advice": advice,
        }
        for i, factor in enumerate(told.factors)
    ]


def title_of(told: LossBudget, several: bool) -> str:
    """The case; with its contract where *several* are told of."""
    contract = told.record.contract
    more = f", {contract.regime}, {contract.cache} cache, {contract.data} data"
    return clean(told.record.case.id + (more if several else ""))


def _budget(told: LossBudget, several: bool) -> Table:
    left = levels(told)
    cells = [[f"peak ({clean(told.peak_source)})", "", unit_of(told, told.peak), "", "", ""]]
    for i, factor in enumerate(told.factors):
        how = "not told apart" if factor.how == "remainder" else factor.how
        share = _share(told, factor.loss)
        cells.append(
            [
                factor.name,
                f"× {factor.value:.4f}",
                unit_of(told, left[i + 1]),
                "–" if share is None else f"{_round(share * 100):.1f} %",
                how,
                clean(_note(told, factor.steps)),
            ]
        )
    cells.append(
        ["attained", f"= {told.attained / told.peak:.4f}", unit_of(told, told.attained), "", "", ""]
    )
    return Table(
        columns=fill(STEP_COLUMNS, cells),
        title=title_of(told, several),
        notes=notes_of(*_notes(told)),
    )


def _notes(told: LossBudget) -> list[str]:
    words = []
    if told.named is not None:
        modelled = told.share("modelled") or 0.0
        more = f", {modelled * 100:.1f} % on modelled ones" if modelled else ""
        words.append(f"{told.named * 100:.1f} % of the loss is on measured causes{more}")
    tie = next((factor.value for factor in told.factors if factor.steps == (TIE,)), 1.0)
    if abs(tie - 1) > TIED:
        words.append(
            f"the pass that counted is off by {(tie - 1) * 100:.1f} %: windows around a call are "
            "known to some 0.3 µs, which is much of a short one"
        )
    words += [f"first: {clean(advise(told))}", *(f"missing: {m}" for m in told.missing)]
    for doubt in told.record.caveats[:MOST_DOUBTS]:
        words.append(shorten(clean(f"{doubt.kind}: {doubt.message}"), 3 * LONGEST))
    return words


def _kernels(told: LossBudget) -> Iterable[Table]:
    """The kernels of a case that has any."""
    shown = told.kernels[:MOST_KERNELS]
    cells = [
        [
            shorten(clean(kernel.name), LONGEST),
            str(kernel.count),
            _percent(kernel.share),
            _percent(kernel.of_peak),
            _percent(kernel.pipe),
            _percent(kernel.path),
        ]
        for kernel in shown
    ]
    what = "FLOP/s" if told.chain == "compute" else "DRAM"
    columns = (
        replace(c, head=f"{what} {c.head}") if c.head == "of the peak" else c
        for c in KERNEL_COLUMNS
    )
    more = len(told.kernels) - len(shown)
    if shown:
        notes = notes_of(f"{more} more") if more else ()
        yield Table(fill(tuple(columns), cells), notes=notes)


def _note(told: LossBudget, steps: Sequence[str]) -> str:
    """What explains the steps; of the tie, what it is."""
    if tuple(steps) == (TIE,):
        return "its cycles under the counters over those of its time"
    return shorten("; ".join(filter(None, (note(told, step) for step in steps))), LONGEST)


def _share(told: LossBudget, loss: float) -> float | None:
    """Of all that is lost; below 0 where the step gained."""
    total = sum(factor.loss for factor in told.factors)
    return loss / total if abs(total) > 1e-6 else None


def _round(value: float) -> float:
    """To a tenth, without the sign of nought."""
    return round(value, 1) + 0.0


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.1f} %"
