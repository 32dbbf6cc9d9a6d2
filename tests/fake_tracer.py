"""A timer, a tracer and a stopwatch of known times, where the hardware would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import get_args

import pytest

from gpuperf.measure.refusals import NoTime
from gpuperf.measure.stopwatch import Stopwatch
from gpuperf.measure.timers.activity import Trace
from gpuperf.measure.timers.timer import Call, CannotBlock, OpenTimer, Sample, do_nothing
from gpuperf.measure.timers.window import Reading
from gpuperf.measure.timing import Timing
from gpuperf.model.contract import Cache, Contract, TimerName
from gpuperf.model.record import Caveat, Kernel, Status, TimerFacts

__all__ = [
    "BURST",
    "FACTS",
    "GEMM",
    "RESTED_HZ",
    "SPLIT",
    "TICK",
    "US",
    "FakeTimer",
    "FakeTracer",
    "caveats",
    "giving",
    "refusal",
    "take",
    "trace_of",
]

US = 1e-6
RESTED_HZ = 1980e6
TICK = 32e-9
FACTS = TimerFacts(2.3 * US, 0.02 * US, 1.2 * US, TICK, RESTED_HZ)
BURST = Contract("blocked", gap_s=0.002, duty=0.2, min_samples=20, max_samples=200)
GEMM = (Kernel("gemm"),)
SPLIT = (Kernel("gemm"), Kernel("reduce", 2))


@dataclass
class FakeTimer(OpenTimer):
    """Hands out *times*, with its floor; refuses to admit a call for *refusal*, if there is one."""

    times: Iterator[float] = field(default_factory=lambda: repeat(12 * US))
    name: TimerName = "blocked"
    facts: TimerFacts = FACTS
    before_hz: Iterator[float | None] = field(default_factory=lambda: repeat(RESTED_HZ))
    refusal: str = ""
    watch: Callable[[], None] = do_nothing
    asked: list[tuple[float, Cache]] = field(default_factory=list)
    own: Callable[[Trace], TimerFacts] | None = None
    rested: Callable[[], bool] = lambda: True
    period: Callable[[Call, int, float, Cache], Sample] | None = None

    @property
    def periodic(self) -> bool:  # type: ignore[override]
        return self.period is not None

    def facts_of(self, trace: Trace) -> TimerFacts:
        return self.own(trace) if self.own else self.facts

    def recover(self) -> bool:
        return self.rested()

    def sample_period(self, call: Call, launches: int, idle_s: float, cache: Cache) -> Sample:
        assert self.period is not None
        return self.period(call, launches, idle_s, cache)

    def admit(self, call: Call) -> None:
        if self.refusal:
            raise CannotBlock(self.refusal)

    def sample(self, call: Call, idle_s: float, cache: Cache) -> Sample:
        call()
        self.asked.append((idle_s, cache))
        return Sample(next(self.times) + self.facts.floor_s, 1.9e9, next(self.before_hz))


def trace_of(
    busy_s: Sequence[float],
    kernels: tuple[Kernel, ...] = GEMM,
    odd: int = 0,
    outside_s: float = 0.0,
    queued_s: float = 5 * US,
    before_hz: float | None = RESTED_HZ,
) -> Trace:
    """The trace of calls that were busy for *busy_s*, with a tenth of gaps between kernels."""
    gaps = 1.1 if len(kernels) > 1 else 1.0
    reading = Reading(15 * US, 1.9e9, before_hz, queued_s)
    span_s = tuple(busy * gaps for busy in busy_s)
    readings = (reading,) * len(busy_s)
    return Trace(tuple(busy_s), span_s, readings, kernels, odd, outside_s, TICK)


@dataclass
class FakeTracer:
    """Gives as many calls as it is asked for, of *kernels* that take *busy_s* together."""

    kernels: tuple[Kernel, ...] = GEMM
    busy_s: Iterator[float] = field(default_factory=lambda: repeat(10 * US))
    hot_s: float = 6 * US
    outside_s: float = 0.0
    queued_s: float = 5 * US
    asked: list[tuple[float, Cache, int]] = field(default_factory=list)

    def __call__(self, call: Call, idle_s: float, cache: Cache, count: int) -> Trace:
        self.asked.append((idle_s, cache, count))
        busy_s = [self.hot_s if cache == "hot" else next(self.busy_s) for _ in range(count)]
        return trace_of(busy_s, self.kernels, outside_s=self.outside_s, queued_s=self.queued_s)


def giving(*traces: Trace | None) -> Callable[[Call, float, Cache, int], Trace | None]:
    """A tracer that gives these, one after the other."""
    left = iter(traces)
    return lambda call, idle_s, cache, count: next(left)


def take(
    watch: Stopwatch, contract: Contract = BURST, call_s: float = 30 * US, fits_cache: bool = False
) -> Timing:
    return watch.take(do_nothing, contract, call_s, fits_cache)


def refusal(watch: Stopwatch, contract: Contract = BURST, call_s: float = 30 * US) -> NoTime:
    with pytest.raises(NoTime) as caught:
        take(watch, contract, call_s)
    assert caught.value.status in get_args(Status)
    assert str(caught.value) == caught.value.reason
    assert caught.value.hint
    return caught.value


def caveats(timing: Timing) -> dict[str, Caveat]:
    found = {caveat.kind: caveat for caveat in timing.caveats}
    assert len(found) == len(timing.caveats)
    assert all(caveat.message and caveat.hint for caveat in timing.caveats)
    return found
