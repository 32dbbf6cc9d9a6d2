"""Serve the supervisor of a gang on another host: start a worker here, and relay its messages.

The agent connects to the first host of the gang, and ends when that host dismisses it. If the
connection ends otherwise, it ends its worker and says so.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuperf.errors import CannotMeasure
from gpuperf.model.protocol import (
    PROTOCOL,
    Began,
    Dismiss,
    Hello,
    Join,
    Left,
    Look,
    Open,
    Seen,
    Start,
    Stop,
    ToAgent,
)
from gpuperf.run.connection import Connection
from gpuperf.run.launcher import Launcher
from gpuperf.run.link import Link
from gpuperf.run.lobby import Rendezvous
from gpuperf.run.stacks import written_stacks

POLL_S = 0.005  # seconds between two looks at the supervisor and the worker
AGAIN_S = 0.2  # seconds between two attempts to connect
CONNECT_S = 5.0


@dataclass(frozen=True)
class Post:
    """The rank that an agent serves: *local_rank* of *local_world* on the host *host*."""

    rank: int
    host: str
    local_rank: int = 0
    local_world: int = 1


def serve(posts: Sequence[Post], meeting: Rendezvous, launcher: Launcher) -> None:
    """Run the workers of *posts* for the supervisor at *meeting*, until it dismisses them.

    Raises: CannotMeasure where the supervisor is not reached, or the connection to it ends.
    """
    agents: list[Agent] = []
    try:
        for post in posts:
            agents.append(Agent(post, _connect(post, meeting), launcher))
        while not all(agent.dismissed for agent in agents):
            for agent in agents:
                agent.step()
            time.sleep(POLL_S)
    finally:
        for agent in agents:
            agent.stop()
            agent.link.close()


def _connect(post: Post, meeting: Rendezvous) -> Link:
    end = time.monotonic() + meeting.wait_s
    while True:
        try:
            connected = socket.create_connection((meeting.address, meeting.port), CONNECT_S)
            break
        except OSError as error:
            if time.monotonic() >= end:
                raise CannotMeasure(
                    f"the first host of the gang cannot be reached at {meeting.address}, port "
                    f"{meeting.port}: {error.strerror or error}",
                    "did its command start, and is the port open?",
                ) from None
        time.sleep(AGAIN_S)
    link = Link(connected, ToAgent)
    link.send(Join(PROTOCOL, meeting.token, post.rank, post.host))
    return link


@dataclass
class Agent:
    """The worker of one rank, if there is one, and the connection to the supervisor."""

    post: Post
    link: Link
    launcher: Launcher
    dismissed: bool = False
    _worker: Connection | None = None
    _folder: Path | None = None
    _pid: int = 0

    def step(self) -> None:
        """Relay all messages that have arrived. Raises: CannotMeasure if the connection ended."""
        if self.dismissed:
            return
        try:
            while (request := self.link.receive(0.0)) is not None:
                self._obey(request)
            while not self.dismissed and self._relay():
                pass
        except (ValueError, BrokenPipeError):
            self.link.close()
        if self.link.closed and not self.dismissed:
            raise CannotMeasure(
                f"the connection of rank {self.post.rank} to the first host of the gang ended",
                "what did the command of the first host print?",
            )

    def _obey(self, request: ToAgent) -> None:
        if isinstance(request, Dismiss):
            self.stop()
            self.dismissed = True
        elif isinstance(request, Stop):
            self.stop()
        elif isinstance(request, Look):
            self.link.send(Seen(self._stack()))
        elif isinstance(request, Start):
            self.stop()
            self._worker = self.launcher.start()
            self._folder = Path(tempfile.mkdtemp(prefix="gpuperf-gang-"))
            self.link.send(Began())
        elif self._worker is not None:
            if isinstance(request, Open):
                request = self._placed(request)
            try:
                self._worker.send(request)
            except BrokenPipeError:
                self._report_end(self._worker.death() or "a closed pipe")

    def _stack(self) -> str:
        pids = {self.post.rank: self._pid} if self._pid else {}
        stacks = written_stacks(pids, self._folder) if self._folder else {}
        return stacks.get(self.post.rank, "")

    def _placed(self, request: Open) -> Open:
        """Return *request* with the place of the worker on this host."""
        return msgspec.structs.replace(
            request,
            folder=str(self._folder),
            local_rank=self.post.local_rank,
            local_world=self.post.local_world,
            host=self.post.host,
        )

    def _relay(self) -> bool:
        """Send the next message of the worker, or its death; return False if there is neither."""
        if self._worker is None:
            return False
        try:
            message = self._worker.receive(0.0)
        except ValueError as error:
            self._report_end(f"an answer that cannot be read: {error}")
            return False
        if isinstance(message, Hello):
            self._pid = message.pid
        if message is not None:
            self.link.send(message)
        elif (death := self._worker.death()) is not None:
            self._report_end(death)
        return message is not None

    def _report_end(self, death: str) -> None:
        """Report why the worker cannot go on, and end what remains of it."""
        worker = self._worker
        assert worker is not None
        self.link.send(Left(death, worker.starved(), worker.last_words()))
        self.stop()

    def stop(self) -> None:
        """End the worker, and delete its folder."""
        worker, self._worker, self._pid = self._worker, None, 0
        if worker is not None:
            worker.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
