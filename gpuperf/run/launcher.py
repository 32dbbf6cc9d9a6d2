"""How is a worker process started, spoken to, and found dead?

A `Launcher` hands over messages, not file descriptors, so that a worker may live elsewhere later.
Death is seen by waiting for the process, never by end-of-file: a child that the worker started may
keep the pipe open. A local worker runs under a guard (`guard.py`), which ends what it left.
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

POLL_S = 0.05  # how late a death may be seen
LOG_TAIL = 2000  # characters of what a dead worker printed
LONGEST_LOG = 16 << 20  # bytes of what a worker printed, before they are thrown away
LONGEST_LINE = 256 << 20  # bytes of a message: the largest are traces of long programs
DEAF_S = 60.0  # for which a worker may leave a request unread
END_S = 10.0  # for a guard to end its worker and all that this one started


class Connection(Protocol):
    """A living worker."""

    def send(self, message: ToWorker) -> None:
        """Raises: BrokenPipeError when the worker is gone."""

    def receive(self, timeout_s: float) -> FromWorker | None:
        """The next message, or None when none came in time or the worker is dead.

        Raises: ValueError for what is no message.
        """

    def death(self) -> str | None:
        """How the worker ended, in words; None while it lives."""

    def starved(self) -> str:
        """How much memory it took, when that was the end of it; else nothing."""

    def last_words(self) -> str:
        """The end of what the worker printed."""

    def kill(self) -> None:
        """End it and all that it started."""


class Launcher(Protocol):
    """Starts workers."""

    def start(self) -> Connection:
        """A new worker, which says hello first."""


@dataclass(frozen=True)
class Place:
    """Where a worker runs other code than what is installed here, under this gpuperf.

    Its interpreter, the folder that it starts in, folders whose modules come before installed
    ones, where `gpuperf.kernels` is taken from (nothing: ours), and what differs in its
    environment.
    """

    python: str = sys.executable
    folder: str = "."
    paths: tuple[str, ...] = ()
    kernels: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        """What starts the worker there."""
        packages = {name: _folder(name) for name in OURS}
        if self.kernels:
            packages["gpuperf.kernels"] = self.kernels
            packages["gpuperf.kernels.cuda"] = str(Path(self.kernels).parent / "cuda")
        asked = {
            "paths": self.paths,
            "packages": packages,
            "fallbacks": {name: _folder(name) for name in NEEDED},
        }
        bootstrap = str(Path(__file__).with_name("bootstrap.py"))
        return [self.python, "-P", bootstrap, json.dumps(asked)]


OURS = ("gpuperf", "gpuperf.kernels", "gpuperf.kernels.cuda", "gpuperf.configs")
NEEDED = ("msgspec", "pynvml")  # by a worker, beside torch


def _folder(name: str) -> str:
    """Where the package or module *name* is, without importing what it holds."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return ""
    return next(iter(spec.submodule_search_locations or ()), spec.origin or "")


class LocalLauncher:
    """Workers on this machine, at *place* if there is one; what they print is shown with *debug*.

    With *ahead* a worker imports what it may need before it says hello. A worker and what it
    starts may hold *memory_bytes* of memory; 0 stands for nearly all that the machine has.
    """

    def __init__(
        self,
        debug: bool = False,
        place: Place | None = None,
        ahead: bool = False,
        memory_bytes: int = 0,
    ) -> None:
        self._debug, self._place, self._ahead = debug, place, ahead
        self._memory_bytes = memory_bytes

    def start(self) -> LocalConnection:
        """A worker in a session of its own."""
        return LocalConnection(
            self._debug, self._place, self._ahead, memory_bytes=self._memory_bytes
        )


@dataclass(frozen=True)
class _Report:
    """A guard's last line: the worker's exit code, below 0 a signal, and why memory ended it."""

    code: int
    starved: str = ""


class LocalConnection:
    """One local process and its two pipes: a worker under its guard, or a program."""

    def __init__(
        self,
        debug: bool,
        place: Place | None = None,
        ahead: bool = False,
        program: int | None = None,
        memory_bytes: int = 0,
    ) -> None:
        """With *program*, where its stdout goes, a process that runs one, with our stdin and
        stderr, and without a guard: what a program leaves running is its own affair."""
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in kill()
        # What is written goes to its end, also when `_read` has emptied it.
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
        """One line, if it comes in time; what a dead worker left in the pipe comes first.

        Raises: ValueError for a line that is no message, not the worker's own, or too long.
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
        """Raises: ValueError where the line that has begun is not the worker's own."""
        known = min(len(self._buffer), len(self._token))
        if self._buffer[:known] != self._token[:known]:
            raise ValueError("something else than the worker wrote to its pipe")
        if len(self._buffer) > LONGEST_LINE:
            raise ValueError(f"a line of over {LONGEST_LINE >> 20} MiB")

    def _read(self, timeout_s: float) -> bool:
        """Take what is there into the buffer; False when there was nothing."""
        self._shorten_log()
        if not select.select([self._replies], [], [], timeout_s)[0]:
            return False
        data = os.read(self._replies, 1 << 20)
        self._buffer += data
        if not data:
            time.sleep(POLL_S)  # closed at the other end: the death will be seen in a moment
        return bool(data)

    def _shorten_log(self) -> None:
        """Throw away what the worker printed where it would fill the disk."""
        if os.fstat(self._log.fileno()).st_size > LONGEST_LOG:
            self._log.truncate(0)

    def death(self) -> str | None:
        """Exit code or signal in words."""
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
        """How much memory it took, when that was the end of it."""
        return self._report.starved if self._code() is not None and self._report else ""

    def _code(self) -> int | None:
        """The exit code, below 0 a signal: of the worker, as its guard reports it."""
        code = self._process.poll()
        if code is None or self._control is None:
            return code
        if self._report is None:
            line = b""
            with contextlib.suppress(OSError):
                line = self._control.recv(4096, socket.MSG_DONTWAIT)
            # A guard that was killed reports nothing; its own end is then the worker's.
            self._report = msgspec.json.decode(line, type=_Report) if line else _Report(code)
        return self._report.code

    def last_words(self) -> str:
        """The last lines that the worker printed, to stdout or stderr."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LOG_TAIL))
        return self._log.read().decode("utf-8", "replace").strip()

    def interrupt(self) -> None:
        """Ctrl-C for a program, which a session of its own does not hear."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._process.pid, signal.SIGINT)

    def exit_code(self, timeout_s: float) -> int | None:
        """Of a program that ends in time; below 0 for a signal."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def kill(self) -> None:
        """End the process and what it started, then close the pipes and the log.

        The group is killed even when its leader is dead: what that one started may live on.
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
    """A guard with the worker *command*, and our end of the guard's control socket."""
    ours, theirs = socket.socketpair()
    guard = str(Path(__file__).with_name("guard.py"))
    with theirs:
        passed = ",".join(map(str, pipes))
        asked = [theirs.fileno(), os.getpid(), memory_bytes, passed]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard, *map(str, asked), *command],
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
    """The process that runs a program, with our stdin and stderr."""
    quiet = {} if "KINETO_LOG_LEVEL" in os.environ else {"KINETO_LOG_LEVEL": "99"}
    return subprocess.Popen(  # torch's profiler would talk to the program's stderr
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
