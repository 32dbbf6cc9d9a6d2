"""Time one call with every timer of gpuperf, and with Triton's do_bench, for `timing-check`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

import torch

from gpuperf.measure.refusals import NoTime
from gpuperf.measure.sampling import Rest
from gpuperf.measure.stopwatch import Stopwatch, open_stopwatch
from gpuperf.measure.timers import make_timer
from gpuperf.measure.timers.activity import Trace
from gpuperf.measure.timers.timer import Call, CannotBlock
from gpuperf.measure.timing import Timing
from gpuperf.model.contract import Cache, Contract, TimerName
from gpuperf.model.record import Caveat
from gpuperf.model.samples import Samples
from gpuperf.model.timers import TIMERS
from gpuperf.model.times import TimeName

SAMPLES = 60


@dataclass(frozen=True)
class TimerComparison(Stopwatch):
    """Stopwatch that times a call with all timers of a CUDA device, one after the other.

    The times it returns are `blocked` (the primary time of the default timer), `window`, `events`
    and `wall` with a cold cache; `busy` of further calls, with which these are compared; `graph`
    and, to compare it with, `busy_hot` with a hot cache; and `do_bench` if Triton is installed.
    """

    device: torch.device = field(kw_only=True)

    def take(self, call: Call, contract: Contract, call_s: float, fits_cache: bool) -> Timing:
        """Return the times of *call* by the names of the timers. Raises: NoTime, CannotBlock."""
        timing = super().take(call, contract, call_s, fits_cache)
        times: dict[str, Samples] = {"blocked": timing.times[timing.primary]}
        if "span" in timing.times:
            times["span"] = timing.times["span"]
        caveats = list(timing.caveats)
        compared = [t for t in TIMERS.values() if t.reference and (t.module or t.windows_of)]
        for name in (timer.name for timer in compared if timer.name not in times):
            cache: Cache = "hot" if TIMERS[name].follow else "cold"
            try:
                times[name] = self._samples(name, cache, call, contract, call_s)
            except (CannotBlock, NoTime) as error:
                caveats.append(Caveat("no-timer", f"{name}: {error}"))
        references: tuple[tuple[str, Cache], ...] = (("busy", "cold"), ("busy_hot", "hot"))
        for name, cache in references:
            trace = self._warm_trace(call, contract, cache)
            if trace is not None and trace.busy_s:
                times[name] = Samples(trace.busy_s, tick_s=trace.tick_s)
        foreign = do_bench(call)
        if foreign is not None:
            times["do_bench"] = foreign
        return replace(
            timing,
            times=cast("dict[TimeName, Samples]", times),  # a registered timer adds its name
            primary="blocked",
            caveats=tuple(caveats),
        )

    def _warm_trace(self, call: Call, contract: Contract, cache: Cache) -> Trace | None:
        if self.trace is None:
            return None
        call()
        return self.trace(call, contract.gap_s, cache, SAMPLES)

    def _samples(
        self, name: TimerName, cache: Cache, call: Call, contract: Contract, call_s: float
    ) -> Samples:
        timer = make_timer(name, self.device)
        timer.admit(call)
        brief = replace(contract, cache=cache, max_samples=SAMPLES)
        rest = Rest(brief, call_s, timer.facts.clock_hz)
        periodic = TIMERS[timer.name].kernels != "never"
        trace = self._warm_trace(call, contract, cache) if periodic else None
        return self.sample(call, brief, rest, timer, trace).samples


def open_timer_comparison(device: torch.device) -> TimerComparison:
    """Open the timers of *device*. Raises: CannotMeasure where there is no CUDA."""
    return TimerComparison(**vars(open_stopwatch("blocked", device)), device=device)


def do_bench(call: Call) -> Samples | None:
    """Time *call* by `triton.testing.do_bench`, a list of event pairs; None without Triton."""
    try:
        from triton.testing import do_bench as measure
    except ImportError:
        return None
    return Samples(tuple(ms * 1e-3 for ms in measure(call, return_mode="all")))
