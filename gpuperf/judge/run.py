"""Judge submissions on all cases of a task, and make the verdicts."""

from __future__ import annotations

import hashlib
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import gpuperf
from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.files import read_regular
from gpuperf.judge.clerk import Clerk
from gpuperf.judge.environment import worker_environment
from gpuperf.judge.reading import LARGEST, read_submission
from gpuperf.judge.rule import judge_case
from gpuperf.judge.seat import ANSWERS, SEAT
from gpuperf.judge.settings import Settings
from gpuperf.judge.task import TaskCase, TaskSource
from gpuperf.judge.verdict import JudgedCase, Named, Verdict, conclude
from gpuperf.run.forking import ForkServer

# Torch's counter of FLOPs imports it, for 1 to 4 s in each worker with a task, and so does a
# submission that compiles. (The import of torch._inductor.compile_fx opens the GPU.)
COMPILER = "torch._dynamo"


@contextmanager
def serving(settings: Settings) -> Iterator[ForkServer | None]:
    """Provide the server of forks for workers of the judge; None where each imports torch itself.

    It starts before a clerk counts the processes that it ends.
    """
    if settings.started != "forked":
        yield None
        return
    folder = tempfile.mkdtemp(prefix="gpuperf-judge-", dir=settings.disk or None)
    environment = worker_environment(folder, settings.may_use_gpu)
    modules = (SEAT, ANSWERS, COMPILER)
    server = ForkServer((None,), settings.debug, modules=modules, environment=environment)
    try:
        server.refused()
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


class Sitting:
    """Judges submissions against one task; a context manager.

    With *keep*, the workers of the reference serve all submissions, until one of these has harmed
    them. Otherwise each case and each submission starts its own.
    """

    def __init__(
        self, against: Path, task: TaskSource, settings: Settings, keep: bool = False
    ) -> None:
        self._task, self._settings, self._keep = task, settings, keep
        self._reference = named(Path(task.reference))
        self._named = named(against) if against.is_file() else self._reference
        self._held, self._kept = ExitStack(), ExitStack()
        self._server: ForkServer | None = None
        self._clerks: dict[str, Clerk] = {}

    def __enter__(self) -> Sitting:
        self._server = self._held.enter_context(serving(self._settings))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._dismiss()
        self._held.close()

    def judge(self, path: Path, say: Callable[[str], None] = lambda text: None) -> Verdict:
        """Return the verdict on the file *path*. Raises: CannotMeasure, UsageError."""
        began = time.monotonic()
        if named(Path(self._task.reference)) != self._reference:
            raise CannotMeasure(
                f"{self._task.reference} has changed since the judge read it",
                "restore the file; --isolation sandbox keeps submissions from writing to it",
            )
        disk = self._settings.disk or None
        folder = Path(tempfile.mkdtemp(prefix="gpuperf-submission-", dir=disk))
        try:
            file = named(path)
            cases = []
            given = read_submission(path, self._task, folder)
            for case in self._task.cases:
                with self._clerk(case) as clerk:
                    evidence = clerk.judge(given)
                cases.append(JudgedCase(evidence, judge_case(evidence)))
                say(f"{case.name}: {cases[-1].judgement.status}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        took_s = time.monotonic() - began
        return verdict_of(self._task, self._named, file, tuple(cases), took_s)

    @contextmanager
    def _clerk(self, case: TaskCase) -> Iterator[Clerk]:
        """Provide the clerk of *case*, and dismiss all clerks once a submission harmed one."""
        if not self._keep:
            with Clerk(self._task, case, self._settings, self._server) as clerk:
                yield clerk
            return
        if case.name not in self._clerks:
            clerk = Clerk(self._task, case, self._settings, self._server)
            self._clerks[case.name] = self._kept.enter_context(clerk)
        harmed = True
        try:
            yield self._clerks[case.name]
            harmed = self._clerks[case.name].is_spoiled()
        finally:
            if harmed:
                self._dismiss()

    def _dismiss(self) -> None:
        self._clerks.clear()
        self._kept.close()


def verdict_of(
    task: TaskSource,
    against: Named,
    submission: Named,
    cases: tuple[JudgedCase, ...],
    took_s: float,
) -> Verdict:
    """Return the verdict that follows from *cases*. Raises: ValueError without a case."""
    return conclude(
        Verdict(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            gpuperf=gpuperf.__version__,
            format=task.format,
            submission=submission,
            reference=against,
            status="inconclusive",
            reason="",
            grade="C",
            cases=cases,
            machine=_machine(cases),
            took_s=round(took_s, 3),
        )
    )


def _machine(cases: tuple[JudgedCase, ...]) -> dict[str, str]:
    gpus = {case.evidence.hardware.device for case in cases if case.evidence.hardware}
    gpu = {"gpu": ", ".join(sorted(gpus))} if gpus else {}
    return {"system": platform.platform(), "processor": platform.machine(), **gpu}


def named(path: Path) -> Named:
    """Return the name and the SHA-256 of the file *path*. Raises: UsageError."""
    try:
        return Named(path.name, hashlib.sha256(read_regular(path, LARGEST)).hexdigest())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
