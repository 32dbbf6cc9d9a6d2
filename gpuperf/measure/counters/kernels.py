"""What did each kernel of a call do, by the hardware's counters?

The range profiler runs every kernel several times over (it saves and restores what the kernel
writes), since not all counters fit into one pass. It serialises kernels, so it tells no times that
count; caches are as the replay leaves them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuperf.measure.counters.cupti import Cupti
from gpuperf.measure.counters.ranges import RangeProfiler
from gpuperf.model.metrics import (
    CYCLES,
    KERNEL,
    NOT_KERNELS,
    choose,
    combine,
    derive,
    per_sm,
    sum_by_name,
    sum_up,
    with_peaks,
)
from gpuperf.model.record import Kernel

__all__ = ["KernelCounts", "count_kernels", "summed", "with_counts"]

KernelCounts = dict[str, float]


def count_kernels(
    cupti: Cupti, device_index: int, run: Callable[[], None]
) -> tuple[list[KernelCounts], int]:
    """The counters of each kernel that *run* launches, in order, and the passes that it took.

    *run* waits for the device at its end. Raises: NoCounters.
    """
    with RangeProfiler(cupti, device_index) as profiler:
        chosen, cycles = (choose(wanted, profiler.metrics) for wanted in (KERNEL, CYCLES))
        names = [name for group in chosen.values() for name in group]
        of_cycles = with_peaks([name for group in cycles.values() for name in group])
        passes = profiler.configure([*names, *of_cycles])
        found = []
        for values in profiler.profile(run):
            counts = derive(combine(chosen, names, values[: len(names)]))
            found.append(counts | per_sm(cycles, of_cycles, values[len(names) :]))
        return found, passes


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
    names = [name for name in launches if not name.startswith(NOT_KERNELS)]
    if len(names) != len(found):
        return tuple(kernels)
    own = {kernel.name: kernel.counters for kernel in sum_by_name(zip(names, found, strict=True))}
    return tuple(replace(kernel, counters=own.get(kernel.name, {})) for kernel in kernels)
