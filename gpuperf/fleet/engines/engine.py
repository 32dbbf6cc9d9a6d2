"""Define what an engine does: it starts a command on hosts, and returns what each wrote to stdout.

An engine knows neither suites nor shards. The output of a host is bounded in size and in time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Protocol, runtime_checkable

MOST_STDOUT = 64 << 20  # bytes; a shard of 8 GPUs with 1,600 rows each has 2 MB
MOST_STDERR = 64 << 10  # bytes that are kept of the messages
POLL_S = 0.05


@dataclass(frozen=True)
class Job:
    """A command for each of `hosts`: `command(host)` are its words, and `stdin` what it reads."""

    hosts: tuple[str, ...]
    command: Callable[[str], Sequence[str]]
    stdin: bytes
    deadline_s: float
    at_once: int = 32


@dataclass(frozen=True)
class Answer:
    """What one host answered: its stdout, the end of its stderr, and its exit code.

    `reason` says why there is no answer; it is empty for a command that ended by itself.
    """

    host: str
    stdout: bytes = b""
    stderr: str = ""
    code: int = 0
    reason: str = ""


class Engine(Protocol):
    """An engine: yields the answer of each host of a job as it comes."""

    def run(self, job: Job) -> Iterator[Answer]: ...


@runtime_checkable
class NamesHosts(Protocol):
    """An engine that knows its hosts, as a cluster does."""

    def hosts(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Command:
    """The words of a process, what it reads, and its deadline.

    An empty first word stands for the interpreter of the place where the command runs.
    """

    words: tuple[str, ...]
    stdin: bytes
    deadline_s: float


def run_command(host: str, command: Command, stop: threading.Event | None = None) -> Answer:
    """Run *command* without a shell, in a process group that ends at the deadline, or at *stop*."""
    words = (command.words[0] or sys.executable, *command.words[1:])
    with ExitStack() as held:
        given, out, err = (held.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(command.stdin)
        given.seek(0)
        try:
            process = subprocess.Popen(
                words, stdin=given, stdout=out, stderr=err, start_new_session=True
            )
        except OSError as error:
            reason = f"{words[0]!r} cannot be started: {error.strerror}"
            return Answer(host, code=127, reason=reason)
        reason = _wait(process, out, command.deadline_s, stop)
        return Answer(host, _start_of(out), _end_of(err), process.returncode, reason)


def _wait(
    process: subprocess.Popen[bytes],
    out: IO[bytes],
    deadline_s: float,
    stop: threading.Event | None,
) -> str:
    """Wait for *process*; end it, and return why, at the deadline, at *stop*, or if it writes too
    much."""
    reason = ""
    waited = 0.0
    try:
        while True:
            try:
                process.wait(POLL_S)
                return reason
            except subprocess.TimeoutExpired:
                waited += POLL_S
            if waited > deadline_s:
                reason = f"it did not end within {deadline_s:g} s"
            elif stop is not None and stop.is_set():
                reason = "it was interrupted"
            elif os.fstat(out.fileno()).st_size > MOST_STDOUT:
                reason = f"it wrote over {MOST_STDOUT >> 20} MiB"
            if reason:
                return reason
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _start_of(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(MOST_STDOUT + 1)


def _end_of(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MOST_STDERR))
    return file.read().decode(errors="replace")
