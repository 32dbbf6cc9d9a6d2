"""Draw a fleet as a heat map: a row for each device, a column for each test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.fleet.study import Judgement
from gpuperf.fleet.table import headline
from gpuperf.model.text import shorten
from gpuperf.show.figure import INK, Frame, figure

MOST_NAMED = 60  # rows whose names are written; with more, only bad devices are named
ROW, TALLEST, LEAST_TALL = 0.16, 9.0, 1.2  # inches
BESIDE = 1.1  # inches right of the map, for the scale
LEAST_SPAN = 0.02  # the scale reaches at least this far from 0
LONGEST = 40  # characters of a name
MAP = "PuOr_r"  # even on both sides of 0, and safe for the colour-blind
READING = "colour: how much slower than the peers a device is in a test · ● judged as slow"
MOST_NAMES_BAD = 40


def draw_fleet(judged: Judgement, paths: Sequence[Path]) -> None:
    """Draw *judged* to each of *paths*, PNG or SVG by suffix.

    Raises: UsageError for another suffix, an unwritable path, and a fleet without a time.
    """
    if judged.slowness is None or not judged.units:
        raise UsageError("no times were judged: nothing to draw", "the table says why")
    title = f"fleet of {judged.judged:,} hosts: slowness by device and test"
    with figure(paths, title, [shorten(headline(judged), 220)], [READING]) as frame:
        _draw(frame, judged, judged.slowness * 100)


def _draw(frame: Frame, judged: Judgement, percent: Any) -> None:
    """Draw the map of *percent* (units, tests), its marks, its names and its scale."""
    import numpy

    rows = len(judged.units)
    (axes,) = frame.stack(min(TALLEST, max(LEAST_TALL, ROW * rows)))
    finite = percent[numpy.isfinite(percent)]
    largest = float(numpy.quantile(abs(finite), 0.999)) if len(finite) else 0.0
    span = max(100 * LEAST_SPAN, min(largest, 100 * 4 * judged.rule.slow))
    image = axes.imshow(
        percent, cmap=MAP, aspect="auto", interpolation="nearest", vmin=-span, vmax=span
    )
    places = {(unit.host, unit.device): i for i, unit in enumerate(judged.units)}
    columns = {test.test: i for i, test in enumerate(judged.tests)}
    marks = [
        (columns[bad.test], places[bad.unit.host, bad.unit.device])
        for bad in judged.bad
        if bad.test in columns
    ]
    if marks:
        xs, ys = zip(*marks, strict=True)
        size = max(3.0, min(14.0, 1200 / rows))
        axes.scatter(xs, ys, s=size, c=INK, edgecolors="white", linewidths=0.5, zorder=3)
    _name_axes(axes, judged, places)
    frame.fit(BESIDE)
    _scale(frame, axes, image)


def _name_axes(axes: Any, judged: Judgement, places: dict[tuple[str, int], int]) -> None:
    """Name every test, and every device or, where they are many, the bad ones."""
    several = len({unit.device for unit in judged.units}) > 1
    names = {
        i: shorten(f"{host} · {device}" if several else host, LONGEST)
        for (host, device), i in places.items()
    }
    if len(names) > MOST_NAMED:
        bad = {places[b.unit.host, b.unit.device] for b in judged.bad}
        names = {i: names[i] for i in sorted(bad)[:MOST_NAMES_BAD]}
    axes.set_yticks(list(names), list(names.values()), fontsize=7)
    tests = [shorten(test.test, LONGEST) for test in judged.tests]
    axes.set_xticks(range(len(tests)), tests, rotation=40, ha="right", fontsize=8)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=2)
    axes.set_ylabel(f"{len(judged.units):,} devices", fontsize=9)


def _scale(frame: Frame, axes: Any, image: Any) -> None:
    """Draw the scale of the colours right of the map."""
    width, place = frame.figure.get_figwidth(), axes.get_position()
    left = 1 - (BESIDE - 0.15) / width
    bar = frame.figure.colorbar(
        image,
        cax=frame.figure.add_axes((left, place.y0, 0.18 / width, place.height)),
        extend="both",
    )
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8)
    bar.set_label("slower than the peers, %", fontsize=9)
