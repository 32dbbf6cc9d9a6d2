"""Start worker processes, exchange messages with them, and detect their death.

A `Launcher` hands over messages, not file descriptors, so that workers can run elsewhere later.
Death is detected by waiting for the process, never by end-of-file, since a child of the worker may
keep the pipe open. A local worker runs under a guard (`guard.py`), which ends its descendants.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from gpuperf.model.codec import decode
from gpuperf.model.protocol import FromWorker, ToWorker

POLL_S = 0.05  # longest delay in seconds before the death of a worker is detected
LOG_TAIL = 2000  # characters that a dead worker printed last
LONGEST_LOG = 16 << 20  # bytes that a worker printed, before they are discarded
LONGEST_LINE = 256 << 20  # bytes of a message: the largest are traces of long programs
DEAF_S = 60.0  # seconds for which a worker may leave a request unread
END_S = 10.0  # seconds for a guard to end its worker and all descendants


class Connection(Protocol):
    """The connection to a worker process."""

    def send(self, message: ToWorker) -> None:
        """Send *message*. Raises: BrokenPipeError when the worker is gone."""

    def receive(self, timeout_s: float) -> FromWorker | None:
        """Return the next message; None if none came in time or the worker is dead.

        Raises: ValueError for bytes that are not a message.
        """

    def death(self) -> str | None:
        """Describe how the worker ended; None while it lives."""

    def starved(self) -> str:
        """Describe the memory that the worker took, if it was killed for that; else nothing."""

    def last_words(self) -> str:
        """Return the last lines that the worker printed."""

    def kill(self) -> None:
        """Kill the worker and all processes that it started."""


class Launcher(Protocol):
    """The interface of a launcher: `start` returns the connection to a new worker."""

    def start(self) -> Connection:
        """Start a worker, whose first message is Hello."""


@dataclass(frozen=True)
class Place:
    """A place whose code a worker of this gpuperf measures, such as another commit.

    `python` is its interpreter and `folder` its working folder. Modules in `paths` come before
    installed ones. `kernels` is the folder of `gpuperf.kernels` (empty: that of this gpuperf).
    `environment` holds the variables that differ.
    """

    python: str = sys.executable
    folder: str = "."
    paths: tuple[str, ...] = ()
    kernels: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        """Return the command that starts the worker."""
        packages = {name: _folder(name) for name in OURS}
        if self.kernels:
            packages["gpuperf.kernels"] = self.kernels
            packages["gpuperf.kernels.cuda"] = str(Path(self.kernels).parent / "cuda")
        places = {
            "paths": self.paths,
            "packages": packages,
            "fallbacks": {name: _folder(name) for name in NEEDED},
        }
        bootstrap = str(Path(__file__).with_name("bootstrap.py"))
        return [self.python, "-P", bootstrap, json.dumps(places)]


OURS = ("gpuperf", "gpuperf.kernels", "gpuperf.kernels.cuda", "gpuperf.configs")
NEEDED = ("msgspec", "pynvml")  # packages that a worker needs besides torch


def _folder(name: str) -> str:
    """Return the folder or the file of the module *name* without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return ""
    return next(iter(spec.submodule_search_locations or ()), spec.origin or "")


@dataclass(frozen=True)
class LocalLauncher:
    """A launcher of workers on this machine, which run the code of `place` if one is given.

    With `debug`, their output is shown. With `ahead`, they import slow modules before they
    say hello. A worker and its children may take `memory_bytes`; 0 means nearly all memory.
    """

    debug: bool = False
    place: Place | None = None
    ahead: bool = False
    memory_bytes: int = 0

    def start(self) -> LocalConnection:
        """Start a worker in a new session."""
        return LocalConnection(self.debug, self.place, self.ahead, memory_bytes=self.memory_bytes)


@dataclass(frozen=True)
class _Report:
    """A guard's last line: the worker's exit code (a signal below 0), and, if the guard killed it
    for its memory, the reason."""

    code: int
    starved: str = ""


class LocalConnection:
    """A local process and its two pipes: a worker under its guard, or a program."""

    def __init__(
        self,
        debug: bool,
        place: Place | None = None,
        ahead: bool = False,
        program: int | None = None,
        memory_bytes: int = 0,
    ) -> None:
        """Start a worker; or a program whose stdout goes to the descriptor *program*.

        A program has this process's stdin and stderr, and no guard: its children may outlive it.
        """
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in kill()
        # Writes go to the end of the log, also after `_shorten_log` has emptied it.
        fcntl.fcntl(self._log, fcntl.F_SETFL, os.O_APPEND)
        self._buffer, self._searched = bytearray(), 0
        self._token = secrets.token_hex(8).encode()
        self._control: socket.socket | None = None
        self._report: _Report | None = None
        theirs_in, self._requests = os.pipe()
        self._replies, theirs_out = os.pipe()
        pipes = (theirs_in, theirs_out)
        ends = [f"--requests={theirs_in}", f"--replies={theirs_out}"]
        try:
            if program is not None:
                self._process = _start_program(program, ends, pipes)
            else:
                command = [*_worker_command(place), *(["--ahead"] if ahead else []), *ends]
                output = sys.stderr if debug else self._log
                self._control, self._process = _start_guard(
                    command, output, pipes, place, memory_bytes
                )
        finally:
            for descriptor in pipes:
                os.close(descriptor)
        os.set_blocking(self._replies, False)
        os.set_blocking(self._requests, False)
        with contextlib.suppress(BrokenPipeError):  # `death` says how it ended
            self._write(self._token + b"\n")

    def send(self, message: ToWorker) -> None:
        """Write one line. Raises: BrokenPipeError."""
        self._write(msgspec.json.encode(message) + b"\n")

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            if not select.select([], [self._requests], [], DEAF_S)[1]:
                raise BrokenPipeError
            rest = rest[os.write(self._requests, rest) :]

    def receive(self, timeout_s: float) -> FromWorker | None:
        """Return the next message, if one comes in time; a dead worker's last ones come first.

        Raises: ValueError for a line that is not a message, has another writer, or is too long.
        """
        end = time.monotonic() + timeout_s
        while (at := self._buffer.find(b"\n", self._searched)) == -1:
            self._refuse_foreign()
            self._searched = len(self._buffer)
            left = end - time.monotonic()
            dead = self._process.poll() is not None
            if not self._read(0.0 if dead else max(0.0, min(POLL_S, left))) and (dead or left <= 0):
                return None
        self._refuse_foreign()
        line = bytes(self._buffer[len(self._token) : at])
        del self._buffer[: at + 1]
        self._searched = 0
        message: FromWorker = decode(line, FromWorker)  # type: ignore[arg-type]
        return message

    def _refuse_foreign(self) -> None:
        """Raise ValueError if the buffered line is too long or lacks the token of the worker."""
        known = min(len(self._buffer), len(self._token))
        if self._buffer[:known] != self._token[:known]:
            raise ValueError("another writer than the worker wrote to its pipe")
        if len(self._buffer) > LONGEST_LINE:
            raise ValueError(f"a line of over {LONGEST_LINE >> 20} MiB")

    def _read(self, timeout_s: float) -> bool:
        """Read the pipe into the buffer, and return False if nothing came within *timeout_s*."""
        self._shorten_log()
        if not select.select([self._replies], [], [], timeout_s)[0]:
            return False
        data = os.read(self._replies, 1 << 20)
        self._buffer += data
        if not data:
            time.sleep(POLL_S)  # the other end is closed: the death will be detected soon
        return bool(data)

    def _shorten_log(self) -> None:
        """Discard the worker's output before it fills the disk."""
        if os.fstat(self._log.fileno()).st_size > LONGEST_LOG:
            self._log.truncate(0)

    def death(self) -> str | None:
        """Describe the exit code or the signal; None while the process lives."""
        code = self._code()
        if code is None:
            return None
        if code >= 0:
            return f"exit code {code}"
        try:
            return f"signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"signal {-code}"

    def starved(self) -> str:
        """Describe the memory that the worker took, if it was killed for that."""
        return self._report.starved if self._code() is not None and self._report else ""

    def _code(self) -> int | None:
        """Return the exit code that the guard reports, a signal below 0."""
        code = self._process.poll()
        if code is None or self._control is None:
            return code
        if self._report is None:
            line = b""
            with contextlib.suppress(OSError):
                line = self._control.recv(4096, socket.MSG_DONTWAIT)
            # A killed guard reports nothing; its end was then the worker's end too.
            self._report = msgspec.json.decode(line, type=_Report) if line else _Report(code)
        return self._report.code

    def last_words(self) -> str:
        """Return the last lines that the worker printed to stdout or stderr."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LOG_TAIL))
        return self._log.read().decode("utf-8", "replace").strip()

    def interrupt(self) -> None:
        """Send SIGINT to a program: a Ctrl-C does not reach it, as it runs in another session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._process.pid, signal.SIGINT)

    def exit_code(self, timeout_s: float) -> int | None:
        """Return the exit code of a program that ends in time, a signal below 0."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def kill(self) -> None:
        """End the process and its descendants, then close the pipes and the log.

        The group is killed even if its leader is dead, since other members may live on.
        """
        if self._control is not None:
            self._control.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for descriptor in (self._requests, self._replies):
            os.close(descriptor)
        self._log.close()


def _worker_command(place: Place | None) -> list[str]:
    return place.command() if place else [sys.executable, "-P", "-m", "gpuperf.measure.worker"]


def _start_guard(
    command: list[str],
    output: IO[Any],
    pipes: tuple[int, int],
    place: Place | None,
    memory_bytes: int,
) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a guard with the worker *command*; return our end of its control socket too."""
    ours, theirs = socket.socketpair()
    guard = str(Path(__file__).with_name("guard.py"))
    with theirs:
        passed = ",".join(map(str, pipes))
        arguments = [theirs.fileno(), os.getpid(), memory_bytes, passed]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard, *map(str, arguments), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(), *pipes),
            start_new_session=True,
            cwd=place.folder if place else None,
            env={**os.environ, **place.environment} if place and place.environment else None,
        )
    return ours, process


def _start_program(stdout: int, ends: list[str], pipes: tuple[int, int]) -> subprocess.Popen[bytes]:
    """Start the process that runs a program, with our stdin and stderr."""
    quiet = {} if "KINETO_LOG_LEVEL" in os.environ else {"KINETO_LOG_LEVEL": "99"}
    return subprocess.Popen(  # otherwise torch's profiler writes to the program's stderr
        [
            sys.executable,
            "-P",
            "-m",
            "gpuperf.profile.inside.program",
            *ends,
            f"--parent={os.getpid()}",
        ],
        stdout=stdout,
        pass_fds=pipes,
        start_new_session=True,
        env={**os.environ, **quiet},
    )
