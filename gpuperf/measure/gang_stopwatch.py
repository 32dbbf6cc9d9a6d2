"""Time the calls of a gang, in which each rank waits for the others.

An early rank's call includes its wait, so a mean over ranks measures how late the last one was.

- `wire`, by the timer `graph` on GPUs: every rank queues a CUDA graph of 1 and of m calls behind a
  blocker, meets the others, and releases its device. The window of the rank that begins last
  includes no wait: the least over the ranks. The slope over m is the time of a call.
- `eager`, by the timer `wall`: from a barrier of the hosts to the end of the call on the last rank,
  launches included.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.measure import gang
from gpuperf.measure.caveats import launch_caveats
from gpuperf.measure.device import Device
from gpuperf.measure.nccl_log import Log
from gpuperf.measure.refusals import NoTime
from gpuperf.measure.sampling import Rest, take_samples
from gpuperf.measure.stopwatch import Stopwatch
from gpuperf.measure.timers import make_timer
from gpuperf.measure.timers.timer import Call, CannotBlock, Sample
from gpuperf.measure.timers.wall import WallTimer
from gpuperf.measure.timers.window import Window, open_window
from gpuperf.measure.timing import Timing
from gpuperf.model.contract import Cache, Contract, TimerName
from gpuperf.model.gang import RankTimes
from gpuperf.model.record import TimerFacts
from gpuperf.model.samples import Samples
from gpuperf.model.times import TimeName
from gpuperf.model.workload import Value

# The longest graph: calls for this time, at most so many. The time of a call by which they are
# counted is that of the host's clock, so that small calls count as some 50 µs.
GRAPH_S, MOST_CALLS = 1e-3, 20
BY_WALL = "--timer wall times it as the host launches it"
EAGER_SAMPLES = 20  # of the eager time beside the time on the wire

# A sample of the gang, and the seconds of this rank in it.
Draw = Callable[[float], tuple[Sample, float]]


@dataclass
class Graphs:
    """CUDA graphs of one call and of *most* calls, and the result of the one call."""

    most: int = 0
    one: Any = None
    several: Any = None
    output: Any = None

    def capture(self, call: Call, most: int) -> None:
        """Capture *call* once and *most* times. Raises: NoTime if it cannot be captured."""
        self.most = most
        self.several, _ = _captured(call, most)
        self.one, self.output = _captured(call, 1)
        for graph in (self.several, self.one):
            graph.replay()  # the first launch of a graph may wait for the device
        torch.cuda.synchronize()

    def replay(self) -> Any:
        """Run the one captured call, and return its result; several calls in place would reduce
        the result of the first again."""
        self.one.replay()
        return self.output

    def drop(self) -> None:
        """Free the graphs and their memory."""
        self.one = self.several = self.output = None


@dataclass(frozen=True)
class GangStopwatch(Stopwatch):
    """Stopwatch of one rank, whose samples are those of the gang; every rank takes the same ones.

    `window` takes windows on this rank's GPU; without one, calls are timed by the host's clock.
    """

    device: Device = field(kw_only=True)
    window: Window | None = None
    log: Log = field(default_factory=lambda: Log(None))
    graphs: Graphs = field(default_factory=Graphs)

    def repeat(self, call: Call) -> Call:
        """Return the replay of the graph of *call*, or *call*."""
        return call if self.window is None else self.graphs.replay

    def release(self) -> None:
        """Free the graphs of the case, and the result that they write to."""
        self.graphs.drop()

    def take(self, call: Call, contract: Contract, call_s: float, fits_cache: bool) -> Timing:
        """Return the times of *call*, which takes about *call_s* seconds on every rank.

        Raises: NoTime for a call that cannot be captured in a CUDA graph.
        """
        chosen: Mapping[str, Value]
        if self.window is None:
            calls = _calls(call_s) if self.device.torch.type == "cuda" else 1
            timing = self._eager(call, contract, call_s, calls)
            return replace(timing, chosen=self.log.chosen())
        self.window.watch = self.watch
        began = time.perf_counter()
        self.graphs.capture(getattr(call, "plain", call), _calls(call_s))
        capture_s = time.perf_counter() - began
        chosen = self.log.chosen()
        timing = self._wire(self.window, contract, call_s)
        brief = replace(contract, min_samples=EAGER_SAMPLES, max_samples=EAGER_SAMPLES)
        eager = self._eager(call, brief, call_s, self.graphs.most)
        replays = bool(getattr(call, "replays", hasattr(call, "plain")))
        doubts = launch_caveats(eager.times["eager"], timing.times["wire"], replays)
        own = {**timing.ranks[0].times, **eager.ranks[0].times}
        return replace(
            timing,
            times={**timing.times, **eager.times},
            ranks=(replace(timing.ranks[0], times=own),),
            capture_s=capture_s,
            chosen=chosen,
            caveats=tuple(doubts),
        )

    def time_candidate(self, call: Call, contract: Contract) -> float:
        """Raise CannotMeasure, since ranks that tune alone would choose differently."""
        raise CannotMeasure("no implementation is tuned in a gang", "fix its options")

    def _eager(self, call: Call, contract: Contract, call_s: float, calls: int) -> Timing:
        """Time *calls* calls after a barrier of the hosts, each sample on the last rank."""
        timer = self.timer
        assert isinstance(timer, WallTimer)
        facts = _agreed(timer.facts_in(contract.cache, contract.gap_s))

        def draw(idle_s: float) -> tuple[Sample, float]:
            run = self.wrap(call)
            timer.prepare(idle_s, contract.cache)
            gang.barrier()
            start = time.perf_counter()
            for _ in range(calls):
                run()
            self.device.synchronize()
            own_s = (time.perf_counter() - start) / calls
            return Sample(gang.most(own_s)), own_s - facts.floor_s / calls

        spread = replace(
            facts,
            floor_s=facts.floor_s / calls,
            floor_uncertainty_s=facts.floor_uncertainty_s / calls,
            tick_s=facts.tick_s / calls,
        )
        return self._sampled("eager", draw, contract, spread, call_s)

    def _wire(self, window: Window, contract: Contract, call_s: float) -> Timing:
        """Time one call more in a graph, on the rank that waits for none."""
        graphs = self.graphs
        more = graphs.most - 1

        def take(graph: Any, idle_s: float, cache: Cache) -> Sample:
            def queued() -> None:
                graph.replay()
                gang.barrier()  # every rank has queued its graph behind its blocker

            try:
                reading = window.take(queued, idle_s, cache)
            except CannotBlock as error:
                raise NoTime("cannot-block", f"in a graph, {error}", BY_WALL) from None
            return Sample(reading.window_s, reading.clock_hz)

        def draw(idle_s: float) -> tuple[Sample, float]:
            one = take(graphs.one, idle_s, contract.cache)
            several = take(graphs.several, idle_s, contract.cache)
            agreed_s = (gang.least(several.time_s) - gang.least(one.time_s)) / more
            return Sample(agreed_s, several.clock_hz), (several.time_s - one.time_s) / more

        facts = TimerFacts(tick_s=window.tick_s / more)
        return self._sampled("wire", draw, contract, facts, graphs.most * call_s)

    def _sampled(
        self, name: TimeName, draw: Draw, contract: Contract, facts: TimerFacts, call_s: float
    ) -> Timing:
        """Take samples until the gang's median is precise enough; keep those of this rank too."""
        own: list[float] = []

        def drawn(count: int, idle_s: float) -> Sequence[Sample]:
            taken = [draw(idle_s) for _ in range(count)]
            own.extend(seconds for _, seconds in taken)
            return [sample for sample, _ in taken]

        result = take_samples(
            drawn,
            contract,
            facts,
            Rest(contract, call_s),
            on_sample=self.on_sample,
            now=lambda: gang.first(time.perf_counter()),
        )
        mine = RankTimes(
            gang.membership().rank,
            self.device.facts.index,
            {name: Samples(tuple(own), tick_s=facts.tick_s)},
            gang.membership().host,
        )
        return Timing({name: result.samples}, name, result.stop, facts, ranks=(mine,))


def open_gang_stopwatch(name: TimerName, device: Device) -> GangStopwatch:
    """Return the stopwatch of this rank with the timer *name*. Raises: CannotMeasure."""
    if name not in ("wall", "graph"):
        raise CannotMeasure(
            f"the timer {name!r} times one device alone", "choose --timer graph or --timer wall"
        )
    timer = make_timer("wall", device.torch)
    window = open_window(device.torch) if name == "graph" else None
    return GangStopwatch(timer, device=device, window=window, log=Log(gang.membership().log))


def _agreed(facts: TimerFacts) -> TimerFacts:
    """Return *facts* of the first rank, so that the ranks subtract one floor."""
    return replace(
        facts,
        floor_s=gang.first(facts.floor_s),
        floor_uncertainty_s=gang.first(facts.floor_uncertainty_s),
        empty_call_s=gang.first(facts.empty_call_s),
        tick_s=gang.first(facts.tick_s),
    )


def _calls(call_s: float) -> int:
    """Return how many calls of *call_s* seconds make a window long enough, at least two."""
    return min(MOST_CALLS, max(2, math.ceil(GRAPH_S / call_s)))


def _captured(call: Call, calls: int) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Capture *calls* calls on this rank; every rank captures the same. Raises: NoTime."""
    torch.cuda.synchronize()
    gang.barrier()
    graph, output, stream = torch.cuda.CUDAGraph(), None, torch.cuda.current_stream()
    try:
        # NCCL's watchdog asks for events in another thread, which a global capture forbids.
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
            for _ in range(calls):
                output = call()
    except RuntimeError as error:
        torch.cuda.set_stream(stream)  # a capture that fails leaves its own stream current
        reason = str(error).strip().splitlines()[0]
        raise NoTime(
            "cannot-block", f"the call cannot be captured in a CUDA graph: {reason}", BY_WALL
        ) from None
    torch.cuda.synchronize()
    return graph, output
