"""Average what the device did over the steps of a trace."""

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

APART = 0.01  # share of the time: steps with less other work between them count as adjacent


@dataclass(frozen=True)
class StepAverage:
    """What the device did in `steps` traced steps.

    `times` are its times in the `stretches` of these steps, `calls` the operators with their
    kernels, and `idle` bounds of the idle seconds of a mean step (`idle_between`, `idle_most`).
    """

    steps: int
    times: Sequence[DeviceTime] = ()
    calls: Sequence[CallGroup] = ()
    idle: Mapping[str, float] = field(default_factory=dict)

    def each(self, figure: Callable[[DeviceTime], float]) -> float:
        """Return *figure* of a mean step: its sum over `times`, by the number of steps."""
        return sum(map(figure, self.times)) / self.steps

    def occupation(self) -> dict[str, float]:
        """Return the seconds of a mean step by what the device did, as in `Program.occupied`."""
        if not self.times:
            return {}
        seconds = {
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
        for name in self._routes():
            seconds[f"copy {name}"] = self.each(lambda o, n=name: _copied(o, n).seconds)  # type: ignore[misc]
        return seconds

    def moved(self) -> dict[str, float]:
        """Return the bytes that copies move in a mean step, by route (`copy HtoD pageable`)."""
        return {
            f"copy {name}": self.each(lambda o, n=name: float(_copied(o, n).bytes))  # type: ignore[misc]
            for name in self._routes()
        }

    def _routes(self) -> Iterable[str]:
        return dict.fromkeys(route for time in self.times for route in time.copies)

    def launched(self) -> dict[str, float]:
        """Return the number of kernels, copies and memsets that a mean step launches, by kind."""
        counts: dict[str, float] = {}
        for kernel in (kernel for group in self.calls for kernel in group.kernels):
            kind = "kernel" if kernel.computes else kernel.kind
            counts[kind] = counts.get(kind, 0.0) + kernel.count / self.steps
        return counts


def _copied(time: DeviceTime, route: str) -> ActivityTime:
    return time.copies.get(route, ActivityTime())


def seconds_of(timeline: Timeline, windows: Iterable[tuple[int, int]]) -> float:
    """Return the seconds of the work launched in *windows*; without a device, their length."""
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
    """Assign *counts*, the counters of each kernel of a step, to the kernels of the first window.

    Kernels on *device* (None: on any) are taken in order of launch. Returns the counters by index
    of activity; nothing unless all *windows* have the same kernels, as many as *counts*.
    """
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
    """Return when the device worked on the steps *windows*: (start, end) in nanoseconds.

    A device may work on a step long after its launch. One stretch reaches from the first window, or
    from the end of work launched before it, to the end of the last work; if other work ran between
    the steps, each step has its own stretch.
    """
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
        if not inside.any():
            return [(first, last)]
        own, before = rows[inside], rows[launched < first]
        late = int(activities.end[before].max(initial=first))
        after = activities.start[own] >= late
        # Earlier work that runs on while most of the steps' work is done does not delay the steps.
        if length[inside][after].sum() < length[inside][~after].sum():
            late = int(activities.start[own].min())
        return [(max(first, late), max(last, int(activities.end[own].max())))]
    separate = []
    for begin, end in ordered:
        own = rows[(launched >= begin) & (launched < end)]
        if len(own):
            separate.append((int(activities.start[own].min()), int(activities.end[own].max())))
    return separate or ordered
