"""Draw a roofline as the SVG of a page, with one mark for each record that has a place.

A mark has the number of its record's row in the table beside it (`data-r`), and its places in the
other views (`data-modelled`, `data-measured`); the script of the page moves it there. Lines,
intervals and labels are drawn once for each view. Without a script, the first view is visible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuperf.model.record import Record
from gpuperf.roofline.caption import roof_text
from gpuperf.roofline.labels import Box, Place, Surface, along, around, beside, off
from gpuperf.roofline.scene import Scene
from gpuperf.roofline.series import Dot, Series
from gpuperf.show.figure import COLOURS, decades, plain_bytes, plain_number, tick_values
from gpuperf.show.html import text
from gpuperf.show.view import View
from gpuperf.units import format_bytes, format_number

WIDE, TALL = 960.0, 540.0  # user units of the drawing
LEFT, RIGHT, TOP, BOTTOM = 72.0, 26.0, 12.0, 52.0  # margins
LETTER, LINE = 6.9, 16.0  # width of a letter and height of a line of a label
RADIUS, SMALL = 4.5, 3.0  # of a mark, and of one among many
MANY = 400  # marks from which on they are small and round (`r` in page.css)
MOST_LABELS = 24
FEW, MANY_POINTS = 24, 300  # points joined even where the line turns back, and never
MOST_MARKS = 300  # marks that labels avoid; of more, every n-th
MOST_HIDDEN = 34.0  # what a label may hide (see `Surface.put`) before it is left out
SHAPES = (  # around 0 0, of radius 1, in the order of the series
    "",
    "M-.85-.85h1.7v1.7h-1.7z",
    "M0-1.1L1 .8H-1z",
    "M0-1.2L1.1 0 0 1.2-1.1 0z",
    "M0 1.1L1-.8H-1z",
    "M-.35-1h.7v.65h.65v.7h-.65v.65h-.7v-.65h-.65v-.7h.65z",
    "M-1-.6l.4-.4.6.6.6-.6.4.4-.6.6.6.6-.4.4-.6-.6-.6.6-.4-.4.6-.6z",
    "M0-1.1L1.05-.3.65 .9H-.65L-1.05-.3z",
    "M-.55-1h1.1L1.1 0 .55 1h-1.1L-1.1 0z",
    "M-1.1 0L.8-1V1z",
)

Pixel = tuple[float, float]  # y downwards


@dataclass(frozen=True)
class Marked:
    """One record of a series: the number of its row, and its dots by view."""

    row: int
    dots: Mapping[View, Dot]


@dataclass(frozen=True)
class Group:
    """The marks of one series."""

    label: str
    marks: tuple[Marked, ...]


def groups_of(scenes: Mapping[View, Scene], rows: Mapping[int, int]) -> tuple[Group, ...]:
    """Return the series of all *scenes*; *rows* has the row of a record, by its identity."""
    found: dict[str, dict[int, dict[View, Dot]]] = {}
    home: dict[int, str] = {}  # a record stays in the series of the first view
    for view, scene in scenes.items():
        for series in scene.series:
            for dot in series.dots:
                row = rows[id(dot.record)]
                label = home.setdefault(row, series.label)
                found.setdefault(label, {}).setdefault(row, {})[view] = dot
    return tuple(
        Group(label, tuple(Marked(row, dots) for row, dots in marks.items()))
        for label, marks in found.items()
    )


class Drawing:
    """The SVG of *scenes*, all with one pair of axes; the first one is visible without a script."""

    def __init__(self, scenes: Mapping[View, Scene], groups: Sequence[Group]) -> None:
        self.scenes, self.groups = scenes, groups
        self.first: View = next(iter(scenes))
        every = [series for scene in scenes.values() for series in scene.series]
        self.whole = replace(scenes[self.first], series=tuple(every))
        self.x_limits, self.y_limits = self.whole.limits()
        self.many = sum(len(group.marks) for group in groups) > MANY
        self.radius = SMALL if self.many else RADIUS
        self.roof_labels: list[Box] = []
        self.numbers = {
            id(dot.record): number
            for number, group in enumerate(groups)
            for mark in group.marks
            for dot in mark.dots.values()
        }

    def svg(self) -> str:
        """Return the drawing as one element."""
        return "\n".join(
            (
                f'<svg viewBox="0 0 {WIDE:g} {TALL:g}" class="v-{self.first}" role=img '
                f'aria-label="{text(self._summary())}">',
                *self._frame(),
                *self._roofs(),
                *(self._layer(view) for view in self.scenes),
                *(self._group(number, group) for number, group in enumerate(self.groups)),
                *(self._labels(view) for view in self.scenes),
                "</svg>",
            )
        )

    def _summary(self) -> str:
        marks = sum(len(group.marks) for group in self.groups)
        return f"{self.whole.title}: {marks} points; the table below has their figures"

    def place(self, x: float, y: float) -> Pixel:
        """Return the place of (x, y), both in the units of the axes."""
        (x0, x1), (y0, y1) = self.x_limits, self.y_limits
        across = math.log(x / x0) / math.log(x1 / x0)
        up = math.log(y / y0) / math.log(y1 / y0)
        return (LEFT + across * (WIDE - LEFT - RIGHT), TALL - BOTTOM - up * (TALL - TOP - BOTTOM))

    def _at(self, dot: Dot) -> Pixel:
        return self.place(dot.x, dot.y / self.whole.unit[0])

    def _frame(self) -> Iterator[str]:
        roofline = self.whole.kind == "roofline"
        low, high = TALL - BOTTOM, TOP
        lines, words = [], []
        for x in _ticks(self.x_limits, 3.3):
            at = self.place(x, self.y_limits[0])[0]
            lines.append(f"M{at:.1f} {low:g}V{high:g}")
            name = plain_number(x) if roofline else plain_bytes(x)
            words.append(f'<text x="{at:.1f}" y="{low + 18:g}" class=mid>{name}</text>')
        for y in _ticks(self.y_limits, 2.2):
            at = self.place(self.x_limits[0], y)[1]
            lines.append(f"M{LEFT:g} {at:.1f}H{WIDE - RIGHT:g}")
            words.append(
                f'<text x="{LEFT - 8:g}" y="{at + 4:.1f}" class=end>{plain_number(y)}</text>'
            )
        yield f'<path class=grid d="{"".join(lines)}"/>'
        yield f"<g class=tick>{''.join(words)}</g>"
        x_name = "arithmetic intensity (FLOP/byte)" if roofline else "bytes of a call"
        y_name = f"{'performance' if roofline else 'bandwidth'} ({self.whole.unit[1]})"
        middle = (WIDE + LEFT - RIGHT) / 2
        yield f'<text class="axis mid" x="{middle:g}" y="{TALL - 8:g}">{x_name}</text>'
        half = (TALL - BOTTOM + TOP) / 2
        yield (
            f'<text class="axis mid" transform="translate(16 {half:g}) rotate(-90)">{y_name}</text>'
        )

    def _roofs(self) -> Iterator[str]:
        surface = self._surface(self.first)
        drawn, late = [], []
        for roof in self.whole.roofs:
            ends = self.whole.ends(roof)
            (x0, y0), (x1, y1) = a, b = self.place(*ends[0]), self.place(*ends[1])
            kind = "sheet" if roof.origin == "data sheet" else "known"
            clock = f" at {roof.clock_hz / 1e6:.0f} MHz" if roof.clock_hz else ""
            words = f"{roof_text(roof)}, {roof.origin}{clock}"
            yield f'<path class="roof {kind}" d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"/>'
            size, line = _size(words), (_flip(a), _flip(b))
            under = roof.origin != "data sheet"
            if place := surface.put(along(*line, *size, under), MOST_HIDDEN):
                drawn.append((words, place))
            else:
                late.append((words, line, size))
        for words, line, size in late:
            if place := surface.put(off(*line, *size, surface.frame), math.inf):
                drawn.append((words, place))
        drops = [(x, y / self.whole.unit[0], "ridge point") for x, y in self.whole.ridges()]
        if self.whole.l2_bytes:
            name = f"L2, {format_bytes(self.whole.l2_bytes)}"
            drops.append((self.whole.l2_bytes, self.y_limits[1], name))
        for x, y, name in drops:
            if self.x_limits[0] < x < self.x_limits[1]:
                (at, top), low = self.place(x, y), TALL - BOTTOM
                yield f'<path class=drop d="M{at:.1f} {low:g}V{top:.1f}"/>'
                words = f"{format_number(x)} FLOP/byte" if name == "ridge point" else name
                if place := surface.put(beside((at, -low), *_size(words))):
                    drawn.append((words, place))
        self.roof_labels = list(surface.labels)
        yield f"<g class=name>{''.join(_label(words, place) for words, place in drawn)}</g>"

    def _surface(self, view: View) -> Surface:
        """Return the area for labels, in pixels with y upwards, with the marks of *view*."""
        frame = Box(
            (LEFT + WIDE - RIGHT) / 2,
            -(TOP + TALL - BOTTOM) / 2,
            WIDE - LEFT - RIGHT - 6,
            TALL - TOP - BOTTOM - 6,
        )
        surface = Surface(frame, labels=list(self.roof_labels))
        for roof in self.whole.roofs:
            a, b = (self.place(*end) for end in self.whole.ends(roof))
            surface.lines.append((_flip(a), _flip(b)))
        dots = self.scenes[view].dots
        side = 2 * self.radius + 3
        for dot in dots[:: max(1, len(dots) // MOST_MARKS)]:
            x, y = self._at(dot)
            surface.marks.append(Box(x, -y, side, side).corners)
        return surface

    def _layer(self, view: View) -> str:
        """Return the lines and the intervals of *view*, below the marks."""
        parts = []
        for series in self.scenes[view].series:
            number = self.numbers[id(series.dots[0].record)]
            colour = number % len(COLOURS)
            parts.append(f'<g class="c{colour}" data-s="{number}">{self._lines(series)}</g>')
        return f'<g class="layer {view}">{"".join(parts)}</g>'

    def _lines(self, series: Series) -> str:
        lines = []
        for part in series.stretches():
            places = [self._at(dot) for dot in part]
            if not 1 < len(places) < MANY_POINTS:
                continue  # the marks of so many touch each other
            if len(places) <= FEW or places == sorted(places):
                lines.append("M" + "L".join(map(self._text, places)))
        bars = []
        for dot in series.dots:
            x, low = self.place(dot.x, max(dot.low / self.whole.unit[0], self.y_limits[0]))
            high = self.y_limits[1] if dot.high is None else dot.high / self.whole.unit[0]
            top = self.place(dot.x, min(high, self.y_limits[1]))[1]
            if low - top > 2 * self.radius:
                bars.append(f"M{x - 3:.1f} {low:.1f}h6m-3 0V{top:.1f}m-3 0h6")
        return "".join(
            f'<path class={kind} d="{"".join(drawn)}"/>'
            for kind, drawn in (("line", lines), ("err", bars))
            if drawn
        )

    def _group(self, number: int, group: Group) -> str:
        """Return the marks of one series, the doubtful ones apart."""
        parts: dict[bool, list[str]] = {False: [], True: []}
        for mark in group.marks:
            doubtful = any(dot.doubts for dot in mark.dots.values())
            parts[doubtful].append(self._mark(number, mark))
        colour = number % len(COLOURS)
        kinds = {False: f"marks c{colour}", True: f"marks doubt c{colour}"}
        return "".join(
            f'<g class="{kinds[doubtful]}" data-s="{number}">{"".join(marks)}</g>'
            for doubtful, marks in parts.items()
            if marks
        )

    def _mark(self, number: int, mark: Marked) -> str:
        places = {view: self._at(dot) for view, dot in mark.dots.items()}
        others = "".join(
            f' data-{view}="{self._text(place)}"'
            for view, place in places.items()
            if view != self.first
        )
        place = self._text(places.get(self.first, (0.0, 0.0)))
        kind = "" if self.first in places else " class=absent"
        data = f"{kind} data-r={mark.row}{others} />"
        shape = "" if self.many else SHAPES[number % len(SHAPES)]
        if not shape:
            x, y = place.split()
            return f"<circle cx={x} cy={y}{'' if self.many else f' r={RADIUS:g}'}{data}"
        return f'<path d="{shape}" transform="translate({place})scale({self.radius:g})"{data}'

    def _text(self, place: Pixel) -> str:
        """Write *place*, among many marks in whole units, which are a third of a mark."""
        digits = 0 if self.many else 1
        return " ".join(f"{round(value, digits):g}" for value in place)

    def _labels(self, view: View) -> str:
        if self.many:
            return ""  # few of their names would have a place
        surface, words = self._surface(view), []
        for dot in self.scenes[view].labelled(MOST_LABELS):
            width, height = _size(dot.label)
            x, y = self._at(dot)
            place = surface.put(around((x, -y), width, height, self.radius + 4), MOST_HIDDEN)
            if place is not None:
                words.append(_label(dot.label, place))
        return f'<g class="layer point {view}">{"".join(words)}</g>'


def swatch(number: int, many: bool = False) -> str:
    """Return a small SVG with the mark of the series *number*; among *many* marks all are round."""
    shape = "" if many else SHAPES[number % len(SHAPES)]
    mark = f'<path d="{shape}" transform="scale(5)"/>' if shape else '<circle r="5"/>'
    return (
        f'<svg viewBox="-7 -7 14 14" class="swatch c{number % len(COLOURS)}" aria-hidden=true>'
        f"{mark}</svg>"
    )


def record_rows(records: Sequence[Record]) -> dict[int, int]:
    """Return the number of each record by its identity."""
    return {id(record): number for number, record in enumerate(records)}


def _ticks(ends: tuple[float, float], most: float) -> list[float]:
    return tick_values(*ends, (1, 2, 5) if decades(*ends) <= most else (1,))


def _size(words: str) -> tuple[float, float]:
    return len(words) * LETTER + 4, LINE


def _flip(place: Pixel) -> Pixel:
    return place[0], -place[1]


def _label(words: str, place: Place) -> str:
    """Write *words* at *place*, whose y is upwards, with its leader."""
    x, y, turn = place.box.x, -place.box.y, -math.degrees(place.box.angle)
    leader = ""
    if place.leader:
        (ax, ay), (bx, by) = place.leader
        leader = f'<path class=leader d="M{ax:.1f} {-ay:.1f}L{bx:.1f} {-by:.1f}"/>'
    turned = f" rotate({turn:.1f})" if turn else ""
    return (
        f'{leader}<text class=mid transform="translate({x:.1f} {y:.1f}){turned}" dy=4>'
        f"{text(words)}</text>"
    )
