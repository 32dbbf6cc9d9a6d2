"""What does a step take, when nobody looks?"""

from __future__ import annotations

import torch

from gpuperf.measure.loading import loading
from gpuperf.measure.passes.base import Timed
from gpuperf.model.program import Passed
from gpuperf.model.samples import Samples

__all__ = ["Plain"]

AHEAD = 0.9  # of the steps: from here on the device does not wait for the host
SCATTERS = 0.01  # half-width of the interval of a step


class Plain(Timed):
    """The time of each step."""

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self._peak_bytes = 0
        self._ahead = 0
        self._data_s = self._loaded_s = 0.0

    @property
    def unsure(self) -> bool:  # type: ignore[override]
        """Whether the steps of a GPU that waits for the host scatter. Behind a trace, where CUPTI
        slows launches down, they tell nothing any more."""
        if not self.cuda or self.steps < 2 or self._ahead >= AHEAD * self.steps:
            return False
        clocks = self._clocks
        host = tuple(clocks[i + 1] - clocks[i] for i in range(0, 2 * self.steps, 2))
        return Samples(host).precision > SCATTERS

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

    def finish(self) -> Passed:
        self.synchronize()
        self.pause()
        seconds = self.steps_s()
        wall_s = sum(seconds) if self.apart() else self.whole_s()
        peak = self._peak_bytes if self.cuda else None
        return Passed(
            self.region, "plain", self.steps, seconds, wall_s, peak, ahead=self._ahead,
            data_s=self._data_s, data_where=loading.where if self._data_s else "",
        )  # fmt: skip
