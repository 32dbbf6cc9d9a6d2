"""What does the GPU itself spend on a call of any number of kernels, their gaps included?

The window around it, less what a window adds to a kernel's own time. That floor is measured in
this process on several kernels, against CUPTI's record of each.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

from gpuperf.measure.timers.activity import trace_calls
from gpuperf.measure.timers.timer import Call, Sample
from gpuperf.measure.timers.window import Window
from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.record import TimerFacts

__all__ = ["BlockedTimer"]

FLOOR_WINDOWS = 40  # of each kernel that the floor is taken of
REST_S, MOST_RESTS = 0.05, 60
RESTED_GAP_S, RESTED_WINDOWS = 0.001, 9
RESTED_S, RESTED_CLOCK = 0.1e-6, 0.98  # from the first window, and of the first clock


class BlockedTimer:
    """Windows, less their floor."""

    name: TimerName = "blocked"

    def __init__(self, window: Window) -> None:
        self.window = window
        time.sleep(REST_S)
        self._rested_window_s, self._rested_clock_hz = self._rested()
        self.facts = self._measure_floor()

    @property
    def watch(self) -> Callable[[], None]:
        """Called on the host while a sample runs."""
        return self.window.watch

    @watch.setter
    def watch(self, watch: Callable[[], None]) -> None:
        self.window.watch = watch

    def admit(self, call: Call) -> None:
        """Raises: CannotBlock when *call* waits for the device, or queues more than it holds."""
        self.window.take(call)

    def sample(self, call: Call, idle_s: float, cache: Cache) -> Sample:
        """One call. Raises: CannotBlock."""
        reading = self.window.take(call, idle_s, cache)
        return Sample(reading.window_s - self.facts.floor_s, reading.clock_hz, reading.before_hz)

    def _reference_calls(self) -> list[Call]:
        """Single kernels of the common sorts: elementwise ones and matmuls."""
        device = self.window.device
        vectors = [torch.ones(1 << p, device=device) for p in (10, 18, 20)]
        middle = torch.ones(1 << 16, device=device)
        squares = [torch.ones(n, n, dtype=torch.float16, device=device) for n in (128, 256, 512)]
        return [
            *(lambda x=x: torch.add(x, x) for x in vectors),
            lambda: torch.exp(middle),
            *(lambda x=x: torch.mm(x, x) for x in squares),
        ]

    def _measure_floor(self) -> TimerFacts:
        """What a window adds to a kernel's own duration.

        It differs a little between kernels (arguments, shared memory, writes to drain), and a
        kernel that does nothing has the least of it. So it is taken of seven real ones: the floor
        is their median; half the range without the outermost, and half a tick, its uncertainty.
        """
        empty_s = self._kernel_seconds(self.window.empty)
        floors = []
        for call in self._reference_calls():
            window_s, kernel_s = self._windows(call), self._kernel_seconds(call)
            if kernel_s is None:
                return self._floor_without_cupti()
            floors.append(window_s - kernel_s)
        _, low, *_, high, _ = sorted(floors)
        return TimerFacts(
            floor_s=statistics.median(floors),
            floor_uncertainty_s=(high - low + self.window.tick_s) / 2,
            empty_call_s=empty_s or 0.0,
            tick_s=self.window.tick_s,
            clock_hz=self._rested_clock_hz,
        )

    def _windows(self, call: Call) -> float:
        """The usual window of *call* in seconds."""
        call()
        torch.cuda.synchronize()
        return _middle([self.window.take(call, cache="cold")[0] for _ in range(FLOOR_WINDOWS)])

    def _kernel_seconds(self, call: Call) -> float | None:
        """The duration of the one kernel of *call*, in windows like the timed ones."""
        trace = trace_calls(self.window, call, 0.0, "cold", FLOOR_WINDOWS)
        if trace is None or trace.kernel_count != 1 or not trace.busy_s:
            return None
        return _middle(trace.busy_s)

    def recover(self) -> bool:
        """Rest until the card is as it was at first, for 3 s at most; whether it is.

        The SM clock is back at once after a load, but launches stay slow for some tenths of a
        second more: a window of one kernel is then 0.3 µs longer, of five kernels 1.5 µs (H200).
        """
        for _ in range(MOST_RESTS):
            window_s, clock_hz = self._rested()
            quick = window_s <= self._rested_window_s + RESTED_S
            if quick and (clock_hz or 0.0) >= RESTED_CLOCK * (self.facts.clock_hz or 0.0):
                return True
            time.sleep(REST_S)
        return False

    def _rested(self) -> tuple[float, float | None]:
        """The window of an empty kernel, and the SM clock before it."""
        self.window.take(self.window.empty)
        seen = [self.window.take(self.window.empty, RESTED_GAP_S) for _ in range(RESTED_WINDOWS)]
        clocks = [reading.before_hz for reading in seen if reading.before_hz]
        return (
            statistics.median(reading.window_s for reading in seen),
            statistics.median(clocks) if clocks else None,
        )

    def _floor_without_cupti(self) -> TimerFacts:
        """Bounds only: an empty kernel takes more than nothing, and less than each further one in
        the same window adds, which is its duration and the step to the next."""

        def many() -> None:
            for _ in range(8):
                self.window.empty()

        window_s = self._windows(self.window.empty)
        step_s = (self._windows(many) - window_s) / 7
        return TimerFacts(
            floor_s=window_s - step_s / 2,
            floor_uncertainty_s=step_s / 2,
            empty_call_s=step_s / 2,
            tick_s=self.window.tick_s,
            clock_hz=self._rested_clock_hz,
        )


def _middle(values: Sequence[float]) -> float:
    """The mean of the middle half: finer than the tick, and blind to outliers."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return statistics.fmean(ordered[quarter : len(ordered) - quarter])
