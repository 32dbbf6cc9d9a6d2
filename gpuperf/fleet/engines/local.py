"""Run a fleet's command on this machine, once for each host in turn, to try a suite out."""

from __future__ import annotations

from collections.abc import Iterator

from gpuperf.fleet.engines.engine import Answer, Command, Job, run_command


class LocalEngine:
    """An engine whose hosts are all this machine, one after the other."""

    def run(self, job: Job) -> Iterator[Answer]:
        """Yield the answer of each host."""
        for host in job.hosts:
            command = Command(tuple(job.command(host)), job.stdin, job.deadline_s)
            yield run_command(host, command)
