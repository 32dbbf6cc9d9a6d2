"""Define the interface of a timer that is open on a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.record import TimerFacts

if TYPE_CHECKING:
    from gpuperf.measure.timers.activity import Trace


Call = Callable[[], Any]


def do_nothing() -> None:
    """Do nothing; this is the default `watch` of a timer, and the empty call."""


class CannotBlock(Exception):
    """The call cannot be queued behind a blocker: it waits for the device, or queues too much."""


class Sample(NamedTuple):
    """Seconds of one call with the timer's floor, and the SM clock in hertz in and before it."""

    time_s: float
    clock_hz: float | None = None
    before_hz: float | None = None


class OpenTimer(ABC):
    """Timer of one call at a time on one device; `facts` has the floor that it adds to a time.

    `watch` is called on the host while a sample runs on a GPU. `periodic` says whether
    `sample_period` takes samples over a period of the launch queue; `capture_s` is the time that it
    took to capture the call, for a timer that captures calls.
    """

    name: TimerName
    facts: TimerFacts
    watch: Callable[[], None] = staticmethod(do_nothing)
    periodic: bool = False
    capture_s: float | None = None

    def admit(self, call: Call) -> None:  # noqa: B027 - most timers need not prepare
        """Prepare to time *call*, which has run once. Raises: CannotBlock if it cannot be timed."""

    @abstractmethod
    def sample(self, call: Call, idle_s: float, cache: Cache) -> Sample:
        """Idle for *idle_s*, bring the caches into the state *cache*, and time one call.

        Raises: CannotBlock.
        """

    def sample_period(self, call: Call, launches: int, idle_s: float, cache: Cache) -> Sample:
        """Return the mean time of *call*, which launches *launches* kernels, over a queue's period.

        A timer that is not `periodic` returns one sample. Raises: CannotBlock.
        """
        return self.sample(call, idle_s, cache)

    def facts_in(self, cache: Cache, idle_s: float) -> TimerFacts:
        """Return `facts`, with the floor in this state of the caches, after a rest of *idle_s*, if
        the floor differs."""
        return self.facts

    def facts_of(self, trace: Trace) -> TimerFacts:
        """Return `facts`, with the floor of the call in *trace* if the floor differs by call."""
        return self.facts

    def recover(self) -> bool:
        """Wait a limited time until the device is rested; return whether it is."""
        return True

    def repeat(self, call: Call) -> Call:
        """Return the function that a sample runs, such as the replay of a graph of *call*."""
        return call
