"""Where do labels go, so that none hides another, a point or a line?

Deterministic and greedy: each label in turn takes the first of its places that costs the least.
Lying on another label or leaving the frame is forbidden, lying on a point or a line costs. A label
that finds no place is left out. All in pixels, y upwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["Box", "Place", "Surface", "Vertex", "around", "overlap"]

Vertex = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle about a centre, turned by *angle* (radians)."""

    x: float
    y: float
    width: float
    height: float
    angle: float = 0.0

    @property
    def corners(self) -> tuple[Vertex, ...]:
        """Its corners, in order."""
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        halves = ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))
        sides = ((a * self.width, b * self.height) for a, b in halves)
        return tuple((self.x + u * cos - v * sin, self.y + u * sin + v * cos) for u, v in sides)


def overlap(a: Sequence[Vertex], b: Sequence[Vertex]) -> bool:
    """Whether two convex shapes overlap (separating axes); two vertices are a line."""
    if _apart(a, b, (1.0, 0.0)) or _apart(a, b, (0.0, 1.0)):
        return False
    return not any(_apart(a, b, axis) for axis in (*_normals(a), *_normals(b)))


def _normals(shape: Sequence[Vertex]) -> Iterator[Vertex]:
    for (x0, y0), (x1, y1) in zip(shape, (*shape[1:], shape[0]), strict=True):
        if (x0, y0) != (x1, y1):
            yield (y0 - y1, x1 - x0)


def _apart(a: Sequence[Vertex], b: Sequence[Vertex], axis: Vertex) -> bool:
    u = [x * axis[0] + y * axis[1] for x, y in a]
    v = [x * axis[0] + y * axis[1] for x, y in b]
    return max(u) <= min(v) or max(v) <= min(u)


@dataclass(frozen=True)
class Place:
    """Somewhere a label may go, what that costs beside what it would hide, and whether it is so far
    off that a leader must join it to *anchor*."""

    box: Box
    cost: float = 0.0
    anchor: Vertex | None = None


@dataclass
class Surface:
    """The drawing area: its frame, what stands in it, and the labels placed so far."""

    frame: Box
    marks: list[tuple[Vertex, ...]] = field(default_factory=list)
    lines: list[tuple[Vertex, ...]] = field(default_factory=list)
    labels: list[Box] = field(default_factory=list)
    leaders: list[tuple[Vertex, ...]] = field(default_factory=list)

    def put(self, places: Iterable[Place], most: float = 60.0) -> Place | None:
        """The best of *places*, taken from now on; `None` where each is forbidden or costs over
        *most*."""
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
            if best.anchor:
                self.leaders.append((best.anchor, (best.box.x, best.box.y)))
        return best

    def _free(self, place: Place) -> bool:
        corners = place.box.corners
        half_w, half_h = self.frame.width / 2, self.frame.height / 2
        inside = all(
            abs(x - self.frame.x) <= half_w and abs(y - self.frame.y) <= half_h for x, y in corners
        )
        return inside and not any(overlap(corners, other.corners) for other in self.labels)

    def _hidden(self, place: Place) -> float:
        """The cost of what *place* hides: points dearly, lines less."""
        corners = place.box.corners
        marks = sum(overlap(corners, mark) for mark in self.marks)
        lines = sum(overlap(corners, line) for line in (*self.lines, *self.leaders))
        crossed = 0
        if place.anchor:
            leader = (place.anchor, (place.box.x, place.box.y))
            crossed = sum(overlap(leader, other.corners) for other in self.labels)
            crossed += sum(overlap(leader, other) for other in self.leaders)
        return 40.0 * marks + 12.0 * lines + 40.0 * crossed


# Above left first: in a roofline the free side of a sweep that climbs to the right.
_DIRECTIONS = (135, 90, 180, 315, 270, 0, 45, 225)


def around(anchor: Vertex, width: float, height: float, near: float) -> Iterator[Place]:
    """Places for a label of *width* × *height* about a point: touching it at distance *near*, then
    further off with a leader."""
    for ring, reach in enumerate((near, near * 2.6, near * 4.5, near * 7)):
        for turn, degrees in enumerate(_DIRECTIONS):
            cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            # The label's centre, so that the side or corner towards the point is *reach* away.
            x = anchor[0] + reach * cos + width / 2 * _sign(cos)
            y = anchor[1] + reach * sin + height / 2 * _sign(sin)
            yield Place(Box(x, y, width, height), ring * 8 + turn * 0.5, anchor if ring else None)


def _sign(value: float) -> float:
    return 0.0 if abs(value) < 1e-9 else math.copysign(1.0, value)
