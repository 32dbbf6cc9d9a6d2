"""Draw a profile: the parts of a step as a bar, and its operators as bubbles under the roofline.

The area of a bubble is the operator's share of the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.model.text import clean, shorten
from gpuperf.profile.breakdown import PARTS, OperatorRow, Profile, profiles
from gpuperf.profile.summary import name_of, title_of, totals_of
from gpuperf.roofline.caption import run_roofs
from gpuperf.show.contract import note
from gpuperf.show.figure import COLOURS, DPI, FAINT, INK, figure
from gpuperf.units import format_flop_rate, format_rate

BAR, ROOFLINE = 0.45, 4.6  # inches
LARGEST = 2600.0  # square points: the area of a bubble for a whole step
SMALLEST = 14.0  # square points: the area of the smallest bubble
MOST_LABELS = 10  # numbered operators
LEAST_LABEL = 0.01  # share of the step: operators with less have no number
LEAST_INTENSITY = 0.01  # FLOP/byte: operators with less are not drawn
LEAST_SHOWN = 0.001  # share of the step: operators with less are not drawn beside larger ones
LONGEST, LONGEST_SHAPES = 34, 40  # characters
NARROW = 0.045  # of the bar: narrower parts have no label inside
GREYS = "#bcbcbc", "#c8c8c8", "#d2d2d2", "#e6e6e6", "#f2f2f2"
COLOUR = dict(zip(PARTS, (*(COLOURS[i] for i in (0, 2, 4, 7, 9, 3)), *GREYS), strict=True))
LIGHT = (  # parts in light colours, with dark labels
    "idle: waiting",
    "idle: data",
    "idle: between kernels",
    "idle: launch or host",
    "latency-bound",
    "not traced",
)
READING = (
    "bubble: an operator, its area the share of the step · intensity: FLOPs over the bytes that an "
    "operator must move · roofs: data sheet dashed, measured solid"
)
UNDER = 2.0  # ratio of a roof to where the label below it ends
LINE = 0.036  # of the height of the roofline: a line of the list of operators


def draw_profile(run: Run, paths: Sequence[Path]) -> None:
    """Draw the first region of *run* to each of *paths*.

    Raises: UsageError for another suffix than PNG's and SVG's, an unwritable path, no region.
    """
    profile = profiles(run)[0]
    if profile.step_s <= 0:
        raise UsageError("the step took no time: nothing to draw", "profile more steps")
    lines = totals_of(profile, run)
    kept = [shorten(line, 130) for line in (lines[0], *lines[2:5])]
    with figure(paths, title_of(profile, run), kept, [note(run, READING)]) as frame:
        bar, roofline = frame.stack(BAR, ROOFLINE)
        frame.legend(_draw_bar(bar, profile), 11)
        shown = _draw_roofline(roofline, profile, run)
        frame.fit()
        _number(roofline, shown)


def _draw_bar(axes: Any, profile: Profile) -> list[Any]:
    """Draw the step as a horizontal bar of its parts, and return the entries of its legend."""
    from matplotlib.patches import Patch

    left = 0.0
    for name, seconds in profile.parts.items():
        share = seconds / profile.step_s
        if share <= 0:
            continue
        axes.barh(0, share, left=left, height=1.0, color=COLOUR[name], edgecolor="white")
        if share > NARROW:
            centred = {"ha": "center", "va": "center", "fontsize": 10.5}
            colour = INK if name in LIGHT else "white"
            axes.text(left + share / 2, 0, f"{share * 100:.0f} %", color=colour, **centred)
        left += share
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.5, 0.5)
    axes.axis("off")
    shown = [name for name, seconds in profile.parts.items() if seconds > 0]
    return [Patch(color=COLOUR[name], label=name) for name in shown]


def _drawn(profile: Profile) -> list[OperatorRow]:
    return [
        row
        for row in profile.operators
        if row.seconds > 0
        and row.placement is not None
        and row.placement.attained_flop_per_s > 0
        and row.placement.intensity > LEAST_INTENSITY
    ]


def _draw_roofline(axes: Any, profile: Profile, run: Run) -> list[OperatorRow]:
    """Draw the roofs and a bubble for each operator with FLOPs and bytes, and return these."""
    shown = _drawn(profile)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(True, which="major")
    axes.set_xlabel("arithmetic intensity, FLOP/byte of DRAM")
    if not shown:
        text = "no operator has both FLOPs and bytes"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=FAINT)
        return []
    largest = [row for row in shown if row.share >= LEAST_SHOWN]
    shown = largest or shown
    points = _points(shown)
    roofs = run_roofs(run)
    scale, unit = (1e12, "TFLOP/s") if max(y for _, y in points) > 1e12 else (1e9, "GFLOP/s")
    top = max([y for _, y in points] + [r.value for r in roofs if r.kind == "compute"]) * 2.2
    low = min(y for _, y in points) / 3
    # Roofs have their names to the right of all bubbles.
    left, right = min(x for x, _ in points) / 3, max(x for x, _ in points) * 40
    axes.set_xlim(left, right)
    lines = _lines(profile, shown)
    axes.set_ylim(_foot(roofs, low, top, len(lines)), top)
    _draw_roofs(axes, roofs, (left, right), top)
    bubble = {"alpha": 0.75, "edgecolor": "white", "linewidth": 0.8, "zorder": 3}
    for row, (x, y) in zip(shown, points, strict=True):
        area = max(SMALLEST, LARGEST * row.share)
        axes.scatter([x], [y], s=area, color=COLOUR[row.part], **bubble)
    from matplotlib.ticker import FuncFormatter

    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:,g}"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_ylabel(f"attained, {unit}")
    style: dict[str, Any] = {"ha": "right", "fontsize": 8, "color": FAINT, "zorder": 4}
    for i, line in enumerate(reversed(lines)):
        axes.text(0.995, 0.015 + LINE * i, line, transform=axes.transAxes, **style)
    return shown


def _points(shown: Sequence[OperatorRow]) -> list[tuple[float, float]]:
    """Return the place of each operator's bubble: (FLOP/byte, FLOP/s)."""
    placed = [row.placement for row in shown if row.placement]
    return [(each.intensity, each.attained_flop_per_s) for each in placed]


def _lines(profile: Profile, shown: Sequence[OperatorRow]) -> list[str]:
    """Return the legend of the numbered bubbles, and the share of the step without a bubble."""
    lines = [
        f"{i + 1}  {shorten(name_of(row), LONGEST)} of "
        f"{shorten(clean(_operands(row)), LONGEST_SHAPES)}  {row.share * 100:.1f} %"
        for i, row in enumerate(shown[:MOST_LABELS])
        if row.share >= LEAST_LABEL
    ]
    left_out = 1 - sum(row.share for row in shown) - profile.idle_s / profile.step_s
    if left_out > 0.005:
        lines.append(f"{left_out * 100:.0f} % of the step has no FLOPs or bytes, and no place")
    return lines


def _operands(row: OperatorRow) -> str:
    return row.record.operator.operands if row.record.operator else ""


def _foot(roofs: Sequence[Any], low: float, top: float, lines: int) -> float:
    """Return the least FLOP/s of the y axis, with room for *lines* of text below the roofs."""
    levels = [roof.value for roof in roofs if roof.kind == "compute"]
    if not levels or min(levels) >= top:
        return max(low, top / 1e8)
    room = 0.05 + LINE * lines  # of the height; the words of the lowest roof are below it
    level = top / (min(levels) / UNDER)
    return float(max(min(low, top / level ** (1 / (1 - room))), top / 1e8))


def _draw_roofs(axes: Any, roofs: Sequence[Any], ends: tuple[float, float], top: float) -> None:
    """Draw each roof to its ridge; labels of the data sheet are above it, measured ones below."""
    for roof in roofs:
        own = [r for r in roofs if r.origin == roof.origin]
        sheet = roof.origin == "data sheet"
        line: dict[str, Any] = {
            "linestyle": "--" if sheet else "-",
            "color": "#777777" if sheet else INK,
            "linewidth": 1.2,
            "zorder": 2,
        }
        if roof.kind == "memory":
            limit = max((r.value for r in own if r.kind == "compute"), default=top)
            start, end = ends[0], min(ends[1], limit / roof.value)
            axes.plot([start, end], [start * roof.value, end * roof.value], **line)
            words, middle = format_rate(roof.value), start * (end / start) ** 0.62
            place = middle, middle * roof.value
        else:
            memory = max((r.value for r in own if r.kind == "memory"), default=None)
            start = max(ends[0], roof.value / memory) if memory else ends[0]
            if start >= ends[1]:
                continue
            axes.plot([start, ends[1]], [roof.value] * 2, **line)
            words, place = format_flop_rate(roof.value), (ends[1], roof.value)
        axes.annotate(
            f"{roof.label} {words}" + ("" if sheet else ", measured"),
            place,
            fontsize=8,
            color=line["color"],
            xytext=(0, 4 if sheet else -4),
            textcoords="offset points",
            va="bottom" if sheet else "top",
            rotation_mode="anchor",
            ha="right" if roof.kind == "compute" or sheet else "left",
        )


def _number(axes: Any, shown: Sequence[OperatorRow]) -> None:
    """Write a number into each large bubble, or beside it if it would cover another number."""
    from matplotlib.patheffects import withStroke

    pixels = [axes.transData.transform(point) for point in _points(shown)]
    radii = [math.sqrt(max(SMALLEST, LARGEST * s.share) / math.pi) * DPI / 72 for s in shown]
    taken: list[tuple[float, float]] = []
    size = 9 * DPI / 72
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9, "fontweight": "bold"}
    style |= {"zorder": 5, "path_effects": [withStroke(linewidth=2.5, foreground="white")]}
    for i, row in enumerate(shown[:MOST_LABELS]):
        if row.share < LEAST_LABEL:
            continue
        (x, y), reach = pixels[i], radii[i] + size * 0.7
        inside = [(0.0, 0.0)] if radii[i] > size else []
        around = [(math.cos(a), math.sin(a)) for a in (0.0, 3.1, 1.6, 4.7, 0.8, 2.4, 3.9, 5.5)]
        for along, up in inside + around + [(2 * a, 2 * b) for a, b in around]:
            place = x + along * reach, y + up * reach
            if all(math.hypot(place[0] - a, place[1] - b) > size * 1.3 for a, b in taken):
                taken.append(place)
                axes.annotate(str(i + 1), place, xycoords="figure pixels", **style)
                break
