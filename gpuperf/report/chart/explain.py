"""Where the time went as a waterfall: from the peak down to what was attained, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuperf.analysis.advice import advise, note
from gpuperf.analysis.explain import Explained
from gpuperf.analysis.ladder import Factor
from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.report.caption import contracts_text
from gpuperf.report.chart.file import DPI, save_figure, targets_of
from gpuperf.report.chart.style import COLOURS, FAINT, GRID, INK, rc_parameters
from gpuperf.report.explain import levels, title_of, unit_of
from gpuperf.report.text import clean, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_explained", "refuse_unfit"]

MOST_PANELS = 6
WIDTH, ROW, TOP, BOTTOM = 9.6, 0.27, 0.7, 0.35  # inches
HEAD, FOOT = 0.3, 0.4  # of a panel
LONGEST = 96
LETTER = 0.0078  # of the axes' width, at 8 points
PEAK, LOST, UNNAMED, GAIN, LEFT = COLOURS[0], COLOURS[1], "#b8b8b8", COLOURS[2], COLOURS[0]


def draw_explained(run: Run, found: Sequence[Explained], paths: Sequence[Path]) -> None:
    """Draw the budgets *found* in *run*, a panel each, to *paths*, PNG or SVG by suffix.

    Raises: UsageError for another suffix, an unwritable path, and more panels than there is room.
    """
    targets = refuse_unfit(found, paths)
    import matplotlib

    title = shorten(f"Where the time went, on {clean(run.header.device.name)}", LONGEST)
    with matplotlib.rc_context(rc_parameters()):
        drawn = _figure(run, found, title)
        for target in targets:
            save_figure(drawn, target, title)


def refuse_unfit(found: Sequence[Explained], paths: Sequence[Path]) -> tuple[Path, ...]:
    """The files to write. Raises: UsageError, as `draw_explained`."""
    if len(found) > MOST_PANELS:
        raise UsageError(
            f"{len(found)} cases are too many for a chart of at most {MOST_PANELS}",
            "name a part of a case's id",
        )
    return targets_of(paths)


def _figure(run: Run, found: Sequence[Explained], title: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heights = [ROW * (len(told.factors) + 2) for told in found]
    height = TOP + sum(heights) + (HEAD + FOOT) * len(found) + BOTTOM
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    top = height - TOP
    several = len({told.record.contract for told in found}) > 1
    for told, own in zip(found, heights, strict=True):
        top -= HEAD + own
        axes = figure.add_axes((0.21, top / height, 0.76, own / height))
        _draw(axes, told, title_of(told, several))
        top -= FOOT
    contracts = shorten(contracts_text([run.header.contract, *run.header.variants]), LONGEST)
    figure.text(0.02, 1 - 0.12 / height, title, fontsize=14, fontweight="bold", color=INK, va="top")
    figure.text(0.02, 1 - 0.42 / height, contracts, fontsize=9.5, color=INK, va="top")
    note = (
        "each step is the ratio of two quantities, and their product is exact · grey: not on a "
        f"named cause · run {clean(run.header.run)} · gpuperf {clean(run.header.gpuperf)}"
    )
    small = shorten(note, 2 * LONGEST)
    figure.text(0.02, 0.1 / height, small, fontsize=7.5, color=FAINT, va="bottom")
    return figure


def _draw(axes: Any, told: Explained, title: str) -> None:
    """One budget: a bar for the peak, a floating one for each step, one for what is left."""
    left = levels(told)
    _bar(axes, 0, 0.0, left[0], PEAK, f"{unit_of(told, left[0])}, {clean(told.peak_source)}", left)
    for i, factor in enumerate(told.factors):
        low, high = sorted(left[i : i + 2])
        why = "; ".join(filter(None, (note(told, step) for step in factor.steps)))
        words = f"× {factor.value:.3f}  {shorten(clean(why), 60)}".strip()
        _bar(axes, i + 1, low, high, _colour(factor), words, left, _how(factor))
        axes.plot([left[i + 1]] * 2, [i + 0.6, i + 2.4], color=FAINT, linewidth=0.7)
    last = len(told.factors) + 1
    share = f"{unit_of(told, told.attained)}, {told.attained / told.peak * 100:.1f} % of the peak"
    _bar(axes, last, 0.0, told.attained, LEFT, share, left)
    names = ["peak", *(shorten(factor.name, 24) for factor in told.factors), "attained"]
    axes.set_yticks(range(last + 1), names, fontsize=9)
    axes.set_ylim(last + 0.6, -0.6)
    axes.set_xlim(0, max(left) * 1.02)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(GRID)
    share = "" if told.named is None else f"{told.named * 100:.0f} %"
    named = share and f" · {share} of the loss on measured causes"
    head = shorten(title, LONGEST - len(named)) + named
    axes.text(
        -0.25, 1.0, head, transform=axes.transAxes, fontsize=10, fontweight="bold", va="bottom",
        color=INK,
    )  # fmt: skip
    axes.text(
        -0.25, -0.02, shorten(f"first: {clean(advise(told))}", 150), transform=axes.transAxes,
        fontsize=8, va="top", color=INK, wrap=False,
    )  # fmt: skip


def _bar(
    axes: Any, row: int, low: float, high: float, colour: str, words: str, left: Sequence[float],
    how: str = "",
) -> None:  # fmt: skip
    """A bar with its words where there is room: in it, behind it, or before it."""
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
    return {"measured": "", "modelled": "(modelled)", "remainder": "(not told apart)"}[factor.how]
