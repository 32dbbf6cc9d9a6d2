"""Draw the curves of a theory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuperf.show.axes import binary
from gpuperf.show.figure import (
    COLOURS,
    FAINT,
    decades,
    figure,
    label_ticks,
    plain_bytes,
    plain_number,
    tick_values,
)
from gpuperf.theory.theory import At, Chip, Curve, Plot, Theory
from gpuperf.units import format_bytes, format_number

TALL = 4.2  # inches
FORMS = "osD^vPX"  # of single points
FEW = 2.5  # decades of an axis with ticks between the powers of ten
WIDE = 10.0  # the ratio of values from which their axis is logarithmic


def draw_theory(name: str, theory: Theory, at: At, chip: Chip, path: Path) -> None:
    """Draw the plots of *theory* on *chip* to *path*, PNG or SVG by its suffix.

    Raises: UsageError for another suffix and an unwritable path.
    """
    plots = theory.plots(at, chip)
    notes = [*theory.remarks(at, chip), *theory.notes]
    notes += [f"Source: {source}" for source in theory.sources]
    with figure(path, f"{name}: {theory.question}", [chip.peaks.name], notes) as frame:
        panels = frame.stack(*(TALL for _ in plots))
        for panel, plot in zip(panels, plots, strict=True):
            handles = _draw(panel, plot)
            if len(plots) == 1:
                frame.legend(handles)
            elif handles:
                panel.legend(handles=handles, fontsize=9, loc="best")
        frame.fit()


def _draw(panel: Any, plot: Plot) -> list[Any]:
    """Draw *plot* into *panel*, and return the handles of its legend."""
    handles = [_draw_curve(panel, index, curve) for index, curve in enumerate(plot.curves)]
    _draw_levels(panel, plot)
    heights = [y for curve in plot.curves for _, y in curve.points]
    if not plot.linear:
        panel.set_xscale("log", base=2)
    places = None
    if not plot.linear and heights and max(heights) > WIDE * min(heights):
        panel.set_yscale("log")
        low, high = panel.get_ylim()
        places = tick_values(low, high, (1, 2, 5)) if decades(low, high) < FEW else None
    label_ticks(panel.xaxis, _size if plot.of_bytes else plain_number)
    label_ticks(panel.yaxis, plain_bytes if plot.in_bytes else plain_number, places)
    if plot.names:
        panel.set_xticks(list(plot.names), labels=list(plot.names.values()))
    panel.set_title(plot.title, loc="left", fontsize=10)
    panel.set_xlabel(plot.x)
    panel.set_ylabel(plot.y)
    panel.grid(True)
    return handles


def _size(value: float) -> str:
    """Write a tick of sizes as the command line takes them: `64k`, `1G`."""
    return binary(f"{value:.0f}")


def _draw_curve(panel: Any, index: int, curve: Curve) -> Any:
    """Draw *curve*; a single point is larger, and differs from its neighbours by its form too."""
    xs, ys = zip(*curve.points, strict=True) if curve.points else ((), ())
    alone = len(xs) == 1
    style = "none" if alone else ("-", "--", ":")[index // len(COLOURS) % 3]
    look = {"color": COLOURS[index % len(COLOURS)], "label": curve.label, "zorder": 2 + alone}
    marker = FORMS[index % len(FORMS)] if alone else "o"
    (handle,) = panel.plot(
        xs, ys, linestyle=style, marker=marker, markersize=7 if alone else 3, **look
    )
    return handle


def _draw_levels(panel: Any, plot: Plot) -> None:
    for label, level in plot.levels.items():
        text = f"{label}: {format_bytes(level) if plot.in_bytes else format_number(level)}"
        panel.axhline(level, color=FAINT, linewidth=1, linestyle="--")
        place = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
        panel.annotate(text, (1, level), **place, color=FAINT, fontsize=9)
