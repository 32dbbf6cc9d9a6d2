"""What was measured, and what is doubtful about it?

A run is one JSONL file: a `Header`, then one `Record` a line. It is append-only, readable half
written, and runs merge with `cat`: each record carries the id of its run.

Schema history
    1   2026-11: the first. Lines are told apart by `type`.
    2   2026-11: more timers, cache states, regimes and data; `times` holds more than one figure;
        `calls_until_steady`, `capture_s`, the rested clock; statuses `side-stream` and `host-only`;
        a header may have further contracts (`variants`).
    3   2026-11: hardware counters: names in `counters` of a record, and of each kernel; `counting`
        of a header.
    4   2026-11: comparisons: `baseline` and `main` of a header, `chosen` of a record, the bytes of
        a call in its memory.
    5   2026-11: `study` and `asked` of a header.
    6   2026-11: `launch` and `time_s` of a kernel; cycles among the counters.
    7   2026-11: profiles: `region`, `program` and `operator` of a record.
    8   2026-11: what a profile says of its program's steps.
    9   2026-11: the status `impossible`: what was measured breaks physics; `processes` of a header;
        `function` of FLOPs and of ceilings, `accurate` of ceilings; `windows` of samples.
    10  2026-11: the tensors of a profile's operator, which were text in its case; `kind` and
        `route` of a kernel; the study `timing-check`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gpuperf.model.contract import Contract, Counting, DeviceFacts, Fingerprint
from gpuperf.model.cost import Cost, Work
from gpuperf.model.kernelname import COMPUTING, KernelKind, kind_of, route_of
from gpuperf.model.peaks import Peaks
from gpuperf.model.program import Operator, Program
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case, Value

SCHEMA = 10
MOST_PROCESSES = 1000  # of a comparison: more would be weeks
MOST_BYTES = 2**200
MOST_LAUNCHED = 2**31  # blocks along an axis of a grid, in CUDA C's guide
LEAST_COUNTED = -1e12  # a difference of two counts scatters about nought
MOST_COUNTED = 1e21  # of anything in one call: a week of the fastest machine
NO_COUNTERS = "no-counters"  # the kind of a caveat

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


@dataclass(frozen=True)
class Caveat:
    """A doubt about a measurement, with what to do about it."""

    kind: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Check:
    """How far the result was from a float64 reference, relative to the size of the values.

    `error` is the largest of an element and `rms` the root mean square, each with its bound; `rows`
    counts the leading rows that were compared one by one. The inputs of the check were drawn from
    `seed`, which the environment variable GPUPERF_CHECK_SEED repeats; `draws` names their kinds.
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
    """What the timer found out about itself in this process.

    `floor_s` is what the timer adds to a call (already subtracted), `empty_call_s` how long the
    least possible call takes: no operation can be faster, whatever the roofs say. `clock_hz` is
    the SM clock of the rested device.
    """

    floor_s: float = 0.0
    floor_uncertainty_s: float = 0.0
    empty_call_s: float = 0.0
    tick_s: float = 0.0
    clock_hz: float | None = None


@dataclass(frozen=True)
class Launch:
    """How a kernel was launched: blocks of the grid, threads of a block, blocks of a cluster (0
    where it has none), registers of a thread, bytes of shared memory of a block, and how many
    clusters the device holds at once (0 where that is unknown)."""

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
        """Of the whole grid."""
        return math.prod(self.grid)

    @property
    def cluster_blocks(self) -> int:
        """Of one cluster; 1 where there is none."""
        return max(1, math.prod(self.cluster))


@dataclass(frozen=True)
class Kernel:
    """One GPU kernel, copy or memset of a call, and how often the call runs it.

    `launch` is that of its first run in a call, `time_s` the seconds of all of them (median over
    calls). `counters` are those of its runs in a call together, by the names of `Record.counters`,
    with `cycles` (of the SM that took most), `active_cycles` and `time_ns` under the profiler,
    which drains the machine before and after each kernel.

    `kind` and the `route` of a copy (`HtoD pageable`, as `route_of` has it) are those that a trace
    or a run file has, and else decided by the name.
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
        """Whether it is a kernel, and no copy or memset."""
        return self.kind in COMPUTING


def _check_counters(counters: Mapping[str, float]) -> None:
    if not all(LEAST_COUNTED < value < MOST_COUNTED for value in counters.values()):
        raise ValueError("a counter is beyond any count")


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
class Noise:
    """How far one case scatters, as fractions of its time, seen over *processes* fresh ones.

    `within` is the relative standard deviation of samples inside a process (by their quartiles),
    `between` that of the processes' medians.
    """

    within: float
    between: float
    processes: int


@dataclass(frozen=True)
class Memory:
    """Device memory of one case, in bytes: its inputs, its output, the allocator's peak (the check
    counts), and what one call had at most above the inputs."""

    inputs_bytes: int
    output_bytes: int = 0
    peak_bytes: int | None = None
    call_bytes: int | None = None

    def __post_init__(self) -> None:
        if not all(0 <= b < MOST_BYTES for b in (self.inputs_bytes, self.output_bytes)):
            raise ValueError("a count of bytes is beyond any memory")


@dataclass(frozen=True)
class Record:
    """One thing measured. Its key is (run, case, contract, pass, rank).

    `times` has samples by the names that times.py lists, `primary` is the name of those that count.

    `build_s` holds compile and autotune, `first_call_s` lazy compilation and loading, `capture_s`
    the capture of a CUDA graph; `chosen` is what an autotuner settled on; `noise` is what earlier
    processes on this device saw of the case; after `calls_until_steady` calls the time no longer
    fell.

    `counters` are the hardware's, of one call, taken in passes of their own: `dram_read_bytes` and
    `dram_written_bytes` at full speed, with half a 95 % interval of their sum in
    `dram_uncertainty_bytes`, from `dram_calls` calls, divided by `dram_factor` (what the counters
    show of a known traffic); and summed over the kernels, as far as the chip tells, `l2_bytes`,
    `l1_bytes`, `tensor_bf16` and its like (operations of the tensor pipe by input dtype),
    `fp32_flops`, `fp64_flops` (of the vector pipes), from `kernel_passes` replays. Cycles of the
    SMs are of the call at full speed: `elapsed_cycles` from its first kernel's start to its last
    one's end, those of its time and what it took longer under the counters; and, a mean over the
    SMs, `active_cycles` in which one had work, `tensor_cycles`, `fma_cycles` and `fp64_cycles` in
    which all of a pipe would have been busy.

    Of a profile, a `region` of a program is one record with `program`, its time that of a step, and
    each operator in it one with `operator`, its cost and its times those of all its calls in a
    step; `region` names what they are of.
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
    times: Mapping[str, Samples] = field(default_factory=dict)
    primary: str = ""
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
    memory: Memory | None = None
    chosen: Mapping[str, Value] = field(default_factory=dict)
    caveats: tuple[Caveat, ...] = ()
    noise: Noise | None = None
    seed: int = 0
    pass_index: int = 0
    rank: int = 0
    world: int = 1
    devices: tuple[int, ...] = (0,)
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
        """The primary time, where there is one."""
        return self.times.get(self.primary)

    @property
    def key(self) -> tuple[str, str, Contract, int, int]:
        """What makes two records the same measurement."""
        return (self.run, self.case.id, self.contract, self.pass_index, self.rank)


def without_counters(record: Record, reason: str, hint: str) -> Record:
    """*record* with a word on why it lacks counters; its time stands."""
    doubt = Caveat(NO_COUNTERS, f"not all of its counters could be read: {reason}", hint)
    return replace(record, caveats=(*record.caveats, doubt))


@dataclass(frozen=True)
class Header:
    """The first line of a run: everything that is needed to draw or judge it elsewhere.

    Each case of the plan is measured under `contract`, and under each of `variants`. `peaks` is the
    snapshot of the data-sheet ceilings used, or `None` with the reason in `peaks_reason`;
    `ceilings` the measured ones, where there are any. `counting` is what was asked of the
    hardware's counters; `baseline` the implementation that a comparison holds the others against;
    `main` the axes that `--sizes` sets. `study` says what a run is more than its rows, and `asked`
    the sizes that a better one nearby is sought for. Each of so many fresh `processes` measures the
    plan once.
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
    baseline: str = ""
    main: tuple[str, ...] = ()
    study: str = ""
    asked: tuple[int, ...] = ()
    processes: int = 1
    schema: int = SCHEMA
    type: Literal["header"] = "header"

    def __post_init__(self) -> None:
        if not 1 <= self.processes <= MOST_PROCESSES:
            raise ValueError(f"a run of {self.processes} processes is none")


@dataclass(frozen=True)
class Run:
    """A run as read back: header, records (the last of each key), and what was unreadable."""

    header: Header
    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()
