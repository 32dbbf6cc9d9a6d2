"""What happened when, on the host and on the device, in a run that was traced?

A trace has millions of events: they are columns of numbers here, not objects, and every name, call
and launch stands once in a table that the columns point into. Times are whole nanoseconds since the
first event of the trace. Each table is sorted by start, the longer first, so that what encloses
comes before what it encloses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuperf.model.aten import Call
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.kernelname import KernelKind
from gpuperf.model.record import Launch

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Column = NDArray[numpy.integer]


KERNEL, COPY, SET = range(3)  # kinds of device activities
KINDS: tuple[KernelKind, ...] = ("kernel", "copy", "set")  # in words, by these numbers


@dataclass(frozen=True, eq=False)
class Operators:
    """Operators on the host.

    `call` points into `Timeline.calls`, `thread` into `Timeline.threads`. `sequence` is autograd's
    number, which a forward operator shares with its backward node, and `forward_thread` above 0 on
    such a node; −1 where the trace has none. `external` is what device activities may name an
    operator by; 0 where there is none.
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

    `name` points into `Timeline.names`, `launch` into `Timeline.launches` and `runtime` into
    `Timeline.runtime` (what launched it), each −1 where unknown. `bytes` are those of copies and
    memsets, 0 where unknown.
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
    runtime: Column

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class RuntimeCalls:
    """The host's calls into CUDA's or HIP's runtime and driver; `name` points into
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
    """What users marked (`record_function`, `ProfilerStep#3`), as the host saw it or, where
    `on_device` is 1, from the first to the last activity that was launched in it."""

    start: Column
    end: Column
    name: Column
    thread: Column
    on_device: Column

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class Timeline:
    """One traced run.

    `threads` are `process/thread` as text. `devices` are those that the process saw, used or not.
    `shapes` says whether operators were recorded with theirs, `cut` whether the file ends before
    the trace does. `passed_over` counts, by category, events that have no place here.
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

    @property
    def active_devices(self) -> tuple[int, ...]:
        """Devices that did anything, by their index."""
        import numpy

        return tuple(int(index) for index in numpy.unique(self.activities.device))

    @property
    def length(self) -> int:
        """From the first start to the last end, in nanoseconds."""
        tables = (self.operators, self.activities, self.runtime, self.annotations)
        return max((int(table.end.max()) for table in tables if len(table)), default=0)
