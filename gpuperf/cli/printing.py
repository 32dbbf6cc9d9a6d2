"""How does a run reach the user: data to stdout, charts to files, talk to stderr?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuperf.analysis.counted import counted
from gpuperf.cli.options import By, Format
from gpuperf.cli.progress import say
from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.model.record import Run
from gpuperf.report.formats import render_run
from gpuperf.report.timing import is_timing_check, render_timing
from gpuperf.report.view import View, best_known
from gpuperf.show.screen import put, stdout_screen

__all__ = ["draw", "print_changes", "print_run", "refuse_empty", "write_charts", "write_heatmap"]

def print_run(
    run: Run, format: Format, view: View | None = None, by: By = By.OPERATORS
) -> None:
    """The run on stdout; as a table, with its roofline below. A profile *by* what it is asked."""
    screen = stdout_screen()
    if by is By.KERNELS and run.header.study != "profile":
        told = f"--by {by.value} is of a profile, and run {run.header.run} is none"
        raise UsageError(told, "leave --by out")
    if is_timing_check(run):
        sys.stdout.write(render_timing(run, format.value))
        return
    if run.header.study and view is None:
        sys.stdout.write(_render_study(run, format.value, by))
        return
    put(render_run(run, format.value, screen))
    if format is Format.TABLE and any(record.status == "ok" for record in run.records):
        from gpuperf.report.terminal import terminal_roofline

        try:
            told = _roofline_view(run, view)
            width = min(screen.width, 100)
            drawn = terminal_roofline(run, width, 22, screen.color, screen.ascii, told)
        except UsageError as error:
            say(f"no roofline is drawn: {error}; {error.hint}")
        else:
            put("\n" + drawn)


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
    sys.stdout.write(render_changed(differences(profiles(before), profiles(after)), format.value))
    sys.stdout.flush()


def _render_study(run: Run, format: str, by: By) -> str:
    """What *run* is a study of. Loaded when wanted, for `--help` to be there at once."""
    if run.header.study == "alignment":
        from gpuperf.report.alignment import render_alignment

        return render_alignment(run, format)
    if run.header.study == "profile":
        from gpuperf.report.profiling import render_profile

        return render_profile(run, format, by.value)
    from gpuperf.report.waves import render_waves

    return render_waves(run, format)


def draw(run: Run, files: Sequence[Path], view: View | None = None) -> None:
    """The chart of *run*: the roofline, what timers add, or, unless a *view* asks for their
    roofline, implementations beside each other or throughput by alignment. Raises: UsageError."""
    if is_timing_check(run):
        from gpuperf.report.chart.timing import draw_timing

        draw_timing(run, files)
    elif run.header.study == "alignment" and view is None:
        from gpuperf.report.chart.alignment import draw_alignment

        draw_alignment(run, files)
    elif run.header.study == "profile" and view is None:
        from gpuperf.report.chart.profiling import draw_profile

        draw_profile(run, files)
    elif run.header.study == "waves" and view is None:
        from gpuperf.report.chart.waves import draw_waves

        draw_waves(run, files)
    elif run.header.baseline and view is None:
        from gpuperf.report.chart.compare import draw_comparison

        draw_comparison(run, files)
    else:
        from gpuperf.report.chart.roofline import draw_roofline

        draw_roofline(run, files, view or "compulsory")


def write_charts(run: Run, path: Path, view: View | None = None) -> None:
    """The chart beside the run file, as PNG and SVG; a chart that fails costs no data."""
    if not any(record.status == "ok" for record in run.records):
        return
    from gpuperf.report.chart.roofline import draw_roofline

    charts: list[tuple[str, Callable[[list[Path]], object]]] = [
        (path.stem, lambda files: draw(run, files, view))
    ]
    if run.header.baseline:
        best = _roofline_view(run, view)
        charts.append((f"{path.stem}-roofline", lambda files: draw_roofline(run, files, best)))
    for name, drawn in charts:
        files = [path.with_name(f"{name}{suffix}") for suffix in (".png", ".svg")]
        _write(drawn, files, "chart")
    if view is None:
        write_heatmap(run, [path.with_name(f"{path.stem}{suffix}") for suffix in (".png", ".svg")])


def write_heatmap(run: Run, files: Sequence[Path]) -> None:
    """Beside the charts *files* of a study of waves in which m and n vary, the one over both."""
    if run.header.study != "waves":
        return
    from gpuperf.analysis.waveplane import varies_both
    from gpuperf.report.chart.heatmap import draw_heatmap

    if not varies_both(record.case for record in run.records):
        return
    beside = [file.with_name(f"{file.stem}-heatmap{file.suffix}") for file in files]
    _write(lambda targets: draw_heatmap(run, targets), beside, "heatmap")


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
