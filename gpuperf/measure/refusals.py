"""Which calls get no time, and what is doubtful about a time that was taken?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NoReturn

from gpuperf.errors import CannotMeasure
from gpuperf.measure.sampling import Rest
from gpuperf.measure.timers.activity import Trace
from gpuperf.model.contract import Contract
from gpuperf.model.record import Caveat, Status
from gpuperf.model.samples import Samples
from gpuperf.model.timers import TIMERS
from gpuperf.units import format_time

HOST_BUSY_S = 20e-6  # a call that gives the device nothing and takes longer works on the host
LAUNCH_BOUND = 1.5  # times the busy time
ODD_SHARE = 0.02  # of the samples
UNEVEN_SHARE = 0.02  # of the usual busy time


class NoTime(Exception):
    """The call gets no time; the status says why."""

    def __init__(self, status: Status, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.status: Status = status
        self.reason, self.hint = reason, hint


def refuse_activity(contract: Contract) -> None:
    """Raises: CannotMeasure where the timer consists of CUPTI's records, of which none came."""
    if TIMERS[contract.timer].kernels == "always":
        raise CannotMeasure(
            f"the timer {contract.timer!r} cannot be had: CUPTI gives no records",
            "end other profilers, or choose --timer blocked",
        )


def refuse_nothing(queued_s: float) -> NoReturn:
    """The device did nothing. Raises: NoTime."""
    if queued_s > HOST_BUSY_S:
        raise NoTime(
            "host-only",
            f"the call kept the host busy for {format_time(queued_s)} and gave the device nothing",
            "--timer wall measures the host",
        )
    raise NoTime(
        "no-work",
        "the device did no work that the timer could see",
        "does the call launch a kernel on the current stream?",
    )


def refuse_uneven(trace: Trace) -> None:
    """One call may do the work of many others. Raises: NoTime."""
    usual_s = statistics.median(trace.busy_s) if trace.busy_s else 0.0
    if trace.extra_s > UNEVEN_SHARE * usual_s:
        raise NoTime(
            "error",
            f"some calls run more kernels than the others, which add {format_time(trace.extra_s)} "
            f"to the average call of {format_time(usual_s)}",
            "let every call do the same work",
        )


def odd_doubts(traces: Sequence[Trace]) -> tuple[Caveat, ...]:
    odd = sum(trace.odd for trace in traces)
    total = odd + sum(len(trace.busy_s) for trace in traces)
    if odd <= ODD_SHARE * total:
        return ()
    return (
        Caveat(
            "lost-records",
            f"{odd} of {total} traced calls showed other kernels than the rest, and do not count",
            "CUPTI lost records, or the call does not always do the same",
        ),
    )


def rest_doubts(rested: bool, rest: Rest, primary: Samples, contract: Contract) -> list[Caveat]:
    size = primary.size
    if contract.regime == "sustained" or (rested and rest.unrecovered <= size / 10):
        return []
    told = (
        f"before {rest.unrecovered} of {size} samples the clock was not that of a rested card"
        if rested
        else "the clock was not that of a rested card after 2 s of waiting"
    )
    return [Caveat("unrecovered", told, "give a longer --gap, or ask for --regime sustained")]


def launch_doubts(wall: Samples | None, busy: Samples) -> list[Caveat]:
    if wall is None or wall.median_s <= LAUNCH_BOUND * busy.median_s:
        return []
    share = busy.median_s / wall.median_s * 100
    return [
        Caveat(
            "launch-bound",
            f"back to back a call takes {format_time(wall.median_s)}, of which the device is busy "
            f"{share:.0f} %",
            "CUDA graphs, fewer and larger kernels, or torch.compile save launches",
        )
    ]
