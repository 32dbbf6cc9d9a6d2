"""Make the supervisor of local workers that a verb asks for by its options."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack

from gpuperf.errors import CannotMeasure
from gpuperf.run.forking import launching
from gpuperf.run.gang import GangLauncher
from gpuperf.run.launcher import Launcher, LocalLauncher
from gpuperf.run.supervisor import DEADLINE_S, Supervisor
from gpuperf.verb.progress import say

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def make_supervisor(
    device: str,
    deadline_s: float = DEADLINE_S,
    threads: int | None = None,
    meanwhile: Callable[[], None] = lambda: None,
    processes: int = 1,
    world: int = 1,
) -> Supervisor:
    """Make a supervisor of local workers, which compute with *threads* on a CPU; each is a gang of
    *world* processes.

    With more than one of *processes* the workers are forked where that is the way on the device.
    *meanwhile* is called while the first worker starts. `--debug` shows what the workers print.
    Raises: CannotMeasure for *threads* on a GPU; UsageError for an unknown way.
    """
    # Workers inherit these variables, which a library reads once, when it is loaded.
    os.environ.update({name: str(threads) for name in THREAD_VARIABLES} if threads else {})
    local, held = LocalLauncher(bool(os.environ.get("GPUPERF_DEBUG"))), ExitStack()
    launcher: Launcher = local
    if processes > 1:
        (launcher,) = held.enter_context(launching([local], device, say, meanwhile))
    if world > 1:
        launcher = GangLauncher(launcher, world)
    supervisor = Supervisor(launcher, device, deadline_s, meanwhile=meanwhile, at_exit=held.close)
    if threads is not None and (facts := supervisor.open().device).kind != "cpu":
        raise CannotMeasure(
            f"--threads is for a CPU, and the device is {facts.name}", "--device cpu, or leave it"
        )
    return supervisor
