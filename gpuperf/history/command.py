"""Run `gpuperf history`: show the times of each case over the runs of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import UnknownName, UsageError
from gpuperf.history.index import Choose, read_folder
from gpuperf.history.study import Series, series_of, times_of, with_change_points
from gpuperf.history.table import LONGEST, render_list, render_show
from gpuperf.model.changepoints import ChangePoint, find_change_points
from gpuperf.model.text import clean, shorten
from gpuperf.model.workload import Case
from gpuperf.run.cache import fetch, keep, key_of
from gpuperf.show.axes import Names
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb.options import RUNS, ChartFile, Format, FormatOption
from gpuperf.verb.progress import say

RULE = 1  # version of the search for change points: stored ones of another version are not used
MOST_SKIPPED = 8  # files named on stderr
MOST_NAMES = 5  # in a hint

Folder = Annotated[
    Path, typer.Option(help="Folder of the run files; folders inside it are read too.")
]

history = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@history.command("list")
def list_history(folder: Folder = RUNS, format: FormatOption = Format.TABLE) -> None:
    """List every case with its points, its environments, and its last significant change."""
    put(render_list(read_history(folder), format.value, stdout_screen()))


@history.command("show")
def show_history(
    case: Annotated[
        str, typer.Argument(help="The id of a case, its name in the list, or words of either.")
    ],
    folder: Folder = RUNS,
    chart: ChartFile = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Show one case: its points, a segment for each environment, and the significant changes."""
    from gpuperf.show.figure import targets_of

    targets = targets_of([chart] if chart else [])
    (series,) = read_history(folder, lambda cases: _chosen(case, cases))
    put(render_show(series, format.value, stdout_screen()))
    if targets:
        from gpuperf.history.chart import draw_history

        draw_history(series, targets)
        say(f"chart: {chart}")


def read_history(folder: Path, choose: Choose | None = None) -> tuple[Series, ...]:
    """Return the series of all cases in *folder*, or of the one that *choose* picks, with their
    change points. Raises: UsageError if there is none."""
    content = read_folder(folder, choose)
    for reason in content.skipped[:MOST_SKIPPED]:
        say(f"skipped: {shorten(clean(reason), 4 * LONGEST)}")
    if len(content.skipped) > MOST_SKIPPED:
        say(f"skipped: {len(content.skipped) - MOST_SKIPPED} more")
    if not content.readings:
        files = content.files
        message = f"holds no case in {files} files" if files else "holds no run file"
        raise UsageError(f"{folder} {message}", "--folder is where --out put the run files")
    series = series_of(content.readings)
    return with_change_points(series, _change_points(folder, series))


@dataclass(frozen=True)
class _Search:
    """The change points of each segment, and the key of the times in which they were detected."""

    of: str
    change_points: list[tuple[ChangePoint, ...]]


def _change_points(folder: Path, series: Sequence[Series]) -> list[tuple[ChangePoint, ...]]:
    """Return the change points of each segment, from the cache as long as no time changes."""
    times = times_of(series)
    of = key_of(RULE, times)
    place = key_of(str(folder.resolve()), [each.case.id for each in series])
    search = fetch("changes", place, _Search)
    if search is None or search.of != of:
        search = _Search(of, find_change_points(times))
        keep("changes", place, search)
    return search.change_points


def _chosen(text: str, cases: Sequence[Case]) -> Case:
    """Return the case that *text* names: its id, its name in the list, or words of either.

    Raises: UnknownName, UsageError.
    """
    names = Names(cases, LONGEST)
    exact = [case for case in cases if text in (case.id, names.of(case))]
    words = text.split()
    texts = {case.id: f"{case.id} {names.of(case)}" for case in cases}
    matches = exact or [c for c in cases if words and all(word in texts[c.id] for word in words)]
    if not matches:
        raise UnknownName("case", text, [names.of(case) for case in cases])
    if len(matches) > 1:
        first = ", ".join(names.of(case) for case in matches[:MOST_NAMES])
        more = f" and {len(matches) - MOST_NAMES} more" if len(matches) > MOST_NAMES else ""
        raise UsageError(f"{text!r} matches {len(matches)} cases", f"name one of: {first}{more}")
    return matches[0]
