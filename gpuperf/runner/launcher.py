"""How is a worker process started, spoken to, and found dead?

A `Launcher` hands over messages, not file descriptors, so that a worker may live elsewhere later.
Death is seen by waiting for the process, never by end-of-file: a child that the worker started may
keep the pipe open.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

import msgspec

from gpuperf.model.protocol import FromWorker, ToWorker

__all__ = ["Connection", "Launcher", "LocalLauncher", "Place"]

POLL_S = 0.05  # how late a death may be seen
LOG_TAIL = 2000  # characters of what a dead worker printed


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

    With *ahead* a worker imports what it may need before it says hello.
    """

    def __init__(
        self, debug: bool = False, place: Place | None = None, ahead: bool = False
    ) -> None:
        self._debug, self._place, self._ahead = debug, place, ahead

    def start(self) -> LocalConnection:
        """A worker in a process group of its own."""
        return LocalConnection(self._debug, self._place, self._ahead)


class LocalConnection:
    """One local worker process and its two pipes."""

    def __init__(
        self,
        debug: bool,
        place: Place | None = None,
        ahead: bool = False,
        program: int | None = None,
    ) -> None:
        """With *program*, where its stdout goes, a process that runs one, with our stdin and
        stderr."""
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in kill()
        theirs_in, self._requests = os.pipe()
        self._replies, theirs_out = os.pipe()
        self._buffer = b""
        output = sys.stderr if debug else self._log
        changed = place.environment if place else {}
        if program is not None and "KINETO_LOG_LEVEL" not in os.environ:
            changed = {"KINETO_LOG_LEVEL": "99"}  # torch's profiler would talk to its stderr
        what = "worker" if program is None else "program"
        module = [sys.executable, "-P", "-m", f"gpuperf.measure.{what}"]
        command = place.command() if place else module
        command += ["--ahead"] if ahead else []
        command += [f"--requests={theirs_in}", f"--replies={theirs_out}"]
        command += [f"--parent={os.getpid()}"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if program is None else None,
                stdout=output if program is None else program,
                stderr=output if program is None else None,
                pass_fds=(theirs_in, theirs_out),
                start_new_session=True,
                cwd=place.folder if place else None,
                env=None if not changed else {**os.environ, **changed},
            )
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        os.set_blocking(self._replies, False)

    def send(self, message: ToWorker) -> None:
        """Write one line."""
        rest = memoryview(msgspec.json.encode(message) + b"\n")
        while rest:
            rest = rest[os.write(self._requests, rest) :]

    def receive(self, timeout_s: float) -> FromWorker | None:
        """One line, if it comes in time; what a dead worker left in the pipe comes first."""
        end = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = end - time.monotonic()
            dead = self._process.poll() is not None
            if not self._read(0.0 if dead else max(0.0, min(POLL_S, left))) and (dead or left <= 0):
                return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: FromWorker = msgspec.json.decode(line, type=FromWorker)
        return message

    def _read(self, timeout_s: float) -> bool:
        """Take what is there into the buffer; False when there was nothing."""
        if not select.select([self._replies], [], [], timeout_s)[0]:
            return False
        data = os.read(self._replies, 1 << 20)
        self._buffer += data
        if not data:
            time.sleep(POLL_S)  # closed at the other end: the death will be seen in a moment
        return bool(data)

    def death(self) -> str | None:
        """Exit code or signal in words."""
        code = self._process.poll()
        if code is None:
            return None
        if code >= 0:
            return f"exit code {code}"
        try:
            return f"signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"signal {-code}"

    def last_words(self) -> str:
        """The last lines that the worker printed, to stdout or stderr."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LOG_TAIL))
        return self._log.read().decode("utf-8", "replace").strip()

    def interrupt(self) -> None:
        """Ctrl-C, which a session of its own does not hear."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._process.pid, signal.SIGINT)

    def exit_code(self, timeout_s: float) -> int | None:
        """Of a process that ends in time; below 0 for a signal."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def kill(self) -> None:
        """SIGKILL to the group, then the pipes and the log are closed.

        The group is killed even when its leader is dead: what that one started may live on.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for descriptor in (self._requests, self._replies):
            os.close(descriptor)
        self._log.close()
