"""Define the interface of a profiling pass, and the marks and clocks that passes share."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, Protocol

import torch

from gpuperf.model.program import PassName, PassResult

GAP = 0.02  # share of a pass between its steps from which on that time is not part of the steps
OWN_S = 20e-6  # the most seconds that a mark itself takes
OTHERS = "forward passes of another shape come between the steps of this pass"


class Pass(Protocol):
    """One pass over some steps of a region: `start`, then `begin` and `end` of each, `finish`.

    If `finish` comes inside a step, that step does not count.
    """

    name: PassName
    done: bool  # whether the pass needs no more steps

    @property
    def last(self) -> bool:
        """Return whether no later pass can measure what this one does."""

    @property
    def unsure(self) -> bool:
        """Return whether the mean time of its steps is not precise yet."""

    @property
    def changing(self) -> bool:
        """Return whether its later steps take another time than its first ones."""

    def start(self) -> None:
        """Prepare the first step. Raises: RuntimeError, NoCounters if the pass is impossible."""

    def begin(self) -> None:
        """Handle the beginning of a step."""

    def end(self) -> None:
        """Handle the end of a step."""

    def drop(self) -> None:
        """Leave out the current step. Raises: RuntimeError if that spoils the whole pass."""

    def pause(self) -> None:
        """Handle the start of another region's plain pass, which resets the peak of memory."""

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
    """A pass that marks the begin and end of its steps, by the host's clock and by CUDA events in
    the stream, for which it does not wait."""

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
        """Return whether over `GAP` of the time lies between the steps, on host or device."""
        ends = range(1, 2 * self.steps - 1, 2)
        host = sum(max(0.0, self._clocks[i + 1] - self._clocks[i] - OWN_S) for i in ends)
        device = sum(max(0.0, self._between(i, i + 1) - OWN_S) for i in ends)
        return max(host, device) > GAP * self.whole_s()


def capturing() -> bool:
    """Return whether a CUDA graph is being captured, which a wait for the device would break."""
    return on_gpu() and bool(torch.cuda.is_current_stream_capturing())


def in_compiled() -> bool:
    """Return whether a function that torch.compile wraps is running on this thread."""
    frame = sys._getframe(1) if "torch._dynamo.eval_frame" in sys.modules else None
    while frame is not None and frame.f_code.co_name != "compile_wrapper":
        frame = frame.f_back
    return frame is not None


def on_gpu() -> bool:
    """Return whether the program has initialised CUDA."""
    return bool(torch.cuda.is_initialized())


def abandon(running: Pass) -> None:
    """Undo what the pass has changed in the program, and ignore errors."""
    with contextlib.suppress(Exception):
        running.abandon()
