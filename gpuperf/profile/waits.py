"""Estimate how long the device idles because the host waits for it.

While the host waits it launches nothing, and once the device is done, the device idles until the
host launches again. Without the wait the host would be ahead by the time of the wait, so each later
launch that was late would be earlier by at most that time. Idle time after which the host had not
waited is no idle time of a wait.
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
ALONE = "synchronize"  # the name of waits outside operators


@dataclass
class _Waited:
    """A call in which the host waited, inside `operators`; times in nanoseconds.

    `end` is when it returned, `ahead` by how much earlier the host could launch without it, less
    what gaps have used up, and `idle` how long the device idled because of it.
    """

    operators: tuple[str, ...]
    end: int
    ahead: int
    idle: int = 0


def waits_of(
    observed: Sequence[ObservedCall],
    steps: int,
    timeline: Timeline | None,
    windows: Sequence[StepWindow],
    light: tuple[Timeline, int] | None = None,
) -> tuple[Wait, ...]:
    """Return the waits of a step by line, each with the idle seconds that it causes.

    Waits are those among the calls *observed* in *steps* steps, and others in *timeline* that
    caused idle time. *light* is a trace without operators, with its number of steps: it slows the
    host less, so the idle time of all waits together is taken from it.
    """
    lines: dict[str, Counter[tuple[str, str]]] = {}  # by operator
    for entry in observed:
        if entry.waits:
            lines.setdefault(entry.call.name, Counter())[entry.waits, entry.where] += 1
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
    # A light trace has no marks, so work between steps cannot be left out of it.
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
    """Return the idle seconds of a step in a light trace by wait, in proportion to *idle*; if that
    is all 0, in proportion to *counts*."""
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
    """Return [(first launch, end of the last work)] in nanoseconds; [] if nothing was launched."""
    activities, runtime = timeline.activities, timeline.runtime
    launched = runtime.start[activities.runtime[activities.runtime >= 0]]
    return [(int(launched.min()), int(activities.end.max()))] if len(launched) else []


def _named(operators: Sequence[str]) -> str:
    """Return the name of a wait: the outermost of torch's *operators* (innermost first) around it,
    such as `item` for `_local_scalar_dense`."""
    own = [name for name in operators if name.startswith("aten::")]
    return own[-1].removeprefix("aten::") if own else ALONE


def _blamed(timeline: Timeline, windows: Sequence[StepWindow]) -> list[_Waited]:
    """Return the calls within *windows* in which the host waited and that caused idle time."""
    waits = _waited(timeline, windows)
    if not waits:
        return []
    ahead: list[_Waited] = []  # a gap uses the latest wait first
    later = iter(waits)
    coming = next(later, None)
    for begin, end, launched in _gaps(timeline, windows):
        while coming is not None and coming.end <= launched:
            ahead.append(coming)
            coming = next(later, None)
        left = end - begin if launched > begin else 0  # queued work was not launched late
        while left and ahead:
            part = min(left, ahead[-1].ahead)
            ahead[-1].ahead -= part
            ahead[-1].idle += part
            left -= part
            if not ahead[-1].ahead:
                ahead.pop()
    return [wait for wait in waits if wait.idle]


def _gaps(timeline: Timeline, windows: Sequence[StepWindow]) -> Iterator[tuple[int, int, int]]:
    """Yield the begin and the end of each gap in the work on *windows*, and the launch of the work
    that ended it (−1 if unknown). The time before the first work is no gap."""
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
    """Return the device's idle seconds between its work on *windows*; with *between*, only those
    before work that was already launched, which the device takes from one kernel to the next."""
    gaps = _gaps(timeline, windows)
    return sum(e - b for b, e, launched in gaps if not between or 0 <= launched <= b) / SECOND


def _waited(timeline: Timeline, windows: Sequence[StepWindow]) -> list[_Waited]:
    """Return the calls within *windows* in which the host waited, in the order of their ends.

    Time in which two threads waited counts once.
    """
    runtime, calls = timeline.runtime, timeline.operators.call
    rows = _waiting(timeline)
    rows = rows[IntervalSet.of_windows(windows).contains(runtime.start[rows])]
    if not len(rows):
        return []
    chain = call_stacks(timeline)
    waits: list[_Waited] = []
    until = 0
    for row in rows[runtime.end[rows].argsort(kind="stable")].tolist():
        start, end = int(runtime.start[row]), int(runtime.end[row])
        names = tuple(timeline.calls[calls[one]].name for one in chain.around(row))
        waits.append(_Waited(names, end, max(0, end - max(start, until))))
        until = max(until, end)
    return waits


def _waiting(timeline: Timeline) -> Column:
    """Return the calls of the runtime that wait, on threads that also launch work.

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
