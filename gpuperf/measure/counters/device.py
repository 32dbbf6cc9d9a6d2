"""What do the hardware's counters say of a call? Passes of their own: no time is taken in them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.measure.counters.cupti import Cupti, NoCounters, find_library
from gpuperf.measure.counters.cycles import count_cycles
from gpuperf.measure.counters.dram import DramSampler
from gpuperf.measure.counters.kernels import KernelCounter, KernelCounts, count_kernels
from gpuperf.measure.counters.traffic import (
    FACTOR_TOLERANCE,
    MOST_CALLS,
    STRETCH_S,
    Calibration,
    calibrate,
    measure_traffic,
)
from gpuperf.measure.timers.timer import Call, do_nothing
from gpuperf.measure.timers.window import Window, open_window
from gpuperf.model.contract import Cache
from gpuperf.model.metrics import CYCLES, OF_STEP

FLUSH_S = 1e-3  # at most, of four times any L2, for the length of a stretch


@dataclass
class DeviceCounters:
    """The counters of one CUDA device, held against known traffic before they are believed."""

    device: torch.device
    l2_bytes: int
    window: Window
    cupti: Cupti
    _calibration: Calibration | None = field(default=None, init=False)

    def calibration(self) -> Calibration:
        """Made once. It needs memory for a while. Raises: NoCounters."""
        if self._calibration is None:
            try:
                with self._sampler(STRETCH_S) as sampler:
                    self._calibration = calibrate(
                        sampler, self.window.flush, self.l2_bytes, self.device
                    )
            except torch.OutOfMemoryError:
                raise NoCounters(
                    "failed", "no memory is free for the copies that the counters are held against"
                ) from None
            finally:
                torch.cuda.empty_cache()
        return self._calibration

    def traffic(
        self, call: Call, policy: Cache, call_s: float, heard: Callable[[], None] = do_nothing
    ) -> Mapping[str, float]:
        """The DRAM bytes of *call*, which takes about *call_s* seconds; *heard* is a sign of life.

        Raises: NoCounters.
        """
        # Armed for this case only: beside an armed sampler an 8192³ matmul takes 0.6 % longer.
        known = self.calibration()
        longest_s = max(STRETCH_S, call_s) + MOST_CALLS * FLUSH_S + 2 * call_s
        with self._sampler(longest_s) as sampler:
            moved = measure_traffic(sampler, call, self.window.flush, policy, call_s, heard)
        if abs(moved.flush_bytes / known.flush_bytes - 1) > FACTOR_TOLERANCE:
            raise NoCounters(
                "uncalibrated",
                f"a flush reads as {moved.flush_bytes / 1e6:.1f} MB, and read as "
                f"{known.flush_bytes / 1e6:.1f} MB before",
            )
        return {
            "dram_read_bytes": moved.read / known.factor,
            "dram_written_bytes": moved.written / known.factor,
            "dram_uncertainty_bytes": (moved.uncertainty + known.error * abs(moved.total))
            / known.factor,
            "dram_factor": known.factor,
            "dram_ratio": known.ratio,
            "dram_calls": moved.calls,
        }

    @contextmanager
    def sampler(self, longest_s: float) -> Iterator[tuple[DramSampler, Calibration]]:
        """Counts what goes through DRAM in any stretch of at most *longest_s*, and what a known
        traffic reads as. Raises: NoCounters."""
        known = self.calibration()
        with self._sampler(longest_s) as sampler:
            yield sampler, known

    def kernels(self, call: Call, policy: Cache) -> tuple[list[KernelCounts], int]:
        """The counters of each kernel of *call* in order, and the passes.

        Without those of DRAM where they cannot be held against known traffic. Raises: NoCounters.
        """
        flushed = policy in ("cold", "cold-dirty")

        def run() -> None:
            if flushed:
                self.window.flush(policy)
            call()
            self.window.flush("cold")  # whose traffic is known
            torch.cuda.synchronize(self.device)

        found, passes = count_kernels(self.cupti, self.device.index or 0, run)
        if not found:
            raise NoCounters("no-samples", "the profiler saw no kernel")
        scale(found, self._known())
        return found[1 if flushed else 0 : -1], passes

    @contextmanager
    def step_kernels(self, most: int) -> Iterator[StepKernelCounter]:
        """Counts each of at *most* so many kernels of a step, in as many steps as that takes: where
        CUPTI runs each kernel again, and restores memory before, a step of GPT-2 takes minutes.
        Raises: NoCounters."""
        known = self._known()
        index = self.device.index or 0
        cycles = {name: CYCLES[name] for name in ("active_cycles", "tensor_cycles")}
        with KernelCounter(self.cupti, index, OF_STEP, cycles, most + 1, again=True) as counter:
            yield StepKernelCounter(self, counter, known)

    def cycles(self, call: Call, policy: Cache, gap_s: float) -> Mapping[str, float]:
        """Of *call* in the timer's window: see `count_cycles`. Raises: NoCounters, CannotBlock."""
        index = self.device.index or 0
        return count_cycles(self.cupti, index, self.window, call, policy, gap_s)

    def _known(self) -> Calibration | None:
        """None where DRAM has no counters that could be believed; others may be had."""
        try:
            return self.calibration()
        except NoCounters:
            return None

    def _sampler(self, longest_s: float) -> DramSampler:
        return DramSampler(self.cupti, self.device.index or 0, longest_s)


@dataclass(frozen=True)
class StepKernelCounter:
    """Counts the kernels between `start` and `stop`, in step after step. Raises: NoCounters."""

    counters: DeviceCounters
    counter: KernelCounter
    known: Calibration | None

    def start(self) -> None:
        """A step begins, on an idle device."""
        self.counter.start()

    def stop(self) -> bool:
        """It ends; whether there is no more to count."""
        self.counters.window.flush("cold")  # whose traffic is known
        torch.cuda.synchronize(self.counters.device)
        return self.counter.stop()

    def counts(self) -> list[KernelCounts]:
        """The counters of each kernel of a step, in order."""
        found = self.counter.counts()
        if not found:
            raise NoCounters("no-samples", "the profiler saw no kernel")
        scale(found, self.known)
        return found[:-1]


def scale(found: Sequence[KernelCounts], known: Calibration | None) -> None:
    """Divide the DRAM bytes by what the last kernel, a flush, tells of their factor; leave them out
    where nothing is *known*. Raises: NoCounters."""
    dram = {"dram_read_bytes", "dram_written_bytes"}
    if known is None:
        for counts in found:
            for name in counts.keys() & dram:
                del counts[name]
        return
    truth, last = known.flush_bytes / known.factor, found[-1].get("dram_read_bytes", 0.0)
    factor = max(1, round(last / truth))
    if abs(last / truth / factor - 1) > FACTOR_TOLERANCE:
        raise NoCounters(
            "uncalibrated",
            f"a flush of {truth / 1e6:.1f} MB reads as {last / 1e6:.1f} MB kernel by kernel",
        )
    for counts in found:
        for name in counts.keys() & dram:
            counts[name] /= factor


@cache
def open_counters(device: torch.device, l2_bytes: int | None) -> DeviceCounters:
    """Raises: NoCounters."""
    if device.type != "cuda" or torch.version.hip:
        raise NoCounters("unsupported", "only NVIDIA GPUs have counters that gpuperf reads")
    if not l2_bytes:
        raise NoCounters("failed", "the size of the L2 is unknown, and so how to flush it")
    try:
        window = open_window(device)
    except CannotMeasure as error:
        raise NoCounters("failed", f"the L2 cannot be flushed: {error}") from None
    try:
        library = ctypes.CDLL(str(find_library()))
    except OSError as error:
        raise NoCounters("no-library", f"libcupti does not load: {error}") from None
    return DeviceCounters(device, l2_bytes, window, Cupti(library))
