"""Build a bench whose timer is fake, and measure workloads with it on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch

from gpuperf.measure.bench import Bench
from gpuperf.measure.device import Device
from gpuperf.measure.stopwatch import Stopwatch
from gpuperf.measure.telemetry import Meter
from gpuperf.measure.timers.timer import Call, OpenTimer, Sample, do_nothing
from gpuperf.model.contract import Cache, Contract, DeviceFacts, Fingerprint, TimerName
from gpuperf.model.cost import Bytes, Cost
from gpuperf.model.record import Record, TimerFacts
from gpuperf.model.workload import Axis, Case, Implementation, Point, Workload

Inputs = Mapping[str, torch.Tensor]


Build = Callable[[Inputs, Point, object], Callable[[], object]]


CPU = torch.device("cpu")


ALL = ("fp64", "fp32", "tf32", "fp16", "bf16", "int8")


FACTS = DeviceFacts("cpu", 0, "a CPU", 2, 10**12, 10**12, dtypes=ALL)


@dataclass
class FakeTimer(OpenTimer):
    """Calls, and says that it took a millisecond (or *time_s*)."""

    name: TimerName = "wall"
    facts: TimerFacts = field(default_factory=TimerFacts)
    time_s: float = 1e-3
    calls: int = 0
    watch: Callable[[], None] = do_nothing

    def admit(self, call: Call) -> None:
        call()

    def sample(self, call: Call, idle_s: float, cache: Cache) -> Sample:
        call()
        self.calls += 1
        return Sample(self.time_s, None)


CONTRACT = Contract("wall", gap_s=0.0, min_samples=3)


def make_bench(timer: FakeTimer | None = None, facts: DeviceFacts = FACTS) -> Bench:
    return Bench(Device(CPU, facts), Stopwatch(timer or FakeTimer()), Meter(), Fingerprint())


def measure(
    workload: Workload,
    build: Build | None = None,
    timer: FakeTimer | None = None,
    contract: Contract = CONTRACT,
    facts: DeviceFacts = FACTS,
    **axes: int | str,
) -> Record:
    """The record of one point of *workload*, computed by *build* or by its own implementation."""
    if build is not None:
        workload = replace(workload, implementations=(Implementation("mine", build),), standard=())
    case = Case(workload.name, (*workload.standard, workload.implementations[0].name)[0], axes)
    return make_bench(timer, facts).measure(workload, case, contract, "r", seed=5)


def product(m: int, n: int, k: int, dtype: str) -> dict[str, int | str]:
    return {"m": m, "n": n, "k": k, "dtype": dtype}


def assert_wrong(record: Record, sentence: str) -> None:
    assert record.status == "wrong", (record.status, record.reason)
    assert sentence in record.reason
    assert record.times == {}
    assert record.samples is None


def in_place(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
    return lambda: inputs["x"].add_(1)


INCREMENT = Workload(
    name="increment",
    summary="x ← x + 1",
    formula="n FLOP",
    axes=(Axis("n", 8, main=True), Axis("dtype", "fp32", choices=("fp32",))),
    inputs=lambda point, make: {"x": make((point.n,), point.dtype)},
    reference=lambda inputs, point: inputs["x"].double() + 1,
    cost=lambda point: Cost(bytes=(Bytes(4 * point.n, 4 * point.n),)),
    implementations=(Implementation("torch", in_place),),
    mutates=("x",),
)
