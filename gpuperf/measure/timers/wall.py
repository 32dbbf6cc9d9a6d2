"""What does the host's clock read around a call? The timer of the CPU."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from gpuperf.measure.timers.timer import Call, Sample, watch_nothing
from gpuperf.model.contract import TimerName
from gpuperf.model.record import TimerFacts

__all__ = ["WallTimer", "last_level_cache_bytes"]


class WallTimer:
    """`perf_counter` around each call; on a GPU with a synchronise before and after."""

    name: TimerName = "wall"

    def __init__(self, device: torch.device) -> None:
        self.watch: Callable[[], None] = watch_nothing
        self._gpu = device.type == "cuda"
        cache = (
            torch.cuda.get_device_properties(device).L2_cache_size
            if self._gpu
            else last_level_cache_bytes()
        )
        self._flush = torch.zeros(4 * max(cache, 4 << 20) // 8, dtype=torch.int64, device=device)
        tick_s = time.get_clock_info("perf_counter").resolution
        self.facts = TimerFacts()
        empty = [self.sample(lambda: None, 0.0, False).time_s for _ in range(200)]
        floor_s = statistics.median(empty)
        self.facts = TimerFacts(floor_s=floor_s, tick_s=tick_s)
        nothing = torch.zeros(1, device=device)
        least = min(self.sample(nothing.zero_, 0.0, False).time_s for _ in range(200))
        self.facts = TimerFacts(floor_s=floor_s, tick_s=tick_s, empty_call_s=max(least, 0.0))

    def admit(self, call: Call) -> None:
        """Any call can be timed."""

    def sample(self, call: Call, gap_s: float, cold: bool) -> Sample:
        """One call."""
        if gap_s:
            time.sleep(gap_s)
        if cold:
            self._flush.max()
        if self._gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        if self._gpu:
            torch.cuda.synchronize()
        return Sample(time.perf_counter() - start - self.facts.floor_s, None)


def last_level_cache_bytes() -> int:
    """The largest cache of the first CPU, as Linux tells it; 64 MiB where it does not."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KM])", path.read_text().strip())
        if match:
            sizes.append(int(match[1]) << {"K": 10, "M": 20}[match[2]])
    return max(sizes, default=64 << 20)
