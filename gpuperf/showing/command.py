"""Run `gpuperf show`: print or draw a run file, on any machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import UsageError
from gpuperf.files import is_regular
from gpuperf.model.record import Run
from gpuperf.run.store import read_run, read_runs, read_text
from gpuperf.show.screen import put
from gpuperf.show.view import View
from gpuperf.showing.exports import EXPORTS, ShowFormat, export_text
from gpuperf.verb import options as opt
from gpuperf.verb.page import say_page, write_other, write_page
from gpuperf.verb.parse import parse_view
from gpuperf.verb.printing import draw, print_changes, print_run, refuse_empty, write_beside
from gpuperf.verb.progress import say

FormatOfShow = Annotated[
    ShowFormat,
    typer.Option(
        "--format",
        help="Format of what is printed. For other tools: "
        + "; ".join(f"{e.name}: {e.help}" for e in EXPORTS.values())
        + ".",
    ),
]
USUAL = ShowFormat("table")
LARGE = 16 << 20  # bytes of a run file that takes some seconds to read


def show(
    run: opt.RunFile,
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="LATER",
            help="Run file of a later profile, which is compared with the first.",
            show_default=False,
        ),
    ] = None,
    chart: opt.ChartFile = None,
    html: opt.HtmlFile = None,
    format: FormatOfShow = USUAL,
    intensity: Annotated[str | None, opt.INTENSITY] = None,
    by: opt.ByOption = opt.By.OPERATORS,
    columns: opt.Columns = None,
    verbose: opt.Verbose = False,
) -> int:
    """Show a stored run, draw its chart, or compare two profiles.

    Nothing is measured. RUN may also be a page that --html wrote; with --html, also the verdict of
    a gate, or a folder of run files, whose history is shown. With --chart, a comparison is
    drawn as bars, or with --intensity as a roofline; a study of waves over both m and n gets a
    heatmap as well.
    """
    exported = format.value in EXPORTS
    if html is not None:
        others = {"--chart": chart, "--intensity": intensity, "--columns": columns}
        _refuse_beside_html({**others, "--format": "" if format is USUAL else format})
    if other is not None:
        if exported or html is not None:
            what = f"--format {format.value}" if exported else "--html"
            raise UsageError(f"{what} writes one run, not two", "name one run")
        print_changes(read_run(run), read_run(other), opt.Format(format.value))
        return 0
    if html is not None and (written := write_other(run, html)) is not None:
        say_page(html, written)
        return 0
    view = None if intensity is None else parse_view(intensity)
    if is_regular(run) and (size := run.stat().st_size) > LARGE:
        say(f"{run}: reading {size >> 20:,} MiB; each 1,000 records take about a second")
    runs = read_runs(run)
    for problem in runs[0].problems:
        say(f"{run}: {problem}; its other lines were read")
    if by is opt.By.KERNELS and any(each.header.study != "profile" for each in runs):
        raise UsageError(f"--by kernels shows profiles, and {run} is not a profile", "leave it out")
    if html is not None:
        _write_page(run, _only(runs, run, "a page"), html)
    elif chart is not None:
        _draw_chart(_only(runs, run, "a chart"), chart, view)
    elif exported:
        _print_export(_only(runs, run, format.value), format.value)
    else:
        if format.value in (opt.Format.JSON, opt.Format.CSV):
            _only(runs, run, format.value)
        for each in runs:
            print_run(each, opt.Format(format.value), view, by, columns, verbose)
        refuse_empty(run, runs)
    return 0


def _refuse_beside_html(others: Mapping[str, object]) -> None:
    """Refuse --html with another option that says what is shown. Raises: UsageError."""
    for name, given in others.items():
        if given:
            raise UsageError(
                f"--html and {name} exclude each other", "the page has the charts and all columns"
            )


def _only(runs: Sequence[Run], path: Path, shown: str) -> Run:
    """Return the one run in *path*. Raises: UsageError for several."""
    if len(runs) > 1:
        raise UsageError(f"{path} holds {len(runs)} runs; {shown} shows one", "split the file")
    return runs[0]


def _draw_chart(run: Run, chart: Path, view: View | None) -> None:
    draw(run, [chart], view)
    say(f"chart: {chart}")
    if view is None:
        write_beside(run, [chart], again=True)


def _print_export(run: Run, name: str) -> None:
    text, lacks = export_text(run, name)
    put(text)
    if lacks:
        say(lacks)


def _write_page(path: Path, run: Run, target: Path) -> None:
    """Write the page of *run*, which is the run in *path*. Raises: UsageError, CannotMeasure."""
    refuse_empty(path, [run])
    say_page(target, write_page(run, read_text(path), target))
