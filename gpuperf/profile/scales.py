"""Fit what a traced step took into the plain step, which no profiler disturbed.

A profiler lengthens the gaps between kernels but not the kernels, so the idle seconds are those of
the plain step less the busy seconds of a traced step; the trace only says what the host did then.
Three kinds of work take another time in the trace:

- Kernels may be faster there: a card that rested between the passes has a higher clock than under a
  sustained load. That is so where the device never waited for the host in the plain steps, and
  idled less in the trace than that difference; the kernels' times are then scaled up to fill the
  plain step. Kernels that took longer than the plain step are scaled down, if neither copies nor
  waiting explain that.
- The host makes copies from and to pageable memory, and a profiler delays the host: times of such
  copies are scaled down to what the plain step has beside all other work in the trace.
- A collective lasts until the last rank has come, whose host the profiler delays. If a traced step
  took longer than the plain one, its waiting for other ranks is shortened before its kernels are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuperf.model.kernelname import PAGEABLE
from gpuperf.model.record import Kernel, Record

# The most that a kernel of a plain step takes, over its time in the trace: an H200's clock is
# 1980 MHz at rest, and 1500 MHz at its power cap.
MOST_SLOWER = 1.3


@dataclass(frozen=True)
class Scales:
    """The times of a plain step over those of the trace: of kernels (on a CPU, of operators), of
    copies from and to pageable memory, and of collectives."""

    kernels: float = 1.0
    pageable: float = 1.0
    collectives: float = 1.0

    def of(self, kernel: Kernel) -> float:
        """Return the scale of a *kernel*, copy or memset."""
        if kernel.kind == "communication":
            return self.collectives
        if kernel.computes:
            return self.kernels
        return self.pageable if PAGEABLE in kernel.route else 1.0

    def fit(self, record: Record) -> tuple[float, float]:
        """Return the seconds of *record*, an operator, in a plain step on a GPU, and those of its
        copies."""
        whole_s, copied_s = traced_s(record), copied_of(record)
        fitted_s = copied_s - (1 - self.pageable) * copied_of(record, PAGEABLE)
        if communicates(record):
            return self.collectives * whole_s, fitted_s
        return self.kernels * (whole_s - copied_s) + fitted_s, fitted_s


@dataclass(frozen=True)
class PlainStep:
    """A plain step on a GPU: the device worked for `busy_s` seconds, of which it communicated for
    `exposed_s` without computing (None: no collective was seen). `scales` are its times over those
    of the trace."""

    busy_s: float
    exposed_s: float | None
    scales: Scales


def fit_step(
    region: Record, operators: Sequence[Record], step_s: float, waiting_s: float | None
) -> PlainStep | None:
    """Fit the traced *operators* of *region* into a plain step of *step_s* seconds.

    The rank waited for *waiting_s* seconds a traced step in collectives (None: unknown, so that it
    may have waited in all of their time). None without a trace.
    """
    busy = region.times.get("busy")
    if busy is None:
        return None
    whole_s = busy.median_s
    busy_s = _busy(region, step_s, whole_s)
    pageable_s = sum(copied_of(record, PAGEABLE) for record in operators)
    pageable = 1.0
    if pageable_s:
        left_s = max(0.0, busy_s - max(0.0, whole_s - pageable_s))
        pageable = min(1.0, left_s / pageable_s)
    delayed_s = (1 - pageable) * pageable_s
    copied_s = sum(copied_of(record) for record in operators if not communicates(record))
    linked_s = sum(traced_s(record) for record in operators if communicates(record))
    exposed_s = region.program.occupied.get("exposed") if region.program else None
    alone_s = linked_s if exposed_s is None else exposed_s  # not beside compute
    computed_s = max(0.0, whole_s - copied_s - alone_s)
    left_s = busy_s - (copied_s - delayed_s) - alone_s  # for kernels, as long as collectives last
    if exposed_s is not None:
        most_s = alone_s if waiting_s is None else min(waiting_s, alone_s)
        taken_s = _taken(computed_s, left_s, most_s, alone_s)
        left_s, exposed_s = left_s + taken_s, min(busy_s, alone_s - taken_s)
    else:
        taken_s = 0.0
    kernels = left_s / computed_s if computed_s > 0 and left_s > 0 else 1.0
    collectives = max(0.0, 1 - taken_s / linked_s) if linked_s else 1.0
    return PlainStep(busy_s, exposed_s, Scales(kernels, pageable, collectives))


def _taken(computed_s: float, left_s: float, waited_s: float, alone_s: float) -> float:
    """Return the seconds by which a step's exposed collectives, *alone_s*, are shortened.

    Its kernels took *computed_s*, and have *left_s* if nothing is shortened. At most *waited_s*
    of waiting is taken, but more where kernels would have no time at all. The result is negative if
    the plain step waited longer, as no clock makes kernels more than `MOST_SLOWER` times slower.
    """
    if left_s > MOST_SLOWER * computed_s:
        return MOST_SLOWER * computed_s - left_s
    taken_s = min(waited_s, max(0.0, computed_s - left_s))
    if left_s + taken_s <= 0:
        return min(alone_s, computed_s - left_s)
    return taken_s


def _busy(region: Record, step_s: float, whole_s: float) -> float:
    """Return the busy seconds of a plain step of *step_s* seconds; *whole_s* are those traced."""
    occupied = region.program.occupied if region.program and region.primary == "step" else {}
    idle_s = max(0.0, step_s - whole_s)
    least = step_s - min(idle_s, occupied.get("idle_most", idle_s))
    return least if least <= MOST_SLOWER * whole_s else step_s - idle_s


def communicates(record: Record) -> bool:
    """Return whether *record* is a collective, by its name or by the names of its kernels."""
    kinds = {kernel.kind for kernel in record.kernels}
    return kinds == {"communication"} or bool(
        record.operator and record.operator.kind == "communication"
    )


def is_copy(record: Record) -> bool:
    """Return whether *record* launches copies and memsets alone."""
    return bool(record.kernels) and not any(k.computes for k in record.kernels)


def copied_of(record: Record, route: str = "") -> float:
    """Return the traced seconds of *record* in copies whose route contains *route* (empty: all)."""
    own = [k for k in record.kernels if k.kind == "copy" and route in k.route]
    if is_copy(record) and (not route or len(own) == len(record.kernels)):
        return traced_s(record)
    return min(traced_s(record), sum(k.time_s or 0.0 for k in own))


def traced_s(record: Record) -> float:
    """Return the seconds of *record*, an operator, in a traced step; 0 if they are unknown."""
    return record.samples.median_s if record.samples is not None else 0.0
