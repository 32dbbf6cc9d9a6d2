"""Define the records of a run file: what was measured, under what conditions, and with what doubts.

A run is one JSONL file: a `Header` line, then a line for each `Record`. A run file is append-only
and readable while it is half written. Every record carries the id of its run, so `cat` merges runs.

Schema history
    1   2026-11: the first schema. The field `type` tells headers from records.
    2   2026-11: more timers, cache states, regimes and data; several times in `times`;
        `calls_until_steady`, `capture_s` and the clock of the rested device; the statuses
        `side-stream` and `host-only`; `variants` of a header.
    3   2026-11: hardware counters in `counters` of a record and of a kernel; `counting` of a
        header.
    4   2026-11: comparisons: `baseline` and `main` of a header, `chosen` of a record,
        `call_bytes` of its memory.
    5   2026-11: `study` and `asked` of a header.
    6   2026-11: `launch` and `time_s` of a kernel; cycles among the counters.
    7   2026-11: profiles: `region`, `program` and `operator` of a record.
    8   2026-11: `parts` of a program, `idle_s` of a wait, `graph` of an operator.
    9   2026-11: the status `impossible`, for results that break physics; `processes` of a header;
        `function` of FLOPs and of ceilings, `accurate` of ceilings; `windows` of samples; `draws`
        of a check; `data_s` and `data_where` of a program, `optimizer` of a chain.
    10  2026-11: `tensors`, `more` and `made` of an operator, which were text in its case before;
        `kind` and `route` of a kernel; the study `timing-check`.
    11  2026-11: experiments: `expected` of a header, studies such as `lab:NAME`, `readings` of a
        record.
    12  2026-11: gangs: `ranks` of a record, whose `world` and `devices` are those of the gang;
        `collective` of a cost; the times `wire` and `eager`; the study `links`,
        `topology` of a header.
    13  2026-11: profiles of several ranks: `first`, `backend` and `collectives` of a program.
    14  2026-11: gangs of several hosts: `hosts` and `tuning` of a header, `host` of a rank's times.
    15  2026-11: `energy` of a record and of a header.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from gpuperf.model.contract import Contract, Counting, DeviceFacts, Fingerprint
from gpuperf.model.cost import Cost, Work
from gpuperf.model.energy import Energy
from gpuperf.model.experiment import Predictions
from gpuperf.model.gang import RankTimes, TunedTime
from gpuperf.model.kernelname import COMPUTING, KernelKind, kind_of, route_of
from gpuperf.model.peaks import Peaks
from gpuperf.model.program import Operator, Program
from gpuperf.model.samples import Samples
from gpuperf.model.topology import Topology
from gpuperf.model.workload import Case, Value

if TYPE_CHECKING:
    from gpuperf.model.times import TimeName
else:
    TimeName = str  # when a file is decoded: a newer version or a registered timer has other names

SCHEMA = 15
MOST_PROCESSES = 1000  # most processes of a comparison, which would take weeks
MOST_BYTES = 2**200
MOST_LAUNCHED = 2**31  # blocks along an axis of a grid, by the CUDA C++ Programming Guide
LEAST_COUNT = -1e12  # a count can be negative, as it is the difference of two noisy counts
MOST_COUNT = 1e21  # largest count of one call: the fastest machine takes a week for it
NO_COUNTERS = "no-counters"  # kind of the caveat on a record whose counters could not be read

Status = Literal[
    "ok",
    "skipped",
    "oom",
    "wrong",
    "error",
    "crashed",
    "timeout",
    "cannot-block",
    "no-work",
    "host-only",
    "side-stream",
    "impossible",
]

# How processes of a run begin: each on its own, or forked from a process that has imported torch.
Started = Literal["spawned", "forked"]


@dataclass(frozen=True)
class Caveat:
    """A doubt about a measurement, and a hint what to do about it."""

    kind: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Check:
    """The error of a result against a float64 reference, relative to the size of the values.

    `error` is the largest error of an element and `rms` the root mean square; both have a bound.
    `rows` is the number of rows (along the first axis) compared element by element. `seed` drew the
    inputs; the environment variable GPUPERF_CHECK_SEED sets it. `draws` names the kinds of inputs.
    """

    error: float
    tolerance: float
    rows: int
    rms: float = 0.0
    rms_tolerance: float = 0.0
    seed: int = 0
    draws: tuple[str, ...] = ()


@dataclass(frozen=True)
class TimerFacts:
    """Properties of the timer, measured in this process.

    `floor_s` is the time that the timer adds to a call; it has been subtracted from the samples.
    `empty_call_s` is the time of an empty call, which no operation can beat, whatever the roofs
    allow. `clock_hz` is the SM clock of the rested device.
    """

    floor_s: float = 0.0
    floor_uncertainty_s: float = 0.0
    empty_call_s: float = 0.0
    tick_s: float = 0.0
    clock_hz: float | None = None


@dataclass(frozen=True)
class Launch:
    """The launch of a kernel: blocks of the grid, threads of a block, blocks of a cluster (0
    without clusters), registers of a thread, bytes of shared memory of a block, and the number of
    clusters that the device holds at once (0 if unknown)."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (0, 0, 0)
    registers: int = 0
    shared_bytes: int = 0
    most_clusters: int = 0

    def __post_init__(self) -> None:
        numbers = (*self.grid, *self.block, *self.cluster, self.registers, self.shared_bytes)
        if not all(0 <= n <= MOST_LAUNCHED for n in (*numbers, self.most_clusters)):
            raise ValueError("a launch is beyond what CUDA allows")

    @property
    def blocks(self) -> int:
        """Blocks of the whole grid."""
        return math.prod(self.grid)

    @property
    def cluster_blocks(self) -> int:
        """Blocks of one cluster; 1 without clusters."""
        return max(1, math.prod(self.cluster))


@dataclass(frozen=True)
class Kernel:
    """One GPU kernel, copy or memset of a call, and how often the call runs it.

    `launch` describes its first run in a call. `time_s` is the time of all its runs in a call
    (median over calls, seconds). `counters` are sums over these runs, by the names of
    `Record.counters`; in addition `cycles` (of the slowest SM), `active_cycles` and `time_ns`,
    taken under the profiler, which drains the device before and after each kernel.

    `kind` and the `route` of a copy (`HtoD pageable`) come from the trace or the run file; if these
    have none, the name decides.
    """

    name: str
    count: int = 1
    counters: Mapping[str, float] = field(default_factory=dict)
    launch: Launch | None = None
    time_s: float | None = None
    kind: KernelKind = ""
    route: str = ""

    def __post_init__(self) -> None:
        _check_counters(self.counters)
        if not self.kind:
            object.__setattr__(self, "kind", kind_of(self.name))
        if self.kind == "copy" and not self.route:
            object.__setattr__(self, "route", route_of(self.name))

    @property
    def computes(self) -> bool:
        """Whether this is a kernel, rather than a copy or a memset."""
        return self.kind in COMPUTING


def _check_counters(counters: Mapping[str, float]) -> None:
    if not all(LEAST_COUNT < value < MOST_COUNT for value in counters.values()):
        raise ValueError("the value of a counter is impossibly large")


@dataclass(frozen=True)
class Telemetry:
    """Readings of the device during the measurement; `None` where the device has no such reading.

    `power_w` is the highest reading in watt, which NVML averages over up to a second. Clocks are
    medians in hertz. `throttle` names every reason for throttling that was observed. `other_load`
    is the number of processors of the host that other processes kept busy, if the CPU was measured.
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
class Noise:
    """The scatter of one case over *processes* fresh processes, as fractions of its time.

    `within` is the relative standard deviation of the samples of one process (from their
    quartiles), `between` the relative standard deviation of the processes' medians.
    """

    within: float
    between: float
    processes: int


@dataclass(frozen=True)
class Memory:
    """Device memory of one case in bytes: the inputs, the output, the peak of the allocator (which
    includes the check), and the most that one call allocated beside the inputs."""

    inputs_bytes: int
    output_bytes: int = 0
    peak_bytes: int | None = None
    call_bytes: int | None = None

    def __post_init__(self) -> None:
        if not all(0 <= b < MOST_BYTES for b in (self.inputs_bytes, self.output_bytes)):
            raise ValueError("a number of bytes is larger than any memory")


@dataclass(frozen=True)
class Record:
    """One measurement. Its key is (run, case, contract, pass, rank).

    `times` has samples by the names in `model/times.py`; `primary` names the time that counts.
    `build_s` is the time of compiling and autotuning, `first_call_s` that of the first call, with
    lazy compilation and loading, `capture_s` that of capturing a CUDA graph. `chosen` is the
    configuration that an autotuner chose. `noise` comes from earlier processes on this device.
    After `calls_until_steady` calls the time no longer fell. `energy` has the trials of a sustained
    load. `readings` are numbers that the call
    reads of itself, such as cycles that its kernel counted; `local_bytes` is the local memory of a
    thread, which is not 0 where registers were spilled.

    A gang of `world` workers on `devices` has one record for a case: `times` are those of the gang,
    and `ranks` has the times of each worker. `rank` is 0 unless the record is of one process of a
    distributed program.

    `counters` are hardware counters of one call, taken in passes of their own:

    - `dram_read_bytes` and `dram_written_bytes` at full speed, from `dram_calls` calls.
      `dram_uncertainty_bytes` is half the 95 % interval of their sum. They were divided by
      `dram_factor`, the counted over the true bytes of a known transfer.
    - `l2_bytes`, `l1_bytes`, `tensor_bf16` and the like (operations of the tensor pipe by the dtype
      of its inputs), `fp32_flops` and `fp64_flops` (of the vector pipes), summed over the kernels,
      from `kernel_passes` replays, as far as the chip has counters for them.
    - cycles of the SMs at full speed. `elapsed_cycles` lasts from the start of the call's first
      kernel to the end of its last: the cycles of its time, and the time that the counters added.
      The others are means over the SMs: `active_cycles` in which an SM had work, `tensor_cycles`,
      `fma_cycles` and `fp64_cycles` in which all of a pipe would have been busy.

    A profile has one record with `program` for each `region` of a program, whose time is that of a
    step, and one record with `operator` for each operator in the region, whose cost and times are
    those of all its calls in a step.
    """

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
    times: Mapping[TimeName, Samples] = field(default_factory=dict)
    primary: TimeName | Literal[""] = ""
    stop: Literal["precision", "budget", "samples", ""] = ""
    timer: TimerFacts = field(default_factory=TimerFacts)
    build_s: float | None = None
    first_call_s: float | None = None
    capture_s: float | None = None
    calls_until_steady: int | None = None
    check: Check | None = None
    kernels: tuple[Kernel, ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    telemetry: Telemetry | None = None
    energy: Energy | None = None
    memory: Memory | None = None
    chosen: Mapping[str, Value] = field(default_factory=dict)
    readings: Mapping[str, float] = field(default_factory=dict)
    caveats: tuple[Caveat, ...] = ()
    noise: Noise | None = None
    seed: int = 0
    pass_index: int = 0
    rank: int = 0
    world: int = 1
    devices: tuple[int, ...] = (0,)
    ranks: tuple[RankTimes, ...] = ()
    kind: Literal["case", "region", "operator", "kernel"] = "case"
    region: str = ""
    program: Program | None = None
    operator: Operator | None = None
    schema: int = SCHEMA
    type: Literal["record"] = "record"

    def __post_init__(self) -> None:
        _check_counters(self.counters)

    @property
    def samples(self) -> Samples | None:
        """Samples of the primary time; None if the case has no time."""
        return self.times.get(self.primary) if self.primary else None

    @property
    def key(self) -> tuple[str, str, Contract, int, int]:
        """Key (run, case id, contract, pass, rank); a later record with it replaces this one."""
        return (self.run, self.case.id, self.contract, self.pass_index, self.rank)


def without_counters(record: Record, reason: str, hint: str) -> Record:
    """Add a caveat to *record* that says why it lacks counters; its time remains valid."""
    caveat = Caveat(NO_COUNTERS, f"some hardware counters could not be read: {reason}", hint)
    return replace(record, caveats=(*record.caveats, caveat))


@dataclass(frozen=True)
class Header:
    """The first line of a run file: everything that is needed to draw or judge the run elsewhere.

    Every case of the `plan` is measured under `contract` and under each of `variants`, once in each
    of the `processes`. `peaks` is a copy of the data-sheet peaks, or `None` with the reason in
    `peaks_reason`; `ceilings` are the measured ceilings, if there are any. `counting` says which
    hardware counters were requested, `energy` whether the energy of calls was. `baseline` names the
    implementation that a comparison compares with. `main` names the axes that `--sizes` sets.
    `study` names the verb whose tables the run needs, with what it studied after a colon, and
    `asked` the sizes for which it looks for a faster size nearby. `expected` are the predictions of
    an experiment, made before the first measurement. `started` says how the processes began.
    `steps` names the implementations, in their order, each of which changes one thing of the one
    before. The cases were measured by a gang of `world` workers on `devices`; `hosts` has the host
    of each of them, if there are several hosts. `topology` has the links of the machine, if they
    were read, and `tuning` what NCCL predicts for collectives of this gang, as it logged that.
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
    variants: tuple[Contract, ...] = ()
    counting: Counting = "off"
    energy: bool = False
    baseline: str = ""
    main: tuple[str, ...] = ()
    study: str = ""
    asked: tuple[int, ...] = ()
    processes: int = 1
    expected: Predictions | None = None
    started: Started = "spawned"
    steps: tuple[str, ...] = ()
    topology: Topology | None = None
    hosts: tuple[str, ...] = ()
    tuning: tuple[TunedTime, ...] = ()
    schema: int = SCHEMA
    type: Literal["header"] = "header"

    def __post_init__(self) -> None:
        if not 1 <= self.processes <= MOST_PROCESSES:
            raise ValueError(f"a run has 1 to {MOST_PROCESSES} processes, not {self.processes}")


@dataclass(frozen=True)
class Run:
    """A run file that was read: the header, the last record of each key, and the lines that could
    not be read."""

    header: Header
    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()
