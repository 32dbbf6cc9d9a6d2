"""Time a call in a CUDA graph of many calls, without launches by the host: the timer `graph`.

The graph is replayed in a window, whose time is divided by the number of calls. It includes the
gaps between the kernels, and the first calls have warmed the cache for the later ones: it is the
time of a kernel in a captured loop, not of a kernel alone.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import replace
from typing import Any

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.measure.timers.activity import trace_calls
from gpuperf.measure.timers.timer import Call, CannotBlock, Sample
from gpuperf.measure.timers.window import Window, WindowTimer, open_window
from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.record import TimerFacts

GRAPH_S = 200e-6  # the calls in one graph take this long: the window's floor is 1 % of it
MOST_CALLS = 64
FLOOR_WINDOWS = 20


class GraphTimer(WindowTimer):
    """Timer that replays a captured graph in windows."""

    name: TimerName = "graph"

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self.capture_s: float = 0.0
        self.calls = 1
        self._output: Any = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._floor_s = 0.0
        self._vector = torch.ones(1 << 16, dtype=torch.float32, device=window.device)
        self.facts = TimerFacts(tick_s=window.tick_s)
        self._measure_floor()

    def admit(self, call: Call) -> None:
        """Capture as many calls as take `GRAPH_S` together. Raises: CannotBlock if that fails."""
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        once_s = max(time.perf_counter() - began, 1e-6)
        self._capture(call, max(1, min(MOST_CALLS, math.ceil(GRAPH_S / once_s))))
        self.window.take(self._replay)
        taken = self.window.take(self._replay).window_s / self.calls
        if taken < once_s / 2:  # the first estimate was mostly launch time: estimate again
            self._capture(call, max(1, min(MOST_CALLS, math.ceil(GRAPH_S / taken))))
            self.window.take(self._replay)
        self.facts = replace(
            self.facts,
            floor_s=self._floor_s / self.calls,
            floor_uncertainty_s=self._floor_s / 10 / self.calls,
            tick_s=self.window.tick_s / self.calls,
        )

    def sample(self, call: Call, idle_s: float, cache: Cache) -> Sample:
        reading = self.window.take(self._replay, idle_s, cache)
        return Sample(reading.window_s / self.calls, reading.clock_hz, reading.before_hz)

    def repeat(self, call: Call) -> Call:
        """Return a replay of the graph, which returns the result of its last call."""
        return self._again

    def _again(self) -> Any:
        self._replay()
        return self._output

    def _least(self) -> None:
        torch.exp(self._vector)

    def _replay(self) -> None:
        assert self._graph is not None
        self._graph.replay()

    def _capture(self, call: Call, calls: int) -> None:
        began, stream = time.perf_counter(), torch.cuda.current_stream()
        try:
            graph = self._captured(call, calls)
        except RuntimeError as error:
            # A capture that fails leaves its own stream current, and torch's random generator in
            # capture; one that succeeds sets it right.
            torch.cuda.set_stream(stream)
            torch.cuda.synchronize()
            self._captured(self._least, 1)
            reason = str(error).strip().splitlines()[0]
            raise CannotBlock(f"the call cannot be captured in a CUDA graph: {reason}") from None
        torch.cuda.synchronize()
        self.capture_s = time.perf_counter() - began
        self.calls, self._graph = calls, graph

    def _captured(self, call: Call, calls: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(self.window.device)):
            for _ in range(calls):
                output = call()
        self._output = output
        return graph

    def _measure_floor(self) -> None:
        """Measure the floor by a graph of one kernel: its window less the kernel's own time."""
        self._least()
        self._capture(self._least, 1)
        self.window.take(self._replay)
        windows = [self.window.take(self._replay).window_s for _ in range(FLOOR_WINDOWS)]
        trace = trace_calls(self.window, self._replay, 0.0, "hot", FLOOR_WINDOWS)
        if trace is None or not trace.busy_s:
            raise CannotMeasure(
                "the timer 'graph' needs kernel records for its floor, and CUPTI gave none",
                "end other profilers and try again",
            )
        self._floor_s = statistics.median(windows) - statistics.median(trace.busy_s)


def open_timer(device: torch.device) -> GraphTimer:
    """Measure what a graph's window adds on *device*. Raises: CannotMeasure."""
    return GraphTimer(open_window(device))
