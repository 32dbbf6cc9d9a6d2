"""Time calls in a row by the host's clock, which includes launches and what first calls pay."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from gpuperf import Point

Function = Callable[[torch.Tensor], torch.Tensor]
REPEATS, ENOUGH = 3, 1000  # repeats whose median counts; calls whose mean is steady


def seconds(call: Callable[[], object], calls: int, device: torch.device) -> float:
    """Return the seconds of *calls* calls in a row, until the device has ended the last."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    return time.perf_counter() - start


class FirstCalls:
    """A warm call, whose readings time `calls` calls after `warmups` of a function made anew."""

    def __init__(
        self, make: Callable[[], Function], plain: Function, x: torch.Tensor, point: Point
    ) -> None:
        self._make, self._plain, self._x, self._point = make, plain, x, point
        self._function = make()

    def __call__(self) -> torch.Tensor:
        return self._function(self._x)

    def readings(self) -> dict[str, float]:
        """Return the speed-up over plain calls, seconds of calls, and what torch left out."""
        from torch._dynamo.utils import counters  # which takes a second to import

        counters.clear()
        calls, few = self._point.calls, min(self._point.calls, ENOUGH)
        each_s = statistics.median(self._seconds(self._plain, few) / few for _ in range(REPEATS))
        whole_s, steady_s = [], []
        for _ in range(REPEATS):
            function = self._make()
            self._seconds(function, self._point.warmups)
            whole_s.append(self._seconds(function, calls))
            self._seconds(function, 2)  # records, where the calls above did not
            steady_s.append(self._seconds(function, ENOUGH // 5) / (ENOUGH // 5))
        return {
            "speedup": calls * each_s / statistics.median(whole_s),
            "eager_s": each_s,
            "calls_s": statistics.median(whole_s),
            "steady_s": statistics.median(steady_s),
            "graph_breaks": float(sum(counters["graph_break"].values())),
            "cudagraph_skips": float(counters["inductor"]["cudagraph_skips"]),
        }

    def _seconds(self, function: Function, calls: int) -> float:
        # The result is dropped: one that lives until the next call would prevent a replay.
        return seconds(lambda: function(self._x), calls, self._x.device)
