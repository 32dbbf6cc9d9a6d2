"""Supervise a worker: send it requests, and turn its death into the record of a case.

A case that crashes its worker, loses the device or stays silent past the deadline becomes a record
(`crashed`, `timeout`), and so does one that takes all memory (`oom`). The next case gets a new
worker, also after a case that failed or that changed the state of its process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType

from gpuperf.errors import CannotMeasure, GpuperfError, UsageError, WorkloadError
from gpuperf.model.contract import Contract, Counting
from gpuperf.model.experiment import Prediction
from gpuperf.model.peaks import Peaks
from gpuperf.model.protocol import (
    PROTOCOL,
    Describe,
    Described,
    DeviceCheck,
    Examine,
    Examined,
    Expect,
    Failed,
    FromWorker,
    Hello,
    Loaded,
    Measure,
    Measured,
    Modules,
    Nvbench,
    NvbenchTimes,
    Open,
    Opened,
    Predicted,
    Progress,
    Runnable,
    RunnableCases,
    Survey,
    Surveyed,
    Time,
    Timed,
    ToWorker,
)
from gpuperf.model.record import Record, Status, without_counters
from gpuperf.model.topology import Topology
from gpuperf.model.workload import Case
from gpuperf.peaks.find import find_peaks
from gpuperf.peaks.physics import check_physics
from gpuperf.run.connection import Connection
from gpuperf.run.launcher import Launcher

# Seconds without a report after which a worker is killed. A case reports every phase, and 20 times
# a second while it is timed, so this bounds one call of the operation, or one compilation.
DEADLINE_S = 120.0

# Seconds that a worker may take to start and to open its device, even if the deadline of a case is
# shorter: importing torch from a slow disk takes a minute.
START_S = 120.0

Listener = Callable[[str, int], None]

# The worker is replaced after these, since the state that the case left is unknown.
SPOILING = frozenset({"error", "wrong", "impossible", "oom"})
FAILED_CASE = "the case ended "  # beginning of the reason to replace the worker of such a case
UNSTARTED = "oom"  # the one status in SPOILING that a case may get before it makes its inputs

ON_DEVICE = Measure | Examine | Nvbench | Runnable | Time  # requests that need the device open
NVBENCH_S = 30.0  # nvbench gives up on a case after 15 s, and reports nothing until then


class _Died(Exception):
    """The worker is gone; `status` and `reason` say how it ended."""

    def __init__(self, status: Status, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.status: Status = status
        self.reason, self.hint = reason, hint


class Supervisor:
    """A context manager that runs one worker at a time on one device.

    Records are checked by physics against `peaks` and `ceilings`. When the device is opened,
    `peaks` becomes its data sheet; a verb may set both. *meanwhile* is called once, while the first
    worker starts, which takes seconds, and *at_exit* at the end.
    """

    def __init__(
        self,
        launcher: Launcher,
        device: str = "auto",
        deadline_s: float = DEADLINE_S,
        listen: Listener = lambda phase, samples: None,
        meanwhile: Callable[[], None] = lambda: None,
        at_exit: Callable[[], None] = lambda: None,
    ) -> None:
        self._at_exit = at_exit
        self._meanwhile: Callable[[], None] | None = meanwhile
        self._launcher, self._device, self.deadline_s = launcher, device, deadline_s
        self.listen = listen
        self.brief = False  # whether only the times that contracts ask for are measured
        self.peaks: Peaks | None = None
        self.ceilings: Peaks | None = None
        self._worker: Connection | None = None
        self._has_device = False
        self._opened: Opened | None = None
        self._timed: Record | None = None  # the current case, when only its counters are missing
        self._ran = False  # whether the current case has made its inputs
        self._spoiled = ""  # why the worker must not measure another case
        self.renewals: list[str] = []  # why each worker was replaced

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._drop()
        self._at_exit()

    def open(self) -> Opened:
        """Open the device, once, and describe it. Raises: UsageError, CannotMeasure."""
        if self._opened is None:
            opened = self._ask_or_fail(Open(self._device), "opening the device")
            assert isinstance(opened, Opened)
            self._opened = opened
            self.peaks, _ = find_peaks(opened.device)
        return self._opened

    def examine(self) -> tuple[DeviceCheck, ...]:
        """Check the opened device for what spoils measurements. Raises: CannotMeasure."""
        self.open()
        examined = self._ask_or_fail(Examine(), "examining the device")
        assert isinstance(examined, Examined)
        return examined.checks

    def survey(self) -> Topology:
        """Return how the GPUs of the machine are linked. Raises: CannotMeasure."""
        surveyed = self._ask_or_fail(Survey(), "reading the topology")
        assert isinstance(surveyed, Surveyed)
        return surveyed.topology

    def describe(self, source: str) -> Described:
        """Describe the workloads of *source*. Raises: WorkloadError, UsageError."""
        try:
            described = self._ask(Describe(source))
        except _Died as died:
            raise WorkloadError(f"{died.reason} while loading {source}", died.hint) from None
        assert isinstance(described, Described)
        return described

    def predict(self, request: Expect) -> tuple[Prediction, ...]:
        """Return what an experiment predicts for each case of *request*. Raises: WorkloadError."""
        try:
            predicted = self._ask(request)
        except _Died as died:
            message = f"{died.reason} while {request.experiment} predicted"
            raise WorkloadError(message, died.hint) from None
        assert isinstance(predicted, Predicted)
        return predicted.predictions

    def loaded(self, folders: tuple[str, ...], packages: tuple[str, ...]) -> dict[str, str]:
        """Return the files of modules that the worker imported from *folders* and *packages*."""
        reply = self._ask_or_fail(Loaded(folders, packages), "asking for modules")
        assert isinstance(reply, Modules)
        return reply.files

    def dismiss(self) -> None:
        """Let the worker end while the caller goes on; `__exit__` waits for its end."""
        if self._worker is not None:
            self._worker.dismiss()

    def renew(self) -> None:
        """End the worker, so that the next request starts another one."""
        self._drop()

    def measure(
        self,
        run: str,
        case: Case,
        contract: Contract,
        seed: int,
        every: bool = False,
        counting: Counting = "off",
        extra_s: float = 0.0,
        quantity: str = "",
        energy: bool = False,
    ) -> Record:
        """Measure *case* and return its record, even if the worker dies.

        Raises: CannotMeasure, UsageError for a case that cannot begin.
        """
        more = (every, counting, extra_s, quantity, energy, self.brief)
        return self._record(Measure(run, case, contract, seed, *more))

    def time(self, request: Time) -> Record:
        """Time the callable of *request* and return its record, even if the worker dies.

        Raises: CannotMeasure, UsageError for a callable that cannot be loaded.
        """
        return self._record(request)

    def _record(self, request: Measure | Time) -> Record:
        self.open()
        self._timed = None
        started = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        try:
            reply = self._ask(request)
        except _Died as died:
            if self._timed is not None:
                timed = without_counters(self._timed, died.reason, died.hint)
                return check_physics(timed, self.peaks, self.ceilings)
            failed = Record(
                run=request.run,
                case=request.case,
                contract=request.contract,
                status=died.status,
                reason=died.reason,
                hint=died.hint,
                started=started,
                seed=request.seed,
                fingerprint=self.open().fingerprint,
            )
            return self._of_gang(failed)
        assert isinstance(reply, Measured)
        record = self._of_gang(check_physics(reply.record, self.peaks, self.ceilings))
        self._spoiled = self._spoiled or self._spoils(record, reply.changed)
        return record

    def _of_gang(self, record: Record) -> Record:
        """Return *record* with the devices that it was measured on, several if by a gang."""
        opened = self.open()
        devices = opened.devices or (opened.device.index,)
        return replace(record, world=len(devices), devices=devices)

    def runnable(self, cases: Sequence[Case], contract: Contract) -> tuple[Case, ...]:
        """Return those of *cases* that can begin on the opened device.

        If the worker dies, return all of them, since measuring each shows which one is at fault.
        """
        self.open()
        try:
            reply = self._ask(Runnable(tuple(cases), contract))
        except _Died:
            return tuple(cases)
        assert isinstance(reply, RunnableCases)
        return tuple(cases[index] for index in reply.indexes if 0 <= index < len(cases))

    def _spoils(self, record: Record, changed: str) -> str:
        """Return why the next case needs another worker; empty if it does not."""
        ran = self._ran or record.status != UNSTARTED
        ended = f"{FAILED_CASE}{record.status}" if record.status in SPOILING and ran else ""
        return changed or ended

    def nvbench(
        self, cases: tuple[Case, ...], contract: Contract, seed: int
    ) -> tuple[float | None, ...]:
        """Measure the mean time of each case by nvbench. Raises: CannotMeasure."""
        self.open()
        reply = self._ask_or_fail(Nvbench(cases, contract, seed), "running nvbench")
        assert isinstance(reply, NvbenchTimes)
        return reply.means_s

    def _ask_or_fail(self, request: ToWorker, doing: str) -> FromWorker:
        try:
            return self._ask(request)
        except _Died as died:
            raise CannotMeasure(f"{died.reason} while {doing}", died.hint) from None

    def _ask(self, request: ToWorker) -> FromWorker:
        """Send *request* to a worker and wait for its last reply. Raises: _Died."""
        if self._spoiled and isinstance(request, Measure | Nvbench | Time):
            self.renewals.append(self._spoiled)
            self._drop()
        self._ran = False
        worker = self._living(needs_device=isinstance(request, ON_DEVICE))
        opening = isinstance(request, Open)
        self._send(worker, request)
        silent_s = NVBENCH_S * len(request.cases) if isinstance(request, Nvbench) else 0.0
        reply = self._wait(worker, START_S if opening else max(self.deadline_s, silent_s))
        self._has_device = self._has_device or isinstance(reply, Opened)
        if isinstance(reply, Failed):
            if reply.kind == "device-lost":
                self._drop()
                raise _Died("crashed", f"the device failed: {reply.message}", LOST_HINT)
            raise _error(reply)
        return reply

    def _living(self, needs_device: bool) -> Connection:
        """Return the worker, or a new one if it is gone, with the device open if needed."""
        if self._worker is not None and self._worker.death() is not None:
            self._drop()
        if self._worker is None:
            self._worker = self._launcher.start()
            meanwhile, self._meanwhile = self._meanwhile, None
            if meanwhile is not None:
                meanwhile()
            hello = self._wait(self._worker, START_S)
            if not isinstance(hello, Hello) or hello.protocol != PROTOCOL:
                self._drop()
                raise CannotMeasure("the worker speaks another protocol", "reinstall gpuperf")
        if needs_device and not self._has_device:
            self._send(self._worker, Open(self._device))
            reply = self._wait(self._worker, START_S)
            if isinstance(reply, Failed):
                raise _error(reply)
            self._has_device = True
        return self._worker

    def _send(self, worker: Connection, request: ToWorker) -> None:
        try:
            worker.send(request)
        except BrokenPipeError:
            raise self._death_of(worker) from None

    def _wait(self, worker: Connection, deadline_s: float) -> FromWorker:
        """Wait for a message other than progress. Raises: _Died at death or past the deadline."""
        while True:
            try:
                message = worker.receive(deadline_s)
            except ValueError as error:
                name = worker.name
                self._drop()
                raise _Died(
                    "crashed", f"the answer of {name} cannot be read: {error}", GARBLED_HINT
                ) from None
            if isinstance(message, Progress):
                self._ran = self._ran or message.phase == "inputs"
                self.listen(message.phase, message.samples)
            elif isinstance(message, Timed):
                self._timed = message.record
            elif message is not None:
                return message
            elif worker.death() is not None:
                raise self._death_of(worker)
            else:
                name = worker.name
                self._drop()
                raise _Died(
                    "timeout",
                    f"{name} reported nothing for {deadline_s:g} s",
                    "choose a longer --deadline if one call, or its compilation, takes so long",
                )

    def _death_of(self, worker: Connection) -> _Died:
        death, words = worker.death() or "a closed pipe", worker.last_words()
        starved, name = worker.starved(), worker.name
        self._drop()
        if starved:
            return _Died("oom", f"{name} took too much memory: {starved}", STARVED_HINT)
        last = words.splitlines()[-1][:300] if words else ""
        hint = (
            "was it the out-of-memory killer? look at `dmesg`"
            if "SIGKILL" in death
            else "run again with --debug to see what it printed"
        )
        return _Died("crashed", f"{name} died by {death}" + (f": {last}" if last else ""), hint)

    def _drop(self) -> None:
        worker, self._worker, self._has_device = self._worker, None, False
        self._spoiled = ""
        if worker is not None:
            worker.kill()


STARVED_HINT = "choose smaller sizes"
GARBLED_HINT = "does the workload write to file descriptors that are not its own?"
LOST_HINT = "an illegal access in a kernel? `compute-sanitizer` finds it"


def _error(failed: Failed) -> GpuperfError:
    kinds = {"usage": UsageError, "workload": WorkloadError}
    return kinds.get(failed.kind, CannotMeasure)(failed.message, failed.hint)
