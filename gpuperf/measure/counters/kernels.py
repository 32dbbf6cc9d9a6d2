"""What did each kernel of a call do, by the hardware's counters?

The range profiler runs every kernel several times over (it saves and restores what the kernel
writes), since not all counters fit into one pass. It serialises kernels, so it tells no times that
count; caches are as the replay leaves them.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuperf.measure.counters import cupti as api
from gpuperf.measure.counters.cupti import Cupti, Host, Image, NoCounters
from gpuperf.model.metrics import (
    KERNEL,
    NOT_KERNELS,
    choose,
    combine,
    derive,
    sum_by_name,
    sum_up,
)
from gpuperf.model.record import Kernel

__all__ = ["KernelCounts", "count_kernels", "summed", "with_counts"]

AUTO_RANGE, KERNEL_REPLAY = 1, 2  # CUpti_ProfilerRange, CUpti_ProfilerReplayMode
MOST_KERNELS = 512

KernelCounts = dict[str, float]


def count_kernels(
    cupti: Cupti, device_index: int, run: Callable[[], None]
) -> tuple[list[KernelCounts], int]:
    """The counters of each kernel that *run* launches, in order, and the passes that it took.

    *run* waits for the device at its end. Raises: NoCounters.
    """
    host = Host(cupti, api.RANGE_PROFILER, cupti.chip(device_index))
    profiler = None
    try:
        chosen = choose(KERNEL, host.base_metrics())
        names = [name for group in chosen.values() for name in group]
        config, passes = host.configure(names)
        enable = api.RangesEnable(context=_context())
        profiler = cupti.call("cuptiRangeProfilerEnable", enable).profiler
        image = _image(cupti, profiler, names)
        cupti.call(
            "cuptiRangeProfilerSetConfig",
            api.RangesConfig(
                profiler=profiler, bytes=config.size, config=config.data, image_bytes=image.size,
                image=image.data, range=AUTO_RANGE, replay=KERNEL_REPLAY,
                most_ranges=MOST_KERNELS, levels=1, least_level=1,
            ),
        )  # fmt: skip
        _collect(cupti, profiler, run)
        info = cupti.call(
            "cuptiRangeProfilerGetCounterDataInfo",
            api.RangesInfo(image=image.data, bytes=image.size),
        )
        found = [
            derive(combine(chosen, names, host.evaluate(image, index, names)))
            for index in range(info.ranges)
        ]
        return found, passes
    finally:
        try:
            if profiler is not None:
                cupti.call("cuptiRangeProfilerDisable", api.Ranges(profiler=profiler))
        finally:
            host.close()


def _collect(cupti: Cupti, profiler: object, run: Callable[[], None]) -> None:
    """*run* with the profiler at work; what it saw goes into the image that was configured."""
    cupti.call("cuptiRangeProfilerStart", api.Ranges(profiler=profiler))
    try:
        run()
    except BaseException:
        with contextlib.suppress(NoCounters):  # what went wrong first is what counts
            cupti.call("cuptiRangeProfilerStop", api.RangesStop(profiler=profiler))
        raise
    cupti.call("cuptiRangeProfilerStop", api.RangesStop(profiler=profiler))
    told = cupti.call("cuptiRangeProfilerDecodeData", api.RangesDecode(profiler=profiler))
    if told.dropped:
        raise NoCounters("overflow", f"a call of more than {MOST_KERNELS} kernels")


def summed(found: Sequence[KernelCounts]) -> KernelCounts:
    """The counters of all kernels together, without their times, nor the DRAM bytes that are
    counted at full speed."""
    totals = sum_up(found)
    apart = {"cycles", "time_ns", "dram_read_bytes", "dram_written_bytes"}
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


def _image(cupti: Cupti, profiler: object, names: list[str]) -> Image:
    told = cupti.call(
        "cuptiRangeProfilerGetCounterDataSize",
        api.RangesImageSize(
            profiler=profiler, names=api.names_array(names), count=len(names),
            most_ranges=MOST_KERNELS, most_nodes=MOST_KERNELS,
        ),
    )  # fmt: skip
    image = Image.of(int(told.bytes))
    cupti.call(
        "cuptiRangeProfilerCounterDataImageInitialize",
        api.RangesImage(profiler=profiler, bytes=image.size, image=image.data),
    )
    return image


def _context() -> ctypes.c_void_p:
    """The CUDA context of this thread."""
    context = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
    return context
