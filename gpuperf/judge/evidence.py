"""Define the evidence about a submission: what the clerk and the answers' worker observed.

Nothing here was decided by the submission's process, except what is named a claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuperf.judge.task import Side
from gpuperf.model.cost import Cost
from gpuperf.model.peaks import Peaks
from gpuperf.model.record import Started

Failure = Literal["timeout", "oom", "crashed", "compile-error"]
Grade = Literal["A", "B", "C"]
Forbidden = Literal["", "library"]


@dataclass(frozen=True)
class Unfair:
    """A way to pass a task without its computation: what passed, and a sentence."""

    kind: Literal["constant", "input", "trivial", "random", "overflow"]
    text: str


@dataclass(frozen=True)
class Restrictions:
    """What isolates the submission: the level, what is in force, and what this system lacks."""

    level: str = "process"
    in_force: tuple[str, ...] = ()
    unavailable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Audit:
    """One compared result: the error of its worst element, with the bound.

    `reason` says why the result is refused, if it is. `replayed` is true for a result that is right
    for the earlier contents of the same addresses. `changed` names inputs that the call changed.
    `absolute` is the largest absolute error, without what the tolerance grants. An `undecided`
    result differs for values, not nominal, for which the reference itself is infinite or far off,
    and only where one of the two is infinite or NaN.
    """

    slot: int
    kind: str
    error: float = 0.0
    tolerance: float = 0.0
    reason: str = ""
    replayed: bool = False
    changed: str = ""
    process: int = 0
    window: int = 0
    timed: bool = True
    absolute: float | None = None
    undecided: bool = False

    @property
    def failed(self) -> bool:
        """Whether the result or what the call did to its inputs is wrong."""
        return bool(self.reason or self.changed)


@dataclass(frozen=True)
class WindowTime:
    """One window of calls back to back: seconds by the clerk's clock, seconds that the seat claims,
    and processor seconds of all its processes. The first windows of a process are not timed."""

    process: int
    window: int
    side: Side
    calls: int
    clerk_s: float
    claimed_s: float
    cpu_s: float
    timed: bool = True


def usual(windows: Iterable[WindowTime]) -> list[WindowTime]:
    """Return the *windows* with several calls. If there are none, as the contents are too large or
    a call takes too long, return those with one call."""
    some = [window for window in windows if window.calls]
    return [window for window in some if window.calls > 1] or some


@dataclass(frozen=True)
class IdleTime:
    """A pause in which a seat could run and was asked nothing, and its processor seconds."""

    process: int
    side: Side
    seconds: float
    cpu_s: float


@dataclass(frozen=True)
class Ran:
    """A kernel, copy or memset in a recorded window: its name, how often it ran, and seconds."""

    name: str
    count: int
    seconds: float


@dataclass(frozen=True)
class RecordedWindow:
    """What CUPTI recorded in a seat's own process during one window, which makes it a claim.

    `busy_s` are the seconds in which the device worked, `late_s` those for which it still worked
    when the stream of the calls had ended. `early_s` are those in which it worked before that
    stream, which is held at first, had reached the calls; None if nobody looked, as before
    schema 3.
    """

    process: int
    window: int
    side: Side
    calls: int
    busy_s: float
    late_s: float
    ran: tuple[Ran, ...] = ()
    lost: int = 0
    early_s: float | None = None


@dataclass(frozen=True)
class SeenWindow:
    """What another process saw of the device in one window and in the pause after it, by counters
    of DRAM that are sampled for the whole card: bytes, and seconds with traffic."""

    process: int
    window: int
    side: Side
    calls: int
    read: float
    written: float
    busy_s: float
    pause_s: float = 0.0
    pause_bytes: float = 0.0
    pause_busy_s: float = 0.0


@dataclass(frozen=True)
class CollectTime:
    """The seconds by the clerk's clock in which a seat copied results to the answers' worker."""

    process: int
    window: int
    side: Side
    results: int
    clerk_s: float


@dataclass(frozen=True)
class Counted:
    """Operations of one call by the counters of its kernels, read in the seat's own process."""

    side: Side
    operations: Mapping[str, float]
    kernels: int = 0


@dataclass(frozen=True)
class Hardware:
    """What was observed of a GPU, and what was not: `missing` says why, by the name of the fact.

    `needed_bytes` are those of the inputs of a call that must be read, without zeros, `l2_bytes`
    the size of the L2. `inputs` says how inputs reached a seat: `shared` memory of the device that
    another process writes, or `staged` by the seat's own process. `probe_s` are the seconds of a
    read by another process before any submission ran, and `probes` those after its windows.
    """

    device: str
    inputs: Literal["shared", "staged"] = "shared"
    l2_bytes: float = 0.0
    needed_bytes: float = 0.0
    result_bytes: float = 0.0
    probe_s: float = 0.0
    probes: tuple[float, ...] = ()
    recorded: tuple[RecordedWindow, ...] = ()
    seen: tuple[SeenWindow, ...] = ()
    collected: tuple[CollectTime, ...] = ()
    counted: tuple[Counted, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseEvidence:
    """All that was observed in one case.

    `failure` and `reason` say how the submission failed to run, if it did; `replaced` says what its
    code replaced in the process, functions or noted times, and `edited` which file of the task, or
    of those that it shares with the judge, it changed. `seeds` are those of each process, drawn
    after the submission was imported. `started` says whether its processes are forks of one
    process, whose libraries have the same addresses. `roofs` are those that `gpuperf calibrate`
    measured, or else the device's data sheet. `hardware` is what was observed of a GPU (None: on a
    CPU). `forbidden` says which kernels the submission may not spend its time in: `library`, those
    of others. `cost_is_derived` says whether the cost is that of the reference's operators, so that
    another algorithm may need fewer operations (None: unknown, before schema 4).
    """

    case: str
    unfair: tuple[Unfair, ...] = ()
    failure: Failure | None = None
    reason: str = ""
    audits: tuple[Audit, ...] = ()
    windows: tuple[WindowTime, ...] = ()
    idles: tuple[IdleTime, ...] = ()
    replaced: str = ""
    edited: str = ""
    seeds: tuple[str, ...] = ()
    cost: Cost | None = None
    kinds: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    calls: int = 0
    restrictions: Restrictions = Restrictions()
    started: Started = "spawned"
    roofs: Peaks | None = None
    hardware: Hardware | None = None
    forbidden: Forbidden = ""
    cost_is_derived: bool | None = None

    @property
    def decided(self) -> list[Audit]:
        """The audits of values for which the reference itself is right."""
        return [audit for audit in self.audits if not audit.undecided]

    @property
    def grade(self) -> Grade:
        """How strong the evidence is: A with hardware counters, B without, C that of a CPU."""
        if self.hardware is None:
            return "C"
        return "A" if self.hardware.seen or self.hardware.counted else "B"
