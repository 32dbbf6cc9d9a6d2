"""Which operator caused the work that the device did, and what did each operator cost?

A kernel's trace names the call of the runtime that launched it; that call stands, on its thread,
within the operators that were open at the time. Only where the thread does not tell does the
operator count that Kineto itself noted (`External id`).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuperf.model.aten import Call
from gpuperf.model.kernelname import kind_of
from gpuperf.model.metrics import sum_up
from gpuperf.model.record import Kernel
from gpuperf.model.timeline import KINDS, Timeline
from gpuperf.profile.intervals import IntervalSet

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Column = NDArray[numpy.integer]


SLACK = 1000  # nanoseconds: older traces round start and length to whole microseconds, each
SECOND = 10**9  # nanoseconds

BACKWARD = "autograd::engine::evaluate_function"
# Operators in name only: autograd's engine, marks of torch.compile, of wrappers of modules and of
# the profiler, and c10d's note of a collective.
WRAPPER = re.compile(
    r"autograd::engine::|record_param_comms|ProfilerStep|Optimizer\.|nn\.Module|## |Torch-Compiled|"
    r"TorchDynamo|CompiledFunction|CompiledAutograd|Pregraph bytecode|AOTDispatcher|FSDP::|"
    r"DistributedDataParallel|FullyShardedDataParallel|enumerate\(DataLoader\)|PyTorch Profiler"
)
# `## Call CompiledFxGraph fazqq3yx7hvihbpqzfbgwlnqf2qrkeqpsj62jszpxvpxm2vlwfkj ##`
GRAPH = re.compile(r"CompiledFxGraph (\w{1,8})")


@dataclass(frozen=True, eq=False)
class CallStacks:
    """For each device activity, the operators in which it was launched.

    `parent` is, of each operator, the one that it began in, and `innermost`, of each activity, the
    last one that was open, as `within`, of each call of the runtime; −1 where there is none.
    `until` is when an operator left its thread, in nanoseconds: its end; its start if it ended on
    another thread.
    """

    parent: Column
    until: Column
    innermost: Column
    within: Column

    def __len__(self) -> int:
        return len(self.innermost)

    def __getitem__(self, activity: int) -> tuple[int, ...]:
        """Operators by their index, the innermost first."""
        return self._upwards(int(self.innermost[activity]))

    def around(self, call: int) -> tuple[int, ...]:
        """The operators that a call of the runtime was made in, the innermost first."""
        return self._upwards(int(self.within[call]))

    def _upwards(self, one: int) -> tuple[int, ...]:
        found = []
        while one >= 0:
            found.append(one)
            one = int(self.parent[one])
        return tuple(found)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (self[i] for i in range(len(self)))


def call_stacks(timeline: Timeline) -> CallStacks:
    """The operators that enclosed the launch of each activity, on the thread that launched it."""
    import numpy

    parent, until, within = _nest(timeline)
    runtime = timeline.activities.runtime
    innermost = numpy.full(len(runtime), -1)
    known = runtime >= 0
    innermost[known] = within[runtime[known]]
    missing = numpy.flatnonzero(innermost < 0)
    innermost[missing] = _noted(timeline, missing)
    return CallStacks(parent, until, innermost, within)


def _nest(timeline: Timeline) -> tuple[Column, Column, Column]:
    """Of each operator, its parent and when it left its thread; of each call of the runtime, the
    operator that it was made in."""
    import numpy

    operators, runtime = timeline.operators, timeline.runtime
    count = len(operators)
    start = numpy.concatenate((operators.start, runtime.start))
    end = numpy.concatenate((operators.end, runtime.end))
    thread = numpy.concatenate((operators.thread, runtime.thread))
    is_call = numpy.arange(len(start)) >= count
    order = numpy.lexsort((-end, is_call, start, thread))
    parent = array("q", [-1]) * len(start)
    until = array("q", operators.end.tobytes())
    stack: list[int] = []
    last = -1
    rows = zip(*(one[order].data for one in (start, end, thread)), strict=True)
    for i, (begin, finish, own) in zip(order.data, rows, strict=True):
        if own != last:
            stack.clear()
            last = own
        while stack and until[stack[-1]] <= begin:
            stack.pop()
        above = stack[-1] if stack else -1
        parent[i] = above
        if i >= count:
            continue
        if above >= 0 and finish > until[above]:
            # What outlives the operator that it began in ends on another thread (an asynchronous
            # collective): nothing later on this thread is its doing.
            if finish > until[above] + SLACK:
                until[i] = begin
                continue
            until[i] = until[above]
        stack.append(i)
    found = numpy.asarray(parent)
    return found[:count], numpy.asarray(until), found[count:]


def _noted(timeline: Timeline, activities: Column) -> Column:
    """The operators whose number *activities*, or the calls that launched them, bear; −1 for none,
    or for one that was not open at the launch."""
    import numpy

    operators, runtime = timeline.operators, timeline.runtime
    rows = numpy.flatnonzero(operators.external > 0)
    if not len(rows) or not len(activities):
        return numpy.full(len(activities), -1)
    rows = rows[numpy.argsort(operators.external[rows], kind="stable")]
    number = timeline.activities.external[activities]
    by = timeline.activities.runtime[activities]
    known = by >= 0
    if known.any():
        number = numpy.where(known & (number <= 0), runtime.external[by], number)
    place = numpy.searchsorted(operators.external[rows], number)
    found = rows[numpy.minimum(place, len(rows) - 1)]
    right = operators.external[found] == number
    if known.any():
        moment = runtime.start[by]
        was_open = (operators.start[found] <= moment) & (moment < operators.end[found])
        right &= was_open | ~known
    return numpy.where(right, found, -1)


@dataclass(frozen=True)
class CallGroup:
    """What all calls alike cost together.

    `count` is of the calls, `kernels` of what they ran on devices, copies and memsets too, with the
    seconds of all runs in `time_s`. `device_s` is their sum (kernels at one time count twice),
    `host_s` the host's time in the calls but not in operators that have a usage of their own.
    `innermost` names the operator, within the call, that launched most, `graph` the compiled graph
    that calls it, if one does. Work of unknown origin has the `call` of an empty name, and a
    `count` of 0.
    """

    call: Call
    count: int
    kernels: tuple[Kernel, ...]
    device_s: float
    host_s: float
    backward: bool
    innermost: str
    graph: str = ""


def call_groups(
    timeline: Timeline,
    windows: Iterable[tuple[int, int]],
    preferred: Container[str] | None = None,
    counted: Mapping[int, Mapping[str, float]] | None = None,
) -> tuple[CallGroup, ...]:
    """The usages of what the host called, and launched, within *windows* (nanoseconds), the dearest
    first. An activity of unknown launch counts by its own start.

    Operators inside of one whose name is in *preferred* count as it: of several in a chain the
    outermost, as a dispatch mode sees none of those that an operator calls in turn. Others count as
    the innermost one that is not a mere wrapper. *counted* are counters by activity.
    """
    import numpy

    chain = call_stacks(timeline)
    operators, activities = timeline.operators, timeline.activities
    owner, backward = _owners(timeline, chain.parent, preferred)
    inside = IntervalSet.of_windows(windows)
    called = numpy.flatnonzero(inside.contains(operators.start))
    launched = numpy.flatnonzero(inside.contains(_launch_times(timeline)))

    keys = numpy.append(2 * operators.call[owner] + backward[owner], -1)
    inner = chain.innermost[launched]
    host = _sums(keys[called], _self_times(timeline, chain)[called])
    ns = (activities.end - activities.start)[launched]
    device = _sums(keys[inner], ns)
    own = numpy.unique(numpy.concatenate((owner[called], owner[inner[inner >= 0]])))
    counts = _sums(keys[own], numpy.ones(len(own), int))
    kernels = _kernels(timeline, launched, keys[inner], ns, counted or {})
    names = _innermost(timeline, inner, keys[inner], ns)
    graphs = _graphs(timeline, chain.parent, keys[:-1], called)
    found = (
        CallGroup(
            timeline.calls[key >> 1] if key >= 0 else Call(""),
            counts.get(key, 0),
            kernels.get(key, ()),
            device.get(key, 0) / SECOND,
            host.get(key, 0) / SECOND,
            key >= 0 and bool(key & 1),
            names.get(key, ""),
            graphs.get(key, ""),
        )
        for key in host.keys() | device.keys()
    )
    return tuple(sorted(found, key=lambda one: (-one.device_s, -one.host_s, one.call.name)))


def _launch_times(timeline: Timeline) -> Column:
    import numpy

    by = timeline.activities.runtime
    if not len(timeline.runtime):
        return timeline.activities.start
    return numpy.where(by >= 0, timeline.runtime.start[by], timeline.activities.start)


def _owners(
    timeline: Timeline, parent: Column, preferred: Container[str] | None
) -> tuple[Column, Column]:
    """The operator that each operator counts as, and whether it is of a backward pass."""
    import numpy

    chosen = [preferred is not None and call.name in preferred for call in timeline.calls]
    wrapper = [WRAPPER.match(call.name) is not None for call in timeline.calls]
    engine = numpy.array([call.name.startswith(BACKWARD) for call in timeline.calls], bool)
    calls = timeline.operators.call
    # A forward operator has thread 0 here, and its node the number of the thread it was called on.
    back = bytearray((engine[calls] | (timeline.operators.forward_thread > 0)).tobytes())
    owner = array("q", range(len(calls)))
    taken = bytearray(len(calls))
    for i, (above, call) in enumerate(zip(parent.data, calls.data, strict=True)):
        taken[i] = chosen[call]
        if above < 0:
            continue
        back[i] |= back[above]
        if taken[above] or (wrapper[call] and not taken[i] and not wrapper[calls[owner[above]]]):
            owner[i], taken[i] = owner[above], taken[above]
    return numpy.asarray(owner), numpy.frombuffer(back, bool)


def _graphs(timeline: Timeline, parent: Column, keys: Column, called: Column) -> dict[int, str]:
    """By key, the compiled graph in which the operators *called* stand, if all stand in one."""
    import numpy

    named = [GRAPH.search(call.name) for call in timeline.calls]
    graphs = [match[1] if match else "" for match in named]
    if not any(graphs):
        return {}
    calls = timeline.operators.call
    own = array("q", [-1]) * len(calls)
    for i, (above, call) in enumerate(zip(parent.data, calls.data, strict=True)):
        own[i] = call if graphs[call] else own[above] if above >= 0 else -1
    within = numpy.asarray(own)[called].tolist()
    found: dict[int, set[str]] = {}
    for key, call in zip(keys[called].tolist(), within, strict=True):
        found.setdefault(key, set()).add(graphs[call] if call >= 0 else "")
    return {key: next(iter(names)) for key, names in found.items() if len(names) == 1}


def _self_times(timeline: Timeline, chain: CallStacks) -> Column:
    """Nanoseconds of each operator on its thread that are not those of operators in it."""
    import numpy

    whole = chain.until - timeline.operators.start
    own = whole.copy()
    inner = chain.parent >= 0
    numpy.subtract.at(own, chain.parent[inner], whole[inner])
    return own


def _sums(keys: Column, values: Column) -> dict[int, int]:
    """The sum of *values* by key; whole numbers, so that nothing is rounded away."""
    import numpy

    different, place = numpy.unique(keys, return_inverse=True)
    sums = numpy.zeros(len(different), numpy.int64)
    numpy.add.at(sums, place, values)
    return dict(zip(different.tolist(), sums.tolist(), strict=True))


def _kernels(
    timeline: Timeline,
    rows: Column,
    keys: Column,
    ns: Column,
    counted: Mapping[int, Mapping[str, float]],
) -> dict[int, tuple[Kernel, ...]]:
    """By key, the activities *rows* alike in name and launch, the longest first."""
    import numpy

    activities = timeline.activities
    columns = (keys, activities.name[rows], activities.launch[rows], activities.kind[rows])
    alike, place, alike_counts = numpy.unique(
        numpy.stack(columns, axis=1), axis=0, return_inverse=True, return_counts=True
    )
    sums = numpy.zeros(len(alike), numpy.int64)
    numpy.add.at(sums, place.reshape(-1), ns)
    counts: dict[int, list[Mapping[str, float]]] = {}
    for i, row in zip(place.reshape(-1).tolist(), rows.tolist(), strict=True):
        if row in counted:
            counts.setdefault(i, []).append(counted[row])
    found: dict[int, list[Kernel]] = {}
    for i in numpy.argsort(-sums, kind="stable"):
        key, name, launch, kind = alike[i].tolist()
        kernel = Kernel(
            timeline.names[name],
            int(alike_counts[i]),
            sum_up(counts.get(int(i), ())),
            launch=timeline.launches[launch] if launch >= 0 else None,
            time_s=int(sums[i]) / SECOND,
            kind=kind_of(timeline.names[name], KINDS[kind]),
        )
        found.setdefault(key, []).append(kernel)
    return {key: tuple(kernels) for key, kernels in found.items()}


def _innermost(timeline: Timeline, inner: Column, keys: Column, ns: Column) -> dict[int, str]:
    """By key, the name of the operator that launched most of the device's time."""
    rows = inner >= 0
    calls = timeline.operators.call[inner[rows]]
    width = len(timeline.calls) + 1
    sums = _sums(keys[rows] * width + calls, ns[rows])
    found: dict[int, str] = {}
    for pair, _ in sorted(sums.items(), key=lambda one: -one[1]):
        found.setdefault(pair // width, timeline.calls[pair % width].name)
    return found
