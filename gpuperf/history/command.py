"""`gpuperf history`: how cases went over the runs of a folder."""

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
from gpuperf.run.cache import fetch, keep, key_of
from gpuperf.show.axes import Names
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb.options import RUNS, ChartFile, Format, FormatOption
from gpuperf.verb.progress import say

RULE = 1  # raised when steps are found otherwise
MOST_WORDS = 8  # on stderr, of files that were passed over
MOST_NAMES = 5  # in a hint

Folder = Annotated[Path, typer.Option(help="Where the run files are, and below.")]

history = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@history.command("list")
def list_history(folder: Folder = RUNS, format: FormatOption = Format.TABLE) -> None:
    """Every case: its points, the environments they were taken in, and the last step."""
    put(render_list(_read(folder, None), format.value, stdout_screen()))


@history.command("show")
def show_history(
    case: Annotated[str, typer.Argument(help="A case's id, its name in the list, or a part.")],
    folder: Folder = RUNS,
    chart: ChartFile = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """One case: its points, its segments of one environment each, and the steps in them."""
    from gpuperf.show.figure import targets_of

    targets = targets_of([chart] if chart else [])
    (series,) = _read(folder, lambda cases: _chosen(case, cases))
    put(render_show(series, format.value, stdout_screen()))
    if targets:
        from gpuperf.history.chart import draw_history

        draw_history(series, targets)
        say(f"chart: {chart}")


def _read(folder: Path, choose: Choose | None) -> tuple[Series, ...]:
    """The series in *folder*, with their steps. Raises: UsageError where there is none."""
    found = read_folder(folder, choose)
    for words in found.skipped[:MOST_WORDS]:
        say(f"passed over: {shorten(clean(words), 4 * LONGEST)}")
    if len(found.skipped) > MOST_WORDS:
        say(f"passed over: {len(found.skipped) - MOST_WORDS} more")
    if not found.readings:
        told = "holds no run file" if not found.files else f"holds no case in {found.files} files"
        raise UsageError(f"{folder} {told}", "--folder is where --out put the run files")
    series = series_of(found.readings)
    return with_change_points(series, _steps(folder, series))


@dataclass(frozen=True)
class _Kept:
    """Steps that were found before, and in what."""

    of: str
    steps: list[tuple[ChangePoint, ...]]


def _steps(folder: Path, series: Sequence[Series]) -> list[tuple[ChangePoint, ...]]:
    """The steps of each segment; as long as no time changes they need not be sought again."""
    times = times_of(series)
    of = key_of(RULE, times)
    place = key_of(str(folder.resolve()), [each.case for each in series])
    kept = fetch("steps", place, _Kept)
    if kept is None or kept.of != of or len(kept.steps) != len(times):
        kept = _Kept(of, find_change_points(times))
        keep("steps", place, kept)
    return kept.steps


def _chosen(asked: str, cases: Sequence[str]) -> str:
    """The case that *asked* names: its id, its name in the list, or parts that only its id has.

    Raises: UnknownName, UsageError.
    """
    names = Names(cases, LONGEST)
    exact = [case for case in cases if asked in (case, names.of(case))]
    words = asked.split()
    found = exact or [case for case in cases if words and all(word in case for word in words)]
    if not found:
        raise UnknownName("case", asked, [names.of(case) for case in cases])
    if len(found) > 1:
        told = ", ".join(names.of(case) for case in found[:MOST_NAMES])
        more = f" and {len(found) - MOST_NAMES} more" if len(found) > MOST_NAMES else ""
        raise UsageError(f"{asked!r} is a part of {len(found)} cases", f"one of: {told}{more}")
    return found[0]
