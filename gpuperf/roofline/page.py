"""Make the part of a page that shows a run under a roofline: chart, legend and table together."""

from __future__ import annotations

from functools import partial

from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.roofline.busbw import draw_busbw, is_sweep
from gpuperf.roofline.output import best_view
from gpuperf.roofline.scene import Scene, scene
from gpuperf.roofline.svg import Drawing, Group, groups_of, record_rows, swatch
from gpuperf.roofline.table import sheet, shown_entries
from gpuperf.show.html import paragraph, text, to_html
from gpuperf.show.page import image
from gpuperf.show.view import View

VIEWS: dict[View, str] = {
    "compulsory": "least bytes of the algorithm",
    "modelled": "bytes of the implementation's model",
    "measured": "bytes measured through DRAM",
}


def roofline_html(run: Run) -> str:
    """Return the roofline of *run* with its table; a run without a place under it has the reason
    and the table, and a sweep of collectives its own chart."""
    table = to_html(sheet(run))
    if is_sweep(run):
        return f"{image(partial(draw_busbw, run))}\n{table}"
    try:
        scenes = _scenes(run)
    except UsageError as error:
        return f"{paragraph(f'No roofline is drawn: {error}.')}\n{table}"
    records = [entry.record for entry in shown_entries(run)]
    groups = groups_of(scenes, record_rows(records))
    drawn = Drawing(scenes, groups)
    caption = text(f"{drawn.whole.title}. {drawn.whole.subtitle}.")
    return "\n".join(
        (
            '<div class="linked roofline"><figure class=chart><div class=tools>',
            _selector(scenes, drawn.first),
            _legend(groups, drawn.many),
            f"</div>{drawn.svg()}",
            f"<figcaption>{caption} {_missing(drawn.whole)}</figcaption></figure>",
            f"{table}</div>",
        )
    )


def _scenes(run: Run) -> dict[View, Scene]:
    """Return the scene of each view that can be drawn, the best one first.

    Raises: UsageError if there is none.
    """
    best = best_view(run)
    scenes = {best: scene(run, best)}
    for view in VIEWS:
        try:
            scenes.setdefault(view, scene(run, view))
        except UsageError:
            continue  # the run lacks these bytes
    return scenes


def _selector(scenes: dict[View, Scene], first: View) -> str:
    if len(scenes) < 2:
        return ""
    choices = "".join(
        f'<label><input type=radio name=view value="{view}"{" checked" * (view == first)}> '
        f"{words}</label>"
        for view, words in VIEWS.items()
        if view in scenes
    )
    return f"<fieldset class=views hidden><legend>Intensity by</legend>{choices}</fieldset>"


def _legend(groups: tuple[Group, ...], many: bool) -> str:
    items = "".join(
        f'<li data-s="{number}">{swatch(number, many)}{text(group.label)}'
        for number, group in enumerate(groups)
    )
    return f"<ul class=legend>{items}</ul>"


def _missing(shown: Scene) -> str:
    hollow = f"Hollow: {', '.join(shown.doubts)}. " if shown.doubts else ""
    return text(f"{hollow}{f'Not drawn: {shown.missing}.' if shown.missing else ''}")
