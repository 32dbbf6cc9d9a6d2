"""List the collectives of the traced steps, and the part of their time that compute does not hide.

On a GPU a collective is a kernel. It is exposed while no kernel of another kind runs on its device.
Gloo runs collectives on threads of its own; they are exposed while no operator runs on any other
thread: then the host waits, or runs code that torch does not see. Nodes of autograd, operators of
DTensor and others that only wrap some do not count, as they may wait for a collective inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpuperf.model.aten import Call, Tensor
from gpuperf.model.collective import Collective, Message, collective_name
from gpuperf.model.kernelname import kind_of
from gpuperf.model.timeline import KERNEL, KINDS, Timeline
from gpuperf.profile.attribution import SUBCLASS, WRAPPER, call_stacks
from gpuperf.profile.average import stretches
from gpuperf.profile.cost.communication import SPACES
from gpuperf.profile.groups import NODE
from gpuperf.profile.intervals import IntervalSet
from gpuperf.profile.trace.messages import GLOO, size_of
from gpuperf.profile.trace.steps import StepWindow

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Column = NDArray[numpy.integer]


SECOND = 10**9  # nanoseconds
# Operators of c10d whose first argument is the result, so that the input is the second one.
INPUT_SECOND = ("_allgather_base_", "_reduce_scatter_base_", "alltoall_base_", "allgather_")
# Of these the whole array is the result, the first argument; of `PARTS` a rank has one of n parts.
RESULT = ("_allgather_base_", "allgather_into_tensor_coalesced_")
PARTS = ("allgather_", "gather_", "reduce_scatter_", "scatter_")


@dataclass(frozen=True)
class Communication:
    """The collectives of the traced steps, and the `seconds` of a mean step: `compute`,
    `communication`, and `exposed`, which is communication without compute."""

    collectives: tuple[Collective, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Ran:
    """A collective that ran from *start* to *end*, launched at *launched*; in nanoseconds."""

    start: int
    end: int
    launched: int
    message: Message
    kernel: str


def communication_of(
    timeline: Timeline | None, windows: Sequence[StepWindow], device: int | None = None
) -> Communication:
    """Return the collectives that the steps *windows* launched on *device* (None: the first one, or
    the host)."""
    if timeline is None or not windows:
        return Communication()
    if timeline.active_devices:
        chosen = timeline.active_devices[0] if device is None else device
        ran, compute = _kernels(timeline, chosen), _computing(timeline, chosen)
    else:
        ran, compute = _marks(timeline), _operators(timeline)
    steps = [[one for one in ran if begin <= one.launched < end] for begin, end in windows]
    every = [one for step in steps for one in step]
    if not every:
        return Communication()
    on_device = bool(timeline.active_devices)
    busy = IntervalSet.of_windows(stretches(timeline, windows) if on_device else windows)
    whole = _union(every)
    count = SECOND * len(windows)
    seconds = {
        "compute": (compute & busy).length / count,
        "communication": whole.length / count,
        "exposed": (whole - compute).length / count,
    }
    alike = dict.fromkeys((one.message, one.kernel) for one in every)
    return Communication(tuple(_collective(key, steps, compute) for key in alike), seconds)


def _collective(
    key: tuple[Message, str], steps: Sequence[Sequence[_Ran]], compute: IntervalSet
) -> Collective:
    own = [[one for one in step if (one.message, one.kernel) == key] for step in steps]
    exposed = _union([one for step in own for one in step]) - compute
    return Collective(
        key[0],
        key[1],
        tuple(tuple((one.end - one.start) / SECOND for one in step) for step in own),
        exposed.length / SECOND / len(steps),
        tuple(tuple(one.start / SECOND for one in step) for step in own),
    )


def _union(ran: Sequence[_Ran]) -> IntervalSet:
    return IntervalSet.of_windows([(one.start, one.end) for one in ran])


def _is_communication(timeline: Timeline) -> list[bool]:
    """Return for each name of *timeline* whether a kernel of it is one of a collective."""
    return [kind_of(name, KINDS[KERNEL]) == "communication" for name in timeline.names]


def _kernels(timeline: Timeline, device: int) -> list[_Ran]:
    """Return the kernels of collectives on *device*, in order of start."""
    import numpy

    activities = timeline.activities
    own = numpy.array(_is_communication(timeline), bool)[activities.name]
    own &= (activities.kind == KERNEL) & (activities.device == device)
    ran = []
    for row in numpy.flatnonzero(own).tolist():
        by, number = int(activities.runtime[row]), int(activities.message[row])
        name = timeline.names[int(activities.name[row])]
        start = int(activities.start[row])
        message = Message(collective_name(name) or name.split("(")[0][:80])
        ran.append(
            _Ran(
                start,
                int(activities.end[row]),
                int(timeline.runtime.start[by]) if by >= 0 else start,
                timeline.messages[number] if number >= 0 else message,
                name,
            )
        )
    return ran


def _computing(timeline: Timeline, device: int) -> IntervalSet:
    """Return when kernels other than those of collectives ran on *device*."""
    import numpy

    activities = timeline.activities
    others = ~numpy.array(_is_communication(timeline), bool)[activities.name]
    rows = others & (activities.kind == KERNEL) & (activities.device == device)
    return IntervalSet.of(activities.start[rows], activities.end[rows])


def _marks(timeline: Timeline) -> list[_Ran]:
    """Return the collectives that gloo marked, each with the size that its operator of c10d has."""
    import numpy

    marks = timeline.annotations
    rows = numpy.flatnonzero((marks.message >= 0) & (marks.on_device == 0)).tolist()
    group, ranks = timeline.group
    waiting = _requested(timeline)
    ran = []
    for row in rows:
        start, name = int(marks.start[row]), timeline.names[int(marks.name[row])]
        message = timeline.messages[int(marks.message[row])]
        launched, call = _taken(waiting, start, message)
        known = message if call is None else _message(call, message.dtype, ranks)
        known = replace(known, ranks=ranks, group=group)
        ran.append(_Ran(start, int(marks.end[row]), launched, known, name))
    return ran


def _requested(timeline: Timeline) -> list[tuple[int, Call]]:
    """Return the start of each call of an operator of c10d, with the call."""
    own = [call.name.startswith("c10d::") for call in timeline.calls]
    operators = timeline.operators
    pairs = zip(operators.start.tolist(), operators.call.tolist(), strict=True)
    return [(start, timeline.calls[call]) for start, call in pairs if own[call]]


def _taken(
    waiting: list[tuple[int, Call]], start: int, message: Message
) -> tuple[int, Call | None]:
    """Remove from *waiting* the first call before *start* that may have caused gloo's *message*,
    and return when it was made; (*start*, None) without one.

    Gloo runs a reduce-scatter as an all-reduce of the whole input.
    """
    for index, (at, call) in enumerate(waiting):
        if at > start:
            break
        name = collective_name(call.name)
        alike = name == message.name or (name, message.name) == ("reduce_scatter", "all_reduce")
        given = sum(tensor.size for tensor in _given(call))
        if alike and (size_of(given, message.dtype) == message.bytes or not message.bytes):
            del waiting[index]
            return at, call
    return start, None


def _given(call: Call) -> Sequence[Tensor]:
    """Return the tensors that this rank gives to the collective *call*."""
    at = 1 if call.name.removeprefix("c10d::") in INPUT_SECOND else 0
    return call.inputs[at] if len(call.inputs) > at else ()


def _message(call: Call, dtype: str, ranks: int) -> Message:
    """Return the message of *call* between *ranks* ranks (0: unknown), of elements of *dtype*."""
    name = call.name.removeprefix("c10d::")
    tensors = call.inputs[0] if name in RESULT and call.inputs else _given(call)
    parts = ranks if name in PARTS else 1
    return Message(
        collective_name(name), size_of(parts * sum(t.size for t in tensors), dtype), dtype
    )


def _operators(timeline: Timeline) -> IntervalSet:
    """Return when the host ran operators that compute, on threads other than gloo's."""
    import numpy

    operators, marks = timeline.operators, timeline.annotations
    gloo = numpy.array([name.startswith(GLOO) for name in timeline.names], bool)
    computing = numpy.array([_computes(call.name) for call in timeline.calls], bool)
    subclass = numpy.array([call.name == SUBCLASS for call in timeline.calls], bool)
    rows = computing[operators.call]
    around = call_stacks(timeline).parent[subclass[operators.call]]
    rows[around[around >= 0]] = False
    main = numpy.setdiff1d(operators.thread, _only(timeline, marks.thread[gloo[marks.name]]))
    rows &= numpy.isin(operators.thread, main)
    return IntervalSet.of(operators.start[rows], operators.end[rows])


def _computes(name: str) -> bool:
    wraps = WRAPPER.match(name) or NODE.fullmatch(name) or name == SUBCLASS
    return not wraps and name.partition(":")[0] not in SPACES


def _only(timeline: Timeline, threads: Column) -> Column:
    """Return those of *threads* on which no operator of c10d ran: a send runs on its caller's."""
    import numpy

    operators = timeline.operators
    own = numpy.array([call.name.startswith("c10d::") for call in timeline.calls], bool)
    return numpy.setdiff1d(threads, operators.thread[own[operators.call]])
