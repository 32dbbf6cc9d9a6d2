"""Read hardware counters over steps of the program."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from gpuperf.measure.counters.cupti import NoCounters
from gpuperf.measure.counters.device import DeviceCounters, open_counters
from gpuperf.model.program import PassName, PassResult
from gpuperf.profile.inside.passes.base import Base, Timed

# The most kernels of a step that are counted, and those for which there is room if their number is
# unknown. Room takes time: a pass with room for 16384 took about 30 s on an H200, for 1000 two.
MOST_KERNELS, UNKNOWN = 65536, 8192
MOST_PASSES = 64  # steps that CUPTI may need for all counters
TOGETHER = "kernels that wait for those of another GPU cannot run one by one"
BETWEEN = "bytes moved between the steps would count as theirs: mark the whole round of the loop"


class Counting(Timed):
    """A count of the DRAM bytes of all steps together, at full speed."""

    name: PassName = "counters"

    def __init__(self, region: str, longest_s: float) -> None:
        super().__init__(region)
        self._longest_s = longest_s
        self._within = contextlib.ExitStack()
        self._sampler: Any = None
        self._known: Any = None
        self._counting = False

    def start(self) -> None:
        sampler = _counters(self.cuda).sampler(self._longest_s)
        self._sampler, self._known = self._within.enter_context(sampler)
        super().start()

    def begin(self) -> None:
        if not self._counting:
            self._counting = True
            self.synchronize()
            self._sampler.begin()
        super().begin()

    def drop(self) -> None:
        Base.drop(self)

    def finish(self) -> PassResult:
        self.synchronize()
        try:
            if self.apart():
                raise RuntimeError(BETWEEN)
            moved = self._sampler.end()
        finally:
            self._within.close()
        each = self._known.factor * self.steps
        counted = {
            "dram_read_bytes": moved.read / each,
            "dram_written_bytes": moved.written / each,
            "dram_factor": float(self._known.factor),
            "dram_ratio": self._known.ratio,
            "dram_uncertainty_bytes": self._known.error * (moved.read + moved.written) / each,
        }
        return PassResult(
            self.region, "counters", self.steps, wall_s=moved.seconds, counters=counted
        )

    def abandon(self) -> None:
        self._within.close()


class Kernels(Base):
    """Counters of each kernel of a step.

    CUPTI runs the kernels one by one, and reads some of the counters in each step.
    """

    name: PassName = "kernels"

    def __init__(self, region: str, launched: int) -> None:
        """Make room for twice the *launched* kernels of a traced step (0: unknown)."""
        super().__init__(region)
        self._most = min(2 * launched or UNKNOWN, MOST_KERNELS)
        self._within = contextlib.ExitStack()
        self._counter: Any = None

    def start(self) -> None:
        counters = _counters(self.cuda)
        if _on_several():
            raise NoCounters("unsupported", TOGETHER)
        self._counter = self._within.enter_context(counters.step_kernels(self._most))
        if self._counter.counter.passes > MOST_PASSES:
            passes = self._counter.counter.passes
            raise NoCounters("unsupported", f"the counters of kernels would need {passes} steps")
        super().start()

    def begin(self) -> None:
        self.synchronize()
        self._counter.start()

    def end(self) -> None:
        self.done = self._counter.stop()
        super().end()

    def finish(self) -> PassResult:
        try:
            if not self.done:
                passes = self._counter.counter.passes
                raise RuntimeError(f"the counters need {passes} steps, and had {self.steps}")
            counts = self._counter.counts()
        finally:
            with contextlib.suppress(NoCounters):  # keep the counts, or the first error
                self._within.close()
        return PassResult(self.region, "kernels", self.steps, kernels=tuple(counts))

    def abandon(self) -> None:
        self._within.close()


def _on_several() -> bool:
    """Return whether the program's kernels may wait for those of another GPU."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    used = (torch.cuda.memory_allocated(i) > 0 for i in range(torch.cuda.device_count()))
    return bool(distributed) or sum(used) > 1


def _counters(cuda: bool) -> DeviceCounters:
    """Open the counters of the program's GPU. Raises: NoCounters."""
    if not cuda:
        raise NoCounters("unsupported", "only NVIDIA GPUs have counters that gpuperf reads")
    device = torch.device("cuda", torch.cuda.current_device())
    return open_counters(device, torch.cuda.get_device_properties(device).L2_cache_size)
