"""Start workers of a gang on other hosts, through agents that wait for them in a lobby.

The supervisor's host listens, and the agents connect to it: an agent does what the host does that
its own command line names, and no other. Whoever reaches the port and has the token can pose as a
rank, as with torchrun's rendezvous, so the port belongs on a network of trusted hosts.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from gpuperf.errors import CannotMeasure
from gpuperf.model.protocol import (
    PROTOCOL,
    Began,
    Dismiss,
    FromAgent,
    FromWorker,
    Join,
    Left,
    Look,
    Seen,
    Start,
    Stop,
    ToWorker,
)
from gpuperf.model.text import clean
from gpuperf.run.link import Link

WAIT_S = 120.0  # seconds for the agents to join, as for a worker to start
HELLO_S = 5.0  # seconds for a new connection to say who it is
BEGIN_S = 30.0  # seconds for an agent to end a worker and to start another
LOOK_S = 4.0  # seconds for an agent to report the stack of its worker
LONGEST_HOST = 253  # characters of a name in DNS
GONE = "the end of the connection to its host"


@dataclass(frozen=True)
class Rendezvous:
    """Where the hosts of a gang meet: the address and the port of the first host, and the token
    that all of them share. Agents join within `wait_s` seconds."""

    address: str
    port: int
    token: str
    wait_s: float = WAIT_S

    @property
    def is_here(self) -> bool:
        """Whether the address is that of the loopback, so that all hosts are this machine."""
        try:
            return socket.gethostbyname(self.address).startswith("127.")
        except OSError:
            return False


@dataclass
class Lobby:
    """The agents of *ranks*, which have connected at *meeting* or are awaited there."""

    meeting: Rendezvous
    ranks: Collection[int]
    links: dict[int, Link] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = ("127.0.0.1" if self.meeting.is_here else "", self.meeting.port)
        try:
            self._listener = socket.create_server(where, backlog=max(16, len(self.ranks)))
        except OSError as error:
            raise CannotMeasure(
                f"the hosts cannot meet at port {self.meeting.port}: {error.strerror}",
                "choose a free port of the first host",
            ) from None

    def link(self, rank: int) -> Link:
        """Return the connection to the agent of *rank*, once it has joined. Raises: CannotMeasure
        if it does not."""
        end = time.monotonic() + self.meeting.wait_s
        while rank not in self.links or self.links[rank].closed:
            left = end - time.monotonic()
            if left <= 0:
                raise CannotMeasure(
                    f"rank {rank} did not join within {self.meeting.wait_s:g} s",
                    f"does its host reach {self.meeting.address}, port {self.meeting.port}?",
                )
            self._listener.settimeout(left)
            with contextlib.suppress(TimeoutError):
                self._admit(Link(self._listener.accept()[0], FromAgent))
        return self.links[rank]

    def _admit(self, link: Link) -> None:
        """Keep *link* if it is of an agent that is expected, and close it otherwise."""
        with contextlib.suppress(ValueError):
            join = link.receive(HELLO_S)
            known = isinstance(join, Join) and join.token == self.meeting.token
            if known and join.rank in self.ranks and join.protocol == PROTOCOL:
                self.links[join.rank] = link
                self.hosts[join.rank] = clean(join.host)[:LONGEST_HOST]
                return
        link.close()

    def place(self) -> str:
        """Return `ADDRESS:PORT` of this host, where a new gang can meet: the port is free now."""
        with socket.create_server(("", 0)) as probe:
            address = self.meeting.address
            bracketed = f"[{address}]" if ":" in address else address
            return f"{bracketed}:{probe.getsockname()[1]}"

    def close(self) -> None:
        """Dismiss all agents, and listen no more."""
        for link in self.links.values():
            with contextlib.suppress(BrokenPipeError):
                link.send(Dismiss())
            link.close()
        self._listener.close()


@dataclass(frozen=True)
class RemoteLauncher:
    """A launcher of the worker *rank* of a gang by its agent, which is or will be in *lobby*."""

    lobby: Lobby
    rank: int

    def start(self) -> RemoteConnection:
        """Start a worker. Raises: CannotMeasure where the agent does not join or answer."""
        link = self.lobby.link(self.rank)
        with contextlib.suppress(BrokenPipeError):
            link.send(Start())
        end = time.monotonic() + BEGIN_S
        while not link.closed and (left := end - time.monotonic()) > 0:
            with contextlib.suppress(ValueError):  # messages of the worker before
                if isinstance(link.receive(left), Began):
                    return RemoteConnection(link, self.lobby.hosts[self.rank])
        raise CannotMeasure(
            f"the agent of rank {self.rank} on {self.lobby.hosts[self.rank]} starts no worker",
            "what did its command print?",
        )


class RemoteConnection:
    """The connection to a worker on another host, through *link*."""

    name = "the worker"

    def __init__(self, link: Link, host: str) -> None:
        self.host = host
        self._link = link
        self._left: Left | None = None

    def send(self, message: ToWorker) -> None:
        """Send *message*. Raises: BrokenPipeError when the worker is gone."""
        self._link.send(message)

    def receive(self, timeout_s: float) -> FromWorker | None:
        """Return the next message; None if none came in time or the worker is dead.

        Raises: ValueError for bytes that are not a message.
        """
        if self._left is not None:
            return None
        message = self._link.receive(timeout_s)
        if isinstance(message, Left):
            self._left = message
            return None
        if isinstance(message, Join | Began | Seen):
            raise ValueError("its agent begins anew, unasked")
        return message  # type: ignore[no-any-return]

    def stack(self) -> str:
        """Return the stack of the worker; empty if it does not write one in time."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._link.send(Look())
            end = time.monotonic() + LOOK_S
            while (left := end - time.monotonic()) > 0 and not self._link.closed:
                message = self._link.receive(left)
                if isinstance(message, Seen):
                    return message.stack
        return ""

    def death(self) -> str | None:
        """Describe how the worker ended; None while it lives."""
        if self._left is not None:
            return clean(self._left.death)
        return GONE if self._link.closed else None

    def starved(self) -> str:
        """Describe the memory that the worker took, if it was killed for that; else nothing."""
        return clean(self._left.starved) if self._left else ""

    def last_words(self) -> str:
        """Return the last lines that the worker printed."""
        lines = self._left.last_words.splitlines() if self._left else []
        return "\n".join(map(clean, lines))

    def dismiss(self) -> None:
        """Do nothing: `kill` does not wait either."""

    def kill(self) -> None:
        """Have the agent end the worker; the connection to the agent remains."""
        with contextlib.suppress(BrokenPipeError):
            self._link.send(Stop())
