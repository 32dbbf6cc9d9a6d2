"""Start worker processes.

A `Launcher` hands over messages, not file descriptors, so that workers can run elsewhere later. A
local worker runs under a guard (`measure/guard.py`), which ends its descendants. `forking.py` has
another launcher of local workers.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from gpuperf.model.protocol import FromWorker
from gpuperf.run.connection import Connection, Ends, LocalConnection
from gpuperf.run.starting import MEASURE, WORKER, SpawnedProcess, start_guarded, taken, worker_here


class Launcher(Protocol):
    """The interface of a launcher: `start` returns the connection to a new worker."""

    def start(self) -> Connection:
        """Start a worker, whose first message is Hello."""


@dataclass(frozen=True)
class Place:
    """A place whose code a worker of this gpuperf measures, such as another commit.

    `python` is its interpreter and `folder` its working folder. Modules in `paths` come before
    installed ones. `kernels` is the folder of `gpuperf.kernels` (empty: that of this gpuperf).
    `environment` holds the variables that differ.
    """

    python: str = sys.executable
    folder: str = "."
    paths: tuple[str, ...] = ()
    kernels: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, module: str) -> list[str]:
        """Return the command that runs *module* of gpuperf there."""
        packages = {name: _folder(name) for name in OURS}
        if self.kernels:
            packages["gpuperf.kernels"] = self.kernels
            packages["gpuperf.kernels.cuda"] = str(Path(self.kernels).parent / "cuda")
        places = {
            "paths": self.paths,
            "packages": packages,
            "fallbacks": {name: _folder(name) for name in NEEDED},
            "module": module,
        }
        bootstrap = str(MEASURE / "bootstrap.py")
        return [self.python, "-P", bootstrap, json.dumps(places)]


OURS = ("gpuperf", "gpuperf.kernels", "gpuperf.kernels.cuda", "gpuperf.configs")
NEEDED = ("msgspec", "pynvml")  # packages that a worker needs besides torch


def _folder(name: str) -> str:
    """Return the folder or the file of the module *name* without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return ""
    return next(iter(spec.submodule_search_locations or ()), spec.origin or "")


@dataclass(frozen=True)
class LocalLauncher:
    """A launcher of workers on this machine, which run the code of `place` if one is given.

    With `debug`, their output is shown. With `ahead`, they import slow modules before they say
    hello. A worker and its children may take `memory_bytes`; 0 means nearly all memory. The worker
    runs `module` in `folder`, with no other variables than `environment` if there are some, and
    sends `messages` of this type.
    """

    debug: bool = False
    place: Place | None = None
    ahead: bool = False
    memory_bytes: int = 0
    module: str = WORKER
    folder: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    messages: Any = FromWorker

    def start(self) -> LocalConnection:
        """Start a worker in a new session, or take the one that the command line has begun."""
        begun = taken() if self == LocalLauncher() else None
        if begun is not None:
            pipes, process = begun
            return LocalConnection(lambda ends: process, self.messages, pipes)
        return LocalConnection(partial(_start_guard, self), self.messages)


def start_program(stdout: int) -> LocalConnection:
    """Start the process of a program, whose stdout is the descriptor *stdout*.

    It has this process's stdin and stderr.
    """
    return LocalConnection(partial(_start_program, stdout))


def worker_command(place: Place | None, module: str = WORKER) -> list[str]:
    """Return the command that runs *module* at *place*."""
    return place.command(module) if place else worker_here(module)


def _start_guard(launcher: LocalLauncher, ends: Ends) -> SpawnedProcess:
    """Start a guard, which starts the worker."""
    place = launcher.place
    ahead = ["--ahead"] if launcher.ahead else []
    return start_guarded(
        [*worker_command(place, launcher.module), *ahead],
        (ends.requests, ends.replies),
        sys.stderr if launcher.debug else ends.log,
        launcher.memory_bytes,
        place.folder if place else launcher.folder,
        _environment(launcher),
    )


def _environment(launcher: LocalLauncher) -> dict[str, str] | None:
    """Return the variables of a worker; None for those of this process."""
    if launcher.environment:
        return dict(launcher.environment)
    place = launcher.place
    return {**os.environ, **place.environment} if place and place.environment else None


def start_fork_server(
    control: int,
    output: IO[Any],
    place: Place | None,
    ahead: bool,
    modules: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> SpawnedProcess:
    """Start the server of forks, with the interpreter of *place*, which answers on *control*.

    With *ahead*, it imports slow modules before it is ready, and *modules* in any case. It sees the
    variables *environment* alone; None means those of this process.
    """
    process = subprocess.Popen(
        [
            *worker_command(place, "gpuperf.measure.fork_server"),
            *(["--ahead"] if ahead else []),
            *(f"--import={module}" for module in modules),
            f"--control={control}",
            f"--parent={os.getpid()}",
        ],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(control,),
        start_new_session=True,
        env=None if environment is None else dict(environment),
    )
    return SpawnedProcess(process)


def _start_program(stdout: int, ends: Ends) -> SpawnedProcess:
    """Start the process that runs a program, with our stdin and stderr."""
    quiet = {} if "KINETO_LOG_LEVEL" in os.environ else {"KINETO_LOG_LEVEL": "99"}
    process = subprocess.Popen(  # otherwise torch's profiler writes to the program's stderr
        [
            sys.executable,
            "-P",
            "-m",
            "gpuperf.profile.inside.program",
            f"--requests={ends.requests}",
            f"--replies={ends.replies}",
            f"--parent={os.getpid()}",
        ],
        stdout=stdout,
        pass_fds=(ends.requests, ends.replies),
        start_new_session=True,
        env={**os.environ, **quiet},
    )
    return SpawnedProcess(process)
