"""Draw loss budgets as waterfalls, from the peak down to the attained rate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.explain.advice import advise, note
from gpuperf.explain.ladder import Factor
from gpuperf.explain.study import LossBudget
from gpuperf.explain.table import levels, title_of, unit_of
from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.show.contract import how
from gpuperf.show.contract import note as note_of
from gpuperf.show.figure import COLOURS, FAINT, GRID, INK, figure, targets_of

MOST_PANELS = 6
ROW = 0.27  # height of a bar in inches
LONGEST = 96
NAMES_AT = -110  # of the losses, in points from the bars
LETTER = 0.0078  # width of a letter of 8 points over that of the axes
READING = (
    "each bar is the ratio of two quantities, and the product of all is exact · "
    "grey: several losses that cannot be separated"
)
PEAK, LOST, UNNAMED, GAIN, LEFT = COLOURS[0], COLOURS[1], "#b8b8b8", COLOURS[2], COLOURS[0]


def draw_explained(run: Run, budgets: Sequence[LossBudget], paths: Sequence[Path]) -> None:
    """Draw the *budgets* of *run*, a panel each, to *paths*, PNG or SVG by suffix.

    Raises: UsageError for another suffix, an unwritable path, and for more panels than fit.
    """
    refuse_unfit(budgets, paths)
    title = shorten(f"Where the time went, on {run.header.device.name}", LONGEST)
    several = len({each.record.contract for each in budgets}) > 1
    with figure(paths, title, [how(run)], [note_of(run, READING)]) as frame:
        panels = frame.stack(*(ROW * (len(each.factors) + 2) for each in budgets))
        for axes, each in zip(panels, budgets, strict=True):
            _draw(axes, each, title_of(each, several))
        frame.fit()


def refuse_unfit(budgets: Sequence[LossBudget], paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the files to write. Raises: UsageError as `draw_explained` does."""
    if len(budgets) > MOST_PANELS:
        raise UsageError(
            f"{len(budgets)} cases are too many for a chart of at most {MOST_PANELS}",
            "name a part of a case's id",
        )
    return targets_of(paths)


def _draw(axes: Any, budget: LossBudget, title: str) -> None:
    left = levels(budget)
    _bar(axes, 0, 0.0, left[0], PEAK, f"{unit_of(budget, left[0])}, {budget.peak_source}", left)
    for i, factor in enumerate(budget.factors):
        low, high = sorted(left[i : i + 2])
        why = "; ".join(filter(None, (note(budget, step) for step in factor.steps)))
        words = f"× {factor.value:.3f}  {shorten(why, 60)}".strip()
        _bar(axes, i + 1, low, high, _colour(factor), words, left, _how(factor))
        axes.plot([left[i + 1]] * 2, [i + 0.6, i + 2.4], color=FAINT, linewidth=0.7)
    last = len(budget.factors) + 1
    share = budget.attained / budget.peak
    text = f"{unit_of(budget, budget.attained)}, {share * 100:.1f} % of the peak"
    _bar(axes, last, 0.0, budget.attained, LEFT, text, left)
    names = ["peak", *(shorten(factor.name, 24) for factor in budget.factors), "attained"]
    axes.set_yticks(range(last + 1), names, fontsize=9)
    axes.set_ylim(last + 0.6, -0.6)
    axes.set_xlim(0, max(left) * 1.02)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_color(GRID)
    named = ""
    if budget.named is not None:
        named = f" · {budget.named * 100:.0f} % of the loss on measured causes"
    head = shorten(title, LONGEST - len(named)) + named
    names_at = {"xycoords": "axes fraction", "textcoords": "offset points", "color": INK}
    axes.annotate(
        head, (0, 1), xytext=(NAMES_AT, 2), fontsize=10, fontweight="bold", va="bottom", **names_at
    )
    first = shorten(f"first: {advise(budget)}", 150)
    axes.annotate(first, (0, 0), xytext=(NAMES_AT, -3), fontsize=8, va="top", **names_at)


def _bar(
    axes: Any,
    row: int,
    low: float,
    high: float,
    colour: str,
    words: str,
    left: Sequence[float],
    how: str = "",
) -> None:
    """Draw a bar with its words where they fit: in it, to its right, or to its left."""
    axes.barh(row, high - low, left=low, height=0.62, color=colour)
    most, text = max(left), f"{words}  {how}".strip()
    room, beside = LETTER * most * len(text), 0.008 * most
    if room < high - low:
        axes.text((low + high) / 2, row, text, fontsize=8, va="center", ha="center", color="white")
    elif high + room < most or most - high > low:
        axes.text(high + beside, row, text, fontsize=8, va="center", ha="left", color=INK)
    else:
        axes.text(low - beside, row, text, fontsize=8, va="center", ha="right", color=INK)


def _colour(factor: Factor) -> str:
    if factor.how == "remainder":
        return UNNAMED
    return LOST if factor.value <= 1 else GAIN


def _how(factor: Factor) -> str:
    return {"measured": "", "modelled": "(modelled)", "remainder": "(not separated)"}[factor.how]
