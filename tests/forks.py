"""Start gpuperf in a test as a fork of a process that has imported torch, which takes two seconds.

`Popen` and `run` are those of `subprocess`. A command that is gpuperf, its guard or a profiled
program is forked by the server (`fork_server.py`), unless it differs from the tests in a variable
that Python or torch reads at its start; any other command starts as ever. Without the variable
`SOCKET` nothing is forked.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest.mock
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, TimeoutExpired
from typing import Any

__all__ = ["DEVNULL", "PIPE", "CompletedProcess", "Popen", "TimeoutExpired", "hear", "run", "serve"]

SOCKET, BASELINE = "GPUPERF_FORKS", "GPUPERF_FORKS_BASELINE"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "OMP_", "MKL_", "KMP_", "TORCH", "TRITON", "MPL")
MAIN = "from gpuperf.app import main; main()"
MODULES = (
    "gpuperf",
    "gpuperf.measure.fork_server",
    "gpuperf.measure.spawned",
    "gpuperf.profile.inside.program",
)
STARTERS = ("gpuperf.run.launcher", "gpuperf.run.starting")  # modules that start processes
MEASURE = Path(__file__).parents[1] / "gpuperf" / "measure"
GUARD, BOOTSTRAP = str(MEASURE / "guard.py"), str(MEASURE / "bootstrap.py")
SERVER = Path(__file__).with_name("fork_server.py")
SERVER_START_S = 60.0
COLLECT = (50_000, 20, 20)  # thresholds of the garbage collector


def hear() -> None:
    """Take Ctrl-C and the end of a terminal as at a prompt, which nohup or a background job ignore.

    For `preexec_fn`.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def split(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options of Python in *command*, and the words from what it runs."""
    options, words = [], list(command[1:])
    while words and words[0] in ("-P", "-I", "-S"):
        options.append(words.pop(0))
    return options, words


def forkable(command: Any, environment: Mapping[str, str]) -> bool:
    """Return whether a fork does in *environment* what *command* would."""
    if not isinstance(command, list | tuple) or not environment.get(SOCKET):
        return False
    _, words = split(command)
    known = words[:2] == ["-c", MAIN] or (words[:1] == ["-m"] and words[1] in MODULES)
    known = known or words[:1] in ([GUARD], [BOOTSTRAP])
    if command[0] != sys.executable or not known:
        return False
    return read_at_start(environment) == json.loads(environment.get(BASELINE, "{}"))


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a process reads when it starts.

    A fork has Python's UTF-8 mode, and gives torch its threads.
    """
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_START)
        and name not in THREADS
        and not name.endswith("_DIR")  # read when it is used
        and (name, value) != ("PYTHONUTF8", "1")
    }


class Popen(subprocess.Popen[Any]):
    """A process like any other to its user, forked where that is possible."""

    _server: socket.socket | None = None

    def _execute_child(self, *words: Any) -> None:
        command, _, preexec_fn, _, pass_fds, cwd, env, *more = words
        environment = dict(os.environ if env is None else env)
        if preexec_fn not in (None, hear) or not forkable(command, environment):
            super()._execute_child(*words)  # type: ignore[misc]
            return
        pipes = more[3:9]
        ends = {0: pipes[0], 1: pipes[3], 2: pipes[5]}
        descriptors = {number: number if end == -1 else end for number, end in ends.items()}
        descriptors |= {number: number for number in pass_fds}
        request = {
            "command": list(command),
            "folder": str(cwd or Path.cwd()),
            "environment": environment,
            "descriptors": list(descriptors),
            "session": more[14],
            "hear": preexec_fn is hear,
        }
        self._server = _connected(environment[SOCKET])
        _send(self._server, request, list(descriptors.values()))
        self.pid = int(self._line())
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _line(self) -> bytes:
        assert self._server is not None
        text = b""
        while not text.endswith(b"\n"):
            text += (piece := self._server.recv(1))
            if not piece:
                raise RuntimeError("the server of forks has ended")
        return text

    def _internal_poll(self, *words: Any, **named: Any) -> int | None:
        if self._server is None:
            return super()._internal_poll(*words, **named)  # type: ignore[misc,no-any-return]
        with contextlib.suppress(TimeoutExpired):
            self._wait(0.0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self._server is None:
            return super()._wait(timeout)  # type: ignore[misc,no-any-return]
        if self.returncode is None:
            if not select.select([self._server], [], [], timeout)[0]:
                raise TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = os.waitstatus_to_exitcode(int(self._line()))
            self._server.close()
        return self.returncode


def run(*words: Any, **named: Any) -> CompletedProcess[Any]:
    """Do what `subprocess.run` does, with a fork where that is possible."""
    with unittest.mock.patch("subprocess.Popen", Popen):
        return subprocess.run(*words, **named)


def serve() -> None:
    """Start the server for this process and all that it starts, unless they have one."""
    if SOCKET in os.environ:
        return
    folder = tempfile.mkdtemp(prefix="gpuperf-forks-")
    server = subprocess.Popen(
        [sys.executable, "-P", str(SERVER), f"{folder}/socket"],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONUTF8": "1", "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,
    )
    atexit.register(_end, server, os.getpid(), folder)
    baseline = json.dumps(read_at_start(os.environ))
    os.environ |= {SOCKET: f"{folder}/socket", BASELINE: baseline}


def _end(server: subprocess.Popen[bytes], parent: int, folder: str) -> None:
    if os.getpid() == parent:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _connected(path: str) -> socket.socket:
    """Connect to the server, which takes seconds to start. Raises: OSError."""
    end = time.monotonic() + SERVER_START_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
            return connection
        except OSError:
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _send(connection: socket.socket, request: Mapping[str, Any], descriptors: list[int]) -> None:
    text = json.dumps(request).encode()
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    connection.sendmsg([struct.pack("<I", len(text))], [rights])
    connection.sendall(text)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a request and its descriptors. Raises: EOFError."""
    head, descriptors, _, _ = socket.recv_fds(connection, 4, 64)
    text, size = b"", struct.unpack("<I", head)[0] if len(head) == 4 else 1
    while len(text) < size:
        text += (piece := connection.recv(size - len(text)))
        if not piece:
            raise EOFError
    return json.loads(text), list(descriptors)
