"""Divide a window of a device's time by what the device did, and its idle time by the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuperf.model.kernelname import KernelKind, kind_of, route_of
from gpuperf.model.timeline import COPY, KERNEL, KINDS, SET, Activities, Timeline
from gpuperf.profile.intervals import IntervalSet

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Column = NDArray[numpy.integer]
    Mask = NDArray[numpy.bool_]


SECOND = 10**9  # nanoseconds
PARTS = {"kernel": "kernels", "communication": "communication", "set": "sets"}

# Calls of CUDA and HIP that return when the device is done; copies without `Async` are among them.
WAITS = re.compile(
    r"(?:cuda|cu|hip)(?:Stream|Device|Ctx|Event)Synchronize|(?:cuda|hip)Memcpy(?:2D|3D)?"
    r"|hipMemcpyWithStream|cuMemcpy(?:HtoD|DtoH|DtoD)?_v2"
)


@dataclass(frozen=True)
class ActivityTime:
    """The seconds in which activities of one kind ran, and the bytes that they moved (0 for
    kernels). An activity that the edge of the window cuts counts in proportion."""

    seconds: float = 0.0
    bytes: int = 0


@dataclass(frozen=True)
class DeviceTime:
    """The time of one device in a window of `wall_s` seconds.

    `busy_s` is the union of all activities; in a trace without a device, of all operators. `copies`
    are by route (`HtoD pageable`, `DtoH pinned`, `DtoD`), and `kernels` exclude communication. The
    times of kinds may overlap.

    Each idle second is in one part, the first that applies: `queued_s` while launched work had not
    begun (latency of the device, or one stream waiting for another); `sync_s` while the host was in
    a synchronising call; `host_s` while it was in an operator, a call of the runtime or a mark;
    `other_s` otherwise.
    """

    wall_s: float
    busy_s: float
    kernels: ActivityTime
    communication: ActivityTime
    sets: ActivityTime
    copies: Mapping[str, ActivityTime]
    queued_s: float
    sync_s: float
    host_s: float
    other_s: float

    @property
    def idle_s(self) -> float:
        return self.queued_s + self.sync_s + self.host_s + self.other_s


def device_time(
    timeline: Timeline, window: tuple[int, int], device: int | None = None
) -> DeviceTime:
    """Return how *device* (by default the first active one) spent *window*, in nanoseconds.

    Raises: ValueError for a window without length.
    """
    import numpy

    if not window[1] > window[0]:
        raise ValueError(f"a window from {window[0]} to {window[1]} ns has no length")
    whole = IntervalSet.of_windows([window])
    activities = timeline.activities
    if device is None:
        device = next(iter(timeline.active_devices), None)
    on_it = numpy.flatnonzero(activities.device == (-1 if device is None else device))
    if device is None:
        busy = IntervalSet.of(timeline.operators.start, timeline.operators.end) & whole
    else:
        busy = IntervalSet.of(activities.start[on_it], activities.end[on_it]) & whole

    shares = {
        part: _share(activities, rows, window) for part, rows in _parts(timeline, on_it).items()
    }
    left, idle = whole - busy, []
    for reason in (_queued(timeline, on_it), *_host(timeline), whole):
        idle.append((left & reason).length / SECOND)
        left = left - reason
    return DeviceTime(
        wall_s=whole.length / SECOND,
        busy_s=busy.length / SECOND,
        kernels=shares.pop("kernels", ActivityTime()),
        communication=shares.pop("communication", ActivityTime()),
        sets=shares.pop("sets", ActivityTime()),
        copies=shares,
        queued_s=idle[0],
        sync_s=idle[1],
        host_s=idle[2],
        other_s=idle[3],
    )


def _parts(timeline: Timeline, rows: Column) -> dict[str, Column]:
    """Return the activities *rows* of each kind (`kernels`, `sets`, …); of copies, by route."""
    import numpy

    activities = timeline.activities
    names, place = numpy.unique(activities.name[rows], return_inverse=True)
    kinds = activities.kind[rows]
    parts: dict[str, list[Column]] = {}
    for i, name in enumerate(names.tolist()):
        own = rows[place == i]
        for kind in (KERNEL, COPY, SET):
            some = own[kinds[place == i] == kind]
            if len(some):
                parts.setdefault(_part(timeline.names[name], KINDS[kind]), []).append(some)
    return {part: numpy.concatenate(columns) for part, columns in parts.items()}


def _part(name: str, activity: KernelKind) -> str:
    kind = kind_of(name, activity)
    return route_of(name) if kind == "copy" else PARTS[kind]


def _share(activities: Activities, rows: Column, window: tuple[int, int]) -> ActivityTime:
    import numpy

    start = numpy.clip(activities.start[rows], *window)
    end = numpy.clip(activities.end[rows], *window)
    length = activities.end[rows] - activities.start[rows]
    part = (end - start) / numpy.maximum(length, 1)
    moved = float((activities.bytes[rows] * part).sum())
    return ActivityTime(IntervalSet.of(start, end).length / SECOND, round(moved))


def _queued(timeline: Timeline, rows: Column) -> IntervalSet:
    """Return when any of the activities *rows* had been launched and had not begun."""
    by = timeline.activities.runtime[rows]
    rows, by = rows[by >= 0], by[by >= 0]
    return IntervalSet.of(timeline.runtime.end[by], timeline.activities.start[rows])


def _host(timeline: Timeline) -> tuple[IntervalSet, IntervalSet]:
    """Return when the host was in a call that waits for a device, and when in any known call."""
    import numpy

    runtime, operators, marks = timeline.runtime, timeline.operators, timeline.annotations
    waiting = numpy.array([WAITS.fullmatch(name) is not None for name in timeline.names], bool)
    waits = waiting[runtime.name]
    by_user = marks.on_device == 0
    busy = IntervalSet.of(
        numpy.concatenate((operators.start, runtime.start, marks.start[by_user])),
        numpy.concatenate((operators.end, runtime.end, marks.end[by_user])),
    )
    return IntervalSet.of(runtime.start[waits], runtime.end[waits]), busy
