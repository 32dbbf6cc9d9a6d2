"""Refuse cases that cannot be timed correctly, with a status, a reason and a hint."""

from __future__ import annotations

import contextlib
import re
import statistics
from typing import NoReturn

from gpuperf.errors import CannotMeasure
from gpuperf.measure import gang
from gpuperf.measure.device import Device
from gpuperf.measure.inputs import ByteCounter, TooLarge
from gpuperf.measure.timers.activity import Trace
from gpuperf.measure.timing import Timing
from gpuperf.model.contract import Contract
from gpuperf.model.cost import Cost
from gpuperf.model.record import Memory, Status, TimerFacts
from gpuperf.model.timers import TIMERS
from gpuperf.model.workload import Implementation, Point, Workload
from gpuperf.units import format_time

HOST_BUSY_S = 20e-6  # a call that takes longer and leaves the device idle computes on the host
UNEVEN_SHARE = 0.02  # of the usual busy time, which extra kernels of some calls may add on average
SMALLER = "choose smaller sizes"


class NoTime(Exception):
    """The case gets no time; the record has this status, reason and hint."""

    def __init__(self, status: Status, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.status: Status = status
        self.reason, self.hint = reason, hint


def refuse_alone(workload: Workload) -> None:
    """Raise NoTime where *workload* needs a gang and this process is in none, or the reverse."""
    if workload.world and not gang.in_gang():
        raise NoTime("skipped", f"{workload.name} needs a gang of several ranks", "give --gpus 2")
    if gang.in_gang() and not workload.world:
        raise NoTime("skipped", f"{workload.name} runs on one device", "leave --gpus out")


def refuse_unsupported(device: Device, implementation: Implementation, point: Point) -> None:
    """Raise NoTime where *implementation* or its dtype does not run on *device*."""
    dtype = str(point["dtype"])
    if dtype not in device.facts.dtypes:
        raise NoTime("skipped", f"{device.facts.name} does not compute in {dtype}")
    reason = implementation.supports(point, device.facts)
    if reason:
        raise NoTime("skipped", reason)


def refuse_too_large(device: Device, workload: Workload, point: Point, cost: Cost) -> Memory:
    """Return the bytes of inputs and results, counted without allocating them.

    Raises: NoTime where they exceed the free memory.
    """
    counter = ByteCounter()
    written = sum(b.written for b in cost.bytes if b.channel == "dram")
    with contextlib.suppress(TooLarge):  # the bytes counted by then exceed any memory
        workload.inputs(point, counter)
    # The check draws the inputs once more, and copies them over the first ones.
    needed, free = 2 * counter.bytes + written, device.free_bytes()
    if needed > free:
        asked = f"needs {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free"
        if written > needed / 2:
            asked += f": by its cost, a call writes {written / 1e9:,.1f} GB"
        raise NoTime("oom", asked, SMALLER)
    return Memory(inputs_bytes=counter.bytes, output_bytes=written)


def refuse_fallback(implementation: Implementation, timing: Timing) -> None:
    """Raise NoTime where a library silently ran other kernels than *implementation* names."""
    names = [kernel.name for kernel in timing.kernels]
    if implementation.runs and names and not any(re.search(implementation.runs, n) for n in names):
        kernels = ", ".join(name[:60] for name in names[:3])
        raise NoTime(
            "error",
            f"other kernels ran than those of {implementation.name}: {kernels}",
            "the library fell back to another implementation, whose time this would be",
        )


def refuse_activity(contract: Contract) -> None:
    """Raise CannotMeasure if the contract's timer needs kernel records; CUPTI gave none."""
    if TIMERS[contract.timer].kernels == "always":
        raise CannotMeasure(
            f"the timer {contract.timer!r} needs kernel records, and CUPTI gave none",
            "end other profilers, or choose --timer blocked",
        )


def refuse_idle(queued_s: float, clock: TimerFacts | None = None) -> NoReturn:
    """Raise NoTime for a call that took *queued_s* on the host and left the device idle, or that
    took no longer than reading the host's *clock*."""
    if clock is not None:
        known = f"{format_time(clock.floor_s)} ± {format_time(clock.floor_uncertainty_s)}"
        raise NoTime(
            "no-work",
            f"the call took no longer than reading the clock ({known})",
            "do more work in a call",
        )
    if queued_s > HOST_BUSY_S:
        raise NoTime(
            "host-only",
            f"the call kept the host busy for {format_time(queued_s)} and left the device idle",
            "use --timer wall, which measures the host",
        )
    raise NoTime(
        "no-work",
        "the timer saw no work on the device",
        "check that the call launches a kernel on the current stream",
    )


def refuse_uneven(trace: Trace) -> None:
    """Raise NoTime if some calls run extra kernels, and so may do the work of other calls."""
    usual_s = statistics.median(trace.busy_s) if trace.busy_s else 0.0
    if trace.extra_s > UNEVEN_SHARE * usual_s:
        raise NoTime(
            "error",
            f"some calls run more kernels than the others: {format_time(trace.extra_s)} a call on "
            f"average, beside the {format_time(usual_s)} of a usual call",
            "let every call do the same work",
        )
