"""Start workers as forks of one process that has imported torch, which takes milliseconds.

The server of forks (`measure/fork_server.py`) runs no workload. One serves all sides of a gate:
its forks share the addresses of libraries, so that two servers would differ beside their sides.
Sides that need two servers are spawned, and so is everything where a server cannot fork.

`$GPUPERF_PROCESSES` is `forked` or `spawned`; `CPU_WAY` and `GPU_WAY` are the defaults.
`docs/measured/forked_processes.py` compares how times vary between forks and between spawned
processes: alike on GPUs (32 of each on an H200, thirteen cases), and not known well enough on CPUs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from gpuperf.choices import KEPT, PREFERRED
from gpuperf.errors import CannotMeasure, UnknownName
from gpuperf.model.protocol import Fork, Forked, Ready
from gpuperf.model.record import Started
from gpuperf.run.connection import Ends, LocalConnection
from gpuperf.run.launcher import Launcher, LocalLauncher, Place, start_fork_server
from gpuperf.run.starting import WORKER, SpawnedProcess

WAY = "GPUPERF_PROCESSES"
CPU_WAY: Started = "spawned"
GPU_WAY: Started = "forked"
START_S = 120.0  # seconds to import torch, from a slow disk
FORK_S = 30.0  # seconds to fork a guard
LARGEST = 1 << 20  # bytes of an answer
DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # one of them exists where there is a GPU
# Variables that a place may have: libraries read them when they need a cache, after the fork.
READ_WHEN_USED = frozenset(
    {
        KEPT,
        PREFERRED,
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_EXTENSIONS_DIR",
        "CUDA_CACHE_PATH",
    }
)


def way_for(device: str) -> Started:
    """Return how the workers on *device* (`auto`, `cuda:0`, `cpu`) start, by `$GPUPERF_PROCESSES`
    or by default. Raises: UnknownName."""
    chosen = os.environ.get(WAY, "")
    ways: dict[str, Started] = {"forked": "forked", "spawned": "spawned"}
    if chosen:
        if chosen not in ways:
            raise UnknownName("value of $" + WAY, chosen, ways)
        return ways[chosen]
    return GPU_WAY if may_have_gpu(device) else CPU_WAY


def may_have_gpu(device: str) -> bool:
    """Return whether *device* may be a GPU; this opens none."""
    return device not in ("cpu", "auto") or (
        device == "auto" and any(Path(driver).exists() for driver in DRIVERS)
    )


class ForkServer:
    """The server of forks for workers at *places*; it starts with the first worker.

    With *debug*, its output is shown. With *ahead*, it imports what a GPU's recorder needs. It also
    imports *modules*, and sees the variables *environment* alone (None: those of this process).
    *meanwhile* is called while it imports torch.
    """

    def __init__(
        self,
        places: Sequence[Place | None],
        debug: bool = False,
        ahead: bool = False,
        say: Callable[[str], None] = lambda text: None,
        modules: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        self._meanwhile = meanwhile
        self._places, self._debug, self._ahead, self._say = places, debug, ahead, say
        self._modules, self._environment = modules, environment
        self._process: SpawnedProcess | None = None
        self._socket: socket.socket | None = None
        self._refused: str | None = None

    def refused(self) -> str:
        """Return why the workers are not forked; empty if they are."""
        if self._refused is None:
            self._refused = _unlike(self._places) or self._start()
            if self._refused:
                self._say(f"each process imports torch on its own: {self._refused}")
                self.close()
        return self._refused

    def fork(self, request: Fork, ends: Ends) -> ForkedProcess:
        """Fork a guard with its worker. Raises: CannotMeasure if the server ends twice."""
        for _ in range(2):
            with contextlib.suppress(OSError, EOFError):
                return self._fork(request, ends)
            self.close()
            if self._start():
                break
        hint = f"{WAY}=spawned starts each worker on its own"
        raise CannotMeasure("the process that forks workers has ended", hint)

    def close(self) -> None:
        """End the server; its forks end with it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _start(self) -> str:
        """Start the server; return why it cannot fork, and nothing if it can."""
        if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
            return "this system has no pidfd"
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        first = self._places[0]
        with tempfile.TemporaryFile() as log:
            with theirs:
                self._process = start_fork_server(
                    theirs.fileno(),
                    sys.stderr if self._debug else log,
                    Place(first.python) if first else None,
                    self._ahead,
                    self._modules,
                    self._environment,
                )
            self._meanwhile()
            try:
                self._socket.settimeout(START_S)
                ready = msgspec.json.decode(self._socket.recv(LARGEST), type=Ready)
            except (OSError, msgspec.DecodeError):
                log.seek(0)
                last = log.read().decode("utf-8", "replace").strip().splitlines()[-1:]
                why = f": {last[0][:200]}" if last else ""
                return f"the process that forks them did not start{why}"
        return ready.refused or _shadowed(self._places, ready.packages)

    def _fork(self, request: Fork, ends: Ends) -> ForkedProcess:
        if self._socket is None:
            raise EOFError
        output = sys.stderr if self._debug else ends.log
        self._socket.settimeout(FORK_S)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                given = [theirs.fileno(), ends.requests, ends.replies, output.fileno()]
                socket.send_fds(self._socket, [msgspec.json.encode(request)], given)
            answer, descriptors, _, _ = socket.recv_fds(self._socket, LARGEST, 1)
            if not descriptors:
                raise EOFError
        except BaseException:
            ours.close()
            raise
        pid = msgspec.json.decode(answer, type=Forked).pid
        return ForkedProcess(pid, descriptors[0], ours)


@dataclass
class ForkedProcess:
    """A guard that the server of forks has forked, which this process watches by a pidfd.

    Its own exit code is unknown; that of the worker is in its report. A guard without a report was
    killed.
    """

    pid: int
    pidfd: int
    control: socket.socket | None
    _closed: bool = field(default=False, init=False)

    def poll(self) -> int | None:
        """Return the exit code, a signal below 0; None while the process lives."""
        return -signal.SIGKILL if self._closed or self._ends_within(0.0) else None

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the exit code. Raises: subprocess.TimeoutExpired."""
        if not self._closed and not self._ends_within(timeout_s):
            raise subprocess.TimeoutExpired("a guard", timeout_s or 0.0)
        return -signal.SIGKILL

    def kill(self) -> None:
        """Kill the guard, whose group has no other member, and wait for its end."""
        if not self._closed:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            self._ends_within(None)
            self._closed = True
            os.close(self.pidfd)

    def _ends_within(self, timeout_s: float | None) -> bool:
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))


@dataclass(frozen=True)
class ForkingLauncher:
    """A launcher whose workers *server* forks, or `spawning` spawns where it cannot."""

    server: ForkServer
    spawning: LocalLauncher

    def start(self) -> LocalConnection:
        """Start a worker in a new session. Raises: CannotMeasure."""
        if self.server.refused():
            return self.spawning.start()
        spawning = self.spawning
        place = spawning.place or Place(
            folder=spawning.folder or ".", environment=spawning.environment
        )
        request = Fork(
            str(Path(place.folder).absolute()),
            place.paths,
            place.kernels,
            dict(place.environment),
            spawning.memory_bytes,
            "" if spawning.module == WORKER else spawning.module,
        )
        return LocalConnection(partial(self.server.fork, request), spawning.messages)


@contextlib.contextmanager
def launching(
    launchers: Sequence[LocalLauncher],
    device: str,
    say: Callable[[str], None] = lambda text: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Launcher, ...]]:
    """Provide launchers for the same workers on *device* as *launchers*, forked where that is the
    way there; *say* is called with the reason if they cannot be, *meanwhile* while their server
    imports torch. Raises: UnknownName."""
    if way_for(device) == "spawned":
        yield tuple(launchers)
        return
    debug = any(each.debug for each in launchers)
    places, ahead = [each.place for each in launchers], may_have_gpu(device)
    server = ForkServer(places, debug, ahead, say, meanwhile=meanwhile)
    try:
        yield tuple(ForkingLauncher(server, each) for each in launchers)
    finally:
        server.close()


def _unlike(places: Sequence[Place | None]) -> str:
    """Return why one server cannot fork the workers of all *places*; empty if it can."""
    if len({place.python if place else sys.executable for place in places}) > 1:
        return "the sides have two interpreters"
    for place in places:
        others = (place.environment if place else {}).keys() - READ_WHEN_USED
        if others:
            return f"the sides set {', '.join(sorted(others))}"
    return ""


def _shadowed(places: Sequence[Place | None], packages: Mapping[str, str]) -> str:
    """Return which of the *packages* that the server has imported, each from its file, a place has
    itself, if any."""
    for folder in {Path(path) for place in places if place for path in place.paths}:
        for name, imported in packages.items():
            files = [folder / name / "__init__.py", folder / f"{name}.py"]
            files += folder.glob(f"{name}.*.so")
            if any(file.exists() and str(file) != imported for file in files):
                return f"{folder} has {name}, which the workers would have from elsewhere"
    return ""
