"""Time a call of any number of kernels on the GPU, gaps included: the timer `blocked`.

The time is that of the window around the call, less the window's floor. The floor differs by call:
on an H200 the stamp after a kernel comes 1.0 µs after the kernel's end, and after some kernels, in
some processes, 0.2 to 0.9 µs later. So each call has its own floor, from traced windows: the time
of a window, less the span that CUPTI recorded in it, less what tracing adds to a window.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from gpuperf.measure.timers.activity import Trace, trace_calls
from gpuperf.measure.timers.timer import Call, Sample
from gpuperf.measure.timers.window import Window, WindowTimer, open_window
from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.record import TimerFacts

KERNEL_WINDOWS = 40  # windows of each reference call with a trace, and as many without

REST_S, MOST_RESTS = 0.05, 40
RESTED_GAP_S, RESTED_WINDOWS = 0.001, 9
# A rested device's window is this many seconds longer at most, and its SM clock at least this share
# of the clock, than when the timer was opened.
RESTED_S, RESTED_CLOCK = 0.1e-6, 0.98


class BlockedTimer(WindowTimer):
    """Timer that takes windows; `facts` has their floor, which is subtracted from each sample."""

    name: TimerName = "blocked"
    periodic = True

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        time.sleep(REST_S)
        self._rested_window_s, clock_hz = self._rested()
        self.facts = TimerFacts(tick_s=window.tick_s, clock_hz=clock_hz)
        self._tracing = self._calibrate()

    def admit(self, call: Call) -> None:
        self.window.take(call)

    def sample(self, call: Call, idle_s: float, cache: Cache) -> Sample:
        reading = self.window.take(call, idle_s, cache)
        return Sample(reading.window_s, reading.clock_hz, reading.before_hz)

    def sample_period(self, call: Call, launches: int, idle_s: float, cache: Cache) -> Sample:
        readings = self.window.take_period(call, launches, idle_s, cache)
        clocks = [r.clock_hz for r in readings if r.clock_hz is not None]
        before = [r.before_hz for r in readings if r.before_hz is not None]
        return Sample(
            statistics.fmean(r.window_s for r in readings),
            statistics.fmean(clocks) if clocks else None,
            min(before, default=None),
        )

    def facts_of(self, trace: Trace) -> TimerFacts:
        if self._tracing is None or not trace.span_s or len(trace.readings) != len(trace.span_s):
            return self.facts
        tracing_s, uncertainty_s = self._tracing
        beyond = [r.window_s - span for r, span in zip(trace.readings, trace.span_s, strict=True)]
        scatter = statistics.stdev(beyond) / math.sqrt(len(beyond)) if len(beyond) > 1 else 0.0
        return replace(
            self.facts,
            floor_s=_middle(beyond) - tracing_s,
            floor_uncertainty_s=uncertainty_s + scatter + self.window.tick_s / 2,
        )

    def recover(self) -> bool:
        """Rest until windows and SM clock are as when the timer was opened, for 2 s at most.

        Return whether the clock is. It recovers at once after a load, but launches stay slow for
        some tenths of a second more: a window of one kernel is then 0.3 µs longer, one of five
        kernels 1.5 µs (H200).
        """
        window_s, clock_hz = self._rested()
        for _ in range(MOST_RESTS):
            if window_s <= self._rested_window_s + RESTED_S and self._is_rested(clock_hz):
                return True
            time.sleep(REST_S)
            window_s, clock_hz = self._rested()
        self._rested_window_s = window_s  # windows stay this long for a reason other than load
        return self._is_rested(clock_hz)

    def _is_rested(self, clock_hz: float | None) -> bool:
        known = self.facts.clock_hz
        return not known or not clock_hz or clock_hz >= RESTED_CLOCK * known

    def _rested(self) -> tuple[float, float | None]:
        """Return the seconds of an empty kernel's window, and the SM clock before it in hertz."""
        self.window.take(self.window.empty)
        readings = [
            self.window.take(self.window.empty, RESTED_GAP_S) for _ in range(RESTED_WINDOWS)
        ]
        clocks = [reading.before_hz for reading in readings if reading.before_hz]
        return (
            statistics.median(reading.window_s for reading in readings),
            statistics.median(clocks) if clocks else None,
        )

    def _reference_calls(self) -> list[Call]:
        """Return calls of one kernel each, elementwise or matmul, with which to find the floor."""
        device = self.window.device
        vectors = [torch.ones(1 << p, dtype=torch.float32, device=device) for p in (10, 18, 20)]
        middle = torch.ones(1 << 16, dtype=torch.float32, device=device)
        squares = [torch.ones(n, n, dtype=torch.float16, device=device) for n in (128, 256, 512)]
        return [
            *(lambda x=x: torch.add(x, x) for x in vectors),
            lambda: torch.exp(middle),
            *(lambda x=x: torch.mm(x, x) for x in squares),
        ]

    def _calibrate(self) -> tuple[float, float] | None:
        """Return what tracing adds to a window, and its uncertainty; None without CUPTI.

        Put into `facts` the floor of a call without a trace: between those of the references.
        """
        floors, added = [], []
        for call in self._reference_calls():
            trace = self._traced(call)
            if trace is None:
                self._bound_floor()
                return None
            window_s = self._windows(call)
            floors.append(window_s - _middle(trace.busy_s))
            added.append(_middle([reading.window_s for reading in trace.readings]) - window_s)
        empty = self._traced(self.window.empty)
        self.facts = replace(
            self.facts,
            floor_s=statistics.median(floors),
            floor_uncertainty_s=(max(floors) - min(floors) + self.window.tick_s) / 2,
            empty_call_s=_middle(empty.busy_s) if empty else 0.0,
        )
        return statistics.median(added), (max(added) - min(added)) / 2

    def _windows(self, call: Call) -> float:
        return _middle(
            [self.window.take(call, cache="cold").window_s for _ in range(KERNEL_WINDOWS)]
        )

    def _traced(self, call: Call) -> Trace | None:
        """Trace the one kernel of *call*; None where CUPTI records no such kernel."""
        call()
        torch.cuda.synchronize()
        trace = trace_calls(self.window, call, 0.0, "cold", KERNEL_WINDOWS)
        if trace is None or trace.kernel_count != 1 or not trace.busy_s:
            return None
        return trace

    def _bound_floor(self) -> None:
        """Estimate the floor without CUPTI, and store it in `facts` with its uncertainty.

        An empty kernel takes between 0 s and the time that each further empty kernel adds to a
        window, which is its duration and the gap before it. The floor is the window less half that.
        """

        def many() -> None:
            for _ in range(8):
                self.window.empty()

        window_s = self._windows(self.window.empty)
        step_s = (self._windows(many) - window_s) / 7
        self.facts = replace(
            self.facts,
            floor_s=window_s - step_s / 2,
            floor_uncertainty_s=step_s / 2,
            empty_call_s=step_s / 2,
        )


def open_timer(device: torch.device) -> BlockedTimer:
    """Measure what a window adds on *device*. Raises: CannotMeasure."""
    return BlockedTimer(open_window(device))


def _middle(values: Sequence[float]) -> float:
    """Return the mean of the middle half: finer than the tick, and unaffected by outliers."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return statistics.fmean(ordered[quarter : len(ordered) - quarter])
