"""Draw the curves of a theory."""

from __future__ import annotations

from pathlib import Path

from gpuperf.show.figure import COLOURS, FAINT, figure, label_ticks, plain_bytes, plain_number
from gpuperf.theory.theory import At, Chip, Theory
from gpuperf.units import format_bytes, format_number

TALL = 4.2  # inches
WIDE = 10.0  # the ratio of values from which their axis is logarithmic


def draw_theory(name: str, theory: Theory, at: At, chip: Chip, path: Path) -> None:
    """Draw the plot of *theory* on *chip* to *path*, PNG or SVG by its suffix.

    Raises: UsageError for another suffix and an unwritable path.
    """
    plot = theory.plot(at, chip)
    notes = [*theory.notes, *(f"Source: {source}" for source in theory.sources)]
    with figure(path, f"{name}: {theory.question}", [chip.peaks.name], notes) as frame:
        handles = []
        (panel,) = frame.stack(TALL)
        for index, curve in enumerate(plot.curves):
            xs, ys = zip(*curve.points, strict=True) if curve.points else ((), ())
            style = ("-", "--", ":")[index // len(COLOURS) % 3]
            colour = COLOURS[index % len(COLOURS)]
            handles += panel.plot(
                xs, ys, style, color=colour, label=curve.label, marker="o", markersize=3
            )
        write = plain_bytes if plot.in_bytes else plain_number
        for label, level in plot.levels.items():
            text = f"{label}: {format_bytes(level) if plot.in_bytes else format_number(level)}"
            panel.axhline(level, color=FAINT, linewidth=1, linestyle="--")
            place = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
            panel.annotate(text, (1, level), **place, color=FAINT, fontsize=9)
        heights = [y for curve in plot.curves for _, y in curve.points]
        if not plot.linear:
            panel.set_xscale("log", base=2)
        if not plot.linear and heights and max(heights) > WIDE * min(heights):
            panel.set_yscale("log")
        label_ticks(panel.xaxis, plain_number)
        label_ticks(panel.yaxis, write)
        if plot.names:
            panel.set_xticks(list(plot.names), labels=list(plot.names.values()))
        panel.set_xlabel(plot.x)
        panel.set_ylabel(plot.y)
        panel.grid(True)
        frame.legend(handles)
        frame.fit()
