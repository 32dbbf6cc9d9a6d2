"""How does a run reach the user: data to stdout, charts to files, talk to stderr?"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuperf.cli.options import Format
from gpuperf.cli.progress import say
from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.report.formats import render
from gpuperf.report.timing import is_timing_check, render_timing
from gpuperf.report.view import View

__all__ = ["draw", "print_run", "write_charts"]

# Without a terminal there is no width to keep to; this shows all columns of most runs.
WIDTH_WITHOUT_TERMINAL = 200


def print_run(run: Run, format: Format, view: View = "compulsory") -> None:
    """The run on stdout; as a table, with its roofline below."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else WIDTH_WITHOUT_TERMINAL
    if is_timing_check(run):
        sys.stdout.write(render_timing(run, format.value))
        return
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = render(run, format.value, width=width, color=terminal, ascii=plain)
    sys.stdout.write(text)
    if format is Format.TABLE and any(record.status == "ok" for record in run.records):
        from gpuperf.report.terminal import terminal_roofline

        try:
            drawn = terminal_roofline(run, min(width, 100), 22, terminal, plain, view)
        except UsageError as error:
            say(f"no roofline is drawn: {error}; {error.hint}")
        else:
            sys.stdout.write("\n" + drawn)
    sys.stdout.flush()


def draw(run: Run, files: Sequence[Path], view: View = "compulsory") -> None:
    """The chart of *run*: the roofline, or what timers add. Raises: UsageError."""
    if is_timing_check(run):
        from gpuperf.report.chart.timing import draw_timing

        draw_timing(run, files)
    elif run.header.baseline:
        from gpuperf.report.chart.compare import draw_comparison

        draw_comparison(run, files)
    else:
        from gpuperf.report.chart.roofline import draw_roofline

        draw_roofline(run, files, view)


def write_charts(run: Run, path: Path, view: View = "compulsory") -> None:
    """The chart beside the run file, as PNG and SVG; a chart that fails costs no data."""
    if not any(record.status == "ok" for record in run.records):
        return
    files = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    try:
        draw(run, files, view)
    except (OSError, UsageError) as error:
        say(f"no chart was written: {error}")
        return
    say(f"charts: {files[0]} and {files[1].name}")
