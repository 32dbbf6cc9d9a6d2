"""Run a fleet's command on hosts through the system's ssh, many at once.

ssh asks no question (BatchMode), and ends where a host does not answer. The remote shell receives
one word, in which every argument is quoted; the name of a host is checked before it becomes an
argument of ssh. The hosts need the program timeout of GNU coreutils.
"""

from __future__ import annotations

import shlex
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed

from gpuperf.errors import CannotMeasure
from gpuperf.fleet.engines.engine import Answer, Command, Job, run_command

OPTIONS = (
    *("-o", "BatchMode=yes"),
    *("-o", "ConnectTimeout=15"),
    *("-o", "ServerAliveInterval=15"),
    *("-o", "ServerAliveCountMax=4"),
)
NO_SSH = 255  # exit code of ssh where it could not connect


class SshEngine:
    """An engine that reaches its hosts by ssh, with the keys and the configuration of the user."""

    def __init__(self, program: str = "ssh") -> None:
        """Find *program*. Raises: CannotMeasure where it is not installed."""
        path = shutil.which(program)
        if path is None:
            raise CannotMeasure("the program ssh is not installed", "apt install openssh-client")
        self._program = path

    def words(self, job: Job, host: str) -> tuple[str, ...]:
        """Return the words that start the command on *host*, where it ends at the deadline too."""
        remote = ["timeout", "--kill-after=10", f"{job.deadline_s:.0f}", *job.command(host)]
        return (self._program, *OPTIONS, "--", host, shlex.join(remote))

    def run(self, job: Job) -> Iterator[Answer]:
        """Yield the answer of each host as it comes; `job.at_once` are connected at a time."""
        stop = threading.Event()
        with ThreadPoolExecutor(max(1, min(job.at_once, len(job.hosts)))) as pool:
            waiting = [pool.submit(self._ask, job, host, stop) for host in job.hosts]
            try:
                for answer in as_completed(waiting):
                    yield answer.result()
            finally:
                stop.set()
                for future in waiting:
                    future.cancel()

    def _ask(self, job: Job, host: str, stop: threading.Event) -> Answer:
        command = Command(self.words(job, host), job.stdin, job.deadline_s)
        answer = run_command(host, command, stop)
        if answer.code == NO_SSH and not answer.reason:
            last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
            return Answer(host, answer.stdout, answer.stderr, NO_SSH, f"ssh failed: {last}")
        return answer
