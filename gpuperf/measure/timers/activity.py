"""How long did each kernel run, by CUPTI's own record of it?"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

__all__ = ["kernel_durations"]


def kernel_durations(run: Callable[[], Any], ignore: Collection[str]) -> tuple[float, ...]:
    """The durations in seconds of the kernels that ran in *run*, but for those named *ignore*.

    Empty where CUPTI gives no records (no permission, another subscriber).
    """
    try:
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
            run()
    except RuntimeError:
        return ()
    return tuple(
        event.device_time * 1e-6
        for event in profiler.events()
        if event.device_type == DeviceType.CUDA and event.name not in ignore
    )
