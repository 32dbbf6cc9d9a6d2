"""Take the times of one call, with the caveats about them.

On a GPU the primary time of the default timer lasts from the start of a call's first kernel to the
end of its last, without a profiler. For one kernel it is the duration that the hardware records;
for several it is a window around them less the window's floor, since a profiler widens the gaps.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.measure.batches import sustain, unfinished_s, wall_times
from gpuperf.measure.caveats import launch_caveats, odd_caveats, recorder_caveats, rest_caveats
from gpuperf.measure.refusals import NoTime, refuse_activity, refuse_idle, refuse_uneven
from gpuperf.measure.sampling import Rest, SamplingResult, take_samples
from gpuperf.measure.timers import make_timer
from gpuperf.measure.timers.activity import Trace, trace_calls
from gpuperf.measure.timers.timer import Call, CannotBlock, OpenTimer, Sample, do_nothing
from gpuperf.measure.timers.window import LAUNCH_PERIOD, open_window
from gpuperf.measure.timing import Timing
from gpuperf.model.contract import Cache, Contract, TimerName
from gpuperf.model.record import Caveat, TimerFacts
from gpuperf.model.samples import Samples
from gpuperf.model.timers import TIMERS
from gpuperf.model.times import TimeName
from gpuperf.units import format_time

CANDIDATE_SAMPLES = 12  # three periods of the launch queue (LAUNCH_PERIOD)
TRACED = 20  # most calls of a trace; it has at least three
OUTSIDE_S = 0.1e-6  # work of a call this long outside its window is more than rounding
# The device may work this long after the call's stream is done: seconds, or a share of the call.
UNFINISHED_S, UNFINISHED_SHARE = 2e-6, 0.05
UNFINISHED_TRIES = 8
# A kernel's record and its window may differ by this much; 0.45 µs was observed.
AGREED_S, AGREED_SHARE = 1e-6, 0.05
LONGEST_PERIODIC_S = 2e-4  # of a call: one late launch is under half a percent of a longer call
SIDE_STREAM_HINT = "let the current stream wait for the other one inside the call"

Tracer = Callable[[Call, float, Cache, int], Trace | None]


@dataclass(frozen=True)
class Stopwatch:
    """Times calls with *timer*, and with further functions, each None if the device has none.

    `trace` records kernels; `fallback` opens the timer that replaces `auto` for a call that cannot
    be blocked; `unfinished_s` measures how long the device works on after the call's stream is
    done; `wall` times calls in a loop; `sustain` repeats a call until its time is steady. `watch`
    is called while a sample runs, `on_sample` after each with the number of samples so far; `wrap`
    replaces the call of a sample by one that may keep its result until `on_sample`.
    """

    timer: OpenTimer
    trace: Tracer | None = None
    fallback: Callable[[], OpenTimer] | None = None
    unfinished_s: Callable[[Call, float], float] | None = None
    wall: Callable[[Call, float], Samples] | None = None
    sustain: Callable[..., tuple[Samples, Samples, bool]] | None = None
    watch: Callable[[], None] = do_nothing
    on_sample: Callable[[int], None] = lambda count: None
    wrap: Callable[[Call], Call] = lambda call: call

    def with_hooks(
        self,
        watch: Callable[[], None],
        on_sample: Callable[[int], None],
        wrap: Callable[[Call], Call],
    ) -> Self:
        """Return this stopwatch with these functions as `watch`, `on_sample` and `wrap`."""
        return replace(self, watch=watch, on_sample=on_sample, wrap=wrap)

    def repeat(self, call: Call) -> Call:
        """Return the function that a sample runs: the replay of the graph of *call*, or *call*."""
        return self.timer.repeat(call)

    def release(self) -> None:
        """Free what was kept for `repeat`, after the last call of it."""

    def take(self, call: Call, contract: Contract, call_s: float, fits_cache: bool) -> Timing:
        """Return the times of *call*, which takes about *call_s* seconds.

        With *fits_cache*, its inputs and result fit in the L2, so its time with a hot cache is
        taken too. Raises: NoTime; CannotBlock for a call that waits for the device; CannotMeasure
        without the timer.
        """
        timer, caveats = self._admitted(call, contract)
        timer.watch = self.watch
        rest = Rest(contract, call_s, timer.facts.clock_hz)
        self._refuse_side_streams(call, call_s)
        rested = self.timer.recover()
        trace = self._traced(call, contract, rest) if timer is self.timer else None
        caveats += _trace_caveats(trace, contract, timer)
        if contract.regime == "sustained":
            timing = self._sustained(call, contract, call_s, timer)
        elif trace is not None and _by_kernel(trace, contract):
            timing = self._by_kernel(call, contract, rest, trace, timer)
        else:
            timing = self._by_timer(call, contract, rest, timer, trace)
        times = {**(_trace_times(trace) if trace else {}), **timing.times}
        if TIMERS[contract.timer].host:
            return timing
        if fits_cache and contract.cache in ("cold", "cold-dirty"):
            times |= self._hot(call, contract, rest, timing.primary, timer)
        if self.wall is not None:
            times["wall"] = self.wall(call, call_s)
        # The calls of `wall` meet a hot cache.
        busy = times.get("hot") or times.get("busy") or times[timing.primary]
        return replace(
            timing,
            times=times,
            kernels=trace.timed if trace else (),
            launches=trace.launches if trace else (),
            capture_s=timer.capture_s,
            caveats=(
                *caveats,
                *timing.caveats,
                *rest_caveats(rested, rest, timing.times[timing.primary], contract),
                *launch_caveats(times.get("wall"), busy),
            ),
        )

    def time_candidate(self, call: Call, contract: Contract) -> float:
        """Return the median seconds of *call*, a candidate of an autotuner, under *contract*.

        The timer's floor is included, so compare the result with that of other candidates only.
        Raises: what the call raises; CannotBlock.
        """
        call_s = self.sample_candidate(call, contract)
        rest = Rest(contract, call_s, self.timer.facts.clock_hz)
        times = [
            self.timer.sample(call, rest.idle_s, contract.cache).time_s
            for _ in range(CANDIDATE_SAMPLES)
        ]
        return statistics.median(times)

    def candidate_timers(
        self, contract: Contract
    ) -> tuple[Callable[[Call], float], Callable[[Call], float]]:
        """Return `time_candidate` and `sample_candidate` under *contract*."""
        settled = partial(self.time_candidate, contract=contract)
        return settled, partial(self.sample_candidate, contract=contract)

    def sample_candidate(self, call: Call, contract: Contract) -> float:
        """Return the seconds of *call* from one sample without a rest before it.

        Raises: what the call raises; CannotBlock.
        """
        call()
        self.timer.admit(call)
        return self.timer.sample(call, 0.0, contract.cache).time_s

    def sample(
        self, call: Call, contract: Contract, rest: Rest, timer: OpenTimer, trace: Trace | None
    ) -> SamplingResult:
        """Take samples with *timer*, less its floor: that of this call, if it has a *trace*."""
        launches = trace.kernel_count if trace else 0
        short = trace is not None and statistics.median(trace.span_s) <= LONGEST_PERIODIC_S
        periodic = timer.periodic and launches > 1 and short

        def sample(idle_s: float) -> Sample:
            if periodic:
                return timer.sample_period(self.wrap(call), launches, idle_s, contract.cache)
            return timer.sample(self.wrap(call), idle_s, contract.cache)

        def draw(count: int, idle_s: float) -> Sequence[Sample]:
            return [sample(idle_s) for _ in range(count)]

        facts = _facts(timer, trace, contract.cache, rest.idle_s)
        windows = LAUNCH_PERIOD if periodic else 1
        return take_samples(draw, contract, facts, rest, on_sample=self.on_sample, windows=windows)

    def _admitted(self, call: Call, contract: Contract) -> tuple[OpenTimer, list[Caveat]]:
        try:
            self.timer.admit(call)
        except CannotBlock as error:
            if contract.timer != "auto" or self.fallback is None:
                raise
            caveat = Caveat(
                "cannot-block",
                f"{error}: its time is that between two events, and includes launches",
                "let the call launch its work without waiting for the device",
            )
            return self.fallback(), [caveat]
        return self.timer, []

    def _refuse_side_streams(self, call: Call, call_s: float) -> None:
        if self.unfinished_s is None or TIMERS[self.timer.name].host:  # it waits for all streams
            return
        for _ in range(UNFINISHED_TRIES):  # a busy host is late sometimes, a side stream always
            left_s = self.unfinished_s(call, call_s)
            if left_s <= max(UNFINISHED_S, UNFINISHED_SHARE * call_s):
                return
        raise NoTime(
            "side-stream",
            f"the device worked on for {format_time(left_s)} after the call's stream was done",
            SIDE_STREAM_HINT,
        )

    def _traced(self, call: Call, contract: Contract, rest: Rest) -> Trace | None:
        """Trace the first calls. Raises: NoTime, CannotMeasure."""
        if self.trace is None or TIMERS[contract.timer].host:
            return None
        count = max(3, min(TRACED, int(contract.budget_s / (rest.idle_s + rest.call_s + 1e-3))))
        cache: Cache = "hot" if contract.regime == "sustained" else contract.cache
        try:
            trace = self.trace(self.wrap(call), rest.idle_s, cache, count)
        except CannotBlock:
            if TIMERS[contract.timer].kernels == "never":
                return None  # it needs no trace
            raise
        if trace is None:
            refuse_activity(contract)
            return None
        if trace.outside_s > OUTSIDE_S:
            raise NoTime(
                "side-stream",
                f"{format_time(trace.outside_s)} of its work ran outside the stream that was timed",
                SIDE_STREAM_HINT,
            )
        if not trace.kernels and trace.odd < len(trace.readings):
            refuse_idle(statistics.median(r.queued_s for r in trace.readings))
        if not trace.busy_s:
            refuse_activity(contract)
            return None
        refuse_uneven(trace)
        return trace

    def _unrecorded_s(self, trace: Trace) -> float:
        """Return the seconds by which windows are longer than CUPTI's record of their one kernel.

        It is 0 where they agree. A graph that is launched for one kernel takes a microsecond more
        than the kernel; records can be lost, or forged by their names. Raises: NoTime for windows
        that are shorter.
        """
        busy_s = statistics.median(trace.busy_s)
        beyond_s = self.timer.facts_of(trace).floor_s - self.timer.facts.floor_s
        if abs(beyond_s) <= AGREED_S + AGREED_SHARE * busy_s:
            return 0.0
        if beyond_s > 0:
            return beyond_s
        raise NoTime(
            "error",
            f"CUPTI records a kernel of {format_time(busy_s)} in windows that hold "
            f"{format_time(busy_s + beyond_s)} of work",
            "run it again; if it persists, CUPTI's records are wrong: choose --timer events",
        )

    def _by_kernel(
        self, call: Call, contract: Contract, rest: Rest, trace: Trace, timer: OpenTimer
    ) -> Timing:
        """Take the busy time from as many traced calls as the contract's precision needs.

        Raises: NoTime, CannotMeasure.
        """
        unrecorded_s = self._unrecorded_s(trace) if trace.kernel_count == 1 else 0.0
        doubts = [_unrecorded(unrecorded_s)] if unrecorded_s else []
        if doubts and TIMERS[contract.timer].kernels == "one":
            timing = self._by_timer(call, contract, rest, timer, None)
            return replace(timing, caveats=(*timing.caveats, *doubts))
        traces = [trace]

        def draw(count: int, idle_s: float) -> Sequence[Sample]:
            assert self.trace is not None
            batch = self.trace(self.wrap(call), idle_s, contract.cache, count)
            if batch is None or not batch.busy_s:
                raise CannotMeasure(
                    "CUPTI gave no more kernel records in the middle of the measurement",
                    "end other profilers and run it again",
                )
            refuse_uneven(batch)
            if batch.kernels != trace.kernels:
                odd = batch.odd + len(batch.busy_s)
                batch = replace(batch, busy_s=(), span_s=(), readings=(), odd=odd)
            traces.append(batch)
            return _samples(batch)

        facts = replace(timer.facts, floor_s=0.0, floor_uncertainty_s=0.0, tick_s=trace.tick_s)
        result = take_samples(
            draw, contract, facts, rest, contract.min_samples, _samples(trace), self.on_sample
        )
        times: dict[TimeName, Samples] = {"busy": result.samples}
        return Timing(times, "busy", result.stop, facts, caveats=(*doubts, *odd_caveats(traces)))

    def _by_timer(
        self, call: Call, contract: Contract, rest: Rest, timer: OpenTimer, trace: Trace | None
    ) -> Timing:
        result = self.sample(call, contract, rest, timer, trace)
        facts = _facts(timer, trace, contract.cache, rest.idle_s)
        if result.samples.median_s <= facts.floor_uncertainty_s + facts.tick_s:
            refuse_idle(0.0, facts if TIMERS[timer.name].host else None)
        return Timing({"window": result.samples}, "window", result.stop, facts)

    def _hot(
        self, call: Call, contract: Contract, rest: Rest, primary: str, timer: OpenTimer
    ) -> dict[TimeName, Samples]:
        """Return the primary time without a flush of the L2, as `hot`; empty if CUPTI lost it."""
        call()
        trace = None
        if self.trace is not None and TIMERS[timer.name].kernels != "never":
            trace = self.trace(call, contract.gap_s, "hot", TRACED)
        if primary == "busy":
            if trace is None or not trace.busy_s:
                return {}
            return {"hot": Samples(trace.busy_s, tick_s=trace.tick_s)}
        if trace is not None and trace.kernel_count == 1:
            trace = None  # its windows hold more than its kernel
        brief = replace(contract, cache="hot", budget_s=contract.budget_s / 4)
        hot_rest = Rest(brief, rest.call_s, rest.rested_hz)
        return {"hot": self.sample(call, brief, hot_rest, timer, trace).samples}

    def _sustained(self, call: Call, contract: Contract, call_s: float, timer: OpenTimer) -> Timing:
        if self.sustain is None:
            raise CannotMeasure("the sustained regime needs a GPU", "leave --regime out")
        first, settled, steady = self.sustain(call, call_s, contract.settle_s, self.on_sample)
        unsettled = Caveat(
            "unsettled",
            f"the SM clock or the time of a call was still changing after {contract.settle_s:g} s",
            "give --settle more seconds",
        )
        return Timing(
            {"settled": settled, "first_second": first},
            "settled",
            "precision" if steady else "budget",
            replace(timer.facts, floor_s=0.0, floor_uncertainty_s=0.0),
            caveats=() if steady else (unsettled,),
        )


def open_stopwatch(name: TimerName, device: torch.device) -> Stopwatch:
    """Return the stopwatch with the timer *name*. Raises: CannotMeasure where it is unavailable."""
    timer = make_timer(name, device)
    if device.type != "cuda":
        return Stopwatch(timer)
    window = None if TIMERS[name].host or torch.version.hip else open_window(device)
    return Stopwatch(
        timer,
        trace=partial(trace_calls, window) if window else None,
        sustain=partial(sustain, window) if window else None,
        unfinished_s=unfinished_s,
        wall=wall_times,
        fallback=partial(make_timer, "events", device),
    )


def _facts(timer: OpenTimer, trace: Trace | None, cache: Cache, idle_s: float) -> TimerFacts:
    return timer.facts_in(cache, idle_s) if trace is None else timer.facts_of(trace)


def _unrecorded(seconds: float) -> Caveat:
    return Caveat(
        "unrecorded",
        f"a window around the call holds {format_time(seconds)} beside CUPTI's record of its "
        "kernel",
        "a CUDA graph takes longer to start than its kernel: time the kernel without a graph; "
        "without a graph in the call, CUPTI lost records",
    )


def _by_kernel(trace: Trace, contract: Contract) -> bool:
    """Return whether CUPTI's record of the kernels is the primary time."""
    kernels = TIMERS[contract.timer].kernels
    return kernels == "always" or (kernels == "one" and trace.kernel_count == 1)


def _samples(trace: Trace) -> list[Sample]:
    if len(trace.readings) != len(trace.busy_s):
        return [Sample(busy_s) for busy_s in trace.busy_s]
    return [
        Sample(busy_s, reading.clock_hz, reading.before_hz)
        for busy_s, reading in zip(trace.busy_s, trace.readings, strict=True)
    ]


def _trace_times(trace: Trace) -> dict[TimeName, Samples]:
    return {
        "busy": Samples(trace.busy_s, tick_s=trace.tick_s),
        "span": Samples(trace.span_s, tick_s=trace.tick_s),
    }


def _trace_caveats(trace: Trace | None, contract: Contract, timer: OpenTimer) -> Iterator[Caveat]:
    if trace is not None:
        yield from recorder_caveats(trace)
        yield from () if _by_kernel(trace, contract) else odd_caveats([trace])
    elif TIMERS[timer.name].kernels != "never":
        yield Caveat(
            "uncalibrated",
            "CUPTI gave no kernel times of this call: the time is a window less the floor of "
            "other calls",
            "end other profilers; see `gpuperf doctor`",
        )
