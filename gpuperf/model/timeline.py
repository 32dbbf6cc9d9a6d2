"""Define the events of a trace, on the host and on the device, as columns of numbers.

A trace has millions of events, hence columns instead of objects. Each name, call and launch is
stored once, in a tuple that the columns index. Times are whole nanoseconds since the first event of
the trace. Each table is sorted by start and then by falling length, so an event comes before those
that it encloses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuperf.model.aten import Call
from gpuperf.model.collective import Message
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.kernelname import KernelKind
from gpuperf.model.record import Launch

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Column = NDArray[numpy.integer]


KERNEL, COPY, SET = range(3)  # values of `Activities.kind`
KINDS: tuple[KernelKind, ...] = ("kernel", "copy", "set")  # their names, in this order


@dataclass(frozen=True, eq=False)
class Operators:
    """Operators on the host.

    `call` indexes `Timeline.calls`, `thread` indexes `Timeline.threads`. `sequence` is autograd's
    number, which a forward operator shares with its backward node; `forward_thread` is above 0 on
    such a node. Both are −1 if the trace has none. `external` is the id by which activities of the
    device refer to the operator, or 0.
    """

    start: Column
    end: Column
    thread: Column
    call: Column
    sequence: Column
    forward_thread: Column
    external: Column

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class Activities:
    """Kernels, copies and memsets on devices.

    `name` indexes `Timeline.names`, `launch` indexes `Timeline.launches`, and `runtime` indexes
    `Timeline.runtime`, the call that launched the activity; −1 if unknown. `bytes` are those of
    copies and memsets, 0 if unknown. `message` indexes `Timeline.messages`, −1 without one.
    """

    start: Column
    end: Column
    name: Column
    device: Column
    stream: Column
    kind: Column
    bytes: Column
    launch: Column
    correlation: Column
    external: Column
    message: Column
    runtime: Column

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class RuntimeCalls:
    """Calls of the host into the runtime and the driver of CUDA or HIP; `name` indexes
    `Timeline.names`."""

    start: Column
    end: Column
    name: Column
    thread: Column
    correlation: Column
    external: Column

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class Annotations:
    """Ranges that users marked (`record_function`, `ProfilerStep#3`). They have the times of the
    host or, if `on_device` is 1, those of the first and last activity launched in the range.
    `message` indexes `Timeline.messages`; ranges that are no collectives of gloo have −1."""

    start: Column
    end: Column
    name: Column
    thread: Column
    on_device: Column
    message: Column

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class Timeline:
    """The events of one traced run.

    `threads` are `process/thread` as text. `devices` are all devices of the process, active or not.
    `shapes` says whether the trace has the shapes of operators, `cut` whether the file ends before
    the trace does. `passed_over` counts the ignored events by category. `group` is the name and the
    number of ranks of the only process group ("" and 0: none, or several).
    """

    operators: Operators
    activities: Activities
    runtime: RuntimeCalls
    annotations: Annotations
    calls: tuple[Call, ...] = ()
    names: tuple[str, ...] = ()
    launches: tuple[Launch, ...] = ()
    threads: tuple[str, ...] = ()
    devices: tuple[DeviceFacts, ...] = ()
    shapes: bool = False
    cut: bool = False
    passed_over: Mapping[str, int] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    group: tuple[str, int] = ("", 0)

    @property
    def active_devices(self) -> tuple[int, ...]:
        """Indexes of the devices that have activities."""
        import numpy

        return tuple(int(index) for index in numpy.unique(self.activities.device))

    @property
    def length(self) -> int:
        """Nanoseconds from the first start to the last end."""
        tables = (self.operators, self.activities, self.runtime, self.annotations)
        return max((int(table.end.max()) for table in tables if len(table)), default=0)
