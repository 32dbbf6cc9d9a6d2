"""Time each kernel of a call by the start and end that the hardware records for it (CUPTI).

The calls run in windows, so that launch cost has no effect, and the window's own kernels mark each
call in the trace. The profiler does not lengthen a kernel, but it widens the gaps between kernels.
So a call's time is its busy time, and the span of several kernels is longer than without a
profiler.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from gpuperf.measure.recording.work import Activity, record_work
from gpuperf.measure.timers.timer import Call
from gpuperf.measure.timers.window import BLOCK, CLOSE, FLUSHES, HAND_OVER, OPEN, Reading, Window
from gpuperf.model.contract import Cache
from gpuperf.model.record import Kernel


@dataclass(frozen=True)
class Trace:
    """What CUPTI recorded of several calls in windows, one entry a call.

    `busy_s` is the union of the kernels' intervals, `span_s` lasts from the first start to the last
    end. `kernels` are those of most calls, `launches` their names in order of start, `seconds` the
    total seconds of each name in a call (median over calls). Calls with other kernels are counted
    in `odd` and left out of the times. `extra_s` is the busy time that calls with more kernels than
    usual add, averaged over all calls. `outside_s` is the longest time for which work of a call ran
    before its window opened or after it closed; `tick_s` is the resolution of the times. `lost`
    records were dropped by CUPTI; `doubt` says why torch.profiler recorded these.
    """

    busy_s: tuple[float, ...]
    span_s: tuple[float, ...]
    readings: tuple[Reading, ...]
    kernels: tuple[Kernel, ...]
    odd: int
    outside_s: float
    tick_s: float = 0.0
    launches: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    extra_s: float = 0.0
    lost: int = 0
    doubt: str = ""

    @property
    def timed(self) -> tuple[Kernel, ...]:
        """The kernels of a call, each with the seconds that all its runs take."""
        return tuple(replace(k, time_s=self.seconds.get(k.name)) for k in self.kernels)

    @property
    def kernel_count(self) -> int:
        """The number of kernels, copies and memsets of one call."""
        return sum(kernel.count for kernel in self.kernels)


def trace_calls(
    window: Window, call: Call, idle_s: float, cache: Cache, count: int
) -> Trace | None:
    """Trace *count* calls; None where CUPTI gives no records (no permission, another subscriber).

    Raises: CannotBlock.
    """
    readings: list[Reading] = []

    def run() -> None:
        readings.clear()  # it may run twice
        readings.extend(window.take(call, idle_s, cache) for _ in range(count))

    work = record_work(run)
    if not any(a.name == OPEN for a in work.activities):
        return None
    trace = read_trace(work.activities, readings)
    return replace(trace, tick_s=window.tick_s, lost=work.lost, doubt=work.doubt)


def traced(run: Callable[[], Any]) -> tuple[Activity, ...]:
    """Return all work of the device during *run* in order of start; empty without CUPTI."""
    return record_work(run).activities


def read_trace(activities: Sequence[Activity], readings: Sequence[Reading]) -> Trace:
    """Return the trace of the calls in *activities*, which are in order of start.

    In each window the kernels OPEN and CLOSE enclose those of the call. A kernel of the call that
    runs outside of them ran on another stream. The window's own kernels are recognised by their
    position, since a kernel of the call may have any name. If there are more windows than readings,
    the call launches kernels with these names, and all windows are discarded.
    """
    windows = list(_windows(activities))
    if len(windows) > len(readings):
        windows = [_TracedWindow()] * len(readings)
    outside_s = max((w.outside_s for w in windows), default=0.0)
    kinds = Counter(w.kind for w in windows if w.complete)
    usual = kinds.most_common(1)[0][0] if kinds else ()
    names = next((w.names for w in windows if w.complete and w.kind == usual), ())
    # A window without its marks cannot be matched with its reading.
    paired: Iterable[Reading | None] = (
        readings if len(windows) == len(readings) else [None] * len(windows)
    )
    pairs = [(w, r) for w, r in zip(windows, paired, strict=True) if w.complete and w.kind == usual]
    return Trace(
        busy_s=tuple(w.busy_s for w, _ in pairs),
        span_s=tuple(w.span_s for w, _ in pairs),
        readings=tuple(r for _, r in pairs if r is not None),
        kernels=tuple(Kernel(name, count) for name, count in Counter(names).items()),
        odd=len(readings) - len(pairs),
        outside_s=outside_s,
        launches=names,
        seconds={
            name: statistics.median(w.seconds_of(name) for w, _ in pairs) for name in set(names)
        },
        extra_s=_extra_s(windows, usual, len(windows) == len(readings)),
    )


def _extra_s(windows: Sequence[_TracedWindow], usual: tuple[str, ...], separate: bool) -> float:
    """Return the busy time that calls with more kernels than *usual* add, averaged over all calls.

    A lost record leaves fewer kernels, so a call with more did work that other calls left out. If
    the windows are not *separate*, because the record of a blocker was lost, a window may hold two
    calls; windows that hold another window's OPEN or CLOSE are then ignored.
    """
    complete = [w for w in windows if w.complete]
    typical = [w.busy_s for w in complete if w.kind == usual]
    fuller = [
        w.busy_s
        for w in complete
        if len(w.names) > len(usual) and (separate or not {OPEN, CLOSE} & set(w.names))
    ]
    if not typical or not fuller:
        return 0.0
    return sum(busy_s - statistics.median(typical) for busy_s in fuller) / len(complete)


@dataclass(frozen=True)
class _TracedWindow:
    names: tuple[str, ...] = ()
    durations_s: tuple[float, ...] = ()
    busy_s: float = 0.0
    span_s: float = 0.0
    outside_s: float = 0.0
    complete: bool = False

    @property
    def kind(self) -> tuple[str, ...]:
        """The sorted names, since the kernels of two streams start in any order."""
        return tuple(sorted(self.names))

    def seconds_of(self, kernel: str) -> float:
        """Return how long all runs of *kernel* took."""
        pairs = zip(self.names, self.durations_s, strict=True)
        return sum(seconds for name, seconds in pairs if name == kernel)


def _windows(activities: Sequence[Activity]) -> Iterable[_TracedWindow]:
    starts = [i for i, activity in enumerate(activities) if activity.name == BLOCK]
    for start, end in zip(starts, [*starts, len(activities)][1:], strict=False):
        yield _read_window(activities[start:end])


def _read_window(activities: Sequence[Activity]) -> _TracedWindow:
    """Read the window that begins with the blocker and ends before the next one."""
    marks = _mark_places([activity.name for activity in activities])
    if marks is None:
        return _TracedWindow()  # the record of one of the window's own kernels was lost
    opened, closed = activities[marks[1]], activities[marks[2]]
    kernels = [activity for place, activity in enumerate(activities) if place not in marks]
    busy_s, reached = 0.0, 0.0
    for activity in kernels:
        busy_s += max(0.0, activity.end_s - max(activity.start_s, reached))
        reached = max(reached, activity.end_s)
    early = max((opened.end_s - kernel.start_s for kernel in kernels), default=0.0)
    late = max((kernel.end_s - closed.start_s for kernel in kernels), default=0.0)
    return _TracedWindow(
        names=tuple(kernel.name for kernel in kernels),
        durations_s=tuple(kernel.end_s - kernel.start_s for kernel in kernels),
        busy_s=busy_s,
        span_s=reached - kernels[0].start_s if kernels else 0.0,
        outside_s=max(early, late, 0.0),
        complete=True,
    )


def _mark_places(names: Sequence[str]) -> tuple[int, ...] | None:
    """Return the positions in *names* of a window's own kernels; None if OPEN or CLOSE is missing.

    They are BLOCK, OPEN, CLOSE, then HAND_OVER and the next window's flush if recorded. OPEN is the
    first of its name after BLOCK, and CLOSE the last before HAND_OVER.
    """
    handed = max((i for i, name in enumerate(names) if name == HAND_OVER), default=len(names))
    opened = next((i for i, name in enumerate(names) if name == OPEN), None)
    closed = max((i for i, name in enumerate(names[:handed]) if name == CLOSE), default=-1)
    if opened is None or closed < opened:
        return None
    flushed = (i for i in range(max(closed, handed) + 1, len(names)) if names[i] in FLUSHES)
    return (0, opened, closed, *range(handed, min(handed + 1, len(names))), *islice(flushed, 1))
