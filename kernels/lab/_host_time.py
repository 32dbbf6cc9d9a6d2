"""Time calls in a row by the host's clock, which includes launches and what first calls pay."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from gpuperf import Point
from gpuperf.theory.graph_amortisation import speedup

Function = Callable[[torch.Tensor], torch.Tensor]
REPEATS, ENOUGH, FEW = 3, 1000, 200  # repeats whose median counts; calls whose mean is steady


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
        """Return the speed-up over plain calls, that over what the law makes of the time of single
        calls, these times, and what torch left out."""
        from torch._dynamo.utils import counters  # which takes a second to import

        counters.clear()
        calls, few = self._point.calls, min(self._point.calls, ENOUGH)
        each_s = statistics.median(self._seconds(self._plain, few) / few for _ in range(REPEATS))
        whole_s = statistics.median(self._seconds(self._warm(), calls) for _ in range(REPEATS))
        # Another function made anew, so that the calls above are not compared with themselves.
        parts = [self._parts() for _ in range(REPEATS)]
        first_s, steady_s = (statistics.median(times) for times in zip(*parts, strict=True))
        law = speedup(calls, each_s, max(0.0, first_s - steady_s), steady_s)
        return {
            "speedup": calls * each_s / whole_s,
            "of_law": calls * each_s / whole_s / law,
            "eager_s": each_s,
            "first_s": first_s,
            "steady_s": steady_s,
            "graph_breaks": float(sum(counters["graph_break"].values())),
            "cudagraph_skips": float(counters["inductor"]["cudagraph_skips"]),
        }

    def _warm(self) -> Function:
        function = self._make()
        self._seconds(function, self._point.warmups)
        return function

    def _parts(self) -> tuple[float, float]:
        """Return the seconds of the first call after the warm-ups, and of one of many later."""
        function = self._warm()
        first_s = self._seconds(function, 1)
        self._seconds(function, 1)  # records, where the first did not
        return first_s, self._seconds(function, FEW) / FEW

    def _seconds(self, function: Function, calls: int) -> float:
        # The result is dropped: one that lives until the next call would prevent a replay.
        return seconds(lambda: function(self._x), calls, self._x.device)
