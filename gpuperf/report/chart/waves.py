"""Matmul throughput over size, what the waves predict of it, and how many waves there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuperf.analysis.wavestudy import KernelStudy, WaveStudy, study_waves
from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.report.caption import contracts_text
from gpuperf.report.chart.file import DPI, save_figure, targets_of
from gpuperf.report.chart.style import COLOURS, FAINT, GRID, INK, MARKERS, rc_parameters
from gpuperf.report.text import clean, shorten
from gpuperf.report.waves import error_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_waves"]

WIDTH, HEIGHT = 10.5, 6.8  # inches
LONGEST = 90
MOST_KERNELS = 10  # in the legend
MOST_LINES = 60
OTHER = "#b8b8b8"
CURVE = 600  # points of a predicted curve


def draw_waves(run: Run, paths: Sequence[Path]) -> None:
    """Draw the study in *run* to each of *paths*, PNG or SVG by suffix.

    Raises: UsageError for another suffix, an unwritable path, and a run with nothing to draw.
    """
    targets = targets_of(paths)
    study = study_waves(run)
    if not study.kernels:
        raise UsageError("no size has a time in cycles: nothing to draw", "the table says why")
    import matplotlib

    op = clean(run.records[0].case.op)
    title = shorten(f"{op} on {clean(run.header.device.name)}: waves", LONGEST)
    with matplotlib.rc_context(rc_parameters()):
        drawn = _figure(run, study, title)
        for target in targets:
            save_figure(drawn, target, title)


def _figure(run: Run, study: WaveStudy, title: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (3.2, 1)})
    tiles = lower.twinx()
    device = run.header.device.sm_count
    modelled = any(kernel.model for kernel in study.kernels)
    for i, kernel in enumerate(sorted(study.kernels, key=lambda kernel: -len(kernel.points))):
        _draw(upper, lower, tiles, kernel, study.axes, i, device)
    if len(study.kernels) > MOST_KERNELS:
        others = f"{len(study.kernels) - MOST_KERNELS} other kernels"
        upper.plot([], [], linestyle="none", marker="x", markersize=4.5, color=OTHER, label=others)
    if len(study.boundaries) <= MOST_LINES:
        for boundary in study.boundaries:
            for axes in (upper, lower):
                axes.axvline(boundary.last + 0.5, color=GRID, linewidth=0.9, zorder=0)
    upper.set_ylim(bottom=0)
    upper.set_ylabel("FLOP per cycle and SM")
    upper.legend(frameon=False, fontsize=8, loc="lower right")
    lower.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    lower.set_ylim(bottom=0)
    lower.set_ylabel("waves")
    tiles.set_ylim(bottom=0)
    tiles.set_ylabel("tiles (dotted)")
    tiles.spines["top"].set_visible(False)
    if not modelled:
        tiles.set_yticks([])
        lower.set_yticks([])
    lower.set_xlabel(shorten(clean("=".join(study.axes)), LONGEST))
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
    _write_words(figure, run, study, title)
    figure.subplots_adjust(left=0.1, right=0.93, top=1 - 0.92 / HEIGHT, bottom=0.11, hspace=0.08)
    return figure


def _write_words(figure: Figure, run: Run, study: WaveStudy, title: str) -> None:
    """What is drawn, how well it is predicted, how it was measured, and how to read it."""
    contracts = shorten(contracts_text([run.header.contract, *run.header.variants]), LONGEST)
    ends = "vertical: a wave ends · " if study.boundaries else ""
    if len(study.boundaries) > MOST_LINES:
        ends = f"the {len(study.boundaries)} ends of waves are too many to draw · "
    note = (
        "dots: measured, a marker a kernel; lines: tiles and waves, fitted on half of the sizes · "
        f"{ends}run {clean(run.header.run)} · gpuperf {clean(run.header.gpuperf)}"
    )
    for y, text, size, color, weight in (
        (1 - 0.1 / HEIGHT, title, 14, INK, "bold"),
        (1 - 0.38 / HEIGHT, error_text(study) or "no prediction", 9.5, INK, "normal"),
        (1 - 0.57 / HEIGHT, contracts, 9.5, INK, "normal"),
    ):  # fmt: skip
        figure.text(0.02, y, text, fontsize=size, fontweight=weight, color=color, va="top")
    note = shorten(note, 2 * LONGEST)
    figure.text(0.02, 0.05 / HEIGHT, note, fontsize=8, color=FAINT, va="bottom")


def _draw(
    upper: Any, lower: Any, tiles: Any, kernel: KernelStudy, axes: Sequence[str], index: int,
    sms: int,
) -> None:  # fmt: skip
    """One kernel's dots, and where it has a model its curve and its waves."""
    shown = index < MOST_KERNELS
    color = COLOURS[index % len(COLOURS)] if shown else OTHER
    marker = MARKERS[(index + index // len(COLOURS)) % len(MARKERS)] if shown else "x"
    label = shorten(clean(kernel.kernel) or "unknown", 2 * LONGEST // 3)
    if kernel.where:
        label = shorten(clean(f"{label}, {kernel.where}"), LONGEST)
    upper.plot(
        [p.size for p in kernel.points], [p.flop_per_cycle / sms for p in kernel.points],
        linestyle="none", marker=marker, markersize=4.5, color=color, zorder=3,
        label=label if shown else None,
    )  # fmt: skip
    model = kernel.model
    if model is None:
        return
    first, last = kernel.points[0], kernel.points[-1]
    step = max(1, (last.size - first.size) // CURVE)
    at = [
        replace(first.measured, **{axis: size for axis in axes if axis in ("m", "n", "k")})
        for size in range(first.size, last.size + 1, step)
    ]
    sizes = list(range(first.size, last.size + 1, step))
    upper.plot(
        sizes, [2 * p.m * p.n * p.k / model.cycles(p.m, p.n, p.k) / sms for p in at], color=color,
        linewidth=1.1, alpha=0.8,
    )  # fmt: skip
    lower.plot(
        sizes, [model.tiling.waves(p.m, p.n) for p in at], color=color, linewidth=1.3,
        drawstyle="steps-post",
    )  # fmt: skip
    tiles.plot(
        sizes, [model.tiling.tiles(p.m, p.n) for p in at], color=color, linewidth=0.9,
        linestyle=":", drawstyle="steps-post",
    )  # fmt: skip
