"""Read the hardware counters of one CUDA device, in runs that are not timed."""

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
from gpuperf.model.metrics import CYCLES, KERNEL, OF_STEP, Groups

FLUSH_S = 1e-3  # longest flush of an L2, by which the length of a stretch is planned
DRAM = frozenset({"dram_read_bytes", "dram_written_bytes"})


@dataclass
class DeviceCounters:
    """The counters of one CUDA device; those of DRAM are compared with known copies before use."""

    device: torch.device
    l2_bytes: int
    window: Window
    cupti: Cupti
    _calibration: Calibration | None = field(default=None, init=False)

    def calibration(self) -> Calibration:
        """Compare the DRAM counters with copies that it allocates, once. Raises: NoCounters."""
        if self._calibration is None:
            try:
                with self._sampler(STRETCH_S) as sampler:
                    self._calibration = calibrate(
                        sampler, self.window.flush, self.l2_bytes, self.device
                    )
            except torch.OutOfMemoryError:
                raise NoCounters(
                    "failed", "the copies that calibrate the counters do not fit into memory"
                ) from None
            finally:
                torch.cuda.empty_cache()
        return self._calibration

    def traffic(
        self, call: Call, policy: Cache, call_s: float, heard: Callable[[], None] = do_nothing
    ) -> Mapping[str, float]:
        """Return the DRAM bytes of *call*, which takes about *call_s* seconds.

        *heard* is called now and then, to report that the worker is alive. Raises: NoCounters.
        """
        # The sampler is armed for this case only: it makes an 8192³ matmul 0.6 % slower.
        known = self.calibration()
        longest_s = max(STRETCH_S, call_s) + MOST_CALLS * FLUSH_S + 2 * call_s
        with self._sampler(longest_s) as sampler:
            moved = measure_traffic(sampler, call, self.window.flush, policy, call_s, heard)
        if abs(moved.flush_bytes / known.flush_bytes - 1) > FACTOR_TOLERANCE:
            raise NoCounters(
                "uncalibrated",
                f"the counters show {moved.flush_bytes / 1e6:.1f} MB for a flush of the L2, and "
                f"showed {known.flush_bytes / 1e6:.1f} MB when they were calibrated",
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
        """Open a sampler of DRAM traffic for stretches of *longest_s* at most, and the calibration.

        Raises: NoCounters.
        """
        known = self.calibration()
        with self._sampler(longest_s) as sampler:
            yield sampler, known

    def kernels(
        self, call: Call, policy: Cache, wanted: Mapping[str, Groups] = KERNEL
    ) -> tuple[list[KernelCounts], int]:
        """Return the counters of each kernel of *call* in order, and the passes that they took.

        DRAM bytes are left out where their counters cannot be calibrated. Raises: NoCounters.
        """
        flushed = policy in ("cold", "cold-dirty")

        def run() -> None:
            if flushed:
                self.window.flush(policy)
            call()
            self.window.flush("cold")  # a last kernel of known traffic
            torch.cuda.synchronize(self.device)

        counts, passes = count_kernels(self.cupti, self.device.index or 0, run, wanted)
        known = self._known() if DRAM & wanted.keys() else None
        return _scaled(counts, known)[1 if flushed else 0 :], passes

    @contextmanager
    def step_kernels(self, most: int) -> Iterator[StepKernelCounter]:
        """Yield a counter of each kernel of a program's step, for at most *most* kernels.

        The program repeats the step once for each pass of the counters: if CUPTI replayed each
        kernel and restored its memory instead, a step of GPT-2 would take minutes. Raises:
        NoCounters.
        """
        known = self._known()
        index = self.device.index or 0
        cycles = {name: CYCLES[name] for name in ("active_cycles", "tensor_cycles")}
        with KernelCounter(self.cupti, index, OF_STEP, cycles, most + 1, again=True) as counter:
            yield StepKernelCounter(self, counter, known)

    def cycles(self, call: Call, policy: Cache, gap_s: float) -> Mapping[str, float]:
        """Count cycles in the timer's window by `count_cycles`. Raises: NoCounters, CannotBlock."""
        index = self.device.index or 0
        return count_cycles(self.cupti, index, self.window, call, policy, gap_s)

    def _known(self) -> Calibration | None:
        """Return the calibration; None if DRAM has no usable counters, though the chip has some."""
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
        """Begin a step, on an idle device."""
        self.counter.start()

    def stop(self) -> bool:
        """End the step; return whether all passes are done."""
        self.counters.window.flush("cold")  # a last kernel of known traffic
        torch.cuda.synchronize(self.counters.device)
        return self.counter.stop()

    def counts(self) -> list[KernelCounts]:
        """Return the counters of each kernel of a step, in order."""
        return _scaled(self.counter.counts(), self.known)


def _scaled(counts: Sequence[KernelCounts], known: Calibration | None) -> list[KernelCounts]:
    """Return *counts* without the last kernel, a flush of known bytes, and scale DRAM bytes by it.

    Without a calibration (*known* is None) the DRAM bytes are left out. Raises: NoCounters.
    """
    if known is None:
        return [{k: v for k, v in kernel.items() if k not in DRAM} for kernel in counts[:-1]]
    truth, last = known.flush_bytes / known.factor, counts[-1].get("dram_read_bytes", 0.0)
    factor = max(1, round(last / truth))
    if abs(last / truth / factor - 1) > FACTOR_TOLERANCE:
        raise NoCounters(
            "uncalibrated",
            f"counted as a kernel, a flush of {truth / 1e6:.1f} MB shows {last / 1e6:.1f} MB",
        )
    return [
        {name: value / factor if name in DRAM else value for name, value in kernel.items()}
        for kernel in counts[:-1]
    ]


@cache
def open_counters(device: torch.device, l2_bytes: int | None) -> DeviceCounters:
    """Open the counters of *device*. Raises: NoCounters."""
    if device.type != "cuda" or torch.version.hip:
        raise NoCounters("unsupported", "only NVIDIA GPUs have counters that gpuperf reads")
    if not l2_bytes:
        raise NoCounters("failed", "the size of the L2 is unknown, so it cannot be flushed")
    try:
        window = open_window(device)
    except CannotMeasure as error:
        raise NoCounters("failed", f"the L2 cannot be flushed: {error}") from None
    try:
        library = ctypes.CDLL(str(find_library()))
    except OSError as error:
        raise NoCounters("no-library", f"libcupti does not load: {error}") from None
    return DeviceCounters(device, l2_bytes, window, Cupti(library))
