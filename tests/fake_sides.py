"""Workers that measure nothing: the times of each side are drawn, where hardware would be."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuperf.gate.plan import GatePlan
from gpuperf.gate.project import Project
from gpuperf.gate.rule import Rule
from gpuperf.gate.sides import LABELS, Label, Side
from gpuperf.model.contract import DeviceFacts, Fingerprint
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.protocol import (
    PROTOCOL,
    Describe,
    Described,
    FromWorker,
    Hello,
    Loaded,
    Measure,
    Measured,
    Modules,
    Open,
    Opened,
    Runnable,
    RunnableCases,
    ToWorker,
)
from gpuperf.model.record import Kernel, Record, Telemetry
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Axis, Case, Description, ImplementationDescription
from gpuperf.run.launcher import Place
from gpuperf.run.plan import Conditions
from gpuperf.run.suite import Entry, Suite

DEVICE = DeviceFacts("cpu", 0, "a CPU", 2, 2**34, 2**33, dtypes=("fp32", "fp64"))
OPENED = Opened(DEVICE, Fingerprint(hard={"product": "a CPU"}, soft={"torch": "2.13"}))
N = Axis("n", 64, main=True)
DTYPE = Axis("dtype", "auto", choices=("fp32", "fp64"))

Change = Callable[[Record, int], Record]


def described(name: str, source: str = "gpuperf.kernels") -> Description:
    axes = (N, DTYPE)
    if name == "matmul":
        axes = (*(Axis(a, 64, main=True) for a in "mnk"), DTYPE)
    return Description(name, "", "", axes, (ImplementationDescription("torch"),), 1, source)


@dataclass
class FakeSide:
    """The times of one side: log-normal about *time_s* of each case, *slower* by case; `change`
    may alter any record, told the number of its process."""

    time_s: float = 1e-4
    between: float = 0.002
    slower: Mapping[str, float] = field(default_factory=dict)
    change: Change = lambda record, process: record
    opened: Opened = OPENED
    names: Sequence[str] = ("copy", "matmul", "op0", "op1", "op2")
    modules: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    processes: int = 0
    asked: list[tuple[int, Measure]] = field(default_factory=list)

    def start(self) -> FakeWorker:
        self.processes += 1
        return FakeWorker(self, self.processes)


class FakeWorker:
    name = "the worker"

    def __init__(self, side: FakeSide, number: int) -> None:
        self.side, self.number, self.killed = side, number, False
        self.replies: list[FromWorker] = [Hello(PROTOCOL, number, "2.13")]
        self.random = random.Random(f"{side.seed} {number}")

    def send(self, message: ToWorker) -> None:
        self.replies.append(self.answer(message))

    def answer(self, message: ToWorker) -> FromWorker:
        if isinstance(message, Open):
            return self.side.opened
        if isinstance(message, Describe):
            return Described(tuple(described(n, message.source) for n in self.side.names))
        if isinstance(message, Loaded):
            return Modules(dict(self.side.modules))
        if isinstance(message, Runnable):
            return RunnableCases(tuple(i for i, c in enumerate(message.cases) if self.runs(c)))
        assert isinstance(message, Measure)
        self.side.asked.append((self.number, message))
        return Measured(self.side.change(self.record(message), self.number))

    def runs(self, case: Case) -> bool:
        return case.implementation != "unsupported"

    def record(self, asked: Measure) -> Record:
        slower = next((v for k, v in self.side.slower.items() if k in asked.case.id), 0.0)
        middle = self.side.time_s * (1 + slower) + asked.extra_s
        middle *= math.exp(self.random.gauss(0, self.side.between))
        values = tuple(middle * (1 + 0.002 * self.random.gauss(0, 1)) for _ in range(9))
        return Record(
            asked.run,
            asked.case,
            asked.contract,
            "ok",
            self.side.opened.fingerprint,
            cost=Cost((Flops(10**6, "elementwise", "fp32"),), (Bytes(10**6, 10**6),)),
            times={"window": Samples(values)},
            primary="window",
            kernels=(Kernel("a_kernel"),),
        )

    def receive(self, timeout_s: float) -> FromWorker | None:
        return self.replies.pop(0) if self.replies else None

    def death(self) -> str | None:
        return "signal 9 (SIGKILL)" if self.killed else None

    def starved(self) -> str:
        return ""

    def last_words(self) -> str:
        return ""

    def dismiss(self) -> None: ...

    def kill(self) -> None:
        self.killed = True


@dataclass
class Heard:
    """A watcher that remembers; *interrupt* ends it at so many records."""

    interrupt: int = 10**9
    stages: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    records: int = 0

    def say(self, text: str) -> None:
        self.said.append(text)

    def stage(self, name: str, records: int) -> None:
        self.stages.append(name)

    def begin(self, case: str) -> None:
        self.begun.append(case)

    def hear(self, phase: str, samples: int) -> None:
        pass

    def done(self, label: Label, record: Record) -> None:
        self.records += 1
        if self.records == self.interrupt:
            raise KeyboardInterrupt


def suite_of(ops: Sequence[str] = ("op0", "op1", "op2"), sizes: str = "64,128") -> Suite:
    return Suite("fake", "", tuple(Entry(op, sizes) for op in ops), Conditions(budget_s=0.1))


def plan_of(rule: Rule | None = None, **more: object) -> GatePlan:
    rule = rule or Rule(seed=3)
    plan = GatePlan("gate", suite_of(), Project(), rule, rule.seed, 0.05)
    return replace(plan, **more)  # type: ignore[arg-type]


def sides_in(folder: Path) -> tuple[Side, Side]:
    base, head = (Side(label, label, Place(folder=str(folder))) for label in LABELS)
    return base, head


def case_of(op: str, n: int = 64) -> Case:
    return Case(op, "torch", {"n": n, "dtype": "fp32"})


def with_status(case: str, status: str, after: int = 0) -> Change:
    """Cases whose id contains *case* fail from process *after* on."""

    def change(record: Record, process: int) -> Record:
        if case in record.case.id and process > after:
            return replace(record, status=status, reason="as told", times={}, primary="")  # type: ignore[arg-type]
        return record

    return change


def shared_from(process: int, until: int = 10**9) -> Change:
    """Another process uses the GPU meanwhile."""

    def change(record: Record, number: int) -> Record:
        seen = Telemetry(other_processes=1 if process <= number < until else 0)
        return replace(record, telemetry=seen)

    return change
