"""What is a timer?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.record import TimerFacts

__all__ = ["Call", "CannotBlock", "Sample", "Timer", "do_nothing"]

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


class Timer(Protocol):
    """Times one call at a time; what it adds to each itself is the floor in `facts`.

    `watch` is called on the host while a sample runs on the device; a CPU runs nothing beside.
    """

    name: TimerName
    facts: TimerFacts
    watch: Callable[[], None]

    def admit(self, call: Call) -> None:
        """Try *call*, which has run before, once. Raises: CannotBlock when it cannot be timed."""

    def sample(self, call: Call, idle_s: float, cache: Cache) -> Sample:
        """Idle for *idle_s*, bring the caches into the state *cache*, and time one call."""
