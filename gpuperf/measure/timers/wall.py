"""Time a call by the host's clock: the timer `wall`, the default of the CPU."""

from __future__ import annotations

import re
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch

from gpuperf.measure.timers.timer import Call, OpenTimer, Sample, do_nothing
from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.record import TimerFacts

HOT = 200  # readings of the clock with a hot cache
OTHER_FUNCTION = 0.1  # share by which the hot readings of two empty functions may differ
COLD = 9  # the same with a cold one, as each flush takes up to a tenth of a second
# Bytes that flush a cache: four times a small one, and twice one of 128 MiB or more. A virtual
# machine reports the whole cache of its host, of which it has a share.
FLUSHED, LEAST_FLUSHED = 2, 4 * (64 << 20)


class WallTimer(OpenTimer):
    """Timer with `perf_counter` around each call; on a GPU it synchronizes before and after."""

    name: TimerName = "wall"

    def __init__(self, device: torch.device) -> None:
        self._gpu = device.type == "cuda"
        cache = (
            torch.cuda.get_device_properties(device).L2_cache_size
            if self._gpu
            else last_level_cache_bytes()
        )
        size = max(FLUSHED * cache, min(4 * max(cache, 4 << 20), LEAST_FLUSHED))
        self._flush = torch.zeros(size // 8, dtype=torch.int64, device=device)
        self.facts = TimerFacts()
        # Reading the clock takes longer with cold caches. How much of that time is part of a cold
        # sample is unknown, so its floor is the mean of the hot and the cold reading, and its
        # uncertainty covers both.
        read = sorted(self.sample(do_nothing, 0.0, "hot").time_s for _ in range(HOT))
        hot = read[HOT // 2]
        cold = statistics.median(self.sample(do_nothing, 0.0, "cold").time_s for _ in range(COLD))
        floor = TimerFacts(
            floor_s=(hot + cold) / 2,
            floor_uncertainty_s=abs(cold - hot) / 2,
            tick_s=time.get_clock_info("perf_counter").resolution,
        )
        self.facts = floor
        one = torch.zeros(1, dtype=torch.float32, device=device)
        least = statistics.median(self.sample(one.zero_, 0.0, "cold").time_s for _ in range(COLD))
        self.facts = replace(floor, empty_call_s=max(least - floor.floor_s, 0.0))
        spread_s = max((read[3 * HOT // 4] - read[HOT // 4]) / 2, OTHER_FUNCTION * hot)
        least = statistics.median(self.sample(one.zero_, 0.0, "hot").time_s for _ in range(HOT))
        self._hot = replace(
            self.facts,
            floor_s=hot,
            floor_uncertainty_s=spread_s,
            empty_call_s=max(least - hot, 0.0),
        )

    def facts_in(self, cache: Cache, idle_s: float) -> TimerFacts:
        # After a rest the clock is as slow to read as with a cold cache, and copies evict it too.
        return self._hot if cache == "hot" and not idle_s else self.facts

    def prepare(self, idle_s: float, cache: Cache) -> None:
        """Idle for *idle_s*, bring the caches into the state *cache*, and wait for the device."""
        if idle_s:
            time.sleep(idle_s)
        if cache == "cold":
            self._flush.max()
        elif cache == "cold-dirty":
            self._flush.zero_()
        if self._gpu:
            torch.cuda.synchronize()

    def sample(self, call: Call, idle_s: float, cache: Cache) -> Sample:
        self.prepare(idle_s, cache)
        start = time.perf_counter()
        call()
        if self._gpu:
            torch.cuda.synchronize()
        return Sample(time.perf_counter() - start)


def open_timer(device: torch.device) -> WallTimer:
    """Measure what reading the clock adds on *device*."""
    return WallTimer(device)


def last_level_cache_bytes() -> int:
    """Return the size of the first CPU's largest cache; 64 MiB where Linux does not report it."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KM])", path.read_text().strip())
        if match:
            sizes.append(int(match[1]) << {"K": 10, "M": 20}[match[2]])
    return max(sizes, default=64 << 20)
