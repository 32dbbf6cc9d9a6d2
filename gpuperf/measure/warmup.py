"""Warm a call up until its time no longer falls.

By then lazy compilation, autotuning, the capture of CUDA graphs and growing allocators have ended.
(torch.compile with CUDA graphs needs three calls: pytorch #120309.)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from gpuperf.measure import gang
from gpuperf.measure.device import Device
from gpuperf.measure.inputs import bind_make
from gpuperf.measure.timers.timer import Call
from gpuperf.model.contract import Data
from gpuperf.model.workload import Case, Point, Workload

STEADY, STEADY_S = 0.1, 20e-6  # two times agree within this fraction, or these seconds if more
MOST_CALLS, MOST_S = 30, 2.0
FEWEST_CALLS = 3  # warm-up calls before another tool (ncu, nvbench) measures


class Warm(NamedTuple):
    """The number of calls until the time no longer fell, and the seconds of the fastest call."""

    calls: int
    call_s: float


def warm_up(
    call: Call,
    synchronize: Callable[[], None],
    first_s: float,
    least: int,
    now: Callable[[], float] = time.perf_counter,
) -> Warm:
    """Run *call* *least* times or more, until two times in a row agree, at most 2 s or 30 calls.

    *first_s* are the seconds of the first call; a second call, for the check, was not timed.
    """
    times, least = [first_s], max(1, least)
    began = now()
    while len(times) <= least or not _agree(times[-2:]):
        synchronize()
        start = now()
        call()
        synchronize()
        times.append(gang.most(now() - start))
        spent_s = gang.most(now() - began)
        if len(times) > least and (len(times) > MOST_CALLS or spent_s > MOST_S):
            break
    steady = next((i for i in range(len(times) - 1) if _agree(times[i:])), len(times) - 1)
    return Warm(steady + 1 if steady else 0, min(times))


def _agree(times: list[float]) -> bool:
    return max(times) - min(times) <= max(STEADY * min(times), STEADY_S)


def warm_call(workload: Workload, case: Case, device: Device, seed: int, data: Data) -> Call:
    """Build the call of *case*, run it a few times, and return it for another tool to measure."""
    point = Point(case.point)
    inputs = workload.inputs(point, bind_make(device.torch, seed, data))
    implementation = {i.name: i for i in workload.implementations}[case.implementation]
    call = implementation.build(inputs, point, case.options)
    for _ in range(FEWEST_CALLS):
        call()
    return call
