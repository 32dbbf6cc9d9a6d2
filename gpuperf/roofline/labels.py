"""Place labels so that they hide no other label, and as few points and lines as possible.

The algorithm is deterministic and greedy: each label in turn takes the first of its places with the
least cost. A label may not overlap another one or leave the frame, and pays for the points and
lines that it hides; one without a place is left out. All lengths are in pixels, y upwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

Vertex = tuple[float, float]
Shape = tuple[Vertex, ...]  # convex; two vertices are a line


@dataclass(frozen=True)
class Box:
    """A rectangle about a centre, turned by *angle* (radians)."""

    x: float
    y: float
    width: float
    height: float
    angle: float = 0.0

    @cached_property
    def corners(self) -> Shape:
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        halves = ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))
        sides = ((a * self.width, b * self.height) for a, b in halves)
        return tuple((self.x + u * cos - v * sin, self.y + u * sin + v * cos) for u, v in sides)


def overlap(a: Shape, b: Shape) -> bool:
    """Whether two convex shapes overlap (separating axes); two vertices are a line."""
    left, right, low, high = _bounds(a)
    other_left, other_right, other_low, other_high = _bounds(b)
    if right <= other_left or other_right <= left or high <= other_low or other_high <= low:
        return False
    return not any(_apart(a, b, axis) for axis in (*_normals(a), *_normals(b)))


# Cached, as a label is compared with every mark at each of its places.
@lru_cache(maxsize=4096)
def _bounds(shape: Shape) -> tuple[float, float, float, float]:
    """Return the least and greatest x, and the least and greatest y of *shape*."""
    xs, ys = zip(*shape, strict=True)
    return min(xs), max(xs), min(ys), max(ys)


@lru_cache(maxsize=4096)
def _normals(shape: Shape) -> tuple[Vertex, ...]:
    """Return the normals of the sloping edges of *shape*; `_bounds` serves for level ones."""
    edges = zip(shape, (*shape[1:], shape[0]), strict=True)
    return tuple((y0 - y1, x1 - x0) for (x0, y0), (x1, y1) in edges if x0 != x1 and y0 != y1)


def _apart(a: Shape, b: Shape, axis: Vertex) -> bool:
    u = [x * axis[0] + y * axis[1] for x, y in a]
    v = [x * axis[0] + y * axis[1] for x, y in b]
    return max(u) <= min(v) or max(v) <= min(u)


@dataclass(frozen=True)
class Place:
    """A place for a label. `cost` is added to the cost of the marks that the label would hide; a
    label far from its point has the *anchor*, to which a leader line joins it."""

    box: Box
    cost: float = 0.0
    anchor: Vertex | None = None

    @property
    def leader(self) -> tuple[Vertex, Vertex] | None:
        """The line from the anchor to the edge of the box; only level boxes have one."""
        if self.anchor is None:
            return None
        box = self.box
        across, up = self.anchor[0] - box.x, self.anchor[1] - box.y
        reach = max(2 * abs(across) / box.width, 2 * abs(up) / box.height, 1.0)
        return self.anchor, (box.x + across / reach, box.y + up / reach)


@dataclass
class Surface:
    """The drawing area: its frame, its points and lines, the thin upright lines to an axis, and the
    labels placed so far."""

    frame: Box
    marks: list[Shape] = field(default_factory=list)
    lines: list[Shape] = field(default_factory=list)
    drops: list[Shape] = field(default_factory=list)
    labels: list[Box] = field(default_factory=list)
    leaders: list[Shape] = field(default_factory=list)

    def put(self, places: Iterable[Place], most: float = 60.0) -> Place | None:
        """Take the best of *places*; return `None` where each is forbidden or costs over *most*."""
        best, least = None, most
        for place in places:
            if place.cost >= least or not self._free(place):
                continue
            cost = place.cost + self._hidden(place)
            if cost < least:
                best, least = place, cost
                if cost == 0:
                    break
        if best is not None:
            self.labels.append(best.box)
            if best.leader:
                self.leaders.append(best.leader)
        return best

    def _free(self, place: Place) -> bool:
        corners = place.box.corners
        half_w, half_h = self.frame.width / 2, self.frame.height / 2
        inside = all(
            abs(x - self.frame.x) <= half_w and abs(y - self.frame.y) <= half_h for x, y in corners
        )
        return inside and not any(overlap(corners, other.corners) for other in self.labels)

    def _hidden(self, place: Place) -> float:
        """Return the cost of the points and lines that *place* hides."""
        corners = place.box.corners
        marks = sum(overlap(corners, mark) for mark in self.marks)
        lines = sum(overlap(corners, line) for line in (*self.lines, *self.leaders))
        drops = sum(overlap(corners, drop) for drop in self.drops)
        leader = self._crossed(place.leader) if place.leader else 0.0
        return 40.0 * marks + 20.0 * lines + 4.0 * drops + leader

    def _crossed(self, leader: tuple[Vertex, Vertex]) -> float:
        """Return the cost of what a leader crosses, apart from the point or line it starts on."""
        (ax, ay), end = leader
        own = ((ax + 0.12 * (end[0] - ax), ay + 0.12 * (end[1] - ay)), end)
        dear = [*(label.corners for label in self.labels), *self.leaders]
        start = Box(ax, ay, 1, 1).corners
        dear += [mark for mark in self.marks if not overlap(mark, start)]
        return 40.0 * sum(overlap(own, shape) for shape in dear) + 15.0 * sum(
            overlap(own, line) for line in self.lines
        )


# Angles in degrees, above left first: the free side of a sweep that rises to the right.
_DIRECTIONS = (135, 90, 180, 315, 270, 0, 45, 225)


def around(anchor: Vertex, width: float, height: float, near: float) -> Iterator[Place]:
    """Yield places for a label of *width* × *height* about a point: at distance *near*, then
    further off with a leader."""
    for ring, reach in enumerate((near, near * 2.6, near * 4.5, near * 7)):
        for turn, degrees in enumerate(_DIRECTIONS):
            turned = math.radians(degrees)
            right, up = _sign(math.cos(turned)), _sign(math.sin(turned))
            away = reach * 0.8 if right and up else reach
            x = anchor[0] + right * (away + width / 2)
            y = anchor[1] + up * (away + height / 2)
            yield Place(Box(x, y, width, height), ring * 8 + turn * 0.5, anchor if ring else None)


def along(a: Vertex, b: Vertex, width: float, height: float, under: bool) -> Iterator[Place]:
    """Yield places along the line from *a* to *b*, above it first unless *under*: on a level line
    from its right end leftwards, on a slope from its middle outwards."""
    length, angle = math.dist(a, b), math.atan2(b[1] - a[1], b[0] - a[0])
    lift, room = height / 2 + 7, max(0.0, length - width - 12)
    for i, side in enumerate((-1, 1) if under else (1, -1)):
        for step in range(13):
            share = 0.5 + (-1) ** step * step / 26 if angle else 1 - step / 12
            way = length - width / 2 - 6 - (1 - share) * room
            x = a[0] + way * math.cos(angle) - side * lift * math.sin(angle)
            y = a[1] + way * math.sin(angle) + side * lift * math.cos(angle)
            yield Place(Box(x, y, width, height, angle), i * 6 + step * 0.3)


def off(a: Vertex, b: Vertex, width: float, height: float, frame: Box) -> Iterator[Place]:
    """Yield level places in *frame*, with a leader to the nearest point of the line from *a* to
    *b*; near places cost least."""
    for row in range(-9, 10):
        for step in range(25):
            x = frame.x + (step / 24 - 0.5) * (frame.width - width)
            share = min(max((x - a[0]) / (b[0] - a[0]), 0.02), 0.98) if b[0] > a[0] else 0.0
            foot = (a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]))
            y = foot[1] + row * height * 1.25
            aside = abs(x - foot[0]) / width
            yield Place(Box(x, y, width, height), 3 * abs(row) + 30 * aside, foot)


def beside(foot: Vertex, width: float, height: float) -> Iterator[Place]:
    """Yield places at the foot of an upright line, right of it first, then higher."""
    for step in range(10):
        y = foot[1] + 10 + height * (0.5 + 1.3 * step)
        for i, side in enumerate((1, -1)):
            yield Place(Box(foot[0] + side * (width / 2 + 9), y, width, height), step + i * 0.5)


def _sign(value: float) -> float:
    return 0.0 if abs(value) < 1e-9 else math.copysign(1.0, value)
