"""What was measured, and what is doubtful about it?

A run is one JSONL file: a `Header`, then one `Record` a line. It is append-only, readable half
written, and runs merge with `cat`: each record carries the id of its run.

Schema history
    1   2026-11: the first. Lines are told apart by `type`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuperf.model.contract import Contract, DeviceFacts, Fingerprint
from gpuperf.model.cost import Cost, Work
from gpuperf.model.peaks import Peaks
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case

__all__ = [
    "SCHEMA",
    "Caveat",
    "Check",
    "Header",
    "Kernel",
    "Memory",
    "Record",
    "Run",
    "Status",
    "Telemetry",
    "TimerFacts",
]

SCHEMA = 1

Status = Literal[
    "ok", "skipped", "oom", "wrong", "error", "crashed", "timeout", "cannot-block", "no-work"
]


@dataclass(frozen=True)
class Caveat:
    """A doubt about a measurement, with what to do about it."""

    kind: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Check:
    """How far the result was from a float64 reference, relative to the size of the values."""

    error: float
    tolerance: float
    rows: int


@dataclass(frozen=True)
class TimerFacts:
    """What the timer found out about itself in this process.

    `floor_s` is what an empty window adds to a kernel (already subtracted), `empty_call_s` how long
    the least possible call takes: no operation can be faster, whatever the roofs say.
    """

    floor_s: float = 0.0
    floor_uncertainty_s: float = 0.0
    empty_call_s: float = 0.0
    tick_s: float = 0.0


@dataclass(frozen=True)
class Kernel:
    """One GPU kernel of a call."""

    name: str
    count: int = 1


@dataclass(frozen=True)
class Telemetry:
    """What the device said beside the measurement; `None` where it does not say.

    The power is the highest reading, in watt, and NVML averages it over up to a second; clocks are
    medians, in hertz; `throttle` names the reasons seen at any moment; `other_load`
    is how many of the host's processors others kept busy, told where the CPU is measured.
    """

    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] = ()
    other_processes: int | None = None
    other_load: float | None = None


@dataclass(frozen=True)
class Memory:
    """Device memory of one case, in bytes: its inputs, its output, and the allocator's peak."""

    inputs_bytes: int
    output_bytes: int = 0
    peak_bytes: int | None = None


@dataclass(frozen=True)
class Record:
    """One thing measured. Its key is (run, case, contract, pass, rank)."""

    run: str
    case: Case
    contract: Contract
    status: Status
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    reason: str = ""
    hint: str = ""
    started: str = ""
    cost: Cost | None = None
    work: Work | None = None
    times: Mapping[str, Samples] = field(default_factory=dict)
    primary: str = ""
    stop: Literal["precision", "budget", "samples", ""] = ""
    timer: TimerFacts = field(default_factory=TimerFacts)
    build_s: float | None = None
    first_call_s: float | None = None
    check: Check | None = None
    kernels: tuple[Kernel, ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    telemetry: Telemetry | None = None
    memory: Memory | None = None
    caveats: tuple[Caveat, ...] = ()
    seed: int = 0
    pass_index: int = 0
    rank: int = 0
    world: int = 1
    devices: tuple[int, ...] = (0,)
    kind: Literal["case", "region", "operator", "kernel"] = "case"
    schema: int = SCHEMA
    type: Literal["record"] = "record"

    @property
    def samples(self) -> Samples | None:
        """The primary time, where there is one."""
        return self.times.get(self.primary)

    @property
    def key(self) -> tuple[str, str, Contract, int, int]:
        """What makes two records the same measurement."""
        return (self.run, self.case.id, self.contract, self.pass_index, self.rank)


@dataclass(frozen=True)
class Header:
    """The first line of a run: everything that is needed to draw or judge it elsewhere.

    `peaks` is the snapshot of the data-sheet ceilings used, or `None` with the reason in
    `peaks_reason`; `ceilings` the measured ones, where there are any.
    """

    run: str
    created: str
    command: tuple[str, ...]
    plan: tuple[Case, ...]
    contract: Contract
    device: DeviceFacts
    fingerprint: Fingerprint
    peaks: Peaks | None = None
    peaks_reason: str = ""
    ceilings: Peaks | None = None
    seed: int = 0
    gpuperf: str = ""
    world: int = 1
    devices: tuple[int, ...] = (0,)
    schema: int = SCHEMA
    type: Literal["header"] = "header"


@dataclass(frozen=True)
class Run:
    """A run as read back: header, records (the last of each key), and what was unreadable."""

    header: Header
    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()
