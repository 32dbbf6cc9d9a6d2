"""Is the time of a call in a gang the slope over its graphs, free of what each window adds?

The window and the graphs are fake here, at the edge of the hardware; one process is its own gang.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from fake_bench import CPU, FACTS

from gpuperf.errors import CannotMeasure
from gpuperf.measure import gang
from gpuperf.measure.device import Device
from gpuperf.measure.gang_stopwatch import GangStopwatch, Graphs, open_gang_stopwatch
from gpuperf.measure.refusals import NoTime
from gpuperf.measure.timers.timer import Call, CannotBlock
from gpuperf.measure.timers.wall import WallTimer
from gpuperf.measure.timers.window import Reading
from gpuperf.measure.verify import Rotation
from gpuperf.model.contract import Cache, Contract

CALL_S, START_S = 7e-6, 40e-6
CONTRACT = Contract("graph", "hot", gap_s=0.0, min_samples=5, budget_s=0.2)


@dataclass
class FakeGraph:
    """A graph of *calls* calls."""

    calls: int
    replays: int = 0

    def replay(self) -> None:
        self.replays += 1


@dataclass
class FakeGraphs(Graphs):
    """Graphs that capture nothing, and count the calls that they would hold."""

    captured: list[Call] = field(default_factory=list)

    def capture(self, call: Call, most: int) -> None:
        self.captured.append(call)
        self.most, self.one, self.several = most, FakeGraph(1), FakeGraph(most)
        self.output = call()


@dataclass
class FakeWindow:
    """A window that is as long as the graph in it, and a start that differs each time."""

    graphs: FakeGraphs
    refuses: bool = False
    tick_s: float = 1e-9
    taken: int = 0
    watch: Callable[[], None] = lambda: None

    def take(self, call: Call, idle_s: float = 0.0, cache: Cache = "hot") -> Reading:
        if self.refuses:
            raise CannotBlock("the call kept the host for over 1 s")
        before = [self.graphs.one.replays, self.graphs.several.replays]
        call()
        after = [self.graphs.one.replays, self.graphs.several.replays]
        several = after[1] > before[1]
        assert (after[0] > before[0]) != several, "one graph in a window"
        self.taken += 1
        calls = self.graphs.most if several else 1
        return Reading(START_S + calls * CALL_S, 1.98e9, None, 0.0)


def stopwatch(window: bool = True, refuses: bool = False) -> GangStopwatch:
    graphs = FakeGraphs()
    fake: Any = FakeWindow(graphs, refuses) if window else None
    return GangStopwatch(WallTimer(CPU), device=Device(CPU, FACTS), window=fake, graphs=graphs)


def call() -> torch.Tensor:
    return torch.ones(3)


def test_the_time_of_a_call_is_the_slope_over_its_graphs() -> None:
    watch = stopwatch()
    timing = watch.take(call, CONTRACT, 20e-6, True)
    assert timing.primary == "wire"
    assert watch.graphs.most == 20
    for seconds in timing.times["wire"].values_s:
        assert seconds == pytest.approx(CALL_S, rel=1e-6)
    assert timing.times["eager"].size == 20
    (own,) = timing.ranks
    assert (own.rank, own.device, own.times.keys()) == (0, 0, {"wire", "eager"})
    assert own.times["wire"].values_s == timing.times["wire"].values_s
    assert timing.clock_hz == 1.98e9
    assert [caveat.kind for caveat in timing.caveats] in ([], ["launch-bound"])


class Replayed:
    """A call of an implementation that is a CUDA graph, and takes the host 1 ms to launch."""

    plain = staticmethod(call)

    def __call__(self) -> torch.Tensor:
        time.sleep(1e-3)
        return call()


def slow() -> torch.Tensor:
    return Replayed()()


@pytest.mark.parametrize(
    ("launched", "advised"),
    [(slow, True), (Rotation([slow]), True), (Replayed(), False), (Rotation([Replayed()]), False)],
)
def test_a_graph_is_not_advised_to_be_one(launched: Any, advised: bool) -> None:
    (caveat,) = stopwatch().take(launched, CONTRACT, 20e-6, True).caveats
    assert caveat.kind == "launch-bound"
    assert caveat.hint.startswith("CUDA graphs, ") == advised
    assert caveat.hint.startswith("the call replays a CUDA graph") != advised


def test_a_long_call_is_captured_twice_and_a_short_one_many_times() -> None:
    for call_s, most in ((1.0, 2), (4e-3, 2), (250e-6, 4), (1e-6, 20)):
        watch = stopwatch()
        watch.take(call, CONTRACT, call_s, True)
        assert watch.graphs.most == most


def test_a_case_leaves_no_graph_and_no_result_behind() -> None:
    watch = stopwatch()
    watch.take(call, CONTRACT, 20e-6, True)
    watch.with_hooks(lambda: None, lambda count: None, lambda call: call).release()
    assert (watch.graphs.one, watch.graphs.several, watch.graphs.output) == (None, None, None)


def test_what_is_checked_is_one_call_of_the_graph() -> None:
    watch = stopwatch()
    watch.take(call, CONTRACT, 20e-6, True)
    before = watch.graphs.one.replays
    assert torch.equal(watch.repeat(call)(), torch.ones(3))
    assert watch.graphs.one.replays == before + 1


def test_a_graph_of_its_own_is_not_captured_again() -> None:
    class Replayed:
        plain = staticmethod(call)

        def __call__(self) -> torch.Tensor:
            return call()

    for each in (Replayed(), Rotation([Replayed(), Replayed()])):
        watch = stopwatch()
        watch.take(each, CONTRACT, 20e-6, True)
        assert isinstance(watch.graphs, FakeGraphs)
        assert watch.graphs.captured == [each.plain]


def test_a_call_that_cannot_be_queued_says_what_to_choose() -> None:
    with pytest.raises(NoTime) as refused:
        stopwatch(refuses=True).take(call, CONTRACT, 20e-6, True)
    assert refused.value.status == "cannot-block"
    assert "--timer wall" in refused.value.hint


def test_without_a_window_the_hosts_clock_times_the_call() -> None:
    timing = stopwatch(window=False).take(call, CONTRACT, 20e-6, True)
    assert timing.primary == "eager"
    assert timing.times.keys() == {"eager"}
    assert timing.times["eager"].values_s == timing.ranks[0].times["eager"].values_s
    assert timing.chosen == {}


def test_a_timer_of_one_device_is_refused() -> None:
    with pytest.raises(CannotMeasure, match="times one device alone"):
        open_gang_stopwatch("blocked", Device(CPU, FACTS))


def test_alone_a_process_agrees_with_itself() -> None:
    assert not gang.in_gang()
    assert (gang.first(3.0), gang.least(2.0), gang.most(1.0)) == (3.0, 2.0, 1.0)
    gang.barrier()
