"""Time a call by a plain event pair, which works wherever torch does: the timer `events`.

The time includes launch cost and the pair's own floor (2 µs and more), so a kernel under 20 µs
gets too long a time: choose `blocked` if the device has it.
"""

from __future__ import annotations

import time

import torch

from gpuperf.measure.timers.timer import Call, OpenTimer, Sample
from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.record import TimerFacts

# Several times the cache, or this where torch reports too small a cache (AMD: 4 MB of 256).
LEAST_FLUSH_BYTES = 512 << 20


class EventsTimer(OpenTimer):
    """Timer with one pair of events around each call, on the current stream of one GPU."""

    name: TimerName = "events"

    def __init__(self, device: torch.device) -> None:
        properties = torch.cuda.get_device_properties(device)
        size = max(4 * properties.L2_cache_size, LEAST_FLUSH_BYTES)
        self._flush = torch.zeros(size // 4, dtype=torch.int32, device=device)
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        self.facts = TimerFacts()
        nothing = torch.zeros(1, dtype=torch.float32, device=device)
        least = min(self.sample(nothing.zero_, 0.0, "cold").time_s for _ in range(50))
        self.facts = TimerFacts(empty_call_s=least)

    def sample(self, call: Call, idle_s: float, cache: Cache) -> Sample:
        if idle_s:
            time.sleep(idle_s)
        if cache == "cold":
            self._flush.max()  # reads, and leaves no dirty lines
        elif cache == "cold-dirty":
            self._flush.zero_()
        self._start.record()
        call()
        self._end.record()
        self.watch()
        torch.cuda.synchronize()
        return Sample(self._start.elapsed_time(self._end) * 1e-3)


def open_timer(device: torch.device) -> EventsTimer:
    """Measure what an event pair adds on *device*."""
    return EventsTimer(device)
