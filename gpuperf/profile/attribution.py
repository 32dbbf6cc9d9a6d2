"""Attribute the kernels, copies and memsets in a trace to the PyTorch operators that launched them.

A trace names the CUDA runtime call that launched each kernel. The operators that were running on
the thread of that call launched the kernel. If no operator ran there, the operator is the one whose
`External id` Kineto recorded with the kernel.
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
from gpuperf.profile.cost.communication import SPACES
from gpuperf.profile.intervals import IntervalSet

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Column = NDArray[numpy.integer]


SLACK = 1000  # nanoseconds: older traces round start and length to whole microseconds
SECOND = 10**9  # nanoseconds

BACKWARD = "autograd::engine::evaluate_function"
# Wrappers that compute nothing: autograd's engine, marks of torch.compile, of wrapped modules and
# of the profiler, and c10d's record of a collective.
WRAPPER = re.compile(
    r"autograd::engine::|record_param_comms|ProfilerStep|Optimizer\.|nn\.Module|## |Torch-Compiled|"
    r"TorchDynamo|CompiledFunction|CompiledAutograd|Pregraph bytecode|AOTDispatcher|FSDP::|"
    r"DistributedDataParallel|FullyShardedDataParallel|enumerate\(DataLoader\)|PyTorch Profiler"
)
SUBCLASS = "PythonSubclass"  # around the operators that a subclass of Tensor runs in place of one
# `## Call CompiledFxGraph fazqq3yx7hvihbpqzfbgwlnqf2qrkeqpsj62jszpxvpxm2vlwfkj ##`
GRAPH = re.compile(r"CompiledFxGraph (\w{1,8})")


@dataclass(frozen=True, eq=False)
class CallStacks:
    """The operators around the launch of each activity of a device, as arrays of indices.

    `parent` is the operator in which each operator began, `innermost` the innermost operator around
    the launch of each activity, and `within` that around each call of the runtime; −1 stands for no
    operator. `until` is when each operator left its thread, in nanoseconds: its end, or its start
    if it ended on another thread.
    """

    parent: Column
    until: Column
    innermost: Column
    within: Column

    def __len__(self) -> int:
        return len(self.innermost)

    def __getitem__(self, activity: int) -> tuple[int, ...]:
        """Return the indices of the operators around an activity's launch, the innermost first."""
        return self._upwards(int(self.innermost[activity]))

    def around(self, call: int) -> tuple[int, ...]:
        """Return the indices of the operators around a runtime call, the innermost first."""
        return self._upwards(int(self.within[call]))

    def _upwards(self, operator: int) -> tuple[int, ...]:
        operators = []
        while operator >= 0:
            operators.append(operator)
            operator = int(self.parent[operator])
        return tuple(operators)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (self[i] for i in range(len(self)))


def call_stacks(timeline: Timeline) -> CallStacks:
    """Return the operators around the launch of each activity of *timeline*, by thread."""
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
    """Return the columns `parent`, `until` and `within` of `CallStacks`."""
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
            # An operator that outlives its parent ends on another thread (an asynchronous
            # collective), and causes nothing later on this thread.
            if finish > until[above] + SLACK:
                until[i] = begin
                continue
            until[i] = until[above]
        stack.append(i)
    parents = numpy.asarray(parent)
    return parents[:count], numpy.asarray(until), parents[count:]


def _noted(timeline: Timeline, activities: Column) -> Column:
    """Return the index of the operator that has the `External id` of each of *activities*, or of
    the runtime call that launched it; −1 for none, or if the operator was not running then."""
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
    operator = rows[numpy.minimum(place, len(rows) - 1)]
    right = operators.external[operator] == number
    if known.any():
        moment = runtime.start[by]
        was_open = (operators.start[operator] <= moment) & (moment < operators.end[operator])
        right &= was_open | ~known
    return numpy.where(right, operator, -1)


@dataclass(frozen=True)
class CallGroup:
    """Traced calls of one operator with equal arguments, in one direction.

    `kernels` are the kernels, copies and memsets that the `count` calls launched, each with the
    seconds of all its runs in `time_s`; `device_s` is the sum of these (concurrent kernels count
    twice). `host_s` are the host's seconds in the calls, less those in operators with a group of
    their own. `innermost` names the operator inside the calls that launched most device time,
    `graph` the torch.compile graph around the calls. Kernels that no known operator launched have
    a group whose `call` has an empty name, with a `count` of 0.
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
    """Group the calls made, and the work launched, within *windows* (start, end; nanoseconds).

    The group with most device time comes first. An activity of unknown launch counts by its own
    start. A call inside an operator whose name is in *preferred* counts as that operator (the
    outermost of several), as a dispatch mode observes no operator inside another. The operators
    that a subclass of Tensor runs in place of one count themselves: torch 2.11 and 2.13 mark them
    in the trace, and where a torch does not, the one on the subclass counts. A wrapper inside an
    operator counts as that operator, and a collective always counts as itself. *counted* are the
    counters of a kernel by activity index.
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
    groups = (
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
    return tuple(sorted(groups, key=lambda g: (-g.device_s, -g.host_s, g.call.name)))


def _launch_times(timeline: Timeline) -> Column:
    import numpy

    by = timeline.activities.runtime
    if not len(timeline.runtime):
        return timeline.activities.start
    return numpy.where(by >= 0, timeline.runtime.start[by], timeline.activities.start)


def _owners(
    timeline: Timeline, parent: Column, preferred: Container[str] | None
) -> tuple[Column, Column]:
    """Return the index of the operator as which each counts, and whether each runs backward."""
    import numpy

    chosen = [preferred is not None and call.name in preferred for call in timeline.calls]
    wrapper = [WRAPPER.match(call.name) is not None for call in timeline.calls]
    linked = [call.name.partition(":")[0] in SPACES for call in timeline.calls]
    engine = numpy.array([call.name.startswith(BACKWARD) for call in timeline.calls], bool)
    calls = timeline.operators.call
    # A forward operator has thread 0 here; its autograd node has the thread of the forward call.
    back = bytearray((engine[calls] | (timeline.operators.forward_thread > 0)).tobytes())
    owner = array("q", range(len(calls)))
    taken = bytearray(len(calls))
    subclass = numpy.array([call.name == SUBCLASS for call in timeline.calls], bool)[calls]
    inside = {int(parent[i]): i for i in numpy.flatnonzero(subclass).tolist()}
    for i, (above, call) in enumerate(zip(parent.data, calls.data, strict=True)):
        back[i] |= back[above] if above >= 0 else 0
        if i in inside:  # the operators in there compute, as they have the tensors of this process
            owner[i] = inside[i]
            continue
        taken[i] = chosen[call]
        if above < 0:
            continue
        if linked[call] and not linked[calls[owner[above]]]:
            continue  # an operator of DTensor may wait for a collective inside
        if taken[above] or (wrapper[call] and not taken[i] and not wrapper[calls[owner[above]]]):
            owner[i], taken[i] = owner[above], taken[above]
    return numpy.asarray(owner), numpy.frombuffer(back, bool)


def _graphs(timeline: Timeline, parent: Column, keys: Column, called: Column) -> dict[int, str]:
    """Return by key the torch.compile graph around its operators *called*, if it is only one."""
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
    by_key: dict[int, set[str]] = {}
    for key, call in zip(keys[called].tolist(), within, strict=True):
        by_key.setdefault(key, set()).add(graphs[call] if call >= 0 else "")
    return {key: next(iter(names)) for key, names in by_key.items() if len(names) == 1}


def _self_times(timeline: Timeline, chain: CallStacks) -> Column:
    """Return the nanoseconds of each operator on its thread, less those of operators inside it."""
    import numpy

    whole = chain.until - timeline.operators.start
    own = whole.copy()
    inner = chain.parent >= 0
    numpy.subtract.at(own, chain.parent[inner], whole[inner])
    return own


def _sums(keys: Column, values: Column) -> dict[int, int]:
    """Return the sum of the integers *values* by key."""
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
    """Return by key the activities *rows* as kernels: those of equal name, kind and launch as one.

    *ns* are the nanoseconds of each row.
    """
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
    by_key: dict[int, list[Kernel]] = {}
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
        by_key.setdefault(key, []).append(kernel)
    return {key: tuple(kernels) for key, kernels in by_key.items()}


def _innermost(timeline: Timeline, inner: Column, keys: Column, ns: Column) -> dict[int, str]:
    """Return by key the name of the innermost operator that launched most device time (*ns*)."""
    rows = inner >= 0
    calls = timeline.operators.call[inner[rows]]
    width = len(timeline.calls) + 1
    sums = _sums(keys[rows] * width + calls, ns[rows])
    names: dict[int, str] = {}
    for pair, _ in sorted(sums.items(), key=lambda entry: -entry[1]):
        names.setdefault(pair // width, timeline.calls[pair % width].name)
    return names
