"""What do the hardware's counters say of a case, or why do they say nothing?

Nothing that goes wrong here costs the time that was taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gpuperf.measure.counters import Counters, NoCounters, open_counters, summed, with_counts
from gpuperf.measure.device import Device
from gpuperf.measure.stopwatch import Timing
from gpuperf.measure.timers.timer import Call
from gpuperf.model.contract import Cache, Counting
from gpuperf.model.record import Caveat, Record, without_counters

__all__ = ["CaseCounter"]

UNMATCHED = Caveat(
    "unmatched-kernels",
    "the profiler saw other kernels than the trace: their counters are told together only",
    "does the call always launch the same kernels?",
)


@dataclass
class CaseCounter:
    """Counts for one case, as *counting* asks; `heard` is called as a sign of life."""

    device: Device
    counting: Counting
    heard: Callable[[], None]
    _refused: Exception | None = field(default=None, init=False)

    def open(self) -> None:
        """Hold the counters against known traffic: large copies, so before anything is allocated.

        Raises: RuntimeError when the device is lost.
        """
        if self.counting == "off":
            return
        self.heard()
        try:
            self._counters().calibration()
        except Exception as error:
            self.device.synchronize()
            self._refused = error

    def count(self, record: Record, call: Call, timing: Timing) -> Record:
        """*record* with what the counters say of *call*. Raises: RuntimeError as `open` does."""
        if self.counting == "off":
            return record
        try:
            if self._refused is not None:
                raise self._refused
            record = self._with_traffic(record, call, timing)
            if self.counting == "kernels":
                record = self._with_kernels(record, call, timing)
            return record
        except Exception as error:
            self.device.synchronize()
            told = str(error).strip().splitlines() or [type(error).__name__]
            hint = error.hint if isinstance(error, NoCounters) else "--counters off does without"
            return without_counters(record, told[0][:500], hint)

    def _counters(self) -> Counters:
        return open_counters(self.device.torch, self.device.facts.l2_bytes)

    def _with_traffic(self, record: Record, call: Call, timing: Timing) -> Record:
        # Back to back a call takes as long as its launches, if those take longer.
        known = {timing.primary, "wall"} & timing.times.keys()
        call_s = max(timing.times[name].median_s for name in known)
        counts = self._counters().traffic(call, _cache(record), call_s, self.heard)
        return replace(record, counters=counts)

    def _with_kernels(self, record: Record, call: Call, timing: Timing) -> Record:
        found, passes = self._counters().kernels(call, _cache(record))
        kernels = with_counts(timing.launches, record.kernels, found)
        counts = {**record.counters, **summed(found), "kernel_passes": passes}
        matched = not found or any(kernel.counters for kernel in kernels)
        caveats = record.caveats if matched else (*record.caveats, UNMATCHED)
        return replace(record, kernels=kernels, counters=counts, caveats=caveats)


def _cache(record: Record) -> Cache:
    """The cache that the times were taken with."""
    contract = record.contract
    return "hot" if contract.regime == "sustained" else contract.cache
