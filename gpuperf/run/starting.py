"""Start a worker under its guard, with the standard library alone.

The command line begins the first worker of a verb before it imports anything else (`begin`), since
a worker imports torch for seconds; `LocalLauncher` takes that worker when it needs one like it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

MEASURE = Path(__file__).parents[1] / "measure"
GUARD = str(MEASURE / "guard.py")
WORKER = "gpuperf.measure.spawned"
END_S = 10.0  # seconds for a guard to end its worker and all descendants


@dataclass
class Pipes:
    """The pipes of requests and replies to a new process, and the file of its output.

    `theirs` are the ends of the process: where it reads, and where it writes.
    """

    requests: int = field(init=False)
    replies: int = field(init=False)
    theirs: tuple[int, int] = field(init=False)
    log: IO[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        # Writes go to the end of the log, also after it was shortened.
        fcntl.fcntl(self.log, fcntl.F_SETFL, os.O_APPEND)
        theirs_in, self.requests = os.pipe()
        self.replies, theirs_out = os.pipe()
        self.theirs = theirs_in, theirs_out

    def hand_over(self) -> None:
        """Close the ends of the process, which has them now."""
        for descriptor in self.theirs:
            os.close(descriptor)
        self.theirs = -1, -1

    def close(self) -> None:
        """Close the ends of this process, and the log."""
        for descriptor in (self.requests, self.replies):
            os.close(descriptor)
        self.log.close()


@dataclass
class SpawnedProcess:
    """A child of this process, which leads a group of its own, and the socket of its guard."""

    child: subprocess.Popen[bytes]
    control: socket.socket | None = None

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return self.child.pid

    def poll(self) -> int | None:
        """Return the exit code, a signal below 0; None while the process lives."""
        return self.child.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the exit code. Raises: subprocess.TimeoutExpired."""
        return self.child.wait(timeout_s)

    def kill(self) -> None:
        """Kill the group, even if its leader is dead, since other members may live on."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.child.wait()


def start_guarded(
    command: Sequence[str],
    ends: tuple[int, int],
    output: IO[Any],
    memory_bytes: int = 0,
    folder: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> SpawnedProcess:
    """Start a guard, which starts *command* with its *ends* of two pipes in a new session.

    It may take *memory_bytes*; 0 means nearly all memory. It runs in *folder* with the variables
    *environment*; None means those of this process.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        passed = ",".join(map(str, ends))
        arguments = [theirs.fileno(), os.getpid(), memory_bytes, passed]
        named = [f"--requests={ends[0]}", f"--replies={ends[1]}"]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", GUARD, *map(str, arguments), *command, *named],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(), *ends),
            start_new_session=True,
            cwd=folder,
            env=environment,
        )
    return SpawnedProcess(process, ours)


def worker_here(module: str = WORKER) -> list[str]:
    """Return the command that runs *module* of gpuperf with this interpreter."""
    return [sys.executable, "-P", "-m", module]


_begun: list[tuple[Pipes, SpawnedProcess]] = []


def begin() -> None:
    """Start the worker that `taken` returns."""
    pipes = Pipes()
    _begun.append((pipes, start_guarded(worker_here(), pipes.theirs, pipes.log)))


def taken() -> tuple[Pipes, SpawnedProcess] | None:
    """Return the worker that has been begun, once; None if there is none."""
    return _begun.pop() if _begun else None


def end() -> None:
    """End the worker that was begun and not taken."""
    while _begun:
        pipes, process = _begun.pop()
        if process.control is not None:
            process.control.close()  # the guard ends the worker and itself
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        process.kill()
        pipes.hand_over()
        pipes.close()
