"""Make the HTML page of a history: the list of all cases, then each case with its chart."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gpuperf.history.chart import draw_history
from gpuperf.history.command import read_history
from gpuperf.history.study import Series
from gpuperf.history.table import render_list, render_show
from gpuperf.model.text import shorten
from gpuperf.show.html import paragraph
from gpuperf.show.page import Section, image, page

MOST_CASES = 30  # cases with a chart; a chart takes about 0.3 s and 50 kB
LONGEST = 100  # characters of a heading


def page_of(path: Path) -> str | None:
    """Return the page of the run files in the folder *path*; None where it is no folder.

    Raises: UsageError for a folder without a case.
    """
    return history_page(read_history(path), path.name) if path.is_dir() else None


def history_page(series: tuple[Series, ...], name: str) -> str:
    """Return the page of *series*, those with a change point first, for the folder *name*.

    A case with one point has no chart.
    """
    several = [each for each in series if len(each.points) > 1]
    timed = sorted(several, key=lambda each: each.last_change is None)
    sections = [Section("", render_list(series, "html"))]
    sections += [_case(each) for each in timed[:MOST_CASES]]
    left = len(timed) - MOST_CASES
    if left > 0:
        sections.append(Section("", paragraph(f"{left} cases more have no chart on this page.")))
    return page(f"history: {name}", [f"{len(series)} cases"], sections)


def _case(series: Series) -> Section:
    drawn = image(partial(draw_history, series))
    body = f"<figure class=chart>{drawn}</figure>\n{render_show(series, 'html')}"
    return Section(shorten(series.case.id, LONGEST), body)
