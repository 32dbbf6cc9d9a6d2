"""Draw an experiment: measured points with intervals, and the prediction as a line with its band.

Controls are hollow, and so are points that cannot judge. One function draws every experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuperf.lab.judging import judge
from gpuperf.lab.study import LabPoint, Study, study_run
from gpuperf.lab.wording import head_of, quantity, series_name
from gpuperf.model.experiment import Fitted, Ruling
from gpuperf.model.record import Run
from gpuperf.show.figure import (
    COLOURS,
    FAINT,
    INK,
    MARKERS,
    figure,
    label_ticks,
    plain_number,
    tick_values,
)

TALL = 4.4  # inches
WIDE = 12.0  # largest over smallest value, from which an axis is logarithmic
PREFIXED = ("s", "byte", "byte/s", "FLOP/s")  # units whose ticks have a prefix
# Largest over smallest value, up to which the ticks of a log axis double; those with a prefix are
# then 1, 2 and 5.
DOUBLED = 1000.0
KIBI, PREFIXES = 1024.0, ("", "Ki", "Mi", "Gi")
KNEES = ("knee", "edge", "crossover")  # how the names of parameters begin that are a place on x


def draw_lab(run: Run, files: Sequence[Path]) -> None:
    """Draw the experiment of *run* to *files*. Raises: RunFileError, UsageError."""
    study = study_run(run)
    draw_study(study, judge(study), run.header.device.name, files)


def draw_study(study: Study, ruling: Ruling, device: str, files: Sequence[Path]) -> None:
    """Draw *study* with its *ruling* to *files*. Raises: UsageError."""
    experiment = study.experiment
    title = f"{experiment.name}: {experiment.question}"
    lines = [f"{ruling.verdict}. {ruling.sentence}"]
    notes = [device, *(f"Control {c.name}: {c.because}." for c in experiment.controls)]
    places = _places(study)
    with figure(files, title, lines, [*notes, *experiment.notes]) as frame:
        (panel,) = frame.stack(TALL)
        handles: list[Any] = []
        for index, (name, points) in enumerate(study.series.items()):
            colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
            label = series_name(name, study)
            handles += _draw_series(panel, label, points, places, colour, marker)
        handles += _draw_controls(panel, study, places)
        _scale(panel, study, places)
        for fitted in ruling.fitted:
            _mark(panel, fitted, places)
        panel.set_xlabel(experiment.x)
        panel.set_ylabel(head_of(experiment))
        panel.grid(True)
        frame.legend([*handles, _band_of_theory()])
        frame.fit()


def _places(study: Study) -> dict[str, float]:
    """Return a place for each x that is a word, in the order of the plan; empty for numbers."""
    points = (*study.points, *study.controls)
    words = [p.prediction.label for p in points if not _is_number(p)]
    if not words:
        return {}
    labels = dict.fromkeys(p.prediction.label for p in points)
    return {label: float(index) for index, label in enumerate(labels)}


def _is_number(point: LabPoint) -> bool:
    try:
        float(point.prediction.label)
    except ValueError:
        return False
    return True


def _x(point: LabPoint, places: dict[str, float]) -> float:
    return places[point.prediction.label] if places else point.prediction.x


def _draw_series(
    panel: Any,
    name: str,
    points: Sequence[LabPoint],
    places: dict[str, float],
    colour: str,
    marker: str,
) -> list[Any]:
    """Draw the points of one series, and its prediction behind them."""
    predicted = [(_x(p, places), p.expected) for p in points if p.expected is not None]
    predicted.sort(key=lambda pair: pair[0])
    if predicted:
        xs = [x for x, _ in predicted]
        expected = [e for _, e in predicted]
        style = "--" if expected[0].kind == "bound" else "-"
        shape = {"linestyle": "none", "marker": "_", "markersize": 18} if places else {}
        look = {"linestyle": style, "linewidth": 1.2, "color": colour, "alpha": 0.6, **shape}
        panel.plot(xs, [e.value for e in expected], **look)
        low, high = [e.low for e in expected], [e.high for e in expected]
        if places:
            panel.vlines(xs, low, high, color=colour, alpha=0.15, linewidth=10)
        else:
            panel.fill_between(xs, low, high, color=colour, alpha=0.12, linewidth=0)
    sure = [p for p in points if p.measured and not p.doubt]
    doubtful = [p for p in points if p.measured and p.doubt]
    _dots(panel, doubtful, places, colour, marker, hollow=True)
    return _dots(panel, sure, places, colour, marker, label=name)


def _draw_controls(panel: Any, study: Study, places: dict[str, float]) -> list[Any]:
    """Draw the controls hollow, each with a tick at its prediction."""
    handles = []
    names = dict.fromkeys(p.prediction.control for p in study.controls)
    for index, name in enumerate(names):
        points = [p for p in study.controls if p.prediction.control == name and p.measured]
        marker = MARKERS[(len(study.series) + index) % len(MARKERS)]
        for point in points:
            if point.expected is not None:
                x, value = _x(point, places), point.expected.value
                panel.plot([x], [value], marker="_", markersize=16, color=FAINT)
        label = f"control {name}"
        handles += _dots(panel, points, places, INK, marker, hollow=True, label=label)
    return handles


def _dots(
    panel: Any,
    points: Sequence[LabPoint],
    places: dict[str, float],
    colour: str,
    marker: str,
    hollow: bool = False,
    label: str = "",
) -> list[Any]:
    measured = [(_x(p, places), p.measured) for p in points if p.measured is not None]
    if not measured:
        return []
    ys = [m.value for _, m in measured]
    errors = [
        [max(0.0, m.value - m.low) for _, m in measured],
        [max(0.0, m.high - m.value) for _, m in measured],
    ]
    drawn = panel.errorbar(
        [x for x, _ in measured],
        ys,
        yerr=errors,
        linestyle="none",
        marker=marker,
        markersize=6,
        capsize=2,
        color=colour,
        label=label,
        markerfacecolor="white" if hollow else colour,
    )
    return [drawn] if label else []


def _band_of_theory() -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=FAINT, linewidth=1.2, label="predicted before, with its band")


def _scale(panel: Any, study: Study, places: dict[str, float]) -> None:
    """Make an axis logarithmic where its values need it, and write its ticks without exponents."""
    points = (*study.points, *study.controls)
    unit = study.experiment.unit
    values = [v for p in points for v in _heights(p)]
    if places:
        panel.set_xticks(list(places.values()), labels=list(places))
        panel.margins(x=0.15)
    else:
        xs = [point.prediction.x for point in points]
        if min(xs) > 0 and max(xs) >= WIDE * min(xs):
            panel.set_xscale("log", base=2)
        elif max(xs) >= WIDE * max(1.0, min(x for x in xs if x > 0) if any(xs) else 1.0):
            panel.set_xscale("symlog", base=2, linthresh=1)
        label_ticks(panel.xaxis, _binary)
    ticks: Sequence[float] | None = None
    if values and min(values) > 0 and max(values) >= WIDE * min(values):
        narrow = max(values) < DOUBLED * min(values)
        doubles = narrow and unit not in PREFIXED
        panel.set_yscale("log", base=2 if doubles else 10)
        if narrow and not doubles:
            ticks = tick_values(min(values), max(values), (1, 2, 5))
    elif values:
        panel.set_ylim(0, 1.12 * max(values))
    label_ticks(panel.yaxis, lambda value: _tick(value, unit), ticks)


def _binary(value: float) -> str:
    """Write a tick of x: `4 Ki`, `96`."""
    power = next((p for p in (3, 2, 1) if value >= KIBI**p and value % KIBI**p == 0), 0)
    return f"{plain_number(value / KIBI**power)} {PREFIXES[power]}".strip()


def _tick(value: float, unit: str) -> str:
    """Write a tick of y: `2 TB/s`, `16`."""
    if not value or unit not in PREFIXED:
        return plain_number(value)
    number, prefixed = quantity(value, unit).split(" ")
    return f"{float(number):g} {prefixed}"


def _heights(point: LabPoint) -> list[float]:
    values = [point.expected.value] if point.expected else []
    return [*values, point.measured.value] if point.measured else values


def _mark(panel: Any, fitted: Fitted, places: dict[str, float]) -> None:
    """Mark a fitted place on x, beside the predicted one."""
    if places or not fitted.name.startswith(KNEES):
        return
    panel.axvline(fitted.value, color=INK, linewidth=0.9)
    panel.axvline(fitted.expected, color=FAINT, linewidth=0.9, linestyle="--")
    place = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom"}
    text = f"{fitted.name} {quantity(fitted.value, '')}, predicted {quantity(fitted.expected, '')}"
    panel.annotate(text, (fitted.value, 1.0), **place, color=FAINT, fontsize=9)
