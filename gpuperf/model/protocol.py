"""What do the supervisor and its worker say to each other?

JSON lines over a pipe of their own, so that a workload that prints breaks nothing. The supervisor's
first line is a token, with which every line of the worker begins. The worker's first message is
`Hello` with the protocol's version. Then each request is answered by any number of `Progress` and
one last message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from gpuperf.model.contract import Contract, Counting, DeviceFacts, Fingerprint
from gpuperf.model.program import PassName, PassResult
from gpuperf.model.record import Record
from gpuperf.model.workload import Case, Description

PROTOCOL = 8


class Open(msgspec.Struct, tag="open", frozen=True):
    """Take the device: `auto`, `cuda:0`, `cpu`."""

    device: str


class Describe(msgspec.Struct, tag="describe", frozen=True):
    """Load the workloads of *source*: `gpuperf.kernels`, a file, a module, an entry point."""

    source: str


class Measure(msgspec.Struct, tag="measure", frozen=True):
    """Measure one case of run *run*; with *every*, by every timer there is; then its counters.

    The device spins for *extra_s* behind each call: a slowdown that is known.
    """

    run: str
    case: Case
    contract: Contract
    seed: int
    every: bool = False
    counting: Counting = "off"
    extra_s: float = 0.0


class Runnable(msgspec.Struct, tag="runnable", frozen=True):
    """Which of these cases can be begun at all: supported here, and no larger than the memory?"""

    cases: tuple[Case, ...]
    contract: Contract


class Nvbench(msgspec.Struct, tag="nvbench", frozen=True):
    """Time all *cases* by nvbench, once in the life of a worker."""

    cases: tuple[Case, ...]
    contract: Contract
    seed: int


class Examine(msgspec.Struct, tag="examine", frozen=True):
    """Look at the opened device for what stands in the way of good numbers."""


class Loaded(msgspec.Struct, tag="loaded", frozen=True):
    """Which of the imported modules lie in *folders*, installed ones aside, or are of one of
    *packages*?"""

    folders: tuple[str, ...]
    packages: tuple[str, ...] = ()


class Profile(msgspec.Struct, tag="profile", frozen=True):
    """Run a program, a script or with *module* a module, by its arguments; of each region that it
    marks let *warmup* steps go by, and take *steps* in each of *passes*, which may last *budget_s*
    together; with *more* the plain pass takes what steps it needs. Traces go to *folder*."""

    argv: tuple[str, ...]
    module: bool
    warmup: int
    steps: int
    passes: tuple[PassName, ...]
    folder: str
    budget_s: float = 1e9
    more: bool = False


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """The worker is up."""

    protocol: int
    pid: int
    torch: str


class Opened(msgspec.Struct, tag="opened", frozen=True):
    """The device is there."""

    device: DeviceFacts
    fingerprint: Fingerprint


@dataclass(frozen=True)
class DeviceCheck:
    """One line of `gpuperf doctor`: a fact of the machine, whether it harms measurements, and what
    to do about it."""

    name: str
    verdict: Literal["ok", "note", "bad"]
    value: str
    hint: str = ""


class Examined(msgspec.Struct, tag="examined", frozen=True):
    """What was found."""

    checks: tuple[DeviceCheck, ...]


class Described(msgspec.Struct, tag="described", frozen=True):
    """The workloads of a source, and the files of it that did not load, each with its reason."""

    descriptions: tuple[Description, ...]
    broken: dict[str, str] = {}


class Modules(msgspec.Struct, tag="modules", frozen=True):
    """Modules by name, each with its file."""

    files: dict[str, str]


class Progress(msgspec.Struct, tag="progress", frozen=True):
    """A sign of life: the case's phase, and how many samples it has."""

    phase: str
    samples: int = 0


class Timed(msgspec.Struct, tag="timed", frozen=True):
    """A case's record before its counters are read: it stands if they cost the worker its life."""

    record: Record


class Measured(msgspec.Struct, tag="measured", frozen=True):
    """A case's record, and what the case changed in the worker that the next one would notice."""

    record: Record
    changed: str = ""


class RunnableCases(msgspec.Struct, tag="runnable-cases", frozen=True):
    """The places of those that can, in the order asked."""

    indexes: tuple[int, ...]


class NvbenchTimes(msgspec.Struct, tag="nvbench-times", frozen=True):
    """The mean time of each case in seconds; None where there is none."""

    means_s: tuple[float | None, ...]


class Passing(msgspec.Struct, tag="passing", frozen=True):
    """What a pass over a program's steps found."""

    passed: PassResult


class Ended(msgspec.Struct, tag="ended", frozen=True):
    """The program ended, by itself or by an *error*; how many steps each region had."""

    exit_code: int
    error: str
    steps: dict[str, int]


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The request could not be served: `kind` is `usage`, `cannot-measure` or `workload`."""

    kind: str
    message: str
    hint: str = ""


ToWorker = Open | Describe | Examine | Loaded | Measure | Nvbench | Profile | Runnable
FromWorker = (
    Hello
    | Opened
    | Described
    | Examined
    | Modules
    | Progress
    | Timed
    | Measured
    | NvbenchTimes
    | RunnableCases
    | Passing
    | Ended
    | Failed
)
