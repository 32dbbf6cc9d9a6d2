"""Exchange messages with a process on this machine, and detect its death.

Death is detected by waiting for the process, never by end-of-file, since a child of the worker may
keep the pipe open.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, NamedTuple, Protocol

import msgspec

from gpuperf.model.codec import decode
from gpuperf.model.protocol import FromWorker, ToWorker
from gpuperf.run.starting import END_S, Pipes

POLL_S = 0.05  # longest delay in seconds before the death of a worker is detected
LOG_TAIL = 2000  # characters that a dead worker printed last
LONGEST_LOG = 16 << 20  # bytes that a worker printed, before they are discarded
LONGEST_LINE = 256 << 20  # bytes of a message: the largest are traces of long programs
DEAF_S = 60.0  # seconds for which a worker may leave a request unread


class Connection(Protocol):
    """The connection to a worker process, or to a gang of them; `name` is how errors call it."""

    @property
    def name(self) -> str:
        """Return the name of the process at fault: `the worker`, or `rank 1`."""

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

    def dismiss(self) -> None:
        """Begin to kill the worker and its processes; `kill` waits for their end."""

    def kill(self) -> None:
        """Kill the worker and all processes that it started."""


class Ends(NamedTuple):
    """The ends of a new process: descriptors of its requests and replies, and its output file."""

    requests: int
    replies: int
    log: IO[bytes]


class Process(Protocol):
    """A process that was started, and the socket of its guard."""

    @property
    def pid(self) -> int:
        """Return the number of the process."""

    @property
    def control(self) -> socket.socket | None:
        """Return the socket that leads to the guard, if the process is one."""

    def poll(self) -> int | None:
        """Return the exit code, a signal below 0; None while the process lives."""

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the exit code. Raises: subprocess.TimeoutExpired."""

    def kill(self) -> None:
        """Kill the process with its group, and wait for its end."""


@dataclass(frozen=True)
class _Report:
    """A guard's last line: the worker's exit code (a signal below 0), and, if the guard killed it
    for its memory, the reason."""

    code: int
    starved: str = ""


class LocalConnection:
    """A local process and its two pipes: a worker under its guard, or a program.

    A program has no guard: its children may outlive it.
    """

    name = "the worker"

    def __init__(
        self,
        begin: Callable[[Ends], Process],
        messages: Any = FromWorker,
        pipes: Pipes | None = None,
    ) -> None:
        """Start the process by *begin*, which gives it its ends of the *pipes*, or of new ones.

        The process sends *messages* of this type.
        """
        self._messages = messages
        self._buffer, self._searched = bytearray(), 0
        self._token = secrets.token_hex(8).encode()
        self._report: _Report | None = None
        self._pipes = pipes or Pipes()
        self._requests, self._replies = self._pipes.requests, self._pipes.replies
        self._log = self._pipes.log
        try:
            self._process = begin(Ends(*self._pipes.theirs, self._log))
        except BaseException:
            self._pipes.close()
            raise
        finally:
            self._pipes.hand_over()
        os.set_blocking(self._replies, False)
        os.set_blocking(self._requests, False)
        with contextlib.suppress(BrokenPipeError):  # `death` says how it ended
            self._write(self._token + b"\n")

    def send(self, message: Any) -> None:
        """Write one line. Raises: BrokenPipeError."""
        self._write(msgspec.json.encode(message) + b"\n")

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            if not select.select([], [self._requests], [], DEAF_S)[1]:
                raise BrokenPipeError
            rest = rest[os.write(self._requests, rest) :]

    def receive(self, timeout_s: float) -> Any:
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
        return decode(line, self._messages)

    @property
    def guard(self) -> int:
        """Return the number of the guard of a worker, or of a program."""
        return self._process.pid

    def wait(self, timeout_s: float) -> None:
        """Wait until something can be received or the worker is dead, for *timeout_s* at most."""
        end = time.monotonic() + timeout_s
        while b"\n" not in self._buffer and self._process.poll() is None:
            left = end - time.monotonic()
            if left <= 0 or select.select([self._replies], [], [], min(POLL_S, left))[0]:
                return

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
        control = self._process.control
        if code is None or control is None:
            return code
        if self._report is None:
            line = b""
            with contextlib.suppress(OSError):
                line = control.recv(4096, socket.MSG_DONTWAIT)
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

    def dismiss(self) -> None:
        """Let the guard end the process and its descendants, without a wait for them."""
        if self._process.control is not None:
            self._process.control.close()

    def kill(self) -> None:
        """End the process and its descendants, then close the pipes and the log."""
        self.dismiss()
        if self._process.control is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        self._process.kill()
        self._pipes.close()
