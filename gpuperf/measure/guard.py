"""Guard a worker: this process between supervisor and worker kills all descendants of the worker.

It runs as a file and imports only the standard library, so it starts in milliseconds under any
interpreter; the guard of a forked worker is itself a fork (`fork_server.py`). Orphans of the worker
become children of the guard (PR_SET_CHILD_SUBREAPER), even those in another session. It kills
worker and descendants when the worker ends, when the supervisor closes its end of the control
socket, and when the parent of the guard has died.

The guard also kills a worker that takes nearly all memory of the machine, before the kernel has to
choose a process to kill. It sends the supervisor one line of JSON that says how the worker ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
POLL_S, HURRIED_POLL_S = 0.25, 0.05  # seconds between two readings of the memory
PLENTY = 0.5  # fraction of the machine's memory; while more is free, the worker's is not read
MOST_SHARE = 0.9  # fraction of the worker's and the free memory that the worker may take
END_S = 5.0  # seconds to wait for killed processes; one inside a system call may take longer
PAUSE_S = 0.005


def main() -> None:
    """Guard the program that the command line names."""
    control, parent, limit, passed, *command = sys.argv[1:]
    ends = [int(descriptor) for descriptor in passed.split(",")]

    def execute() -> None:
        for descriptor in ends:
            os.set_inheritable(descriptor, True)
        try:
            os.execvp(command[0], [*command, f"--parent={os.getppid()}"])
        except OSError as error:
            sys.stderr.write(f"{command[0]} does not start: {error.strerror}\n")
            sys.stderr.flush()

    guard(int(control), int(parent), int(limit), ends, execute)


def guard(
    control: int, parent: int, limit: int, passed: Sequence[int], begin: Callable[[], object]
) -> None:
    """Start the worker, which calls *begin*; wait for its end, kill its descendants, and report.

    Only the worker keeps the *passed* descriptors. *control* leads to the supervisor, *parent* is
    the process whose end ends the worker, and *limit* the bytes that it may take (0: any number).
    """
    os.set_inheritable(control, False)
    _adopt_orphans()
    killed_before = _kernel_kills()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    woken, wake = _wake_at_ends()
    worker = _start(begin, passed, (control, woken, wake))
    status, starved = None, ""
    try:
        status, starved = _wait(worker, control, woken, parent, limit)
    finally:
        _end_all(worker)
    if status is not None:
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL and not starved and _kernel_kills() > killed_before:
            starved = "the machine had no memory left"
        _report(control, code, starved)


def _wake_at_ends() -> tuple[int, int]:
    """Return a descriptor that can be read when a child has ended, and the one that is written."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return woken, wake


def _wait(worker: int, control: int, woken: int, parent: int, limit: int) -> tuple[int | None, str]:
    """Wait for *worker*; return its status, and the reason if it was killed for its memory.

    The status is None if the worker still runs and the guard has to kill it now.
    """
    wait_s = POLL_S
    while os.getppid() == parent:
        ready = select.select([control, woken], [], [], wait_s)[0]
        if control in ready:
            break  # the supervisor, which sends nothing, has closed its end
        if woken in ready:
            os.read(woken, 4096)
        status = _reap(worker)
        if status is not None:
            return status, ""
        starved, wait_s = _starved(limit)
        if starved:
            os.kill(worker, signal.SIGKILL)
            return os.waitpid(worker, 0)[1], starved
    return None, ""


def _adopt_orphans() -> None:
    """Make orphaned descendants children of this process, where the system supports it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _start(begin: Callable[[], object], passed: Sequence[int], ours: Sequence[int]) -> int:
    """Call *begin* in a new process and session; return its pid.

    The new process has the *passed* descriptors, which this one closes, and closes *ours*.
    """
    worker = os.fork()
    if worker == 0:
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            for descriptor in ours:
                os.close(descriptor)
            _volunteer()
            begin()
        finally:
            os._exit(127)
    for descriptor in passed:
        os.close(descriptor)
    return worker


def _volunteer() -> None:
    """Have the kernel kill this process first when memory is out, and not the supervisor."""
    with contextlib.suppress(OSError):  # otherwise the kernel chooses by size
        Path("/proc/self/oom_score_adj").write_text("1000")


def _reap(worker: int) -> int | None:
    """Reap the children that ended; return the status of *worker* if it is one of them."""
    workers = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return workers
        if pid == 0:
            return workers
        if pid == worker:
            workers = status


def _end_all(worker: int) -> None:
    """Kill *worker*'s process group and every descendant, until none is left."""
    with contextlib.suppress(OSError):  # the group is empty
        os.killpg(worker, signal.SIGKILL)
    end = time.monotonic() + END_S
    while time.monotonic() < end:
        below = _descendants(os.getpid())
        if not below:
            return
        for pid in below:
            with contextlib.suppress(OSError):  # it has ended, or it runs as another user
                os.kill(pid, signal.SIGKILL)
        _reap(worker)
        time.sleep(PAUSE_S)


def _descendants(root: int) -> list[int]:
    """Return the descendants of *root* in /proc.

    Zombies count, since a zombie keeps its children until its last thread has ended.
    """
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes six times as long
        if name.isdigit():
            fields = _read(f"/proc/{name}/stat").rpartition(")")[2].split(maxsplit=2)
            if len(fields) > 1:
                children.setdefault(int(fields[1]), []).append(int(name))
    descendants: list[int] = []
    parents = [root]
    while parents:
        next_ones = children.pop(parents.pop(), [])
        descendants += next_ones
        parents += next_ones
    return descendants


def _starved(limit: int) -> tuple[str, float]:
    """Return why the worker must be killed for its memory (empty: it may go on).

    It may take *limit* bytes (0: any number), and `MOST_SHARE` of its own and the free memory.
    Return also the seconds until the next check.
    """
    total, free = _memory()
    if not limit and free > PLENTY * total:
        return "", POLL_S
    below, held = _descendants(os.getpid()), 0
    for count in (_anonymous, _share_of_anonymous):  # the second is exact, and slower
        held = sum(map(count, below))
        if not ((limit and held > limit) or (total and held > MOST_SHARE * (held + free))):
            return "", HURRIED_POLL_S
    return f"it held {held / 1e9:.1f} GB, and {free / 1e9:.1f} GB were free", 0.0


def _memory() -> tuple[int, int]:
    """Return the total and the free bytes of the machine, or of a smaller control group (v2)."""
    sizes = _table("/proc/meminfo")
    total, free = sizes.get("MemTotal:", 0) * 1024, sizes.get("MemAvailable:", 0) * 1024
    path = _read("/proc/self/cgroup").rpartition("::")[2].strip().strip("/")
    while True:
        group = f"/sys/fs/cgroup/{path}"
        most, used = _read(f"{group}/memory.max").strip(), _read(f"{group}/memory.current").strip()
        if most.isdigit() and used.isdigit():
            cached = _table(f"{group}/memory.stat")
            spare = cached.get("active_file", 0) + cached.get("inactive_file", 0)
            total, free = min(total, int(most)), min(free, int(most) - int(used) + spare)
        if not path:
            return total, free
        path = path.rpartition("/")[0]


def _anonymous(pid: int) -> int:
    """Return the bytes of *pid* in memory that no file backs; forks have pages in common."""
    sizes = _table(f"/proc/{pid}/status")
    return 1024 * (sizes.get("RssAnon:", 0) + sizes.get("RssShmem:", 0))


def _share_of_anonymous(pid: int) -> int:
    """Return the same with each page divided among its processes, where Linux 5.9 says so."""
    sizes = _table(f"/proc/{pid}/smaps_rollup")
    if "Pss_Anon:" not in sizes:
        return _anonymous(pid)
    return 1024 * (sizes["Pss_Anon:"] + sizes.get("Pss_Shmem:", 0))


def _kernel_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory since boot."""
    return _table("/proc/vmstat").get("oom_kill", 0)


def _table(path: str) -> dict[str, int]:
    rows = (line.split() for line in _read(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _read(path: str) -> str:
    """Return the text of *path*, or nothing where it cannot be read: a process just ended."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slower
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _report(control: int, code: int, starved: str) -> None:
    with contextlib.suppress(OSError):
        os.write(control, json.dumps({"code": code, "starved": starved}).encode())


if __name__ == "__main__":
    main()
