"""What does a step take, when nobody looks?"""

from __future__ import annotations

import math
import statistics

import torch

from gpuperf.model.program import PassResult
from gpuperf.model.samples import mean_precision
from gpuperf.profile.inside.loading import loading
from gpuperf.profile.inside.passes.base import Timed

AHEAD = 0.9  # of the steps: from here on the device does not wait for the host
SCATTERS = 0.01  # half-width of the interval of the mean step
CHANGES, CLEAR = 0.02, 3.0  # of the mean between its halves: as a fraction, and in standard errors


class Plain(Timed):
    """The time of each step."""

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self._peak_bytes = 0
        self._ahead = 0
        self._data_s = self._loaded_s = 0.0

    @property
    def last(self) -> bool:  # type: ignore[override]
        """Whether the GPU waits for the host: behind a trace, where CUPTI slows launches down, its
        steps tell nothing any more."""
        return self.cuda and self.steps >= 2 and self._ahead < AHEAD * self.steps

    @property
    def unsure(self) -> bool:  # type: ignore[override]
        """Whether the interval of the mean is wider than it may be."""
        return mean_precision(self._host_s()) > SCATTERS

    @property
    def changing(self) -> bool:  # type: ignore[override]
        """Whether the second half of its steps takes another time than the first, and not by
        chance."""
        times = self._host_s()
        half = len(times) // 2
        if half < 2:
            return False
        first, second = times[:half], times[half:]
        apart_s = abs(statistics.fmean(first) - statistics.fmean(second))
        error_s = math.sqrt(sum(statistics.variance(one) / len(one) for one in (first, second)))
        return apart_s > max(CLEAR * error_s, CHANGES * statistics.fmean(times))

    def _host_s(self) -> tuple[float, ...]:
        """Seconds of each step by the host's clock: the device's is not read before the end."""
        clocks = self._clocks
        return tuple(clocks[i + 1] - clocks[i] for i in range(0, 2 * self.steps, 2))

    def start(self) -> None:
        """Without a wait: a step that began on an idle device would have to fill it first."""
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()

    def begin(self) -> None:
        super().begin()
        self._loaded_s = loading.waited_s

    def end(self) -> None:
        self._data_s += loading.waited_s - self._loaded_s
        # One question a step: the mark at its beginning is still to come.
        self._ahead += bool(self.cuda and self._events and not self._events[-1].query())
        super().end()

    def pause(self) -> None:
        """Another pass will reset the peak."""
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
