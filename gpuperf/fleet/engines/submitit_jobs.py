"""Run a fleet's command as submitit jobs, one on each host, through Slurm or on this machine.

Each job of Slurm asks for its own host by name, and for the whole of it. submitit is an optional
dependency: `pip install 'gpuperf[submitit]'`. Its folder of scripts and logs must be shared by the
hosts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from gpuperf.errors import CannotMeasure
from gpuperf.fleet.engines.engine import Answer, Command, Job, run_command
from gpuperf.model.text import clean, shorten

GRACE_S = 60.0  # what a job may take beside its command, once it runs
POLL_S = 0.5
LONGEST_QUEUE_S = 86400.0


class SubmititEngine:
    """An engine that submits a job for each host: to Slurm, or to this machine without Slurm."""

    def __init__(self, folder: Path, cluster: str | None = None) -> None:
        """Load submitit for *cluster* (slurm, local; None for Slurm where it is installed).

        Scripts and logs go to *folder*. Raises: CannotMeasure where submitit is not installed.
        """
        try:
            self._submitit: Any = import_module("submitit")
        except ImportError:
            raise CannotMeasure(
                "the engine submitit needs the package submitit, which is not installed",
                "pip install 'gpuperf[submitit]'",
            ) from None
        self._cluster, self._folder = cluster, folder

    def run(self, job: Job) -> Iterator[Answer]:
        """Yield the answer of each host as it comes."""
        jobs: dict[str, Any] = {}
        ended: set[str] = set()
        try:
            for host in job.hosts:
                jobs[host] = self._submit(job, host)
            end = time.monotonic() + job.deadline_s + GRACE_S
            end += LONGEST_QUEUE_S if self._cluster != "local" else 0.0
            while len(ended) < len(jobs) and time.monotonic() < end:
                for host in [h for h in jobs if h not in ended and jobs[h].done()]:
                    ended.add(host)
                    yield _answer(jobs[host], host)
                time.sleep(POLL_S)
            for host in [h for h in jobs if h not in ended]:
                yield Answer(host, code=1, reason="its job did not end in time")
        finally:
            for host in jobs.keys() - ended:
                jobs[host].cancel()

    def _submit(self, job: Job, host: str) -> Any:
        """Submit the command of *host*."""
        executor = self._submitit.AutoExecutor(folder=self._folder, cluster=self._cluster)
        minutes = max(1, round((job.deadline_s + GRACE_S) / 60))
        executor.update_parameters(name="gpuperf-fleet", timeout_min=minutes)
        if executor.cluster == "slurm":
            executor.update_parameters(
                nodes=1, slurm_additional_parameters={"nodelist": host, "exclusive": True}
            )
        command = Command(tuple(job.command(host)), job.stdin, job.deadline_s)
        return executor.submit(run_command, host, command)


def _answer(job: Any, host: str) -> Answer:
    """Return the result of *job*, or the reason why it has none."""
    error = job.exception()
    if error is None:
        answer: Answer = job.result()
        return answer
    lines = [line for line in clean(str(error)).splitlines() if line.strip()] or ["no message"]
    reason = f"its job failed: {type(error).__name__}: {shorten(lines[-1], 200)}"
    return Answer(host, code=1, reason=reason)
