"""Draw a scene as a figure: axes, roofs, points and their labels.

All layout is in pixels of the figure at `DPI` and is handed to matplotlib in fractions, so PNG and
SVG look alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gpuperf.roofline.caption import roof_text
from gpuperf.roofline.labels import Box, Place, Surface, Vertex, along, around, beside, off
from gpuperf.roofline.scene import Scene
from gpuperf.roofline.series import DRAM, Dot, Series
from gpuperf.roofline.study import Roof
from gpuperf.show.figure import (
    COLOURS,
    DPI,
    FAINT,
    INK,
    MARKERS,
    Frame,
    decades,
    plain_bytes,
    plain_number,
    tick_values,
)
from gpuperf.units import format_bytes, format_number

if TYPE_CHECKING:
    from matplotlib.text import Text


HEIGHT = 4.4  # of the axes, in inches
MARKER = 8.0  # size of a marker in points
TICKS, WORDS = 11.0, 10.5  # font sizes in points
SHEET_LINE, MEASURED_LINE = "#777777", INK
MOST_LABELS = 24
MOST_HIDDEN = 34.0  # what a label may hide (see `Surface.put`) before it is left out
MOST_OFF = 14.0  # what a label on its roof may hide before it moves beside the roof
COINCIDENT = 8.0  # pixels: two points so near look like one
SHORTEST = 1.2 * MARKER * DPI / 72  # pixels: a shorter arrow would lie under its marker
TURNS = ("-", "--", "-.", ":")
LEVEL_MARKERS = {
    DRAM: ("o", 6.0),
    "L2": ("s", 8.5),
    "L1": ("^", 9.0),
}  # marker and its size in points


class Canvas:
    """The figure of a roofline chart while it is drawn."""

    def __init__(self, scene: Scene, frame: Frame) -> None:
        self.scene = scene
        self.frame = frame
        self.figure, self.renderer = frame.figure, frame.renderer
        self.x_limits, self.y_limits = scene.limits()
        self.texts: list[Text] = []
        self.surface = Surface(Box(0, 0, 0, 0))

    def draw(self) -> None:
        """Draw everything inside the frame."""
        self._lay_out()
        self._draw_roofs()
        self._draw_series()
        self._draw_labels()

    def _lay_out(self) -> None:
        self.frame.legend(self._handles(), 5, WORDS)
        (self.axes,) = self.frame.stack(HEIGHT)
        self._scale()
        self.frame.fit()
        frame = self.axes.get_window_extent(self.renderer)
        centre = ((frame.x0 + frame.x1) / 2, (frame.y0 + frame.y1) / 2)
        self.surface = Surface(Box(*centre, frame.width - 8, frame.height - 8))

    def _handles(self) -> list[Any]:
        from matplotlib.lines import Line2D

        handles = [
            Line2D([], [], label=series.label, **self._look(series)) for series in self.scene.series
        ]
        if self.scene.doubts:
            hollow = Line2D(
                [],
                [],
                linestyle="none",
                marker="o",
                markerfacecolor="white",
                markeredgecolor=INK,
                markersize=MARKER,
            )
            where = f", {DRAM}" if self.scene.view == "hierarchy" else ""
            hollow.set_label(f"hollow{where}: {', '.join(self.scene.doubts)}")
            handles.append(hollow)
        return handles

    def _look(self, series: Series) -> dict[str, Any]:
        """Colour, marker and line by the series' group; of a hierarchy the marker by its level."""
        i = series.group
        colour = COLOURS[i % len(COLOURS)]
        look = {
            "color": colour,
            "marker": MARKERS[i % len(MARKERS)],
            "markersize": MARKER,
            "linewidth": 1.6,
            "linestyle": TURNS[i // len(COLOURS) % len(TURNS)],
            "markerfacecolor": colour,
            "markeredgecolor": colour,
            "markeredgewidth": 1.4,
        }
        if series.level:
            # One record has a point for each level at one height: the line that joins them is
            # thin, and where two coincide, the larger, open marker of a cache shows around DRAM's.
            marker, size = LEVEL_MARKERS[series.level]
            look |= {
                "marker": marker,
                "markersize": size,
                "markeredgewidth": 1.2,
                "linewidth": 1.0,
                "linestyle": TURNS[i % len(TURNS)],
            }
            look |= {} if series.level == DRAM else {"markerfacecolor": "none"}
        return look

    def _scale(self) -> None:
        from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

        axes, scene = self.axes, self.scene
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(*self.x_limits)
        axes.set_ylim(*self.y_limits)
        roofline = scene.kind == "roofline"
        sides = (
            (axes.xaxis, self.x_limits, 3.3, plain_number if roofline else plain_bytes),
            (axes.yaxis, self.y_limits, 2.2, plain_number),
        )
        for axis, ends, most, text in sides:
            ticks = tick_values(*ends, (1, 2, 5) if decades(*ends) <= most else (1,))
            axis.set_major_locator(FixedLocator(ticks))
            axis.set_major_formatter(FixedFormatter([text(t) for t in ticks]))
            axis.set_minor_locator(FixedLocator(tick_values(*ends, range(1, 10))))
            axis.set_minor_formatter(NullFormatter())
        axes.grid(which="major", linewidth=0.8)
        axes.tick_params(labelsize=TICKS)
        axes.set_xlabel(
            "arithmetic intensity (FLOP/byte)" if roofline else "bytes read and written by a call",
            fontsize=12,
        )
        y_name = "performance" if roofline else "bandwidth"
        axes.set_ylabel(f"{y_name} ({scene.unit[1]})", fontsize=12)

    def _draw_roofs(self) -> None:
        """Draw the roofs, their ridge points, and the size of the L2 in a bandwidth scene."""
        for roof in self.scene.roofs:
            (x0, y0), (x1, y1) = self.scene.ends(roof)
            dashed = roof.origin == "data sheet"
            dots = (0, (1, 2)) if roof.origin == "power limit" else "-"
            self.axes.plot(
                [x0, x1],
                [y0, y1],
                color=SHEET_LINE if dashed else MEASURED_LINE,
                linewidth=1.8,
                linestyle=(0, (6, 3)) if dashed else dots,
                zorder=2,
            )
            self.surface.lines.append(self._ends(roof))
        for x, y in self.scene.ridges():
            self._drop(x, y / self.scene.unit[0])
        if self.scene.l2_bytes:
            self._drop(self.scene.l2_bytes, self.y_limits[1])

    def _drop(self, x: float, y: float) -> None:
        if not self.x_limits[0] < x < self.x_limits[1]:
            return
        base = self.y_limits[0]
        self.axes.plot([x, x], [base, y], color=FAINT, linewidth=1.2, linestyle=":", zorder=1.5)
        if self.scene.kind == "roofline":
            self.axes.plot([x], [y], marker="o", markersize=5, color=INK, zorder=2.5)
        self.surface.drops.append((self._pixel(x, base), self._pixel(x, y)))

    def _draw_series(self) -> None:
        for series in self.scene.series:
            look = self._look(series)
            line = {k: look[k] for k in ("color", "linewidth", "linestyle")}
            scale = self.scene.unit[0]
            for part in series.stretches():
                points = [(d.x, d.y / scale) for d in part]
                self.axes.plot(*zip(*points, strict=True), **line, alpha=0.55, zorder=3)
                self.surface.lines += list(pairwise(self._pixel(x, y) for x, y in points))
            marker = {k: v for k, v in look.items() if k.startswith("marker")}
            for dot in series.dots:
                if dot.span:
                    self.axes.plot(dot.span, [dot.y / scale] * 2, **line, alpha=0.55, zorder=3)
                self._arrow(dot, look["color"])
                hollow = dot.doubts and series.level in ("", DRAM)
                face = {"markerfacecolor": "white"} if hollow else {}
                self.axes.plot(
                    [dot.x],
                    [dot.y / scale],
                    linestyle="none",
                    **(marker | face),
                    zorder=4.5 if series.level == DRAM else 4,
                )
            self._bars(series, look["color"])
            self._note_marks(series)

    def _arrow(self, dot: Dot, colour: str) -> None:
        start, end = self._foot(dot), (dot.x, dot.y / self.scene.unit[0])
        if start == end:
            return
        self.axes.annotate(
            "",
            end,
            start,
            zorder=3.2,
            arrowprops={
                "arrowstyle": "-|>",
                "color": colour,
                "linewidth": 1.4,
                "shrinkA": 0,
                "shrinkB": MARKER / 2,
            },
        )
        level = self.scene.kind == "roofline"
        self.axes.plot(
            *start,
            marker="|" if level else "o",
            markersize=MARKER if level else 3,
            color=colour,
            zorder=3.2,
        )
        foot, head = self._pixel(*start), self._pixel(*end)
        across, up = head[0] - foot[0], head[1] - foot[1]
        side = MARKER * DPI / 72 + 3
        middle = ((foot[0] + head[0]) / 2, (foot[1] + head[1]) / 2)
        box = Box(*middle, math.hypot(across, up) + side, side, math.atan2(up, across))
        self.surface.marks.append(box.corners)

    def _foot(self, dot: Dot) -> tuple[float, float]:
        """Return the start of the arrow to *dot*, y in the scene's unit, or the dot itself."""
        scale = self.scene.unit[0]
        start, end = dot.start or (dot.x, dot.y), (dot.x, dot.y / scale)
        start = (start[0], start[1] / scale)
        far = math.dist(self._pixel(*start), self._pixel(*end)) >= SHORTEST
        return start if far else end

    def _bars(self, series: Series, colour: str) -> None:
        scale, edge = self.scene.unit[0], self.y_limits[1]
        for dot in series.dots:
            low = dot.low / scale
            high = dot.high / scale if dot.high is not None else edge
            tall = self._pixel(dot.x, high)[1] - self._pixel(dot.x, low)[1]
            if tall > MARKER * DPI / 72:
                self.axes.plot(
                    [dot.x, dot.x],
                    [low, min(high, edge)],
                    color=colour,
                    linewidth=1.4,
                    marker="_",
                    markersize=6,
                    zorder=3.5,
                )
                ends = (self._pixel(dot.x, low), self._pixel(dot.x, min(high, edge)))
                self.surface.marks.append(ends)

    def _note_marks(self, series: Series) -> None:
        places = [self._pixel(d.x, d.y / self.scene.unit[0]) for d in series.dots]
        side = MARKER * DPI / 72 + 3
        self.surface.marks += [Box(x, y, side, side).corners for x, y in places]

    def _pixel(self, x: float, y: float) -> Vertex:
        place = self.axes.transData.transform((x, y))
        return float(place[0]), float(place[1])

    def _draw_labels(self) -> None:
        # A roof's label without a free place on its line is placed after the labels of points,
        # beside the roof with a leader line: every roof has a label.
        late = []
        for texts, roof in self._roof_labels():
            if not any(self._put(text, self._along(text, roof), MOST_OFF) for text in texts):
                late.append((texts[-1], roof))
        for x, text in self._drops():
            foot = self._pixel(x, self.y_limits[0])
            self._put(text, beside(foot, *self.frame.size(text, WORDS)))
        self._label_points()
        for text, roof in late:
            line, frame = self._ends(roof), self.surface.frame
            self._put(text, off(*line, *self.frame.size(text, WORDS), frame), math.inf)

    def _along(self, text: str, roof: Roof) -> Iterator[Place]:
        # A measured roof lies under the data sheet's, so its words go below.
        under = roof.origin != "data sheet" and any(
            r.kind == roof.kind and r.origin != roof.origin for r in self.scene.roofs
        )
        return along(*self._ends(roof), *self.frame.size(text, WORDS), under)

    def _ends(self, roof: Roof) -> tuple[Vertex, Vertex]:
        (x0, y0), (x1, y1) = self.scene.ends(roof)
        return self._pixel(x0, y0), self._pixel(x1, y1)

    def _label_points(self) -> None:
        # Only the labels of points, at the ends of a hierarchy's thin lines, avoid these lines.
        scale = self.scene.unit[0]
        self.surface.lines += [
            tuple(self._pixel(x, dot.y / scale) for x in dot.span)
            for dot in self.scene.dots
            if dot.span
        ]
        for anchor, text in self._point_labels():
            width, height = self.frame.size(text, WORDS)
            self._put(text, around(anchor, width + 4, height + 2, MARKER * DPI / 144 + 6))

    def _point_labels(self) -> Iterator[tuple[Vertex, str]]:
        """Yield the place and the label of points; in a hierarchy, which leaves little room, points
        that coincide have one label."""
        groups: list[tuple[Vertex, set[str]]] = []
        for dot in self.scene.labelled(MOST_LABELS):
            # Arrows to measured bytes end close together under a roof, and begin apart.
            foot = self.scene.view == "both"
            place = self._foot(dot) if foot else (dot.x, dot.y / self.scene.unit[0])
            anchor = self._pixel(*place)
            near = [names for at, names in groups if math.dist(at, anchor) < COINCIDENT]
            if near and dot.span:
                near[0].add(dot.label)
            else:
                groups.append((anchor, {dot.label}))
        order = list(dict.fromkeys(dot.label for dot in self.scene.dots))
        for anchor, names in groups:
            labels = sorted(names, key=order.index)
            text = ", ".join(labels) if len(labels) < 3 else f"{labels[0]} to {labels[-1]}"
            yield anchor, text

    def _put(self, text: str, places: Iterator[Place], most: float = MOST_HIDDEN) -> bool:
        """Write *text* at the best of *places*, and return whether there was one."""
        place = self.surface.put(places, most)
        if place is None:
            return False
        to_axes = self.axes.transAxes.inverted()
        x, y = to_axes.transform((place.box.x, place.box.y))
        label = self.axes.text(
            x,
            y,
            text,
            transform=self.axes.transAxes,
            fontsize=WORDS,
            ha="center",
            va="center",
            rotation=math.degrees(place.box.angle),
            rotation_mode="anchor",
            zorder=6,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.6},
        )
        self.texts.append(label)
        if place.leader:
            ends = to_axes.transform(place.leader)
            self.axes.plot(
                ends[:, 0],
                ends[:, 1],
                transform=self.axes.transAxes,
                color=FAINT,
                linewidth=0.8,
                zorder=3.2,
            )
        return True

    def _roof_labels(self) -> Iterator[tuple[list[str], Roof]]:
        """Yield a label for roofs that coincide: `bf16 tensor, fp16 tensor 989 TFLOP/s (…)`, with
        the clock, and without it for want of room."""
        groups: dict[tuple[str, float, str], list[Roof]] = {}
        for roof in self.scene.roofs:
            groups.setdefault((roof.kind, roof.value, roof.origin), []).append(roof)
        for (_, _, origin), group in groups.items():
            names = [r.label for r in group[:-1]]
            name = ", ".join([*names, roof_text(group[-1])])
            clock = self.scene.clock(group[-1])
            full = [f"{name} ({origin}, at {clock / 1e6:.0f} MHz)"] if clock else []
            needed = origin == "power limit"  # its clock is what it says
            yield full if needed else [*full, f"{name} ({origin})"], group[-1]

    def _drops(self) -> Iterator[tuple[float, str]]:
        for x, _ in self.scene.ridges():
            if self.x_limits[0] < x < self.x_limits[1]:
                yield x, f"ridge {format_number(x)} FLOP/byte"
        l2 = self.scene.l2_bytes
        if l2 and self.x_limits[0] < l2 < self.x_limits[1]:
            yield l2, f"L2 {format_bytes(l2)}"
