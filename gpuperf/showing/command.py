"""`gpuperf show`: redraw a run file, on any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import UsageError
from gpuperf.files import is_regular
from gpuperf.run.store import read_run, read_runs
from gpuperf.verb.options import (
    INTENSITY,
    By,
    ByOption,
    Columns,
    Format,
    FormatOption,
    Verbose,
    view,
)
from gpuperf.verb.printing import draw, print_changes, print_run, refuse_empty, write_beside
from gpuperf.verb.progress import say

LARGE = 16 << 20  # bytes of a run file that takes some seconds


def show(
    run: Annotated[Path, typer.Argument(help="A run file.")],
    other: Annotated[
        Path | None,
        typer.Argument(help="A later profile, held against the first.", show_default=False),
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: .png or .svg.", show_default=False)
    ] = None,
    format: FormatOption = Format.TABLE,
    intensity: Annotated[str | None, INTENSITY] = None,
    by: ByOption = By.OPERATORS,
    columns: Columns = None,
    verbose: Verbose = False,
) -> int:
    """Show a stored run, draw its chart, or compare two profiles.

    Nothing is measured. With --chart, a comparison is drawn as bars, or with --intensity as a
    roofline; a study of waves over both m and n gets a heatmap as well.
    """
    if other is not None:
        return _show_changes(run, other, format)
    bytes_of = None if intensity is None else view(intensity)
    if is_regular(run) and (size := run.stat().st_size) > LARGE:
        say(f"{run}: reading {size >> 20:,} MiB; each 1,000 records take about a second")
    runs = read_runs(run)
    for problem in runs[0].problems:
        say(f"{run}: {problem}; the rest was read")
    if by is By.KERNELS and any(found.header.study != "profile" for found in runs):
        raise UsageError(
            f"{run} is no profile, and has no rows by kernels", "leave out --by kernels"
        )
    if len(runs) > 1 and format in (Format.JSON, Format.CSV):
        raise UsageError(f"{run} holds {len(runs)} runs; {format} shows one", "split the file")
    if chart is None:
        for found in runs:
            print_run(found, format, bytes_of, by, columns, verbose)
        refuse_empty(run, runs)
        return 0
    if len(runs) > 1:
        raise UsageError(f"{run} holds {len(runs)} runs; a chart shows one", "split the file")
    draw(runs[0], [chart], bytes_of)
    say(f"chart: {chart}")
    if bytes_of is None:
        write_beside(runs[0], [chart], again=True)
    return 0


def _show_changes(before: Path, after: Path, format: Format) -> int:
    """What changed from one profile to the other."""
    print_changes(read_run(before), read_run(after), format)
    return 0
