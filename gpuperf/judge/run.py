"""Judge a submission on all cases of a task, and make the verdict."""

from __future__ import annotations

import hashlib
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import gpuperf
from gpuperf.errors import UsageError
from gpuperf.files import read_regular
from gpuperf.judge.clerk import Clerk, Settings
from gpuperf.judge.reading import LARGEST, read_submission
from gpuperf.judge.rule import judge_case
from gpuperf.judge.task import TaskSource
from gpuperf.judge.verdict import JudgedCase, Named, Verdict, conclude


def judge_file(
    submission: Path,
    against: Path,
    task: TaskSource,
    settings: Settings,
    say: Callable[[str], None],
) -> Verdict:
    """Judge the file *submission* on the cases of *task*. Raises: CannotMeasure, UsageError."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="gpuperf-submission-"))
    try:
        files = named(submission), named(Path(task.reference))
        given = read_submission(submission, task, folder)
        cases = []
        for case in task.cases:
            with Clerk(task, case, settings) as clerk:
                evidence = clerk.judge(given)
            cases.append(JudgedCase(evidence, judge_case(evidence)))
            say(f"{case.name}: {cases[-1].judgement.status}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return conclude(
        Verdict(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            gpuperf=gpuperf.__version__,
            format=task.format,
            submission=files[0],
            reference=named(against) if against.is_file() else files[1],
            status="inconclusive",
            reason="",
            grade="C",
            cases=tuple(cases),
            machine={"system": platform.platform(), "processor": platform.machine()},
            took_s=round(time.monotonic() - began, 3),
        )
    )


def named(path: Path) -> Named:
    """Return the name and the SHA-256 of the file *path*. Raises: UsageError."""
    try:
        return Named(path.name, hashlib.sha256(read_regular(path, LARGEST)).hexdigest())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
