"""Draw matmul throughput over size with its prediction, and the numbers of waves and tiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.show.contract import how, note
from gpuperf.show.figure import COLOURS, GRID, MARKERS, figure
from gpuperf.waves.study import KernelStudy, WaveStudy, at_size, study_waves
from gpuperf.waves.table import error_text

UPPER, LOWER = 4.0, 1.25  # heights of the panels in inches
LONGEST = 90
MOST_KERNELS = 10  # kernels in the legend
MOST_LINES = 60
OTHER = "#b8b8b8"
CURVE = 600  # points of a predicted curve
READING = (
    "dots: measured, with a marker for each kernel; lines: predicted by tiles and waves, fitted on "
    "half of the sizes"
)


def draw_waves(run: Run, paths: Sequence[Path]) -> None:
    """Draw the study in *run* to each of *paths*, PNG or SVG by suffix.

    Raises: UsageError for another suffix, an unwritable path, and a run with nothing to draw.
    """
    study = study_waves(run)
    if not study.kernels:
        raise UsageError("no size has a time in cycles: nothing to draw", "the table says why")
    op = run.records[0].case.op
    title = shorten(f"{op} on {run.header.device.name}: waves", LONGEST)
    lines = [error_text(study) or "no prediction", how(run)]
    with figure(paths, title, lines, [note(run, READING, _ends(study))]) as frame:
        upper, lower = frame.stack(UPPER, LOWER, sharex=True)
        _draw_study(upper, lower, study, run.header.device.sm_count)
        frame.legend(upper.get_legend_handles_labels()[0], 2, 8)
        frame.fit()


def _ends(study: WaveStudy) -> str:
    if len(study.boundaries) > MOST_LINES:
        return f"the {len(study.boundaries)} ends of waves are too many to draw"
    return "vertical lines: a wave ends" if study.boundaries else ""


def _draw_study(upper: Any, lower: Any, study: WaveStudy, sms: int) -> None:
    from matplotlib.ticker import MaxNLocator

    tiles = lower.twinx()
    for i, kernel in enumerate(sorted(study.kernels, key=lambda kernel: -len(kernel.points))):
        _draw(upper, lower, tiles, kernel, study.axes, i, sms)
    if len(study.kernels) > MOST_KERNELS:
        others = f"{len(study.kernels) - MOST_KERNELS} other kernels"
        upper.plot([], [], linestyle="none", marker="x", markersize=4.5, color=OTHER, label=others)
    for boundary in study.boundaries if len(study.boundaries) <= MOST_LINES else ():
        for axes in (upper, lower):
            axes.axvline(boundary.last + 0.5, color=GRID, linewidth=0.9, zorder=0)
    lower.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    words = ((upper, "FLOP per cycle and SM"), (lower, "waves"), (tiles, "tiles (dotted)"))
    for axes, label in words:
        axes.set_ylim(bottom=0)
        axes.set_ylabel(label)
    tiles.spines["right"].set_visible(True)
    if not any(kernel.model for kernel in study.kernels):
        tiles.set_yticks([])
        lower.set_yticks([])
    lower.set_xlabel(shorten("=".join(study.axes), LONGEST))


def _draw(
    upper: Any,
    lower: Any,
    tiles: Any,
    kernel: KernelStudy,
    axes: Sequence[str],
    index: int,
    sms: int,
) -> None:
    """Draw the dots of one kernel and, where it has a model, its curve and its waves."""
    shown = index < MOST_KERNELS
    color = COLOURS[index % len(COLOURS)] if shown else OTHER
    marker = MARKERS[(index + index // len(COLOURS)) % len(MARKERS)] if shown else "x"
    label = shorten(kernel.kernel or "unknown", 2 * LONGEST // 3)
    if kernel.where:
        label = shorten(f"{label}, {kernel.where}", LONGEST)
    upper.plot(
        [p.size for p in kernel.points],
        [p.flop_per_cycle / sms for p in kernel.points],
        linestyle="none",
        marker=marker,
        markersize=4.5,
        color=color,
        zorder=3,
        label=label if shown else None,
    )
    model = kernel.model
    if model is None:
        return
    first, last = kernel.points[0], kernel.points[-1]
    sizes = range(first.size, last.size + 1, max(1, (last.size - first.size) // CURVE))
    at = [at_size(first, axes, size) for size in sizes]
    upper.plot(
        sizes,
        [2 * p.m * p.n * p.k / model.cycles(p.m, p.n, p.k) / sms for p in at],
        color=color,
        linewidth=1.1,
        alpha=0.8,
    )
    waves = [model.tiling.waves(p.m, p.n) for p in at]
    lower.plot(sizes, waves, color=color, linewidth=1.3, drawstyle="steps-post")
    counts = [model.tiling.tiles(p.m, p.n) for p in at]
    tiles.plot(sizes, counts, ":", color=color, linewidth=1.2, drawstyle="steps-post")
