"""Judge submissions from Python: one by `judge`, many by a pool of clerks, `Judge`.

Each clerk is a process: it ends all processes that submissions leave behind, so that it must have
no other children, and its clock must not wait for other threads.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from gpuperf.errors import CannotMeasure, GpuperfError, UnknownName, UsageError
from gpuperf.judge.evidence import CaseEvidence, Forbidden
from gpuperf.judge.protocol import Ready, Refused
from gpuperf.judge.reading import read_task
from gpuperf.judge.rule import judge_case
from gpuperf.judge.run import named, verdict_of
from gpuperf.judge.settings import Settings
from gpuperf.judge.starting import in_memory_folder
from gpuperf.judge.task import FORMATS, TaskSource
from gpuperf.judge.verdict import JudgedCase, Verdict
from gpuperf.model.record import Started
from gpuperf.run.connection import LocalConnection
from gpuperf.run.launcher import LocalLauncher

CLERK = "gpuperf.judge.inside.pooled"
LONGEST_S = 86400.0  # longest deadline, in seconds
POLL_S = 0.5  # seconds between two checks that the pool is not closed
MOST_WORKERS = 256

File = str | os.PathLike[str]
IsolationName = Literal["process", "sandbox"]


class Sit(msgspec.Struct, tag="sit", frozen=True):
    """First request to a clerk: the task, and how to judge."""

    against: str
    task: TaskSource
    settings: Settings


class Try(msgspec.Struct, tag="try", frozen=True):
    """Request to a clerk to judge a file."""

    path: str


class Judged(msgspec.Struct, tag="judged", frozen=True):
    """The verdict on a file."""

    verdict: Verdict


ToPooled = Sit | Try
FromPooled = Ready | Judged | Refused


class Conditions(TypedDict, total=False):
    """The arguments of `judge` and `Judge` that say what is judged and how; see `Judge`."""

    format: str
    cases: int
    point: str
    isolation: IsolationName
    deadline_s: float
    compiled: bool
    device: str
    forbid: Forbidden


class Judge:
    """A pool that judges submissions against one task, for searches over many candidates.

    A context manager: `with Judge(against="reference.py") as pool: list(pool.map(files))`. The
    workers of the reference are kept. Each submission gets *processes* new processes. They are
    forks of a process that has imported torch and runs no submission (`started="forked"`), which
    takes milliseconds; `"spawned"` processes import torch each, and differ as those of
    `gpuperf judge` do. *workers* submissions are judged at a time: on a CPU more than one disturb
    each other's times. The conditions:

    - `format` is that of the task: `auto` (the default), `kernelbench`, `gpumode`, `flashinfer`, or
      `gpuperf`, whose `point` is that of a `Workload` (`m=64,dtype=fp32`).
    - At most `cases` cases of the task are judged (8).
    - `isolation` is `process` or `sandbox`: only the latter keeps a hostile submission from the
      processes of the judge.
    - A submission may compute for `deadline_s` seconds at a time (60).
    - `compiled=True` times torch.compile of the reference too.
    - `device` is `auto` (the default: the first GPU, else the CPU), `cuda:0` or `cpu`.
    - `forbid="library"` makes a submission `suspect` that spends a tenth of its time in kernels of
      libraries, by their names.

    Raises: UsageError.
    """

    def __init__(
        self,
        *,
        against: File,
        workers: int = 1,
        processes: int = 1,
        started: Started = "forked",
        **conditions: Unpack[Conditions],
    ) -> None:
        for name in conditions.keys() - Conditions.__annotations__.keys():
            raise UnknownName("argument", name, Conditions.__annotations__)
        form, isolation = conditions.get("format", "auto"), conditions.get("isolation", "process")
        cases, deadline_s = conditions.get("cases", 8), conditions.get("deadline_s", 60.0)
        forbid = conditions.get("forbid", "")
        if form not in ("auto", *FORMATS):
            raise UnknownName("format", form, ("auto", *FORMATS))
        if isolation not in ("process", "sandbox"):
            raise UsageError(f"no isolation {isolation!r} here", "'process' or 'sandbox'")
        if started not in ("forked", "spawned"):
            raise UsageError(f"processes cannot be {started!r}", "'forked' or 'spawned'")
        if forbid not in ("", "library"):
            raise UsageError(f"{forbid!r} cannot be forbidden", "forbid='library'")
        if forbid and conditions.get("device") == "cpu":
            raise UsageError(
                "forbid='library' needs a GPU, which records kernels", "device='cuda:0'"
            )
        if not 1 <= workers <= MOST_WORKERS or not 1 <= processes <= 50 or cases < 1:
            raise UsageError("workers, processes and cases must be at least 1", "workers=1")
        if not 0 < deadline_s < LONGEST_S:
            raise UsageError(f"a deadline cannot be {deadline_s:g} s", "deadline_s=60")
        self._against = Path(against).absolute()
        self._task = read_task(self._against, form, cases, conditions.get("point", ""))
        self._settings = Settings(
            isolation,
            processes,
            deadline_s,
            started=started,
            compiled=conditions.get("compiled", False),
            device=conditions.get("device", "auto"),
            forbid=forbid,
        )
        self._named = named(
            self._against if self._against.is_file() else Path(self._task.reference)
        )
        self._workers = workers
        self._idle: queue.SimpleQueue[LocalConnection | None] = queue.SimpleQueue()
        self._threads: ThreadPoolExecutor | None = None
        self._closing = False
        self._held = ExitStack()
        self._memory: Path | None = None
        self._folders: dict[LocalConnection, tuple[str, str]] = {}

    def __enter__(self) -> Judge:
        self._threads, self._closing = ThreadPoolExecutor(self._workers), False
        self._memory = in_memory_folder(self._held)
        for _ in range(self._workers):
            self._idle.put(None)  # a clerk starts with its first submission
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._threads is not None
        self._closing = True
        self._threads.shutdown(cancel_futures=True)
        self._threads = None
        while not self._idle.empty():
            self._end(self._idle.get())
        self._held.close()

    def map(self, submissions: Iterable[File]) -> Iterator[Verdict]:
        """Yield the verdict on each file of *submissions*, in their order.

        Files are taken from *submissions* as clerks get free, so it may be endless. A submission
        that ends its clerk is `crashed`. Raises: UsageError for a file that cannot be read;
        CannotMeasure if the task cannot be judged by, or after a submission has changed it.
        """
        if self._threads is None:
            raise UsageError("the pool is closed", "with gpuperf.Judge(against=...) as pool: ...")
        running: deque[Future[Verdict]] = deque()
        for path in submissions:
            running.append(self._threads.submit(self._judge, Path(path).absolute()))
            if len(running) >= 2 * self._workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()

    def _judge(self, path: Path) -> Verdict:
        """Have a free clerk judge *path*; this runs in a thread that waits for the clerk."""
        clerk, began = self._idle.get(), time.monotonic()
        try:
            file = named(path)
            clerk = clerk or self._start()
            reply = self._reply(clerk, Try(str(path)))
            if reply is None:
                died = f"it ended the process that judged it, by {clerk.death() or 'silence'}"
                self._end(clerk)
                clerk = None
                evidence = CaseEvidence(self._task.cases[0].name, failure="crashed", reason=died)
                cases = (JudgedCase(evidence, judge_case(evidence)),)
                return verdict_of(self._task, self._named, file, cases, time.monotonic() - began)
            if isinstance(reply, Judged):
                return reply.verdict
            raise _error(reply)
        finally:
            self._idle.put(clerk)

    def _start(self) -> LocalConnection:
        """Start a clerk. Raises: CannotMeasure."""
        clerk = LocalLauncher(module=CLERK, messages=FromPooled).start()
        memory = tempfile.mkdtemp(dir=self._memory)
        disk = tempfile.mkdtemp(prefix="gpuperf-judge-")
        self._folders[clerk] = memory, disk
        settings = replace(self._settings, memory=memory, disk=disk)
        sit = Sit(str(self._against), self._task, settings)
        reply = self._reply(clerk, sit)
        if isinstance(reply, Ready):
            return clerk
        words = clerk.last_words().splitlines()[-1:]
        self._end(clerk)
        if isinstance(reply, Refused):
            raise _error(reply)
        raise CannotMeasure(f"the judge does not start: {words[0][:200] if words else 'it died'}")

    def _end(self, clerk: LocalConnection | None) -> None:
        """End *clerk*, which cannot remove its files any more."""
        if clerk is not None:
            clerk.kill()
            for folder in self._folders.pop(clerk):
                shutil.rmtree(folder, ignore_errors=True)

    def _reply(self, clerk: LocalConnection, request: Sit | Try) -> Any:
        """Send *request*, and return the reply; None if the clerk died, or the pool closes."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            clerk.send(request)
            while not self._closing:
                if (reply := clerk.receive(POLL_S)) is not None:
                    return reply
                if clerk.death() is not None:
                    break
        return None


def _error(refused: Refused) -> GpuperfError:
    kind = UsageError if refused.kind == "usage" else CannotMeasure
    return kind(refused.message, refused.hint)


def judge(
    submission: File, *, against: File, processes: int = 3, **conditions: Unpack[Conditions]
) -> Verdict:
    """Judge the file *submission* against the task *against*, as `gpuperf judge` does.

    Return the `Verdict`: `status` (`valid`, `wrong`, `cheat`, `suspect`, …), `reason`, `grade`; of
    a valid submission alone `score` (the speed-up over the reference with its 95 % interval),
    `compiled` (the speed-up over torch.compile of the reference) and `light` (the share of the
    roof); and the evidence and the facts of each case in `cases`. *processes* processes run the
    submission, and the interval is over them. The conditions are those of `Judge`, but `compiled`
    is true by default. Raises: UsageError, CannotMeasure.
    """
    given: Conditions = {"compiled": True, **conditions}
    with Judge(against=against, processes=processes, started="spawned", **given) as pool:
        return next(pool.map([submission]))
