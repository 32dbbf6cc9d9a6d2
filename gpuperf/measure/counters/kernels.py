"""Read the hardware counters of each kernel of a call separately.

CUPTI's range profiler runs every kernel several times (and restores the memory that the kernel
writes), since not all counters fit into one pass. It serialises kernels, so its times are not used;
caches are as the last replay left them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from gpuperf.measure.counters.cupti import Cupti, NoCounters
from gpuperf.measure.counters.ranges import ALL_KERNELS, BY_KERNEL, MOST_RANGES, RangeProfiler
from gpuperf.model.kernelname import COMPUTING, kind_of
from gpuperf.model.metrics import (
    CYCLES,
    KERNEL,
    Groups,
    choose,
    combine,
    derive,
    per_sm,
    sum_by_name,
    sum_up,
    with_peaks,
)
from gpuperf.model.record import Kernel

KernelCounts = dict[str, float]


class KernelCounter:
    """Context that counts the quantities *wanted*, and cycles, of *most* kernels at most.

    Without *again*, `count` runs the work and returns the counters. With *again*, the caller runs
    the work, with the same kernels each time, once for each of `passes` between `start` and `stop`;
    then `counts` returns the counters. Raises: NoCounters.
    """

    def __init__(
        self,
        cupti: Cupti,
        device_index: int,
        wanted: Mapping[str, Groups] = KERNEL,
        cycles: Mapping[str, Groups] = CYCLES,
        most: int = MOST_RANGES,
        again: bool = False,
    ) -> None:
        self._profiler = RangeProfiler(cupti, device_index)
        try:
            known = self._profiler.metrics
            self._wanted, self._cycles = choose(wanted, known), choose(cycles, known)
            self._names = [name for group in self._wanted.values() for name in group]
            cycle_names = [name for group in self._cycles.values() for name in group]
            self._cycle_names = with_peaks(cycle_names)
            names = [*self._names, *self._cycle_names]
            how = ALL_KERNELS if again else BY_KERNEL
            self.passes = self._profiler.configure(names, how, most)
        except BaseException:
            self._profiler.close()
            raise

    def start(self) -> None:
        self._profiler.start()

    def stop(self) -> bool:
        """End the pass, on an idle device; return whether it was the last."""
        return self._profiler.stop()

    def counts(self) -> list[KernelCounts]:
        """Return the counters of each kernel, in order of launch."""
        return self._decoded(self._profiler.decode())

    def count(self, run: Callable[[], None]) -> list[KernelCounts]:
        """Count the kernels that *run* launches; *run* waits for the device at its end."""
        return self._decoded(self._profiler.profile(run))

    def _decoded(self, ranges: Iterable[Sequence[float]]) -> list[KernelCounts]:
        kernels, split = [], len(self._names)
        for values in ranges:
            counts = derive(combine(self._wanted, self._names, values[:split]))
            kernels.append(counts | per_sm(self._cycles, self._cycle_names, values[split:]))
        if not kernels:
            raise NoCounters("no-samples", "the profiler recorded no kernel")
        return kernels

    def __enter__(self) -> KernelCounter:
        return self

    def __exit__(self, *raised: object) -> None:
        self._profiler.close()


def count_kernels(
    cupti: Cupti, device_index: int, run: Callable[[], None], wanted: Mapping[str, Groups] = KERNEL
) -> tuple[list[KernelCounts], int]:
    """Return the counters of each kernel that *run* launches, in order, and the number of passes.

    Cycles are counted with all quantities only. *run* waits for the device at its end. Raises:
    NoCounters.
    """
    cycles = CYCLES if wanted is KERNEL else {}
    with KernelCounter(cupti, device_index, wanted, cycles) as counter:
        return counter.count(run), counter.passes


def summed(by_kernel: Sequence[KernelCounts]) -> KernelCounts:
    """Sum the counters of all kernels, except times and cycles, whose sum means nothing.

    DRAM bytes are left out too, since those of the call are counted at full speed (`traffic.py`).
    """
    totals = sum_up(by_kernel)
    apart = {"cycles", "time_ns", "dram_read_bytes", "dram_written_bytes", *CYCLES}
    return {name: totals[name] for name in totals.keys() - apart}


def with_counts(
    launches: Sequence[str], kernels: Sequence[Kernel], by_kernel: Sequence[KernelCounts]
) -> tuple[Kernel, ...]:
    """Return *kernels* with the counters *by_kernel*, which are in the order of *launches* (names).

    Copies and memsets have no counters. If the numbers of kernels differ, no kernel gets counters.
    """
    names = [name for name in launches if kind_of(name) in COMPUTING]
    if len(names) != len(by_kernel):
        return tuple(kernels)
    sums = sum_by_name(zip(names, by_kernel, strict=True))
    counters = {kernel.name: kernel.counters for kernel in sums}
    return tuple(replace(kernel, counters=counters.get(kernel.name, {})) for kernel in kernels)
