"""Add the hardware counters of a case to its record, or a caveat that says why it has none.

If the counters fail, the record keeps its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuperf.measure.counters.cupti import NoCounters
from gpuperf.measure.counters.device import DRAM, DeviceCounters, open_counters
from gpuperf.measure.counters.kernels import KernelCounts, summed, with_counts
from gpuperf.measure.counters.traffic import LEAST_BYTES
from gpuperf.measure.device import Device
from gpuperf.measure.error_origin import first_line
from gpuperf.measure.timers.timer import Call
from gpuperf.measure.timing import Timing
from gpuperf.model.contract import Cache, Counting
from gpuperf.model.metrics import KERNEL, sum_up
from gpuperf.model.record import NO_COUNTERS, Caveat, Record, without_counters
from gpuperf.model.timers import TIMERS

UNMATCHED = Caveat(
    "unmatched-kernels",
    "the profiler and the trace recorded different numbers of kernels: counters are known for the "
    "call, not for each kernel",
    "check that the call always launches the same kernels",
)

REPLAYED = Caveat(
    "replayed",
    "the DRAM bytes of the replayed kernels do not add up to those of the call: a replayed kernel "
    "has other data in L2 than a run at full speed",
    "use the bytes of the call, which were counted at full speed",
)
REPLAY_OFF = 0.05  # difference of the sum from the call's bytes, as a share, that gets a caveat
BYTE_PRECISION = 0.01  # half the interval of the bytes, as a share, above which a caveat says so


@dataclass
class CaseCounter:
    """Counts one case as *counting* says; `heard` reports that the worker is alive.

    Of the counters of kernels it reads those of the *quantity* alone, if there is one.
    """

    device: Device
    counting: Counting
    heard: Callable[[], None]
    quantity: str = ""
    _refused: Exception | None = field(default=None, init=False)

    def open(self) -> None:
        """Calibrate the counters with large copies, before the case allocates memory.

        A failure is kept for `count`. Raises: RuntimeError when the device is lost.
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
        """Return *record* with the counters of *call*. Raises: RuntimeError on a lost device."""
        if self.counting == "off":
            return record
        record = self._attempt(self._with_traffic, record, call, timing)
        if self.counting == "kernels":
            record = self._attempt(self._with_kernels, record, call, timing)
            if not self.quantity:
                record = self._attempt(self._with_cycles, record, call, timing)
        return record

    def _attempt(
        self,
        count: Callable[[Record, Call, Timing], Record],
        record: Record,
        call: Call,
        timing: Timing,
    ) -> Record:
        try:
            return count(record, call, timing)
        except Exception as error:
            self.device.synchronize()
            if any(caveat.kind == NO_COUNTERS for caveat in record.caveats):
                return record
            hint = error.hint if isinstance(error, NoCounters) else "--counters off does without"
            return without_counters(record, first_line(error), hint)

    def _counters(self) -> DeviceCounters:
        return open_counters(self.device.torch, self.device.facts.l2_bytes)

    def _with_traffic(self, record: Record, call: Call, timing: Timing) -> Record:
        if self._refused is not None:
            raise self._refused
        # Calls back to back take as long as their launches, if these are slower than the device.
        known = {timing.primary, "wall"} & timing.times.keys()
        call_s = max(timing.times[name].median_s for name in known)
        counts = self._counters().traffic(call, _cache(record), call_s, self.heard)
        caveats = (*record.caveats, *_imprecise(counts))
        return replace(record, counters=counts, caveats=caveats)

    def _with_kernels(self, record: Record, call: Call, timing: Timing) -> Record:
        self.heard()
        wanted = {self.quantity: KERNEL[self.quantity]} if self.quantity in KERNEL else KERNEL
        by_kernel, passes = self._counters().kernels(call, _cache(record), wanted)
        self.heard()
        kernels = with_counts(timing.launches, record.kernels, by_kernel)
        counts = {**record.counters, **summed(by_kernel), "kernel_passes": passes}
        matched = not by_kernel or any(kernel.counters for kernel in kernels)
        caveats = [*record.caveats, *(() if matched else (UNMATCHED,))]
        if _replay_differs(record, by_kernel):
            caveats.append(REPLAYED)
        return replace(record, kernels=kernels, counters=counts, caveats=tuple(caveats))

    def _with_cycles(self, record: Record, call: Call, timing: Timing) -> Record:
        contract = record.contract
        if TIMERS[contract.timer].kernels == "never" or contract.regime != "burst":
            return record  # only a time taken in a window can be compared with these cycles
        counts = dict(self._counters().cycles(call, contract.cache, contract.gap_s))
        extra, clock_hz = counts.pop("extra_cycles", None), timing.clock_hz
        if extra is not None and clock_hz is not None:
            counts["elapsed_cycles"] = timing.times[timing.primary].median_s * clock_hz + extra
        return replace(record, counters={**record.counters, **counts})


def _imprecise(counts: Mapping[str, float]) -> tuple[Caveat, ...]:
    moved = counts["dram_read_bytes"] + counts["dram_written_bytes"]
    unsure = counts.get("dram_uncertainty_bytes", 0.0) / max(moved, LEAST_BYTES)
    if unsure <= BYTE_PRECISION:
        return ()
    return (
        Caveat(
            "imprecise-bytes",
            f"the measured bytes are uncertain by ± {unsure * 100:.1f} %",
            "measure a larger size: other traffic of the memory is then a smaller share",
        ),
    )


def _replay_differs(record: Record, by_kernel: Sequence[KernelCounts]) -> bool:
    """Return whether the DRAM bytes of the replayed kernels differ from those of the call."""
    alone, whole = sum_up(by_kernel), record.counters
    unsure = whole.get("dram_uncertainty_bytes", 0.0)
    both = DRAM & alone.keys() & whole.keys()
    return any(abs(alone[name] - whole[name]) > REPLAY_OFF * whole[name] + unsure for name in both)


def _cache(record: Record) -> Cache:
    contract = record.contract
    return "hot" if contract.regime == "sustained" else contract.cache
