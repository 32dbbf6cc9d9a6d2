"""Draw a run as a roofline, for a talk or a paper.

Both axes are logarithmic. Data-sheet roofs are dashed, measured ones solid, and those at the clock
of the power limit dotted, each labelled on its line. Series differ by colour and marker, and
doubtful points are hollow.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpuperf.model.record import Run
from gpuperf.roofline.busbw import draw_busbw, is_sweep
from gpuperf.roofline.canvas import Canvas
from gpuperf.roofline.footer import footer
from gpuperf.roofline.scene import scene
from gpuperf.show.figure import figure
from gpuperf.show.view import View


def draw_roofline(
    run: Run, paths: str | Path | Iterable[str | Path], view: View = "compulsory"
) -> None:
    """Draw *run* to each of *paths*, PNG or SVG by suffix; *view* names the bytes of the x axis. A
    sweep of collectives has no place under a roofline: its rates are drawn over their bytes.

    Raises: UsageError for another suffix, an unwritable path, and a run with nothing to draw.
    """
    if is_sweep(run):
        draw_busbw(run, paths)
        return
    shown = scene(run, view)
    with figure(paths, shown.title, [shown.subtitle], footer(shown, run)) as frame:
        Canvas(shown, frame).draw()
