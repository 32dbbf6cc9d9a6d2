"""Draw a roofline on a terminal.

plotext keeps its figure in a global, which is cleared before and after. Points differ by letter and
roofs are named in a legend under the plot, so it can be read without colour and in ASCII.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterator
from typing import Any

from gpuperf.model.record import Run
from gpuperf.roofline.caption import roof_text
from gpuperf.roofline.scene import Scene, scene
from gpuperf.roofline.series import DRAM
from gpuperf.roofline.study import Roof
from gpuperf.show.text import to_ascii
from gpuperf.show.view import View
from gpuperf.units import format_bytes, format_number

NARROWEST, LOWEST = 40, 10  # columns and lines of the smallest plot that can be read
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
COLOURS = ("blue+", "orange+", "green+", "magenta+", "cyan+", "red+")
ROOF_DOTS = {"data sheet": "-", "measured": "=", "power limit": "~"}


def terminal_roofline(
    run: Run,
    width: int = 100,
    height: int = 20,
    color: bool = False,
    ascii: bool = False,
    view: View = "compulsory",
    brief: bool = False,
) -> str:
    """Render the roofline of *run*, a plot of *height* lines with a legend under it.

    A *brief* one is for below a table, which has its title and its contract.

    Raises: UsageError when there is nothing to draw.
    """
    shown = scene(run, view)
    plot = _plot(shown, max(width, NARROWEST), max(height, LOWEST), color)
    legend = _brief_legend(shown) if brief else (*_legend(shown), shown.subtitle)
    wrapped = (
        textwrap.wrap(line, max(width, NARROWEST), subsequent_indent="    ") for line in legend
    )
    title = [] if brief else textwrap.wrap(shown.title, width)
    lines = [*title, *plot, *itertools.chain(*wrapped)]
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return to_ascii(text) if ascii else text


def _plot(shown: Scene, width: int, height: int, color: bool) -> list[str]:
    import plotext as plt

    plt.clf()
    try:
        plt.theme("clear")
        # Otherwise plotext shrinks the figure to the size of the terminal that it detects.
        plt.limit_size(False, False)
        plt.plot_size(width, height)
        x_limits, y_limits = shown.limits()
        plt.xlim(*map(math.log10, x_limits))
        plt.ylim(*map(math.log10, y_limits))
        _ticks(plt, shown)
        for roof in shown.roofs:
            xs, ys = _line(shown, roof, width * 2)
            plt.scatter(xs, ys, marker=ROOF_DOTS[roof.origin])
        # Where levels of a hierarchy coincide, DRAM's letter stays: it is drawn last.
        for i, series in sorted(enumerate(shown.series), key=lambda each: each[1].level == DRAM):
            letter, shade = LETTERS[i % len(LETTERS)], COLOURS[i % len(COLOURS)]
            # One call draws successive dots that look alike; later dots cover earlier ones.
            for doubted, dots in itertools.groupby(series.dots, lambda dot: bool(dot.doubts)):
                alike = list(dots)
                xs = [math.log10(d.x) for d in alike]
                ys = [math.log10(d.y / shown.unit[0]) for d in alike]
                plt.scatter(xs, ys, marker=letter.lower() if doubted else letter, color=shade)
        built = str(plt.build())
        return (built if color else str(plt.uncolorize(built))).rstrip("\n").split("\n")
    finally:
        plt.clf()


def _ticks(plt: Any, shown: Scene) -> None:
    (x_limits, y_limits), roofline = shown.limits(), shown.kind == "roofline"
    for ends, put, text in (
        (x_limits, plt.xticks, _number if roofline else _bytes),
        (y_limits, plt.yticks, _number),
    ):
        powers = range(math.ceil(math.log10(ends[0])), math.floor(math.log10(ends[1])) + 1)
        values = [10.0**p for p in powers]
        if len(values) < 3:
            values = [v * f for v in (10.0 ** (powers.start - 1), *values) for f in (1, 2, 5)]
            values = [v for v in values if ends[0] <= v <= ends[1]]
        put([math.log10(v) for v in values], [text(v) for v in values])
    unit = shown.unit[1]
    plt.xlabel("FLOP/byte" if roofline else "bytes per call")
    plt.ylabel(unit)


def _number(value: float) -> str:
    return format_number(value, 1)


def _bytes(value: float) -> str:
    number, unit = format_bytes(value).split(" ")
    return f"{float(number):g} {unit}"


def _line(shown: Scene, roof: Roof, count: int) -> tuple[list[float], list[float]]:
    """Return the x and the y of *count* points along a roof, as base-10 logarithms."""
    (x0, y0), (x1, y1) = shown.ends(roof)
    shares = [i / (count - 1) for i in range(count)]
    lx, ly = (math.log10(x0), math.log10(x1)), (math.log10(y0), math.log10(y1))
    return (
        [lx[0] + s * (lx[1] - lx[0]) for s in shares],
        [ly[0] + s * (ly[1] - ly[0]) for s in shares],
    )


def _brief_legend(shown: Scene) -> Iterator[str]:
    """Yield a line for the roofs of each origin, then one for the series."""
    ridges = [f"ridge {format_number(x)} FLOP/byte" for x, _ in shown.ridges()][:1]
    for origin, dot in ROOF_DOTS.items():
        roofs = [roof_text(roof) for roof in shown.roofs if roof.origin == origin]
        if roofs:
            yield f"{dot * 2}  {origin}: {', '.join([*roofs, *ridges])}"
            ridges = []
    named = [f"{LETTERS[i % len(LETTERS)]} {s.label}" for i, s in enumerate(shown.series)]
    doubts = f"small letters: {', '.join(shown.doubts)}" if shown.doubts else ""
    yield "; ".join(filter(None, (", ".join(named), doubts)))


def _legend(shown: Scene) -> Iterator[str]:
    for roof in shown.roofs:
        yield f"{ROOF_DOTS[roof.origin] * 2}  {roof_text(roof)} ({roof.origin})"
    if not shown.roofs:
        yield "no roofs: no ceilings are known for this device"
    for x, _ in shown.ridges():
        yield f"    ridge {format_number(x)} FLOP/byte"
    for i, series in enumerate(shown.series):
        sizes = list(dict.fromkeys(d.label for d in series.dots if d.label))
        extent = [sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"] if sizes else []
        yield f"{LETTERS[i % len(LETTERS)]}   {', '.join([series.label, *extent])}"
    if shown.doubts:
        yield f"abc small letters: {', '.join(shown.doubts)}"
    if shown.missing:
        yield f"    not drawn: {shown.missing}"
