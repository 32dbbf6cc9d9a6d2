"""Print runs to stdout and draw their charts, each by the verb of its study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.model.record import Run
from gpuperf.show.screen import put, stdout_screen
from gpuperf.show.view import View
from gpuperf.verb.options import By, Format, split
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
    """Print the run on stdout; as a table, with its roofline below it.

    A profile is printed *by* what is asked for. The table has the *columns* that are named, or all
    of them and every note where it is *verbose*.
    """
    screen = stdout_screen()
    if by is By.KERNELS and run.header.study != "profile":
        told = f"--by {by.value} is of a profile, and run {run.header.run} is none"
        raise UsageError(told, "leave --by out")
    verb, rows = verb_of(run.header), verbs()[ROWS]
    if verb is not rows and verb.tables and (view is None or not verb.placed):
        look = {"by": by.value, "columns": split(columns), "verbose": verbose}
        chosen = {name: look[name] for name in verb.look}
        put(load(verb.tables)(run, format.value, screen=screen, **chosen))
        return
    put(load(rows.tables)(run, format.value, screen, view, split(columns), verbose))


def refuse_empty(path: Path, runs: Sequence[Run]) -> None:
    """Raises: CannotMeasure where none of the *runs* in *path* holds a record."""
    if not any(run.records for run in runs):
        raise CannotMeasure(
            f"{path} holds no record: it was cut, or interrupted before the first",
            f"gpuperf roofline --resume {path} measures what it lacks",
        )


def print_changes(before: Run, after: Run, format: Format) -> None:
    """Print what changed between two profiles.

    Raises: UsageError where a run is no profile, or nothing in the two matches.
    """
    for run in (before, after):
        if not verb_of(run.header).changes:
            raise UsageError(
                f"run {run.header.run} is no profile: two profiles can be shown beside each other",
                "gpuperf gate compare BEFORE AFTER judges two runs of cases",
            )
    names = {run.header.device.name for run in (before, after)}
    if len(names) > 1:
        say(f"the profiles are of two devices: {' and '.join(sorted(names))}")
    render = load(verb_of(after.header).changes)
    put(render(before, after, format.value, stdout_screen()))


def draw(run: Run, files: Sequence[Path], view: View | None = None) -> None:
    """Draw the chart of the run's verb, or the roofline where there is none or *view* asks for it.

    Raises: UsageError.
    """
    verb = verb_of(run.header)
    if verb.name != ROWS and verb.charts and (view is None or not verb.placed):
        load(verb.charts[0].draw)(run, files)
    else:
        load(verbs()[ROWS].charts[0].draw)(run, files, view or "compulsory")


def write_charts(run: Run, path: Path, view: View | None = None) -> None:
    """The chart beside the run file, as PNG and SVG; a chart that fails costs no data."""
    if not any(record.status == "ok" for record in run.records):
        return
    files = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    _write(lambda targets: draw(run, targets, view), files, "chart")
    if view is None:
        write_beside(run, files)


def write_beside(run: Run, files: Sequence[Path], again: bool = False) -> None:
    """Draw the further charts of the run's verb beside *files*; *again*, those that `show` does."""
    for chart in verb_of(run.header).charts[1:]:
        fits = not chart.fits or load(chart.fits)(record.case for record in run.records)
        if fits and (chart.shown or not again):
            beside = [file.with_name(f"{file.stem}{chart.suffix}{file.suffix}") for file in files]
            _write(partial(load(chart.draw), run), beside, chart.noun)


def _write(drawn: Callable[[list[Path]], object], files: list[Path], what: str) -> None:
    try:
        drawn(files)
    except (OSError, UsageError) as error:
        say(f"no {what} was written: {error}")
    else:
        names = [str(files[0]), *(file.name for file in files[1:])]
        say(f"{what}{'s' if len(names) > 1 else ''}: {' and '.join(names)}")
