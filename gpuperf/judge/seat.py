"""Hold the processes of one side, let them run in windows, and read their results from outside."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuperf.errors import CannotMeasure
from gpuperf.judge import tree
from gpuperf.judge.evidence import Failure, IdleTime
from gpuperf.judge.plan import LARGEST_SPREAD
from gpuperf.judge.protocol import ITEM_BYTES, Done, Place, Refused, TensorSpec, Window
from gpuperf.judge.task import Side
from gpuperf.run.connection import LocalConnection
from gpuperf.run.forking import ForkingLauncher, ForkServer
from gpuperf.run.launcher import LocalLauncher

START_S = 120.0  # seconds to import torch, from a slow disk
SEAT, ANSWERS = "gpuperf.judge.inside.seat", "gpuperf.judge.inside.answers"
SLOTS, WEIGHTS, RESULTS = (
    "slots",
    "weights",
    "results",
)  # the files that are shared, in the folder of a seat
SHARED = (f"/{SLOTS}", f"/{WEIGHTS}")
SETTLE_S = 0.1


class Ended(Exception):
    """A worker cannot go on; `failure` and the message say why, and `hint` what to do."""

    def __init__(self, failure: Failure | str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.failure, self.hint = failure, hint


def launch(
    module: str,
    folder: str,
    environment: Mapping[str, str],
    messages: Any,
    debug: bool,
    server: ForkServer | None = None,
) -> LocalConnection:
    """Start a worker of the judge in *folder*, which sees the variables *environment* alone.

    With *server*, it is a fork of a process that has imported torch and runs no submission.
    """
    launcher = LocalLauncher(
        debug=debug, module=module, folder=folder, environment=environment, messages=messages
    )
    return (ForkingLauncher(server, launcher) if server else launcher).start()


def ask(connection: LocalConnection, request: Any, deadline_s: float) -> Any:
    """Send *request*, unless it is None, and return the reply. Raises: Ended."""
    try:
        if request is not None:
            connection.send(request)
        reply = connection.receive(deadline_s)
    except BrokenPipeError:
        reply = None
    except ValueError as error:
        raise Ended("crashed", f"its process wrote what is no message: {error}") from None
    if reply is None:
        raise _end_of(connection, deadline_s)
    if isinstance(reply, Refused):
        kinds = {"oom": "oom", "load": "load", "task": "task", "usage": "usage"}
        raise Ended(kinds.get(reply.kind, "error"), reply.message, reply.hint)
    return reply


def _end_of(connection: LocalConnection, deadline_s: float) -> Ended:
    death = connection.death()
    if death is None:
        return Ended("timeout", f"it did not answer within {deadline_s:g} s")
    if starved := connection.starved():
        return Ended("oom", f"it took too much memory: {starved}")
    words = connection.last_words()
    last = f": {words.splitlines()[-1][:200]}" if words else ""
    return Ended("crashed", f"its process died by {death}{last}")


@dataclass(frozen=True)
class Returned:
    """A window that has ended: its seconds by the clerk's clock, what the seat claims, and the
    processor seconds of its processes."""

    done: Done
    clerk_s: float
    cpu_s: float


@dataclass
class Seat:
    """One side's process with all its descendants, stopped unless a window or a pause runs.

    `check` is called when all have stopped, and raises Ended if they must not go on.
    """

    side: Side
    connection: LocalConnection
    deadline_s: float
    check: Callable[[], None]
    pid: int = 0
    _stopped: list[int] = field(default_factory=list)
    _number: int = 0

    def hello(self) -> None:
        """Wait for the start of the process, once. Raises: Ended."""
        if self.pid:
            return
        ask(self.connection, None, START_S)
        self.pid = tree.child_of(self.connection.guard)

    def ask(self, request: Any) -> Any:
        """Let the seat serve *request* outside a window, and stop it. Raises: Ended."""
        with self._running():
            return ask(self.connection, request, self.deadline_s)

    def timed(self, request: Any) -> float:
        """Let the seat serve *request*, and return the seconds that it takes. Raises: Ended."""
        began = time.perf_counter()
        with self._running():
            ask(self.connection, request, self.deadline_s)
            return time.perf_counter() - began

    def window(self, order: Sequence[int], recorded: bool = False) -> Returned:
        """Let the seat call once on each slot of *order*, back to back. Raises: Ended."""
        self._number += 1
        request = Window(self._number, tuple(order), recorded)
        before = tree.cpu_seconds(self.connection.guard)
        began = time.perf_counter()
        with contextlib.suppress(BrokenPipeError):  # `ask` reports the death
            self.connection.send(request)
        with self._running():
            done = ask(self.connection, None, self.deadline_s)
            clerk_s = time.perf_counter() - began
        self._refuse_other(done, len(order))
        cpu_s = tree.cpu_seconds(self.connection.guard) - before
        return Returned(done, clerk_s, max(0.0, cpu_s))

    def _refuse_other(self, done: Any, calls: int) -> None:
        """Refuse a reply that does not answer the window. Raises: Ended."""
        right = isinstance(done, Done) and done.number == self._number
        if not right or len(done.places) != calls or len(done.claims) != calls:
            raise Ended("crashed", "its process answered another request than the clerk's")
        if not all(math.isfinite(claim) and claim >= 0 for claim in done.claims):
            raise Ended("crashed", "its process claims times that are no times")

    def read(self, place: Place, most: int, aliases: bool) -> tuple[TensorSpec, bytes]:
        """Return a tensor of a result, of *most* bytes, out of the stopped process's memory.

        With *aliases*, it may lie in memory of the inputs. Raises: Refusal, CannotMeasure.
        """
        item = ITEM_BYTES.get(place.dtype, 0)
        sizes = [*place.shape, *place.strides]
        if place.odd or not item or len(place.shape) != len(place.strides):
            raise Refusal(place.odd or f"has the dtype {place.dtype[:40]!r}")
        if any(not 0 <= size < 2**48 for size in sizes):
            raise Refusal("has a shape that no tensor has")
        elements = math.prod(place.shape)
        axes = zip(place.shape, place.strides, strict=True)
        extent = item * (1 + sum((n - 1) * stride for n, stride in axes)) if elements else 0
        if extent > LARGEST_SPREAD * max(most, 64):
            raise Refusal(f"lies in {extent} bytes where {most} are right")
        if not aliases and self._is_shared(place.address):
            raise Refusal("lies in the memory of an input")
        spec = TensorSpec(place.shape, place.strides, place.dtype, 0, extent)
        return spec, self._memory(place.address, extent)

    def _is_shared(self, address: int) -> bool:
        """Return whether *address* lies in a file that the seat shares with the answers' worker."""
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/maps") as maps:  # noqa: PTH123
            for line in maps:
                if line.rstrip().endswith(SHARED):
                    begin, _, end = line.partition(" ")[0].partition("-")
                    if int(begin, 16) <= address < int(end, 16):
                        return True
        return False

    def _memory(self, address: int, count: int) -> bytes:
        try:
            handle = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            hint = "the judge reads results through /proc/PID/mem, which this system forbids"
            raise CannotMeasure(f"a result cannot be read: {error.strerror}", hint) from None
        try:
            parts, begin = [], 0
            while begin < count:
                part = os.pread(handle, count - begin, address + begin)
                if not part:
                    raise Refusal("lies where its process has no memory")
                parts.append(part)
                begin += len(part)
            return b"".join(parts)
        except (OSError, OverflowError):
            raise Refusal("lies where its process has no memory") from None
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        """Let the processes run inside, and stop them. Raises: Ended."""
        tree.resume(self._stopped)
        try:
            yield
        finally:
            self._stop()
        if self.connection.death() is not None:  # no process is below the guard, so none stopped
            raise _end_of(self.connection, self.deadline_s)
        self.check()

    def _stop(self) -> None:
        """Stop the known processes at once, and then all that they have started."""
        tree.pause(self._stopped)
        try:
            tree.stop(self.connection.guard)
        except tree.Unstoppable:
            raise Ended("crashed", "its processes could not be stopped") from None
        self._stopped = [p.pid for p in tree.processes_below(self.connection.guard)]

    def close(self) -> None:
        """End the process and all its descendants."""
        self.connection.kill()


def idle(seats: Sequence[Seat], seconds: float, process: int) -> list[IdleTime]:
    """Let all *seats* run without a request, and observe what each computes after `SETTLE_S`: the
    threads of a library may spin for a while before they sleep."""
    guards = [seat.connection.guard for seat in seats]
    with contextlib.ExitStack() as running:
        for seat in seats:
            running.enter_context(seat._running())
        time.sleep(SETTLE_S)
        before, began = [tree.cpu_seconds(guard) for guard in guards], time.perf_counter()
        time.sleep(seconds)
    passed = time.perf_counter() - began
    after = [tree.cpu_seconds(guard) for guard in guards]
    return [
        IdleTime(process, seat.side, passed, max(0.0, then - now))
        for seat, now, then in zip(seats, before, after, strict=True)
    ]


class Refusal(Exception):
    """A result that cannot be compared; the message says why."""
