"""Time the steps of a program that runs undisturbed."""

from __future__ import annotations

import math
import statistics

import torch

from gpuperf.model.program import PassResult
from gpuperf.model.samples import mean_precision
from gpuperf.profile.inside.loading import loading
from gpuperf.profile.inside.passes.base import Timed

AHEAD = 0.9  # share of the steps from which on the device does not wait for the host
SCATTERS = 0.01  # relative half-width of the interval of the mean step
CHANGES, CLEAR = 0.02, 3.0  # change of the mean between halves: a fraction, and standard errors


class Plain(Timed):
    """A pass that only measures the time of each step, its wait for data, and peak memory."""

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self._peak_bytes = 0
        self._ahead = 0
        self._data_s = self._loaded_s = 0.0

    @property
    def last(self) -> bool:  # type: ignore[override]
        """Return whether the GPU waits for the host: CUPTI slows launches down after a trace, so
        that a later pass cannot measure the time of these steps."""
        return self.cuda and self.steps >= 2 and self._ahead < AHEAD * self.steps

    @property
    def unsure(self) -> bool:  # type: ignore[override]
        """Return whether the half-width of the mean's interval is over `SCATTERS` of the mean."""
        return mean_precision(self._host_s()) > SCATTERS

    @property
    def changing(self) -> bool:  # type: ignore[override]
        """Return whether the mean time changes from the first half of the steps to the second."""
        times = self._host_s()
        half = len(times) // 2
        if half < 2:
            return False
        first, second = times[:half], times[half:]
        apart_s = abs(statistics.fmean(first) - statistics.fmean(second))
        error_s = math.sqrt(sum(statistics.variance(s) / len(s) for s in (first, second)))
        return apart_s > max(CLEAR * error_s, CHANGES * statistics.fmean(times))

    def _host_s(self) -> tuple[float, ...]:
        """Return the host's seconds of each step: the device's clock is not read before the end."""
        clocks = self._clocks
        return tuple(clocks[i + 1] - clocks[i] for i in range(0, 2 * self.steps, 2))

    def start(self) -> None:
        """Start without a wait for the device: the next step would begin on an idle device, and
        last longer than the others."""
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()

    def begin(self) -> None:
        super().begin()
        self._loaded_s = loading.waited_s

    def end(self) -> None:
        self._data_s += loading.waited_s - self._loaded_s
        # The device is behind if it has not passed the mark at the beginning of this step.
        self._ahead += bool(self.cuda and self._events and not self._events[-1].query())
        super().end()

    def pause(self) -> None:
        """Save the peak of memory, which the plain pass of another region resets."""
        if self.cuda:
            self._peak_bytes = max(self._peak_bytes, torch.cuda.max_memory_allocated())

    def finish(self) -> PassResult:
        self.synchronize()
        self.pause()
        seconds = self.steps_s()
        wall_s = sum(seconds) if self.apart() else self.whole_s()
        peak = self._peak_bytes if self.cuda else None
        return PassResult(
            self.region,
            "plain",
            self.steps,
            seconds,
            wall_s,
            peak,
            ahead=self._ahead,
            data_s=self._data_s,
            data_where=loading.where if self._data_s else "",
        )
