"""Stop, continue and observe all processes below a guard, from outside.

SIGSTOP can be neither caught nor blocked, so a stopped tree computes nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from gpuperf.errors import CannotMeasure

STOP_S = 5.0  # seconds for all processes to stop; a fork bomb takes longer
PAUSE_S = 0.0002
PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37  # linux/prctl.h
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """A process in /proc: its number, that of its parent, its state, and its processor seconds."""

    pid: int
    parent: int
    state: str
    cpu_s: float


class Unstoppable(Exception):
    """Processes did not stop in time, or started others faster than they could be stopped."""


def processes_below(root: int) -> list[Process]:
    """Return the descendants of *root*, and no zombies."""
    descendants: list[Process] = []
    parents = [root]
    while parents:
        children = [c for pid in _children(parents.pop()) if (c := _read(pid)) is not None]
        descendants += children
        parents += [child.pid for child in children]
    return [process for process in descendants if process.state not in "ZX"]


def child_of(root: int) -> int:
    """Return the one child of the guard *root*. Raises: CannotMeasure if it has none."""
    children = _children(root)
    if not children:
        raise CannotMeasure("a process of the judge ended at once")
    return min(children)


def own_children() -> set[int]:
    """Return the children of this process: its workers, and orphans of theirs; zombies too."""
    return set(_children(os.getpid()))


def stop(root: int) -> None:
    """Stop every process below *root*. Raises: Unstoppable."""
    end = time.monotonic() + STOP_S
    while time.monotonic() < end:
        running = [p for p in processes_below(root) if p.state not in "Tt"]
        if not running:
            return
        for process in running:
            _signal(process.pid, signal.SIGSTOP)
        time.sleep(PAUSE_S)
    raise Unstoppable


def pause(pids: Sequence[int]) -> None:
    """Send SIGSTOP to the processes *pids*."""
    for pid in pids:
        _signal(pid, signal.SIGSTOP)


def resume(pids: Sequence[int]) -> None:
    """Let the stopped processes *pids* run."""
    for pid in pids:
        _signal(pid, signal.SIGCONT)


def cpu_seconds(root: int) -> float:
    """Return the processor seconds of all processes below *root*, with those of ended children."""
    return sum(process.cpu_s for process in processes_below(root))


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _children(pid: int) -> list[int]:
    """Return the children of *pid*: those that each of its threads has started or adopted."""
    children: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib is slower
            children += map(int, _text(f"/proc/{pid}/task/{thread}/children").split())
    return children


def _read(pid: int) -> Process | None:
    """Return what /proc says of *pid*; None if it has ended."""
    fields = _text(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 15:
        return None
    ticks = sum(int(field) for field in fields[11:15])
    return Process(pid, int(fields[1]), fields[0].decode(), ticks * TICK_S)


def _text(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slower
            return file.read()
    except OSError:
        return b""


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Make orphans children of this process inside, and end those that are left.

    A submission may kill its guard, and no process would end the descendants of the guard then.
    """
    if not os.access(f"/proc/self/task/{os.getpid()}/children", os.R_OK):
        raise CannotMeasure("the judge needs Linux", "its evidence comes from /proc")
    libc, before = ctypes.CDLL(None), ctypes.c_int()
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    known = own_children()
    try:
        yield
    finally:
        end_orphans(known)
        libc.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def end_orphans(known: Set[int]) -> bool:
    """Kill the children of this process that are not *known*, with all processes below them, until
    none is left; return whether there were any.

    A zombie keeps its children until its last thread has ended, so zombies are reaped too.
    """
    end, orphaned = time.monotonic() + STOP_S, False
    while (orphans := own_children() - known) and time.monotonic() < end:
        orphaned = True
        below = (process.pid for orphan in orphans for process in processes_below(orphan))
        for pid in (*orphans, *below):
            _signal(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(PAUSE_S)
    return orphaned
