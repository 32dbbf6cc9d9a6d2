"""What did the device do in the steps of a trace, on average over them?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from gpuperf.model.timeline import KERNEL, Timeline
from gpuperf.profile.attribution import CallGroup
from gpuperf.profile.devicetime import ActivityTime, DeviceTime
from gpuperf.profile.intervals import IntervalSet

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Column = NDArray[numpy.integer]


SECOND = 10**9  # nanoseconds

APART = 0.01  # of the time: steps with less between them follow each other


@dataclass(frozen=True)
class StepAverage:
    """What a trace says of *steps* steps; of *idle* seconds other passes too."""

    steps: int
    occupied: Sequence[DeviceTime] = ()
    usages: Sequence[CallGroup] = ()
    idle: Mapping[str, float] = field(default_factory=dict)

    def each(self, seconds: Callable[[DeviceTime], float]) -> float:
        """Of a step."""
        return sum(map(seconds, self.occupied)) / self.steps

    def occupation(self) -> dict[str, float]:
        """Seconds of a step by what the device did."""
        if not self.occupied:
            return {}
        found = {
            "wall": self.each(lambda o: o.wall_s),
            "busy": self.each(lambda o: o.busy_s),
            "kernels": self.each(lambda o: o.kernels.seconds),
            "communication": self.each(lambda o: o.communication.seconds),
            "sets": self.each(lambda o: o.sets.seconds),
            "idle_queued": self.each(lambda o: o.queued_s),
            "idle_sync": self.each(lambda o: o.sync_s),
            "idle_host": self.each(lambda o: o.host_s),
            "idle_other": self.each(lambda o: o.other_s),
            **self.idle,
        }
        for name in dict.fromkeys(name for one in self.occupied for name in one.copies):
            found[f"copy {name}"] = self.each(lambda o, n=name: _copied(o, n).seconds)  # type: ignore[misc]
        return found

    def moved(self) -> dict[str, float]:
        """Bytes of copies in a step by direction."""
        names = dict.fromkeys(name for one in self.occupied for name in one.copies)
        return {
            f"copy {name}": self.each(lambda o, n=name: float(_copied(o, n).bytes))  # type: ignore[misc]
            for name in names
        }

    def launched(self) -> dict[str, float]:
        """Kernels, copies and sets of a step."""
        found: dict[str, float] = {}
        for kernel in (kernel for usage in self.usages for kernel in usage.kernels):
            kind = "kernel" if kernel.computes else kernel.kind
            found[kind] = found.get(kind, 0.0) + kernel.count / self.steps
        return found


def _copied(one: DeviceTime, name: str) -> ActivityTime:
    return one.copies.get(name, ActivityTime())


def seconds_of(timeline: Timeline, windows: Iterable[tuple[int, int]]) -> float:
    """Of the device for what was launched within *windows*; without one, of the host in them."""
    activities, runtime = timeline.activities, timeline.runtime
    inside = IntervalSet.of_windows(windows)
    if not len(activities):
        return inside.length / SECOND
    rows = activities.runtime >= 0
    rows[rows] = inside.contains(runtime.start[activities.runtime[rows]])
    return float((activities.end[rows] - activities.start[rows]).sum()) / SECOND


def kernel_counters(
    timeline: Timeline,
    windows: Iterable[tuple[int, int]],
    counts: Sequence[Mapping[str, float]],
    device: int | None = None,
) -> dict[int, Mapping[str, float]]:
    """*counts* of the kernels of a step on *device*, in the order of their launch, by activity: of
    the first of *windows*. Nothing where not all have the same kernels, as many as were counted."""
    import numpy

    activities, runtime = timeline.activities, timeline.runtime
    known = (activities.runtime >= 0) & (activities.kind == KERNEL)
    rows = numpy.flatnonzero(known if device is None else known & (activities.device == device))
    launched = runtime.start[activities.runtime[rows]]
    first: Column | None = None
    for begin, end in windows:
        inside = (launched >= begin) & (launched < end)
        own = rows[inside][numpy.lexsort((activities.start[rows[inside]], launched[inside]))]
        first = own if first is None else first
        if len(own) != len(counts) or (activities.name[own] != activities.name[first]).any():
            return {}
    return {} if first is None else dict(zip(first.tolist(), counts, strict=True))


def stretches(timeline: Timeline, windows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where the device worked on the steps, which may be long after the host launched them: one
    stretch to the end of the last work, or, where other work lies between the steps, one a step."""
    import numpy

    ordered = sorted(windows)
    first, last = ordered[0][0], ordered[-1][1]
    activities, runtime = timeline.activities, timeline.runtime
    rows = numpy.flatnonzero(activities.runtime >= 0)
    if not len(rows):
        apart = sum(b[0] - a[1] for a, b in pairwise(ordered))
        return ordered if apart > APART * (last - first) else [(first, last)]
    launched = runtime.start[activities.runtime[rows]]
    length = activities.end[rows] - activities.start[rows]
    inside = IntervalSet.of_windows(ordered).contains(launched)
    between = (launched >= first) & (launched < last) & ~inside
    if length[between].sum() <= APART * length[inside].sum():
        ends = activities.end[rows[inside]]
        return [(first, max(last, int(ends.max())) if len(ends) else last)]
    found = []
    for begin, end in ordered:
        own = rows[(launched >= begin) & (launched < end)]
        if len(own):
            found.append((int(activities.start[own].min()), int(activities.end[own].max())))
    return found or ordered
