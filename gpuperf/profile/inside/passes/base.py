"""Define what all passes have in common."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Protocol

import torch

from gpuperf.model.program import PassName, PassResult

GAP = 0.02  # share of a pass; if more lies between its steps, it does not belong to them
OWN_S = 20e-6  # the most that a mark itself takes
OTHERS = "steps of another kind come between its steps"


class Pass(Protocol):
    """One pass over some steps of a region: `start`, then `begin` and `end` of each, `finish`.

    If `finish` comes inside a step, that step does not count.
    """

    name: PassName
    done: bool  # it needs no more steps

    @property
    def last(self) -> bool:
        """Whether no later pass can measure what this one does."""

    @property
    def unsure(self) -> bool:
        """Whether the mean of its steps is not precise yet."""

    @property
    def changing(self) -> bool:
        """Whether its later steps take another time than its first ones."""

    def start(self) -> None:
        """Prepare the first step. Raises: RuntimeError, NoCounters if the pass is impossible."""

    def begin(self) -> None:
        """Handle the beginning of a step."""

    def end(self) -> None:
        """Handle the end of a step."""

    def drop(self) -> None:
        """Drop the current step. Raises: RuntimeError if the other steps are spoilt by it."""

    def pause(self) -> None:
        """Handle the start of another region's pass between its steps."""

    def finish(self) -> PassResult:
        """Return the result. Raises: RuntimeError if it is useless."""

    def abandon(self) -> None:
        """Undo all that the pass has changed in the program."""


class Base:
    """A pass that counts its steps, and waits for the GPU if the program has taken one."""

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
    """A pass that times its steps, by the host's clock and by events in the stream; it does not
    wait for the events."""

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
        """Return the seconds of each step that ended."""
        return tuple(self._between(i, i + 1) for i in range(0, 2 * self.steps, 2))

    def whole_s(self) -> float:
        """Return the seconds from the beginning of the first step to the end of the last."""
        return self._between(0, 2 * self.steps - 1)

    def _between(self, first: int, last: int) -> float:
        """Return the seconds between two marks, by the GPU's clock if there is one."""
        if self.cuda:
            return float(self._events[first].elapsed_time(self._events[last])) * 1e-3
        return self._clocks[last] - self._clocks[first]

    def apart(self) -> bool:
        """Whether the host or the device works on something else between the steps."""
        ends = range(1, 2 * self.steps - 1, 2)
        host = sum(max(0.0, self._clocks[i + 1] - self._clocks[i] - OWN_S) for i in ends)
        device = sum(max(0.0, self._between(i, i + 1) - OWN_S) for i in ends)
        return max(host, device) > GAP * self.whole_s()


def capturing() -> bool:
    """Whether a CUDA graph is being captured, which a wait for the device would break."""
    return on_gpu() and bool(torch.cuda.is_current_stream_capturing())


def on_gpu() -> bool:
    """Whether the program has taken a GPU."""
    return bool(torch.cuda.is_initialized())


def abandon(running: Pass) -> None:
    """Abandon a pass, whatever fails in that."""
    with contextlib.suppress(Exception):
        running.abandon()
