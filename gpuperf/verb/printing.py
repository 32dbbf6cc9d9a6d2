"""Print runs and draw their charts with the functions of the verb that measured them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.model.record import Run
from gpuperf.show.data import to_json
from gpuperf.show.render import render
from gpuperf.show.screen import Screen, put, stdout_screen
from gpuperf.show.table import Table
from gpuperf.show.view import View
from gpuperf.verb.options import By, Format
from gpuperf.verb.parse import split
from gpuperf.verb.progress import say
from gpuperf.verb.registry import ROWS, verb_of, verbs
from gpuperf.verb.verb import load


def print_run(
    run: Run,
    format: Format,
    view: View | None = None,
    by: By = By.OPERATORS,
    columns: str | None = None,
    verbose: bool = False,
) -> None:
    """Print the run to stdout.

    The rows of a profile are operators or kernels, as *by* says. A table shows the columns that
    *columns* names (None: the usual ones); with *verbose*, it has all columns and all notes.

    Raises: UsageError for *columns* of a table that has no choice of them.
    """
    if columns and format is not Format.TABLE:
        say(f"--columns chooses those of a table: --format {format.value} has all")
    screen = stdout_screen()
    verb, rows = verb_of(run.header), verbs()[ROWS]
    if verb is not rows and verb.tables and (view is None or not verb.placed):
        if columns and "columns" not in verb.look:
            raise UsageError(
                f"--columns cannot be given for a run of {verb.name}",
                "--format csv has all columns",
            )
        look = {"by": by.value, "columns": split(columns), "verbose": verbose}
        chosen = {name: look[name] for name in verb.look}
        put(load(verb.tables)(run, format.value, screen=screen, **chosen))
        return
    text = load(rows.tables)(run, format.value, screen, view, split(columns), verbose)
    put(_with_below(text, tables_below(run), format, screen))


def tables_below(run: Run) -> Sequence[Table]:
    """Make the tables that stand under the rows of *run*."""
    below = verb_of(run.header).below
    tables: Sequence[Table] = load(below)(run) if below else ()
    return tables


def _with_below(text: str, below: Sequence[Table], format: Format, screen: Screen) -> str:
    """Return the rows *text* with the tables *below*, for which CSV has no place."""
    if not below:
        return text
    if format == Format.CSV:
        say("csv has the rows alone: --format table, md and json have the steps")
        return text
    if format == Format.JSON:
        rows = [row for table in below for row in table.rows]
        return to_json({**json.loads(text), "steps": rows}, screen.ascii)
    return f"{text}\n{render(below, format.value, screen)}"


def refuse_empty(path: Path, runs: Sequence[Run]) -> None:
    """Refuse a file whose *runs* have no record at all. Raises: CannotMeasure."""
    if not any(run.records for run in runs):
        raise CannotMeasure(
            f"{path} has no record: the file was cut, or the run interrupted before the first",
            f"gpuperf roofline --resume {path} measures the missing cases",
        )


def print_changes(before: Run, after: Run, format: Format) -> None:
    """Print what changed between two profiles.

    Raises: UsageError for a run that is not a profile, and where nothing in the two matches.
    """
    for run in (before, after):
        if not verb_of(run.header).changes:
            raise UsageError(
                f"run {run.header.run} is not a profile, and only two profiles can be compared",
                "gpuperf gate compare BEFORE AFTER compares two runs of cases",
            )
    names = {run.header.device.name for run in (before, after)}
    if len(names) > 1:
        say(f"the profiles come from two devices: {' and '.join(sorted(names))}")
    render = load(verb_of(after.header).changes)
    put(render(before, after, format.value, stdout_screen()))


def draw(run: Run, files: Sequence[Path], view: View | None = None) -> None:
    """Draw the chart of the run's verb; without one, or with a *view*, the roofline.

    Raises: UsageError.
    """
    verb = verb_of(run.header)
    if verb.name != ROWS and verb.charts and (view is None or not verb.placed):
        load(verb.charts[0].draw)(run, files)
    else:
        load(verbs()[ROWS].charts[0].draw)(run, files, view or "compulsory")


def write_charts(run: Run, path: Path, view: View | None = None) -> None:
    """Draw the charts beside the run file, as PNG and SVG; say which could not be drawn."""
    if not any(record.status == "ok" for record in run.records):
        return
    files = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    _write(lambda targets: draw(run, targets, view), files, "chart")
    if view is None:
        write_beside(run, files)


def write_beside(run: Run, files: Sequence[Path], again: bool = False) -> None:
    """Draw all but the first chart of the run's verb beside *files*.

    With *again*, as in `show`, only charts that are `shown` are drawn.
    """
    for chart in verb_of(run.header).charts[1:]:
        fits = not chart.fits or load(chart.fits)(record.case for record in run.records)
        if fits and (chart.shown or not again):
            beside = [file.with_name(f"{file.stem}{chart.suffix}{file.suffix}") for file in files]
            _write(partial(load(chart.draw), run), beside, chart.noun)


def _write(draw_to: Callable[[list[Path]], object], files: list[Path], noun: str) -> None:
    try:
        draw_to(files)
    except (OSError, UsageError) as error:
        say(f"no {noun} was written: {error}")
    else:
        names = [str(files[0]), *(file.name for file in files[1:])]
        say(f"{noun}{'s' if len(names) > 1 else ''}: {' and '.join(names)}")
