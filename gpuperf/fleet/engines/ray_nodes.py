"""Run a fleet's command on the nodes of a Ray cluster, one task on each node.

A task is bound to its node, and takes all GPUs of the node, so that nothing else is scheduled
there. Ray is an optional dependency: `pip install 'gpuperf[ray]'`, also on the nodes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.fleet.engines.engine import Answer, Command, Job, run_command
from gpuperf.fleet.shard import is_host
from gpuperf.model.text import clean, shorten

GRACE_S = 60.0  # what a task may take beside its command


class RayEngine:
    """An engine whose hosts are the nodes of the Ray cluster that `$RAY_ADDRESS` names, or of the
    one that runs on this machine."""

    def __init__(self) -> None:
        """Connect to the cluster. Raises: CannotMeasure without Ray, or without a cluster."""
        try:
            self._ray: Any = import_module("ray")
        except ImportError:
            raise CannotMeasure(
                "the engine ray needs the package ray, which is not installed",
                "pip install 'gpuperf[ray]'",
            ) from None
        try:
            if not self._ray.is_initialized():
                self._ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise CannotMeasure(
                f"no Ray cluster can be reached: {shorten(clean(str(error)), 200)}",
                "start one with `ray start --head`, or set RAY_ADDRESS",
            ) from None
        self._nodes = {_name_of(node): node for node in self._ray.nodes() if node["Alive"]}

    def hosts(self) -> tuple[str, ...]:
        """Return the names of all nodes that are alive."""
        return tuple(sorted(self._nodes))

    def run(self, job: Job) -> Iterator[Answer]:
        """Yield the answer of each node as it comes. Raises: UsageError for an unknown node."""
        unknown = [host for host in job.hosts if host not in self._nodes]
        if unknown:
            raise UsageError(
                f"the Ray cluster has no node {unknown[0]!r}",
                f"its nodes: {shorten(', '.join(self.hosts()), 300)}",
            )
        tasks = {self._start(job, host): host for host in job.hosts}
        waiting, end = list(tasks), time.monotonic() + job.deadline_s + GRACE_S
        try:
            while waiting and (left := end - time.monotonic()) > 0:
                done, waiting = self._ray.wait(waiting, num_returns=1, timeout=left)
                for task in done:
                    yield self._answer(task, tasks[task])
            for task in waiting:
                yield Answer(tasks[task], code=1, reason="its Ray task did not end in time")
        finally:
            for task in waiting:
                self._ray.cancel(task, force=True)

    def _start(self, job: Job, host: str) -> Any:
        """Start the command of *host* on its node, with all GPUs of the node."""
        scheduling: Any = import_module("ray.util.scheduling_strategies")
        node = self._nodes[host]
        here = scheduling.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        command = Command(tuple(job.command(host)), job.stdin, job.deadline_s)
        task = self._ray.remote(run_command).options(
            num_cpus=min(1.0, node["Resources"].get("CPU", 0.0)),
            num_gpus=node["Resources"].get("GPU", 0.0),
            scheduling_strategy=here,
            max_retries=0,
            name=f"gpuperf fleet {host}",
        )
        return task.remote(host, command)

    def _answer(self, task: Any, host: str) -> Answer:
        try:
            answer: Answer = self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            reason = f"its Ray task failed: {type(error).__name__}: {str(error).splitlines()[0]}"
            return Answer(host, code=1, reason=reason)
        return answer


def _name_of(node: dict[str, Any]) -> str:
    """Return the name of a node: what it was started as, or its host name, or its address."""
    names = (node.get("NodeName"), node.get("NodeManagerHostname"), node.get("NodeManagerAddress"))
    return next((name for name in names if name and is_host(name)), str(node["NodeID"]))
