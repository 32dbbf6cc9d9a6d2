"""Print runs of cases as rows with their roofline below, and draw them under a roofline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.roofline.brief import render_brief, roofline_below
from gpuperf.roofline.formats import render_run
from gpuperf.roofline.rows import entries_of
from gpuperf.roofline.terminal import terminal_roofline
from gpuperf.show.screen import Screen
from gpuperf.show.view import View, best_known
from gpuperf.verb.progress import say


def render_rows(
    run: Run,
    format: str,
    screen: Screen,
    view: View | None = None,
    columns: Sequence[str] = (),
    verbose: bool = False,
) -> str:
    """Render *run* in *format*; as a table, with its roofline below it.

    The table has the named *columns* (empty: the usual ones), or with *verbose* all columns and
    notes.
    """
    if format != "table":
        return render_run(run, format, screen)
    text = render_run(run, "table", screen) if verbose else render_brief(run, screen, columns)
    chosen = view not in (None, "compulsory")
    timed = [record for record in run.records if record.status == "ok"]
    if timed and not chosen and not any(record.cost for record in timed):
        return text  # imported times without bytes or FLOPs
    lines = None if verbose else 0 if chosen else text.count("\n")
    try:
        return text + _roofline(run, screen, _view_of(run, view), lines)
    except UsageError as error:
        say(f"no roofline is drawn: {error}; {error.hint}")
        return text


def draw_best(run: Run, files: Sequence[Path]) -> None:
    """Draw the roofline of a comparison, by the best bytes that all its implementations have."""
    from gpuperf.roofline.chart import draw_roofline

    draw_roofline(run, files, _view_of(run, None))


def best_view(run: Run) -> View:
    """Return the bytes that a roofline of *run* shows at first."""
    return _view_of(run, None)


def _roofline(run: Run, screen: Screen, view: View, lines: int | None) -> str:
    """Render the roofline below a table of *lines* lines; None asks for its whole legend. Sweeps of
    collectives have none: their bytes are those of a link."""
    from gpuperf.roofline.busbw import is_sweep

    if is_sweep(run):
        return ""
    if lines is not None:
        return roofline_below(run, screen, view, lines)
    if not any(record.status == "ok" for record in run.records):
        return ""
    width = min(screen.width, 100)
    return "\n" + terminal_roofline(run, width, 22, screen.color, screen.ascii, view)


def _view_of(run: Run, view: View | None) -> View:
    """Return *view*, or else the bytes that a roofline of *run* shows: the compulsory ones; for a
    comparison, the best bytes that all its implementations have."""
    if view is not None or not run.header.baseline:
        return view or "compulsory"
    return best_known(entry.counted for entry in entries_of(run) if entry.record.status == "ok")
