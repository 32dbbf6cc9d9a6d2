"""What does it cost that the host waits for the device: how long does the device idle by that?

While the host waits it launches nothing, and once the device is done it idles until the host has
caught up. Without the wait the host would be ahead by the time that it waited, and so much idle
time would go: where it is late for a launch, up to what it waited before. A host that is late
without waiting has nothing to win here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuperf.model.kernelname import PAGEABLE, route_of
from gpuperf.model.program import ObservedCall, Wait
from gpuperf.model.timeline import Timeline
from gpuperf.profile.attribution import call_stacks
from gpuperf.profile.average import stretches
from gpuperf.profile.devicetime import WAITS
from gpuperf.profile.intervals import IntervalSet
from gpuperf.profile.trace.steps import StepWindow

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Column = NDArray[numpy.integer]


SECOND = 10**9  # nanoseconds
ALONE = "synchronize"  # what no operator waits in


@dataclass
class _Waited:
    """A call that waited, until when, and the nanoseconds of it that the host may still be ahead
    by; the idle ones that it is to blame for."""

    operators: tuple[str, ...]
    end: int
    ahead: int
    idle: int = 0


def waits_of(
    seen: Sequence[ObservedCall],
    steps: int,
    timeline: Timeline | None,
    windows: Sequence[StepWindow],
    light: tuple[Timeline, int] | None = None,
) -> tuple[Wait, ...]:
    """The waits of a step: those in *seen*, which are of *steps* steps, by line, with what those of
    *timeline* idled by them; and those that nobody saw, if the device idled by them.

    *light* is a trace without operators and its steps: it slows the host less, so that it tells how
    long all of them idled.
    """
    lines: dict[str, Counter[tuple[str, str]]] = {}  # of each operator
    for one in seen:
        if one.waits:
            lines.setdefault(one.call.name, Counter())[one.waits, one.where] += 1
    counts: dict[tuple[str, str], float] = {}
    idle: dict[tuple[str, str], float] = {}
    for own in lines.values():
        for key, count in own.items():
            counts[key] = counts.get(key, 0.0) + count / steps
    for wait in _blamed(timeline, windows) if timeline is not None and windows else ():
        known = next((name for name in wait.operators if name in lines), None)
        if known is None:
            key = _named(wait.operators), ""
            counts[key] = counts.get(key, 0.0) + 1 / len(windows)
        own = lines[known] if known else Counter([key])
        for key, count in own.items():
            part = count / own.total() * wait.idle / SECOND / len(windows)
            idle[key] = idle.get(key, 0.0) + part
    # What lies between steps is in a light trace, too, and nobody knows where.
    whole = timeline is None or not windows or len(stretches(timeline, windows)) == 1
    if light is not None and whole:
        idle = _as_light(*light, counts, idle)
    counts = {**dict.fromkeys(idle, 1.0), **counts}
    return tuple(Wait(*key, count, idle.get(key, 0.0)) for key, count in counts.items())


def _as_light(
    timeline: Timeline,
    steps: int,
    counts: dict[tuple[str, str], float],
    idle: dict[tuple[str, str], float],
) -> dict[tuple[str, str], float]:
    """What a light trace idled, shared out like *idle*, or by how often the host waits."""
    whole = launch_to_end(timeline)
    if not whole:
        return idle
    total = sum(wait.idle for wait in _blamed(timeline, whole)) / SECOND / steps
    weights = idle if sum(idle.values()) else counts
    sum_of = sum(weights.values())
    if total and not sum_of:
        return {(ALONE, ""): total}
    return {key: total * weight / sum_of for key, weight in weights.items()} if sum_of else {}


def launch_to_end(timeline: Timeline) -> list[StepWindow]:
    """From the first launch to the end of the last work; nothing where there is none."""
    activities, runtime = timeline.activities, timeline.runtime
    launched = runtime.start[activities.runtime[activities.runtime >= 0]]
    return [(int(launched.min()), int(activities.end.max()))] if len(launched) else []


def _named(operators: Sequence[str]) -> str:
    """`item` of `aten::_local_scalar_dense` in `aten::item`: the outermost of torch's own."""
    own = [name for name in operators if name.startswith("aten::")]
    return own[-1].removeprefix("aten::") if own else ALONE


def _blamed(timeline: Timeline, windows: Sequence[StepWindow]) -> list[_Waited]:
    """The calls that waited within *windows* and by which the device idled."""
    waits = _waited(timeline, windows)
    if not waits:
        return []
    ahead: list[_Waited] = []  # the last one counts first: it is what the gap follows
    later = iter(waits)
    coming = next(later, None)
    for begin, end, launched in _gaps(timeline, windows):
        while coming is not None and coming.end <= launched:
            ahead.append(coming)
            coming = next(later, None)
        left = end - begin if launched > begin else 0  # else it was queued: nobody was late
        while left and ahead:
            part = min(left, ahead[-1].ahead)
            ahead[-1].ahead -= part
            ahead[-1].idle += part
            left -= part
            if not ahead[-1].ahead:
                ahead.pop()
    return [wait for wait in waits if wait.idle]


def _gaps(timeline: Timeline, windows: Sequence[StepWindow]) -> Iterator[tuple[int, int, int]]:
    """When the device idled while it worked on *windows*, from and until, and when what ended that
    was launched; −1 where nobody knows. Before its first work of all it does not count as idle."""
    import numpy

    activities, runtime = timeline.activities, timeline.runtime
    device = timeline.active_devices[0] if timeline.active_devices else -1
    rows = numpy.flatnonzero(activities.device == device)
    starts = activities.start[rows]
    idle = IntervalSet.of_windows(stretches(timeline, windows)) - IntervalSet.of(
        starts, activities.end[rows]
    )
    next_rows = numpy.searchsorted(starts, idle.end)
    gaps = zip(*(one.tolist() for one in (idle.start, idle.end, next_rows)), strict=True)
    for begin, end, at in gaps:
        if not at:
            continue
        by = int(activities.runtime[rows[at]]) if at < len(rows) else -1
        yield begin, end, int(runtime.start[by]) if by >= 0 else -1


def idled_s(timeline: Timeline, windows: Sequence[StepWindow], between: bool = False) -> float:
    """Seconds in which the device idled; *between* kernels alone: though the next was launched
    before the last ended, which is what the device takes itself from one to the next."""
    gaps = _gaps(timeline, windows)
    return sum(e - b for b, e, launched in gaps if not between or 0 <= launched <= b) / SECOND


def _waited(timeline: Timeline, windows: Sequence[StepWindow]) -> list[_Waited]:
    """The calls that waited within *windows*, by their ends; what two threads waited at one time
    counts once."""
    runtime, calls = timeline.runtime, timeline.operators.call
    rows = _waiting(timeline)
    rows = rows[IntervalSet.of_windows(windows).contains(runtime.start[rows])]
    if not len(rows):
        return []
    chain = call_stacks(timeline)
    found: list[_Waited] = []
    until = 0
    for row in rows[runtime.end[rows].argsort(kind="stable")].tolist():
        start, end = int(runtime.start[row]), int(runtime.end[row])
        names = tuple(timeline.calls[calls[one]].name for one in chain.around(row))
        found.append(_Waited(names, end, max(0, end - max(start, until))))
        until = max(until, end)
    return found


def _waiting(timeline: Timeline) -> Column:
    """Calls of the runtime that wait, of threads that launch: no other keeps the device waiting.

    A copy from or to pageable memory returns once it is done (CUDA's runtime API, "API
    synchronization behavior").
    """
    import numpy

    runtime, activities = timeline.runtime, timeline.activities
    by = activities.runtime
    names = numpy.array([WAITS.fullmatch(name) is not None for name in timeline.names], bool)
    waits = names[runtime.name]
    pageable = numpy.array([PAGEABLE in route_of(name) for name in timeline.names], bool)
    waits[by[(by >= 0) & pageable[activities.name]]] = True
    launching = numpy.unique(runtime.thread[by[by >= 0]])
    return numpy.flatnonzero(waits & numpy.isin(runtime.thread, launching))
