"""Draw matmul throughput over m and n: the prediction as an image, the measured sizes as dots."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.show.contract import how, note
from gpuperf.show.figure import INK, Frame, figure, label_ticks
from gpuperf.waves.plane import Plane, panels, predict
from gpuperf.waves.study import KernelStudy, study_plane
from gpuperf.waves.table import tile_text

MOST_PANELS = 4
SIDE, BESIDE = 5.6, 1.35  # inches: side of a panel, and width right of all panels
DOT, CROWD = 42, 25_000  # areas in square points: of the largest dot, and of all dots of a panel
TERA = 1e12
LONGEST = 72  # characters across a panel
READING = (
    "image: predicted by tiles and waves, in cycles, fitted on half of the sizes · "
    "dots: measured, in cycles"
)
MAP = "viridis"  # even in lightness, and safe for the colour-blind


def draw_heatmap(run: Run, paths: Sequence[Path]) -> None:
    """Draw the plane of m and n of *run* to each of *paths*, PNG or SVG by suffix.

    Raises: UsageError for another suffix, an unwritable path, and a run with nothing to draw.
    """
    kernels, left_out = panels(study_plane(run), MOST_PANELS)
    if not kernels:
        raise UsageError(
            f"no kernel has a model and sizes that span m and n: {', '.join(left_out)}",
            "--impl triton --tile 128x128x64 pins one",
        )
    op = run.records[0].case.op
    title = shorten(f"{op} on {run.header.device.name}: throughput over m and n", LONGEST)
    missing = f"not drawn: {', '.join(left_out)}" if left_out else ""
    across = min(2, len(kernels))
    with figure(paths, title, [how(run)], [READING, note(run, missing)], 7.4 * across) as frame:
        _draw_panels(frame, kernels, across)


def _draw_panels(frame: Frame, kernels: Sequence[KernelStudy], across: int) -> None:
    clock_hz = statistics.median(p.clock_hz for kernel in kernels for p in kernel.points)
    planes = [predict(kernel) for kernel in kernels]
    limits = _limits(kernels, planes, clock_hz)
    panels = frame.stack(*[SIDE] * -(-len(kernels) // across), columns=across)
    for empty in panels[len(kernels) :]:
        empty.set_axis_off()
    shown = zip(panels, kernels, planes, strict=False)
    images = [_draw(axes, kernel, plane, limits, clock_hz) for axes, kernel, plane in shown]
    frame.fit(BESIDE, SIDE)
    width = frame.figure.get_figwidth()
    tops, foots = panels[0].get_position(), panels[-1].get_position()
    place = (1 - BESIDE / width, foots.y0, 0.22 / width, tops.y1 - foots.y0)
    _bar(frame.figure, images[-1], place, clock_hz)


def _limits(
    kernels: Sequence[KernelStudy], planes: Sequence[Plane], clock_hz: float
) -> tuple[float, float]:
    """Return the ends of one scale for all panels, image and dots, in TFLOP/s.

    The lowest 2 % of the predicted rates are below the scale, since the few small sizes would
    otherwise take most of the colours.
    """
    cells = sorted(rate for plane in planes for row in plane.rows for rate in row)
    rates = [point.flop_per_cycle for kernel in kernels for point in kernel.points]
    low = cells[len(cells) // 50]
    return low * clock_hz / TERA, max(cells[-1], *rates) * clock_hz / TERA


def _draw(
    axes: Any, kernel: KernelStudy, plane: Plane, limits: tuple[float, float], clock_hz: float
) -> Any:
    ms, ns = plane.ms, plane.ns
    image = axes.imshow(
        [[rate * clock_hz / TERA for rate in row] for row in plane.rows],
        cmap=MAP,
        origin="lower",
        extent=(ns[0] - ns.step, ns[-1], ms[0] - ms.step, ms[-1]),
        aspect="auto",
        interpolation="nearest",
        vmin=limits[0],
        vmax=limits[1],
    )
    at = [point.measured for point in kernel.points]
    axes.scatter(
        [p.n for p in at],
        [p.m for p in at],
        s=min(DOT, CROWD / len(at)),
        c=[point.flop_per_cycle * clock_hz / TERA for point in kernel.points],
        cmap=MAP,
        vmin=limits[0],
        vmax=limits[1],
        edgecolors="white",
        linewidths=0.9,
        zorder=3,
        clip_on=False,
    )
    for axis, sizes in ((axes.xaxis, ns), (axes.yaxis, ms)):
        label_ticks(axis, _size, _ticks(sizes))
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(labelsize=10)
    axes.set_xlabel("n")
    axes.set_ylabel("m")
    axes.set_title(_caption(kernel), loc="left", fontsize=9.5, color=INK, linespacing=1.4, pad=10)
    return image


def _ticks(sizes: range) -> list[int]:
    """Return at most nine multiples of a power of two, as most sizes are."""
    step = 1
    while (sizes[-1] - sizes[0]) // step > 7:
        step *= 2
    return list(range(-(-sizes[0] // step) * step, sizes[-1] + 1, step))


def _size(value: float) -> str:
    """Write `8192`, and from a million on `1M`, as the command line takes it."""
    for least, letter in ((2**30, "G"), (2**20, "M")):
        if value >= least:
            return f"{value / least:.4g}{letter}"
    return f"{value:.0f}"


def _caption(kernel: KernelStudy) -> str:
    """Return three lines: the implementation, its kernel, and the error of the prediction."""
    model, middle, high = kernel.model, kernel.median_error, kernel.high_error
    tile = f"tile {tile_text(model, kernel.sure)}" if model else ""
    whose = f"{kernel.implementation} {kernel.dtype}"
    off = "no size was held out to judge the prediction"
    if middle is not None and high is not None:
        off = (
            f"prediction off by {middle * 100:.1f} % (median), {high * 100:.1f} % (90 %) "
            f"on {len(kernel.unseen)} held-out sizes"
        )
    first = ", ".join(filter(None, (whose, kernel.where, tile)))
    lines = (first, kernel.kernel or "unknown kernel", off)
    return "\n".join(shorten(line, LONGEST) for line in lines)


def _bar(drawn: Any, image: Any, place: tuple[float, float, float, float], hz: float) -> None:
    bar = drawn.colorbar(image, cax=drawn.add_axes(place), extend="min")
    bar.outline.set_visible(False)
    label_ticks(bar.ax.yaxis, lambda rate: f"{rate:g}" if rate < 1e6 else f"{rate:.0e}")
    bar.ax.tick_params(labelsize=10)
    bar.set_label(f"TFLOP/s at {hz / 1e6:,.0f} MHz, the median SM clock measured")
