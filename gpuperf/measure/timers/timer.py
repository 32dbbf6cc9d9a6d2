"""Define what every timer can do once it is open on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.record import TimerFacts

if TYPE_CHECKING:
    from gpuperf.measure.timers.activity import Trace


Call = Callable[[], Any]


def do_nothing() -> None:
    """No watch; the empty call."""


class CannotBlock(Exception):
    """The call cannot be queued behind a blocker: it waits for the device, or queues too much."""


class Sample(NamedTuple):
    """One call: its time in seconds with the timer's floor in it, the SM clock inside it and just
    before it, where they were read."""

    time_s: float
    clock_hz: float | None = None
    before_hz: float | None = None


class OpenTimer:
    """Times one call at a time on one device; what it adds to each itself is the floor in `facts`.

    `watch` is called on the host while a sample runs on the device; a CPU runs nothing beside.
    `periodic` says that `sample_period` takes samples over a period of the launch queue;
    `capture_s` how long it took to capture the call, where it is captured.
    """

    name: TimerName
    facts: TimerFacts
    watch: Callable[[], None] = staticmethod(do_nothing)
    periodic: bool = False
    capture_s: float | None = None

    def admit(self, call: Call) -> None:
        """Try *call*, which has run before, once. Raises: CannotBlock when it cannot be timed."""

    def sample(self, call: Call, idle_s: float, cache: Cache) -> Sample:
        """Idle for *idle_s*, bring the caches into the state *cache*, and time one call. Every
        timer defines its own."""
        raise NotImplementedError(f"timer {self.name} defines no sample")

    def sample_period(self, call: Call, launches: int, idle_s: float, cache: Cache) -> Sample:
        """Return the mean of *call*, which launches *launches* kernels, over a period; one sample
        where the timer is not `periodic`."""
        return self.sample(call, idle_s, cache)

    def facts_of(self, trace: Trace) -> TimerFacts:
        """Return the facts with the floor of the call that *trace* shows, if it has its own."""
        return self.facts

    def recover(self) -> bool:
        """Wait until the device is rested, for a while; return whether it is."""
        return True

    def repeat(self, call: Call) -> Call:
        """Return what the samples were of, to be called once more."""
        return call
