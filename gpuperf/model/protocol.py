"""Define the messages between the supervisor and its worker.

They are JSON lines over a separate pipe, so a workload that prints does no harm. The first line of
the supervisor is a token, with which every line of the worker begins. The first message of the
worker is `Hello` with the version of the protocol. The worker answers each request by any number of
`Progress` messages and one final message.

A worker may be forked by a server (`measure/fork_server.py`), which a launcher sends `Fork` over a
socket of its own. On another host an agent (`run/agent.py`) starts the worker, and relays its
messages over a connection on which it also gets requests of its own (`ToAgent`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from gpuperf.model.contract import Contract, Counting, DeviceFacts, Fingerprint
from gpuperf.model.cost import Cost
from gpuperf.model.experiment import ExperimentDescription, Numbers, Prediction
from gpuperf.model.gang import TunedTime
from gpuperf.model.program import PassName, PassResult
from gpuperf.model.record import Record, Started
from gpuperf.model.topology import Topology
from gpuperf.model.workload import Case, Description

PROTOCOL = 13


class Open(msgspec.Struct, tag="open", frozen=True):
    """Request to open a device: `auto`, `cuda:0` or `cpu`.

    In a gang of *world* workers, the worker is number *rank*. On its host it is number *local_rank*
    of *local_world*, and opens the device of that number. It meets the others in *folder*, where
    its logs go too, or in a gang of several *hosts* at *meeting*, `ADDRESS:PORT`; *host* is then
    the name of its own host.
    """

    device: str
    rank: int = 0
    world: int = 1
    folder: str = ""
    local_rank: int = 0
    local_world: int = 1
    host: str = ""
    hosts: int = 1
    meeting: str = ""


class Describe(msgspec.Struct, tag="describe", frozen=True):
    """Request to load the workloads and experiments of *source*: `gpuperf.kernels`,
    `gpuperf.lab_experiments`, a file, a module or an entry point."""

    source: str


class Expect(msgspec.Struct, tag="expect", frozen=True):
    """Request to predict the *cases* of an *experiment* from the device's *numbers*.

    *controls* has, for each case, the name of the control that it belongs to (empty: none).
    """

    experiment: str
    source: str
    cases: tuple[Case, ...]
    controls: tuple[str, ...]
    numbers: Numbers


class Measure(msgspec.Struct, tag="measure", frozen=True):
    """Request to measure one case of the run *run* and its counters; with *every*, by every timer.

    The device spins for *extra_s* seconds after each call, which is a slowdown of known size. Of
    the counters of kernels only those of the *quantity* are read, if there is one. With *energy*,
    the energy of a call is measured too. With *brief* no time but
    the one that the contract asks for is measured.
    """

    run: str
    case: Case
    contract: Contract
    seed: int
    every: bool = False
    counting: Counting = "off"
    extra_s: float = 0.0
    quantity: str = ""
    energy: bool = False
    brief: bool = False


class Runnable(msgspec.Struct, tag="runnable", frozen=True):
    """Request to list the cases that the device supports and has the memory for."""

    cases: tuple[Case, ...]
    contract: Contract


class Time(msgspec.Struct, tag="time", frozen=True):
    """Request to time the callable *target*, `file.py:name` or `module:name`, as the case of a run;
    after `name()` it is what that call returns.

    Unless *against* is empty, the result is first compared with that of this target, with a
    *tolerance* relative to the size of the values (None: by the dtype).
    """

    run: str
    case: Case
    contract: Contract
    target: str
    cost: Cost | None = None
    counting: Counting = "off"
    against: str = ""
    tolerance: float | None = None
    seed: int = 0


class Nvbench(msgspec.Struct, tag="nvbench", frozen=True):
    """Request to time all *cases* by nvbench, which works once in a process."""

    cases: tuple[Case, ...]
    contract: Contract
    seed: int


class Examine(msgspec.Struct, tag="examine", frozen=True):
    """Request to check the opened device for anything that harms measurements."""


class Survey(msgspec.Struct, tag="survey", frozen=True):
    """Request to report how the GPUs of the machine are linked."""


class Loaded(msgspec.Struct, tag="loaded", frozen=True):
    """Request to list the imported modules from *folders*, except installed ones, and those of
    *packages*."""

    folders: tuple[str, ...]
    packages: tuple[str, ...] = ()


class Profile(msgspec.Struct, tag="profile", frozen=True):
    """Request to profile a program: the script *argv*, or with *module* the module.

    In each region that the program marks, *warmup* steps are skipped, and each of *passes* takes
    *steps* steps; with *more* the plain pass takes as many as it needs. All passes may last
    *budget_s* seconds together. Traces go to *folder*.

    The program is the process *rank* of *world*; through files in *ranks* the processes agree on
    the steps of each pass (empty: the program is alone).
    """

    argv: tuple[str, ...]
    module: bool
    warmup: int
    steps: int
    passes: tuple[PassName, ...]
    folder: str
    budget_s: float = 1e9
    more: bool = False
    rank: int = 0
    world: int = 1
    ranks: str = ""


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """First message of a worker."""

    protocol: int
    pid: int
    torch: str


class Opened(msgspec.Struct, tag="opened", frozen=True):
    """Answer to `Open`: the device and its fingerprint, and how the worker began.

    A gang answers with the device of its first worker, the indexes of all *devices*, and the
    *tuning* that NCCL logged; a gang of several *hosts* also with the host of each worker.
    """

    device: DeviceFacts
    fingerprint: Fingerprint
    started: Started = "spawned"
    devices: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    tuning: tuple[TunedTime, ...] = ()


@dataclass(frozen=True)
class DeviceCheck:
    """One line of `gpuperf doctor`: a fact of the machine, whether it harms measurements, and what
    to do about it."""

    name: str
    verdict: Literal["ok", "note", "bad"]
    value: str
    hint: str = ""


class Examined(msgspec.Struct, tag="examined", frozen=True):
    """Answer to `Examine`: the checks of `gpuperf doctor`."""

    checks: tuple[DeviceCheck, ...]


class Surveyed(msgspec.Struct, tag="surveyed", frozen=True):
    """Answer to `Survey`: the links of all GPUs that torch can use."""

    topology: Topology


class Described(msgspec.Struct, tag="described", frozen=True):
    """Answer to `Describe`: the workloads and experiments of a source, and the files that failed to
    load, each with the reason."""

    descriptions: tuple[Description, ...]
    broken: dict[str, str] = {}
    experiments: tuple[ExperimentDescription, ...] = ()


class Predicted(msgspec.Struct, tag="predicted", frozen=True):
    """Answer to `Expect`: the prediction of each case, in the order of the request."""

    predictions: tuple[Prediction, ...]


class Modules(msgspec.Struct, tag="modules", frozen=True):
    """Answer to `Loaded`: the file of each module."""

    files: dict[str, str]


class Progress(msgspec.Struct, tag="progress", frozen=True):
    """Sign of life: the phase of the case, and its number of samples so far."""

    phase: str
    samples: int = 0


class Timed(msgspec.Struct, tag="timed", frozen=True):
    """Record of a case before its counters are read; it counts if the worker dies while it reads
    them."""

    record: Record


class Measured(msgspec.Struct, tag="measured", frozen=True):
    """Answer to `Measure`: the record, and a state of the worker that the case changed (empty:
    none), which would affect later cases."""

    record: Record
    changed: str = ""


class RunnableCases(msgspec.Struct, tag="runnable-cases", frozen=True):
    """Answer to `Runnable`: the indexes of the cases that can run, in the order of the request."""

    indexes: tuple[int, ...]


class NvbenchTimes(msgspec.Struct, tag="nvbench-times", frozen=True):
    """Answer to `Nvbench`: the mean time of each case in seconds; None if nvbench failed."""

    means_s: tuple[float | None, ...]


class PassDone(msgspec.Struct, tag="passing", frozen=True):
    """Result of one pass over the steps of a program."""

    result: PassResult


class Ended(msgspec.Struct, tag="ended", frozen=True):
    """Answer to `Profile`: how the program ended, by an *error* or with none, and the number of
    steps of each region."""

    exit_code: int
    error: str
    steps: dict[str, int]


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """Answer to a request that failed: `kind` is `usage`, `cannot-measure`, `workload`, or
    `device-lost`, after which the worker exits."""

    kind: str
    message: str
    hint: str = ""


class Fork(msgspec.Struct, tag="fork", frozen=True):
    """Request to the server of forks for a worker and its guard.

    The worker runs in *folder* (empty: that of the server), with modules in *paths* before
    installed ones, with `gpuperf.kernels` from the folder *kernels* (empty: those of gpuperf), and
    with the variables of *environment*. It may take *memory_bytes*; 0 means nearly all memory. It
    runs `main` of *module* (empty: of the worker that measures).
    """

    folder: str = ""
    paths: tuple[str, ...] = ()
    kernels: str = ""
    environment: dict[str, str] = {}
    memory_bytes: int = 0
    module: str = ""


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """First message of the server of forks: the files of the packages that it has imported, by
    name, and why it cannot fork (empty: it can)."""

    packages: dict[str, str] = {}
    refused: str = ""


class Forked(msgspec.Struct, tag="forked", frozen=True):
    """Answer to `Fork`, beside the pidfd of the guard: its process number."""

    pid: int


class Join(msgspec.Struct, tag="join", frozen=True):
    """First message of an agent to the first host of a gang: it starts the worker *rank* on *host*.

    *token* is the text that all hosts of a gang share.
    """

    protocol: int
    token: str
    rank: int
    host: str


class Start(msgspec.Struct, tag="start", frozen=True):
    """Request to an agent to start its worker, in place of one that runs."""


class Began(msgspec.Struct, tag="began", frozen=True):
    """Answer to `Start`; the messages that follow are those of the new worker."""


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """Request to an agent to end its worker."""


class Look(msgspec.Struct, tag="look", frozen=True):
    """Request to an agent for the stack of its worker."""


class Seen(msgspec.Struct, tag="seen", frozen=True):
    """Answer to `Look`: the stack as `faulthandler` writes it; empty if the worker wrote none."""

    stack: str


class Dismiss(msgspec.Struct, tag="dismiss", frozen=True):
    """Request to an agent to end its worker and itself."""


class Left(msgspec.Struct, tag="left", frozen=True):
    """Report of an agent that its worker died: how, the memory for which it was killed (empty:
    another reason), and the last lines that it printed."""

    death: str
    starved: str = ""
    last_words: str = ""


ToWorker = (
    Open | Describe | Examine | Expect | Loaded | Measure | Nvbench | Profile | Runnable | Survey
) | Time
Interim = Hello | Progress | Timed | PassDone
Answer = (
    Opened | Described | Examined | Modules | Measured | NvbenchTimes | Predicted | RunnableCases
) | (Surveyed | Ended)
FromWorker = Interim | Answer | Failed
ToAgent = ToWorker | Start | Stop | Look | Dismiss
FromAgent = FromWorker | Join | Began | Seen | Left
