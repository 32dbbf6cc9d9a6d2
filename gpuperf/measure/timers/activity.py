"""How long did each kernel run, by CUPTI's own record of it?"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

__all__ = ["kernel_durations"]


def kernel_durations(run: Callable[[], Any], names: Iterable[str]) -> dict[str, float] | None:
    """The median duration in seconds of each kernel in *names* while *run* ran.

    `None` where CUPTI gave no record of one of them (no permission, another subscriber).
    """
    try:
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
            run()
    except RuntimeError:
        return None
    seen: dict[str, list[float]] = {name: [] for name in names}
    for event in profiler.events():
        if event.device_type == DeviceType.CUDA and event.name in seen:
            seen[event.name].append(event.device_time * 1e-6)
    if not all(seen.values()):
        return None
    return {name: statistics.median(values) for name, values in seen.items()}
