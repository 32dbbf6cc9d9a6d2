"""What has every pass in common?"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Protocol

import torch

from gpuperf.model.program import PassName, PassResult

GAP = 0.02  # of a pass: more than this between its steps is no part of them
OWN_S = 20e-6  # that a mark may take itself
OTHERS = "steps of another kind come between its steps"


class Pass(Protocol):
    """One pass over some steps of a region: `start`, then `begin` and `end` of each, `finish`.

    `finish` may come in a step, which does not count then.
    """

    name: PassName
    done: bool  # before it has all the steps that it might have

    @property
    def last(self) -> bool:
        """Whether no later pass can tell what this one does."""

    @property
    def unsure(self) -> bool:
        """Whether the mean of its steps is not sure yet."""

    @property
    def changing(self) -> bool:
        """Whether its later steps take another time than its first ones."""

    def start(self) -> None:
        """Before the first step. Raises: RuntimeError, NoCounters where it cannot be had."""

    def begin(self) -> None:
        """A step begins."""

    def end(self) -> None:
        """It ends."""

    def drop(self) -> None:
        """The step that began is none. Raises: RuntimeError where that spoils the others."""

    def pause(self) -> None:
        """Between its steps another region's pass starts."""

    def finish(self) -> PassResult:
        """What was found. Raises: RuntimeError where it is of no use."""

    def abandon(self) -> None:
        """Leave no trace."""


class Base:
    """Counts steps, and knows whether a GPU is at work: none is asked for that the program has not
    taken."""

    name: PassName = "plain"
    done = False
    last = unsure = changing = False

    def __init__(self, region: str) -> None:
        self.region, self.steps = region, 0
        self.cuda = torch.cuda.is_initialized()

    def start(self) -> None:
        self.synchronize()

    def begin(self) -> None:
        pass

    def end(self) -> None:
        self.steps += 1

    def drop(self) -> None:
        raise RuntimeError(OTHERS)

    def pause(self) -> None:
        pass

    def abandon(self) -> None:
        pass

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


class Timed(Base):
    """Where its steps begin and end, by the host's clock and by events in the stream: nothing waits
    for those."""

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self._clocks: list[float] = []
        self._events: list[Any] = []

    def begin(self) -> None:
        self._mark()

    def end(self) -> None:
        super().end()
        self._mark()

    def drop(self) -> None:
        self._clocks.pop()
        if self.cuda:
            self._events.pop()

    def _mark(self) -> None:
        self._clocks.append(time.perf_counter())
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)

    def steps_s(self) -> tuple[float, ...]:
        """The seconds of each step that ended."""
        return tuple(self._between(i, i + 1) for i in range(0, 2 * self.steps, 2))

    def whole_s(self) -> float:
        """From the beginning of the first to the end of the last."""
        return self._between(0, 2 * self.steps - 1)

    def _between(self, first: int, last: int) -> float:
        """Seconds between two marks, by the device's clock where it is a GPU."""
        if self.cuda:
            return float(self._events[first].elapsed_time(self._events[last])) * 1e-3
        return self._clocks[last] - self._clocks[first]

    def apart(self) -> bool:
        """Whether something else is done between its steps, by the host or by the device."""
        ends = range(1, 2 * self.steps - 1, 2)
        host = sum(max(0.0, self._clocks[i + 1] - self._clocks[i] - OWN_S) for i in ends)
        device = sum(max(0.0, self._between(i, i + 1) - OWN_S) for i in ends)
        return max(host, device) > GAP * self.whole_s()


def capturing() -> bool:
    """Whether a CUDA graph is being captured: whoever waits for the device then breaks it."""
    return on_gpu() and bool(torch.cuda.is_current_stream_capturing())


def on_gpu() -> bool:
    """Whether the program has taken one."""
    return bool(torch.cuda.is_initialized())


def abandon(running: Pass) -> None:
    """Leave no trace of it; its reason is told already."""
    with contextlib.suppress(Exception):
        running.abandon()
