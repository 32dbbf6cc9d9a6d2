"""The worker's end of its conversation with the supervisor.

Each line begins with a token that the supervisor sent first, so that the first bytes show what a
workload wrote into a descriptor that is not its own. The descriptors have high numbers, are closed
at exec, and lead nowhere in a forked child: a child never speaks for its parent.
"""

from __future__ import annotations

import fcntl
import os
import resource
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import msgspec

from gpuperf.model.codec import encode
from gpuperf.model.protocol import FromWorker, ToWorker

HIGH = 512  # number of the first descriptor that may be ours: loops over "all" end far below
OURS = "gpuperf.measure."  # modules to which a forked child must not return


class Pipe:
    """Messages in both directions."""

    def __init__(self, requests: int, replies: int) -> None:
        self._requests = os.fdopen(_moved_up(requests), "rb")
        self._replies = _moved_up(replies)
        self._process = os.getpid()
        self._token = self._requests.readline().strip()
        os.register_at_fork(after_in_child=self._cut)

    def say(self, message: FromWorker) -> bool:
        """Send one line at once, and return True; a forked child sends nothing."""
        if os.getpid() != self._process:
            return False
        line = memoryview(self._token + encode(message) + b"\n")
        while line:
            line = line[os.write(self._replies, line) :]
        return True

    def requests(self) -> Iterator[ToWorker]:
        """The requests, until the supervisor closes its end."""
        while line := self._line():
            request: ToWorker = msgspec.json.decode(line, type=ToWorker)
            yield request

    def _line(self) -> bytes:
        """The next request; a workload may have set its descriptor not to wait for one."""
        os.set_blocking(self._requests.fileno(), True)
        return self._requests.readline()

    def _cut(self) -> None:
        """In a forked child: put /dev/null in the place of both descriptors."""
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in (self._requests.fileno(), self._replies):
            os.dup2(nowhere, descriptor, inheritable=False)
        os.close(nowhere)


def _moved_up(descriptor: int) -> int:
    """A copy of *descriptor* with a high number, closed at exec; *descriptor* is closed."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = HIGH if limit == resource.RLIM_INFINITY else min(HIGH, limit // 2)
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(descriptor)
    return moved


def end_child_on_return() -> None:
    """Have every child that a workload forks end when it returns into gpuperf.

    Otherwise the child of a workload that forks and goes on in both processes would measure too.
    """
    os.register_at_fork(after_in_child=_trace_return)


def _trace_return() -> None:
    """In a forked child: trace the frames to which it must not return.

    Children of multiprocessing are left alone: they end by themselves, and tracing costs time.
    """
    frames: list[FrameType] = []
    frame = sys._getframe(1)
    above: FrameType | None = frame
    while above is not None:
        name = above.f_globals.get("__name__", "")
        if name == "multiprocessing.popen_fork":
            return
        if isinstance(name, str) and name.startswith(OURS):
            frames.append(above)
        above = above.f_back
    for own in frames:
        own.f_trace = _end_child
    if frames:
        sys.settrace(_trace_nothing)


def _end_child(*_: Any) -> Callable[..., Any]:
    os._exit(0)


def _trace_nothing(*_: Any) -> None:
    """Trace no frame that begins from now on."""
