"""Drive the workers of a gang, one a device, as if they were one worker.

A message goes to every rank, and all ranks answer or the case fails: a rank that dies, is silent
past the deadline, or ends the case alone ends the whole gang, and its number is in the reason.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gpuperf.model.protocol import (
    Describe,
    Examine,
    Expect,
    FromWorker,
    Hello,
    Loaded,
    Open,
    Progress,
    Survey,
    Timed,
    ToWorker,
)
from gpuperf.run.answers import combined, has_failed, named
from gpuperf.run.connection import Connection
from gpuperf.run.launcher import Launcher
from gpuperf.run.lobby import RemoteConnection, RemoteLauncher
from gpuperf.run.stacks import Place, innermost, written_stacks

POLL_S = 0.005  # between two looks at the ranks
GRACE_S = 2.0  # for the other ranks to answer too, after one of them has failed
OF_ONE = (
    Describe | Examine | Expect | Loaded | Survey
)  # requests that concern no device but the first


@dataclass(frozen=True)
class GangLauncher:
    """A launcher of gangs: *world* workers of *launcher*, behind one connection.

    A gang of several hosts also has a worker of each launcher in `remote`; `host` is then the name
    of this host.
    """

    launcher: Launcher
    world: int
    remote: Sequence[RemoteLauncher] = ()
    host: str = ""

    def start(self) -> GangConnection:
        """Start every worker, and a folder in which they meet."""
        ranks: list[Connection] = []
        folder = Path(tempfile.mkdtemp(prefix="gpuperf-gang-"))
        try:
            for launcher in (*[self.launcher] * self.world, *self.remote):
                ranks.append(launcher.start())
        except BaseException:
            for rank in ranks:
                rank.kill()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if not self.remote:
            return GangConnection(ranks, folder)
        remote = {i: c.host for i, c in enumerate(ranks) if isinstance(c, RemoteConnection)}
        hosts = tuple(remote.get(rank, self.host) for rank in range(len(ranks)))
        return GangConnection(ranks, folder, hosts, self.remote[0].lobby.place())


@dataclass
class GangConnection:
    """The connection to the workers *ranks*, which meet in *folder*.

    In a gang of several hosts, `hosts` names the host of each rank, and they meet at `meeting`.
    """

    ranks: Sequence[Connection]
    folder: Path
    hosts: tuple[str, ...] = ()
    meeting: str = ""
    _pids: dict[int, int] = field(default_factory=dict)
    _answers: dict[int, FromWorker] = field(default_factory=dict)
    _pending: set[int] = field(default_factory=set)
    _heard: dict[int, float] = field(default_factory=dict)
    _failed_at: float | None = None
    _culprit: int | None = None
    _silent: str = ""
    _ended: str = ""

    def __post_init__(self) -> None:
        self._expect(range(len(self.ranks)))

    @property
    def name(self) -> str:
        """The rank that ended the gang, or that is silent; the gang itself if none is known."""
        if self._silent:
            return self._silent
        if self._culprit is None:
            return "the gang"
        on = f" on {self.hosts[self._culprit]}" if self.hosts else ""
        return f"rank {self._culprit}{on}"

    def send(self, message: ToWorker) -> None:
        """Send *message* to every rank that it concerns. Raises: BrokenPipeError."""
        chosen = range(1 if isinstance(message, OF_ONE) else len(self.ranks))
        self._expect(chosen)
        for rank in chosen:
            own = message
            if isinstance(message, Open):
                own = self._placed(message, rank)
            try:
                self.ranks[rank].send(own)
            except BrokenPipeError:
                self._culprit = rank
                raise

    def _placed(self, message: Open, rank: int) -> Open:
        """Return *message* with the place of *rank*; an agent adds its place on another host."""
        hosts = self.hosts or ("",) * len(self.ranks)
        return msgspec.structs.replace(
            message,
            rank=rank,
            world=len(self.ranks),
            folder=str(self.folder),
            local_rank=rank,  # the ranks of the first host are the first ones
            local_world=hosts.count(hosts[0]),
            host=hosts[rank],
            hosts=len(set(hosts)),
            meeting=self.meeting,
        )

    def _expect(self, ranks: Sequence[int]) -> None:
        now = time.monotonic()
        self._answers, self._pending = {}, set(ranks)
        self._heard, self._failed_at = dict.fromkeys(ranks, now), None

    def receive(self, timeout_s: float) -> FromWorker | None:
        """Return progress of the first rank, or the answer of all ranks together.

        Return None if a rank is dead, or was silent for *timeout_s*. Raises: ValueError for bytes
        of a rank that are not a message.
        """
        while self._pending:
            progress = None
            for rank in sorted(self._pending):
                message = self._next(rank)
                if message is not None and self._takes(rank, message):
                    progress = message
                if message is None and self.ranks[rank].death() is not None:
                    self._culprit = rank
                    return None
            now = time.monotonic()
            if self._failed_at is not None and now - self._failed_at > GRACE_S:
                return self._end_alone()
            if any(now - self._heard[rank] > timeout_s for rank in self._pending):
                self._silent = self._name_silent(now, timeout_s)
                return None
            if progress is not None:
                return progress
            if self._pending:
                time.sleep(POLL_S)
        return combined(self._answers, len(self.ranks))

    def _next(self, rank: int) -> FromWorker | None:
        try:
            message = self.ranks[rank].receive(0.0)
        except ValueError:
            self._culprit = rank
            raise
        if message is not None:
            self._heard[rank] = time.monotonic()
        return message

    def _takes(self, rank: int, message: FromWorker) -> bool:
        """Keep the answer of *rank*; return whether *message* is progress to report."""
        if isinstance(message, Progress):
            return rank == 0
        if isinstance(message, Timed):
            return False
        if isinstance(message, Hello) and not isinstance(self.ranks[rank], RemoteConnection):
            self._pids[rank] = message.pid
        self._answers[rank] = message
        self._pending.discard(rank)
        if has_failed(message):
            self._failed_at = self._failed_at or time.monotonic()
        return False

    def _end_alone(self) -> FromWorker:
        """Return the answer of the ranks that failed alone; the others wait for them in vain."""
        failed = [rank for rank, answer in self._answers.items() if has_failed(answer)]
        self._culprit, self._ended = failed[0], "the end of the case, before the other ranks"
        self._pending = set()
        return combined(self._answers, len(self.ranks))

    def death(self) -> str | None:
        """Describe how the first dead rank ended; None while all live."""
        dead = [rank for rank, worker in enumerate(self.ranks) if worker.death() is not None]
        if not dead:
            return self._ended or None
        if self._culprit not in dead:
            self._culprit = dead[0]
        return self.ranks[self._culprit or 0].death()

    def starved(self) -> str:
        """Describe the memory that the dead rank took, if it was killed for that."""
        return self.ranks[self._culprit].starved() if self._culprit is not None else ""

    def last_words(self) -> str:
        """Return the last lines that the dead rank printed."""
        return self.ranks[self._culprit or 0].last_words()

    def dismiss(self) -> None:
        """Begin to kill every rank."""
        for worker in self.ranks:
            worker.dismiss()

    def kill(self) -> None:
        """Kill every rank, and delete the folder."""
        self.dismiss()
        for worker in self.ranks:
            worker.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _name_silent(self, now: float, timeout_s: float) -> str:
        """Name the ranks that the others wait for, with the line that each executes.

        A rank that waits in a collective or for its device is not at fault, unless all do.
        """
        pending = sorted(self._pending)
        # Ranks that stopped together reported last within a fraction of the deadline.
        quiet = [rank for rank in pending if now - self._heard[rank] > timeout_s / 2]
        places = self._places()
        if not places:
            return named(quiet)
        known = {rank: places.get(rank) for rank in pending}
        late = [rank for rank, place in known.items() if place is None or not place.waits] or quiet
        lines = dict.fromkeys(str(known[rank] or "no answer") for rank in late)
        return f"{named(late)} ({'; '.join(lines)})"

    def _places(self) -> dict[int, Place | None]:
        """Ask every rank for its stack; None for one that does not write it."""
        stacks = written_stacks(self._pids, self.folder)
        for rank, worker in enumerate(self.ranks) if stacks else ():
            if isinstance(worker, RemoteConnection):
                stacks[rank] = worker.stack()
        return {rank: innermost(stack) for rank, stack in stacks.items()}
