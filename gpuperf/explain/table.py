"""Render loss budgets: the losses between peak and attained rate, and what to change first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.explain.advice import advise, note
from gpuperf.explain.ladder import TIE
from gpuperf.explain.study import LossBudget, explain
from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.roofline.processes import reduced
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.units import format_flop_rate, format_rate

LONGEST = 64  # characters of a kernel's name
MOST_KERNELS = 12
MOST_CASES, MOST_DOUBTS = 200, 4
TIED = 0.02  # relative difference of the counter pass from the timed pass
OVERLAPPED = 0.05  # share of a call's time by which its kernels overlap
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


def budgets_of(run: Run, pattern: str) -> tuple[tuple[LossBudget, ...], tuple[str, ...]]:
    """Return the budgets of the cases whose id contains *pattern*, and why others have none.

    Raises: UsageError where no id does, or none of the cases has a budget.
    """
    records = [each.record for each in reduced(run) if pattern in each.record.case.id]
    if not records:
        if not run.records:
            raise UsageError("the run has no records", "choose another file")
        ids = ", ".join(record.case.id for record in run.records[:3])
        more = f" and {len(run.records) - 3} more" if len(run.records) > 3 else ""
        raise UsageError(f"no case contains {pattern!r}", f"cases of the run: {ids}{more}")
    budgets, refused = [], []
    for record in records[:MOST_CASES]:
        try:
            budgets.append(explain(record, run.header))
        except UsageError as error:
            refused.append(error)
    if not budgets:
        raise refused[0]
    reasons = [str(error) for error in refused]
    if len(records) > MOST_CASES:
        reasons.append(f"{len(records) - MOST_CASES} more cases: name a part of a case's id")
    return tuple(budgets), tuple(reasons)


def render_explained(budgets: Sequence[LossBudget], format: str, screen: Screen = WIDE) -> str:
    """Render the budgets as table or md, one after the other; as json or csv, a row a loss."""
    if format in ("json", "csv"):
        return render([Table(rows=_rows(budget)) for budget in budgets], format, screen)
    several = len({budget.record.contract for budget in budgets}) > 1
    tables = [
        table for budget in budgets for table in (_budget(budget, several), *_kernels(budget))
    ]
    return render(tables, format, screen)


def unit_of(budget: LossBudget, value: float) -> str:
    """Return `610 TFLOP/s`, or `4.29 TB/s`."""
    return format_flop_rate(value) if budget.chain == "compute" else format_rate(value)


def levels(budget: LossBudget) -> tuple[float, ...]:
    """Return the peak, and the rate that is left after each loss, in FLOP/s or byte/s."""
    rates = [budget.peak]
    for factor in budget.factors:
        rates.append(rates[-1] * factor.value)
    return tuple(rates)


def _rows(budget: LossBudget) -> list[dict[str, Any]]:
    left, advice = levels(budget), advise(budget)
    return [
        {
            "case": budget.record.case.id,
            "chain": budget.chain,
            "step": factor.name,
            "factor": factor.value,
            "how": factor.how,
            "left": left[i + 1],
            "unit": "FLOP/s" if budget.chain == "compute" else "byte/s",
            "peak": budget.peak,
            "peak_source": budget.peak_source,
            "attained": budget.attained,
            "share_of_loss": _share(budget, factor.loss),
            "named": budget.named,
            "modelled": budget.share("modelled"),
            "note": _note(budget, factor.steps),
            "advice": advice,
        }
        for i, factor in enumerate(budget.factors)
    ]


def title_of(budget: LossBudget, several: bool) -> str:
    """Return the id of the case, with its contract where there are *several* contracts."""
    contract = budget.record.contract
    more = f", {contract.regime}, {contract.cache} cache, {contract.data} data"
    return budget.record.case.id + (more if several else "")


def _budget(budget: LossBudget, several: bool) -> Table:
    left = levels(budget)
    cells = [[f"peak ({budget.peak_source})", "", unit_of(budget, budget.peak), "", "", ""]]
    for i, factor in enumerate(budget.factors):
        how = "not separated" if factor.how == "remainder" else factor.how
        share = _share(budget, factor.loss)
        cells.append(
            [
                factor.name,
                f"× {factor.value:.4f}",
                unit_of(budget, left[i + 1]),
                "–" if share is None else f"{_round(share * 100):.1f} %",
                how,
                _note(budget, factor.steps),
            ]
        )
    cells.append(
        [
            "attained",
            f"= {budget.attained / budget.peak:.4f}",
            unit_of(budget, budget.attained),
            "",
            "",
            "",
        ]
    )
    return Table(
        columns=fill(STEP_COLUMNS, cells),
        title=title_of(budget, several),
        notes=notes_of(*_notes(budget)),
    )


def _notes(budget: LossBudget) -> list[str]:
    words = []
    if budget.named is not None:
        modelled = budget.share("modelled") or 0.0
        more = f", {modelled * 100:.1f} % on modelled ones" if modelled else ""
        words.append(f"{budget.named * 100:.1f} % of the loss is on measured causes{more}")
    tie = next((factor.value for factor in budget.factors if factor.steps == (TIE,)), 1.0)
    if abs(tie - 1) > TIED:
        words.append(
            f"the cycles in the counter pass differ by {(tie - 1) * 100:.1f} % from those in the "
            "timed pass: windows are accurate to about 0.3 µs, a large part of a short call"
        )
    words += [f"first: {advise(budget)}", *(f"missing: {m}" for m in budget.missing)]
    for doubt in budget.record.caveats[:MOST_DOUBTS]:
        words.append(shorten(f"{doubt.kind}: {doubt.message}", 3 * LONGEST))
    return words


def _kernels(budget: LossBudget) -> Iterable[Table]:
    shown = budget.kernels[:MOST_KERNELS]
    cells = [
        [
            shorten(kernel.name, LONGEST),
            str(kernel.count),
            _percent(kernel.share),
            _percent(kernel.of_peak),
            _percent(kernel.pipe),
            _percent(kernel.path),
        ]
        for kernel in shown
    ]
    what = "FLOP/s" if budget.chain == "compute" else "DRAM"
    columns = (
        replace(c, head=f"{what} {c.head}") if c.head == "of the peak" else c
        for c in KERNEL_COLUMNS
    )
    more, words = len(budget.kernels) - len(shown), []
    if more:
        words.append(f"{more} more")
    if budget.overlap > OVERLAPPED:
        words.append(
            f"the kernels overlap: their times add up to {(1 + budget.overlap) * 100:.0f} % of the "
            "call's, as that of a kernel which starts early contains its wait for another"
        )
    if shown:
        yield Table(fill(tuple(columns), cells), notes=notes_of(*words))


def _note(budget: LossBudget, steps: Sequence[str]) -> str:
    if tuple(steps) == (TIE,):
        return "cycles in the counter pass over cycles in the timed pass"
    return shorten("; ".join(filter(None, (note(budget, step) for step in steps))), LONGEST)


def _share(budget: LossBudget, loss: float) -> float | None:
    """Return *loss* as a share of the total loss; below 0 where a step gained."""
    total = sum(factor.loss for factor in budget.factors)
    return loss / total if abs(total) > 1e-6 else None


def _round(value: float) -> float:
    return round(value, 1) + 0.0


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.1f} %"
