"""What does the GPU itself spend on a call of any number of kernels, their gaps included?

The window around it, less what a window adds to a kernel's own time. That floor is measured on
several kernels, against CUPTI's record of each, and among the samples: on an H200 it moves by
0.3 µs within a process, with a load or without a reason that could be found.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from gpuperf.measure.timers.activity import trace_calls
from gpuperf.measure.timers.timer import Call, Sample
from gpuperf.measure.timers.window import Window
from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.record import TimerFacts

__all__ = ["BlockedTimer"]

KERNEL_WINDOWS = 40  # of each reference, for its duration
WINDOWS_AT_FIRST = 4  # of each reference, for the floor; then one with every third sample
REFERENCE_EVERY = 3

REST_S, MOST_RESTS = 0.05, 40
RESTED_GAP_S, RESTED_WINDOWS = 0.001, 9
RESTED_S, RESTED_CLOCK = 0.1e-6, 0.98  # from the first window, and of the first clock


class BlockedTimer:
    """Windows, and their floor in `facts`."""

    name: TimerName = "blocked"

    def __init__(self, window: Window) -> None:
        self.window = window
        time.sleep(REST_S)
        self._rested_window_s, clock_hz = self._rested()
        empty_s = self._kernel_seconds(window.empty)
        self._references = self._reference_calls()
        self._kernels_s = [self._kernel_seconds(call) for call in self._references]
        self._seen: list[list[float]] = []
        self._taken = 0
        self.facts = TimerFacts(
            empty_call_s=empty_s or 0.0, tick_s=window.tick_s, clock_hz=clock_hz
        )
        self._renew_floor()

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
        self._renew_floor()
        self.window.take(call)  # leaves a cache that is hot for it

    def sample(self, call: Call, idle_s: float, cache: Cache) -> Sample:
        """One call. Raises: CannotBlock."""
        self._taken += 1
        if self._taken % REFERENCE_EVERY == 0 and cache in ("cold", "cold-dirty"):
            self._take_reference(self._taken // REFERENCE_EVERY, idle_s)
            self._update_floor()
            idle_s = 0.0
        reading = self.window.take(call, idle_s, cache)
        return Sample(reading.window_s, reading.clock_hz, reading.before_hz)

    def recover(self) -> bool:
        """Rest until the card is as it was at first, for 2 s at most; whether its clock is.

        The SM clock is back at once after a load, but launches stay slow for some tenths of a
        second more: a window of one kernel is then 0.3 µs longer, of five kernels 1.5 µs (H200).
        """
        window_s, clock_hz = self._rested()
        for _ in range(MOST_RESTS):
            if window_s <= self._rested_window_s + RESTED_S and self._is_rested(clock_hz):
                return True
            time.sleep(REST_S)
            window_s, clock_hz = self._rested()
        self._rested_window_s = window_s  # slow for another reason, and there to stay
        return self._is_rested(clock_hz)

    def _is_rested(self, clock_hz: float | None) -> bool:
        known = self.facts.clock_hz
        return not known or not clock_hz or clock_hz >= RESTED_CLOCK * known

    def _rested(self) -> tuple[float, float | None]:
        """The window of an empty kernel, and the SM clock before it."""
        self.window.take(self.window.empty)
        seen = [self.window.take(self.window.empty, RESTED_GAP_S) for _ in range(RESTED_WINDOWS)]
        clocks = [reading.before_hz for reading in seen if reading.before_hz]
        return (
            statistics.median(reading.window_s for reading in seen),
            statistics.median(clocks) if clocks else None,
        )

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

    def _renew_floor(self) -> None:
        """Forget the windows of the references, and take some of each."""
        if None in self._kernels_s:
            self._bound_floor()
            return
        self._taken, self._seen = 0, [[] for _ in self._references]
        for index in range(WINDOWS_AT_FIRST * len(self._references)):
            self._take_reference(index, 0.0)
        self._update_floor()

    def _take_reference(self, index: int, idle_s: float) -> None:
        if None in self._kernels_s:
            return
        place = index % len(self._references)
        reading = self.window.take(self._references[place], idle_s, "cold")
        self._seen[place].append(reading.window_s)

    def _update_floor(self) -> None:
        """What a window adds to a kernel's own duration.

        For most kernels of a process it is the same within 0.05 µs, but some start late in all of
        their windows, by 0.2 to 0.6 µs and outside of CUPTI's time: on an H200 a 128³ matmul in one
        process of two, a 1024³ one in one of four. So it is taken of seven, and from the lower end:
        the floor is the mean of the second and third. The first kernel of a call may be a late one:
        the uncertainty is half of what lies from the first to the last, and half a tick.
        """
        if None in self._kernels_s:
            return
        floors = sorted(
            _middle(windows) - (kernel_s or 0.0)
            for windows, kernel_s in zip(self._seen, self._kernels_s, strict=True)
        )
        self.facts = replace(
            self.facts,
            floor_s=statistics.fmean(floors[1:3]),
            floor_uncertainty_s=(floors[-1] - floors[0] + self.window.tick_s) / 2,
        )

    def _kernel_seconds(self, call: Call) -> float | None:
        """The duration of the one kernel of *call*, in windows like the timed ones."""
        call()
        torch.cuda.synchronize()
        trace = trace_calls(self.window, call, 0.0, "cold", KERNEL_WINDOWS)
        if trace is None or trace.kernel_count != 1 or not trace.busy_s:
            return None
        return _middle(trace.busy_s)

    def _bound_floor(self) -> None:
        """Without CUPTI, bounds only: an empty kernel takes more than nothing, and less than each
        further one in the same window adds, which is its duration and the step to the next."""

        def many() -> None:
            for _ in range(8):
                self.window.empty()

        def windows(call: Call) -> float:
            return _middle([self.window.take(call).window_s for _ in range(KERNEL_WINDOWS)])

        window_s = windows(self.window.empty)
        step_s = (windows(many) - window_s) / 7
        self.facts = replace(
            self.facts,
            floor_s=window_s - step_s / 2,
            floor_uncertainty_s=step_s / 2,
            empty_call_s=step_s / 2,
        )


def _middle(values: Sequence[float]) -> float:
    """The mean of the middle half: finer than the tick, and blind to outliers."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return statistics.fmean(ordered[quarter : len(ordered) - quarter])
