"""How is a run drawn as a roofline, for a talk or a paper?

Log-log: arithmetic intensity with compulsory bytes against FLOP/s; data-sheet roofs dashed,
measured ones solid, each labelled on its line. Nothing is said by colour alone: series differ by
marker too, doubtful points are hollow. The same run gives the same bytes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gpuperf.model.record import Run
from gpuperf.report.chart.canvas import Canvas
from gpuperf.report.chart.file import save_figure, targets_of
from gpuperf.report.chart.style import rc_parameters
from gpuperf.report.scene import Scene, scene
from gpuperf.report.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_roofline", "figure"]


def draw_roofline(
    run: Run, paths: str | Path | Iterable[str | Path], view: View = "compulsory"
) -> tuple[Path, ...]:
    """Draw *run* to each of *paths*, PNG or SVG by suffix; *view* names the bytes of the x axis.

    Raises: UsageError for another suffix, an unwritable path, and a run with nothing to draw.
    """
    targets = targets_of(paths)
    shown = scene(run, view)

    import matplotlib

    with matplotlib.rc_context(rc_parameters()), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes; that is no reason to talk.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        drawn = figure(shown, run)
        for target in targets:
            save_figure(drawn, target, shown.title)
    return targets


def figure(shown: Scene, run: Run) -> Figure:
    """The figure of a scene; to be called under `rc_parameters`."""
    canvas = Canvas(shown, run)
    canvas.lay_out()
    canvas.draw_roofs()
    canvas.draw_series()
    canvas.draw_labels()
    return canvas.figure

