"""Connect a worker with its supervisor, and kill the worker when its parent process ends.

Each line of the worker begins with a token that the supervisor sent first, so that a line which a
workload wrote into the descriptor is recognised as foreign. The descriptors have high numbers, are
closed at exec, and lead to /dev/null in a forked child, which must not send messages.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import msgspec

from gpuperf.model.codec import encode
from gpuperf.model.protocol import ToWorker

IN_WORKER = False  # whether this process has a supervisor
HIGH = 512  # lowest number of the pipe's descriptors: code that closes "all" stops far below
MEASURE = "gpuperf.measure."  # modules to which a forked child must not return


def die_with_parent(parent: int) -> None:
    """Have Linux kill this process when *parent* ends; elsewhere the closed pipe ends it."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


class Pipe:
    """The worker's end of the pipe, over which it exchanges messages with its supervisor."""

    def __init__(self, requests: int, replies: int, messages: Any = ToWorker) -> None:
        """Take both descriptors; the supervisor sends *messages* of this type."""
        global IN_WORKER
        IN_WORKER = True
        self._messages = messages
        self._requests = os.fdopen(_moved_up(requests), "rb")
        self._replies = _moved_up(replies)
        self._process = os.getpid()
        self._token = self._requests.readline().strip()
        os.register_at_fork(after_in_child=self._cut)

    def send(self, message: Any) -> bool:
        """Send *message* as one line, unbuffered; in a forked child, send nothing, return False."""
        if os.getpid() != self._process:
            return False
        line = memoryview(self._token + encode(message) + b"\n")
        while line:
            line = line[os.write(self._replies, line) :]
        return True

    def requests(self) -> Iterator[Any]:
        """Yield requests until the supervisor closes its end."""
        while line := self._line():
            yield msgspec.json.decode(line, type=self._messages)

    def _line(self) -> bytes:
        """Wait for the next request, even if a workload made the descriptor non-blocking."""
        os.set_blocking(self._requests.fileno(), True)
        return self._requests.readline()

    def _cut(self) -> None:
        """Replace both descriptors of the pipe by /dev/null; this runs in a forked child."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in (self._requests.fileno(), self._replies):
            os.dup2(null, descriptor, inheritable=False)
        os.close(null)


def _moved_up(descriptor: int) -> int:
    """Return a copy of *descriptor* with a high number, closed at exec, and close *descriptor*."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = HIGH if limit == resource.RLIM_INFINITY else min(HIGH, limit // 2)
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(descriptor)
    return moved


def end_child_on_return() -> None:
    """End every child that a workload forks as soon as the child returns into gpuperf's code.

    Otherwise the child of a workload that continues after a fork would measure too.
    """
    os.register_at_fork(after_in_child=_trace_return)


def _trace_return() -> None:
    """Trace the frames of gpuperf on the stack, so that a forked child ends on return to one.

    Children of multiprocessing are not traced: they end by themselves, and tracing costs time.
    """
    frames: list[FrameType] = []
    frame = sys._getframe(1)
    above: FrameType | None = frame
    while above is not None:
        name = above.f_globals.get("__name__", "")
        if name == "multiprocessing.popen_fork":
            return
        if isinstance(name, str) and name.startswith(MEASURE):
            frames.append(above)
        above = above.f_back
    for traced in frames:
        traced.f_trace = _end_child
    if frames:
        sys.settrace(_trace_nothing)


def _end_child(*_: Any) -> Callable[..., Any]:
    os._exit(0)


def _trace_nothing(*_: Any) -> None:
    """Return no local trace function, so that frames which begin from now on are not traced."""
