"""How does a run reach the user: data to stdout, charts to files, talk to stderr?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gpuperf.analysis.counted import counted
from gpuperf.cli.options import By, Format, split
from gpuperf.cli.progress import say
from gpuperf.cli.verbs import load, verb_of
from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.model.record import Run
from gpuperf.report.formats import render_run
from gpuperf.report.view import View, best_known
from gpuperf.show.screen import Screen, put, stdout_screen

__all__ = [
    "draw",
    "draw_best",
    "print_changes",
    "print_run",
    "refuse_empty",
    "write_beside",
    "write_charts",
]


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
    verb = verb_of(run.header)
    if verb.tables and (view is None or not verb.placed):
        kernels = (by.value,) if by is By.KERNELS else ()
        put(load(verb.tables)(run, format.value, *kernels, screen=screen))
        return
    if format is not Format.TABLE:
        put(render_run(run, format.value, screen))
        return
    from gpuperf.report.brief import render_brief

    text = (
        render_run(run, "table", screen) if verbose else render_brief(run, screen, split(columns))
    )
    put(text)
    asked = view not in (None, "compulsory")
    lines = None if verbose else 0 if asked else text.count("\n")
    try:
        put(_roofline(run, screen, _roofline_view(run, view), lines))
    except UsageError as error:
        say(f"no roofline is drawn: {error}; {error.hint}")


def _roofline(run: Run, screen: Screen, view: View, lines: int | None) -> str:
    """The roofline below a table of so many *lines*; with its whole legend where None is given."""
    from gpuperf.report.brief import roofline_below
    from gpuperf.report.terminal import terminal_roofline

    if lines is not None:
        return roofline_below(run, screen, view, lines)
    if not any(record.status == "ok" for record in run.records):
        return ""
    width = min(screen.width, 100)
    return "\n" + terminal_roofline(run, width, 22, screen.color, screen.ascii, view)


def refuse_empty(path: Path, runs: Sequence[Run]) -> None:
    """Raises: CannotMeasure where none of the *runs* in *path* holds a record."""
    if not any(run.records for run in runs):
        raise CannotMeasure(
            f"{path} holds no record: it was cut, or interrupted before the first",
            f"gpuperf roofline --resume {path} measures what it lacks",
        )


def print_changes(before: Run, after: Run, format: Format) -> None:
    """What changed between two profiles. Raises: UsageError where one is none, or nothing fits."""
    from gpuperf.analysis.changed import differences
    from gpuperf.analysis.region import profiles
    from gpuperf.report.changed import render_changed

    for run in (before, after):
        if run.header.study != "profile":
            raise UsageError(
                f"run {run.header.run} is no profile: two profiles can be shown beside each other",
                "gpuperf gate compare BEFORE AFTER judges two runs of cases",
            )
    names = {run.header.device.name for run in (before, after)}
    if len(names) > 1:
        say(f"the profiles are of two devices: {' and '.join(sorted(names))}")
    found = differences(profiles(before), profiles(after))
    put(render_changed(found, format.value, stdout_screen()))


def draw(run: Run, files: Sequence[Path], view: View | None = None) -> None:
    """Draw the chart of the run's verb, or the roofline where there is none or *view* asks for it.

    Raises: UsageError.
    """
    verb = verb_of(run.header)
    if verb.charts and (view is None or not verb.placed):
        load(verb.charts[0].draw)(run, files)
    else:
        from gpuperf.report.chart.roofline import draw_roofline

        draw_roofline(run, files, view or "compulsory")


def draw_best(run: Run, files: Sequence[Path]) -> None:
    """Draw the roofline of a comparison, by the best bytes that all its implementations have."""
    from gpuperf.report.chart.roofline import draw_roofline

    draw_roofline(run, files, _roofline_view(run, None))


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


def _roofline_view(run: Run, view: View | None) -> View:
    """*view*; where none is asked for, the least bytes, or of a comparison the best bytes that all
    its implementations have."""
    if view is not None or not run.header.baseline:
        return view or "compulsory"
    return best_known(counted(record) for record in run.records if record.status == "ok")
