"""What did each kernel of a call do, by the hardware's counters?

The range profiler runs every kernel several times over (it saves and restores what the kernel
writes), since not all counters fit into one pass. It serialises kernels, so it tells no times that
count; caches are as the replay leaves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from gpuperf.measure.counters.cupti import Cupti
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
    """Counts what each of at *most* so many kernels did: quantities like *wanted*, and cycles. Use
    it in a `with`. Raises: NoCounters.

    Either `count` does it all. Or, with *again*, what is counted runs once for each of `passes`,
    between `start` and `stop`, and launches the same kernels each time; then `told` has them.
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
            of_cycles = [name for group in self._cycles.values() for name in group]
            self._of_cycles = with_peaks(of_cycles)
            every = [*self._names, *self._of_cycles]
            how = ALL_KERNELS if again else BY_KERNEL
            self.passes = self._profiler.configure(every, how, most)
        except BaseException:
            self._profiler.close()
            raise

    def start(self) -> None:
        """A pass begins."""
        self._profiler.start()

    def stop(self) -> bool:
        """It ends, on an idle device; whether it was the last."""
        return self._profiler.stop()

    def counts(self) -> list[KernelCounts]:
        """The counters of each kernel, in order."""
        return self._decoded(self._profiler.decode())

    def count(self, run: Callable[[], None]) -> list[KernelCounts]:
        """Those of the kernels that *run* launches, which waits for the device at its end."""
        return self._decoded(self._profiler.profile(run))

    def _decoded(self, ranges: Iterable[Sequence[float]]) -> list[KernelCounts]:
        found, few = [], len(self._names)
        for values in ranges:
            counts = derive(combine(self._wanted, self._names, values[:few]))
            found.append(counts | per_sm(self._cycles, self._of_cycles, values[few:]))
        return found

    def __enter__(self) -> KernelCounter:
        return self

    def __exit__(self, *raised: object) -> None:
        self._profiler.close()


def count_kernels(
    cupti: Cupti, device_index: int, run: Callable[[], None]
) -> tuple[list[KernelCounts], int]:
    """The counters of each kernel that *run* launches, in order, and the passes that it took.

    *run* waits for the device at its end. Raises: NoCounters.
    """
    with KernelCounter(cupti, device_index) as counter:
        return counter.count(run), counter.passes


def summed(found: Sequence[KernelCounts]) -> KernelCounts:
    """The counters of all kernels together, without their times and cycles, nor the DRAM bytes that
    are counted at full speed."""
    totals = sum_up(found)
    apart = {"cycles", "time_ns", "dram_read_bytes", "dram_written_bytes", *CYCLES}
    return {name: totals[name] for name in totals.keys() - apart}


def with_counts(
    launches: Sequence[str], kernels: Sequence[Kernel], found: Sequence[KernelCounts]
) -> tuple[Kernel, ...]:
    """*kernels* with the counters of those of their name, as *launches* has them in order.

    Copies and memsets are no kernels, and have none. Where the two disagree nobody knows whose
    counters they are, and none has any.
    """
    names = [name for name in launches if kind_of(name) in COMPUTING]
    if len(names) != len(found):
        return tuple(kernels)
    own = {kernel.name: kernel.counters for kernel in sum_by_name(zip(names, found, strict=True))}
    return tuple(replace(kernel, counters=own.get(kernel.name, {})) for kernel in kernels)
