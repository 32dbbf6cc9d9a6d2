"""Do the ranks of a gang on two hosts answer as one, each with the name of its host?

The hosts are two processes of this machine, which meet on the loopback.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ranked

from gpuperf.errors import CannotMeasure
from gpuperf.model.contract import Contract
from gpuperf.model.protocol import PROTOCOL, FromAgent, Join
from gpuperf.model.record import Record
from gpuperf.model.workload import Case
from gpuperf.run.agent import Post, serve
from gpuperf.run.gang import GangLauncher
from gpuperf.run.launcher import LocalLauncher
from gpuperf.run.link import Link
from gpuperf.run.lobby import Lobby, RemoteLauncher, Rendezvous
from gpuperf.run.supervisor import Supervisor

SOURCE = str(Path(ranked.__file__))
# Twelve samples however slow the machine is: the bad rank misbehaves at its tenth call.
CONTRACT = Contract(
    "wall", gap_s=0.0, budget_s=30.0, min_samples=12, max_samples=12, warmup_calls=0
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def meeting_at(port: int, wait_s: float = 60.0, token: str = "a token") -> Rendezvous:
    return Rendezvous("127.0.0.1", port, token, wait_s)


class Serving(threading.Thread):
    """An agent in a thread of this process, and how it ended."""

    def __init__(self, meeting: Rendezvous, posts: tuple[Post, ...]) -> None:
        super().__init__(daemon=True)
        self.meeting, self.posts = meeting, posts
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            serve(self.posts, self.meeting, LocalLauncher())
        except CannotMeasure as error:
            self.error = error


@contextlib.contextmanager
def two_hosts(each: int = 1, deadline_s: float = 60.0) -> Iterator[tuple[Supervisor, Serving]]:
    """A gang of *each* ranks on `left` and on `right`."""
    meeting = meeting_at(free_port())
    lobby = Lobby(meeting, range(each, 2 * each))
    posts = tuple(Post(each + i, "right", i, each) for i in range(each))
    agent = Serving(meeting, posts)
    remote = [RemoteLauncher(lobby, post.rank) for post in posts]
    gang = GangLauncher(LocalLauncher(), each, remote, "left")
    with Supervisor(gang, "cpu", deadline_s, at_exit=lobby.close) as supervisor:
        yield supervisor, agent
    agent.join(30)
    assert not agent.is_alive()


def measure(supervisor: Supervisor, name: str, deadline_s: float = 60.0) -> Record:
    world = len(supervisor.open().devices)
    supervisor.deadline_s = deadline_s
    case = Case("ranked", name, {"n": 64, "dtype": "fp32", "world": world}, {}, SOURCE)
    return supervisor.measure("r", case, CONTRACT, 0)


def assert_good(record: Record) -> None:
    assert (record.status, record.reason) == ("ok", "")
    assert (record.world, record.devices) == (2, (0, 0))
    assert [(times.rank, times.host) for times in record.ranks] == [(0, "left"), (1, "right")]
    whole = record.times["eager"].values_s
    own = [times.times["eager"].values_s for times in record.ranks]
    assert whole == tuple(map(max, zip(*own, strict=True)))


def test_each_rank_knows_its_host_and_a_failing_rank_is_named_with_it() -> None:
    with two_hosts() as (gang, agent):
        opened = gang.open()
        assert (opened.devices, opened.hosts) == ((0, 0), ("left", "right"))
        assert (opened.fingerprint.hard["world"], opened.fingerprint.hard["hosts"]) == (2, 2)
        assert_good(measure(gang, "good"))
        died = measure(gang, "dies")
        assert died.status == "crashed"
        assert died.reason.startswith("rank 1 on right died by signal 9 (SIGKILL)")
        wrong = measure(gang, "wrong")
        assert (wrong.status, wrong.times) == ("wrong", {})
        hung = measure(gang, "hangs", 3.0)
        assert hung.status == "timeout"
        assert hung.reason.startswith("rank 1 (in fall_silent, ranked.py line ")
        assert_good(measure(gang, "good"))
    assert agent.error is None


def test_two_hosts_with_two_ranks_each_are_a_gang_of_four() -> None:
    with two_hosts(2) as (gang, _):
        record = measure(gang, "good")
        assert (record.status, record.world) == ("ok", 4)
        assert [times.host for times in record.ranks] == ["left", "left", "right", "right"]


def _serve_alone(port: int) -> None:
    serve((Post(1, "right"),), meeting_at(port), LocalLauncher())


def test_a_host_that_is_lost_ends_the_case_with_its_name() -> None:
    port = free_port()
    lobby = Lobby(meeting_at(port, 2.0), (1,))
    agent = multiprocessing.get_context("spawn").Process(target=_serve_alone, args=(port,))
    agent.start()
    try:
        gang = GangLauncher(LocalLauncher(), 1, [RemoteLauncher(lobby, 1)], "left")
        with Supervisor(gang, "cpu", 60.0, at_exit=lobby.close) as supervisor:
            # The first start waits for the agent, which imports as slowly as this test did.
            lobby.meeting = meeting_at(port, 60.0)
            supervisor.open()
            lobby.meeting = meeting_at(port, 0.5)
            ended = threading.Timer(1.0, lambda: os.kill(agent.pid or 0, 9))
            ended.start()
            lost = measure(supervisor, "hangs", 30.0)
            assert lost.status == "crashed"
            assert lost.reason == "rank 1 on right died by the end of the connection to its host"
            with pytest.raises(CannotMeasure, match=r"rank 1 did not join within 0\.5 s"):
                measure(supervisor, "good")
    finally:
        agent.kill()
        agent.join()


def test_an_agent_whose_first_host_vanishes_ends_and_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        agent = Serving(meeting_at(server.getsockname()[1]), (Post(1, "right"),))
        link = Link(server.accept()[0], FromAgent)
        assert link.receive(10) == Join(PROTOCOL, "a token", 1, "right")
        link.close()
        agent.join(10)
    assert "the connection of rank 1 to the first host of the gang ended" in str(agent.error)


def test_a_first_host_that_is_not_there_is_said() -> None:
    agent = Serving(meeting_at(free_port(), 0.5), (Post(1, "right"),))
    agent.join(10)
    assert "the first host of the gang cannot be reached at 127.0.0.1" in str(agent.error)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\xff\n",
        b'{"type":"join"}\n',
        b'{"type":"join","protocol":%d,"token":"another","rank":1,"host":"right"}\n' % PROTOCOL,
        b'{"type":"join","protocol":%d,"token":"a token","rank":7,"host":"right"}\n' % PROTOCOL,
        b'{"type":"join","protocol":1,"token":"a token","rank":1,"host":"right"}\n',
    ],
)
def test_whoever_is_not_expected_is_not_admitted(line: bytes) -> None:
    meeting = meeting_at(free_port(), 1.0)
    lobby = Lobby(meeting, (1,))
    with socket.create_connection(("127.0.0.1", meeting.port)) as stranger:
        stranger.sendall(line)
        stranger.shutdown(socket.SHUT_WR)
        with pytest.raises(CannotMeasure, match="rank 1 did not join within 1 s"):
            lobby.link(1)
        assert stranger.recv(100) == b""
    lobby.close()


def test_messages_of_the_worker_before_are_dropped() -> None:
    meeting = meeting_at(free_port(), 5.0)
    lobby = Lobby(meeting, (1,))
    with socket.create_connection(("127.0.0.1", meeting.port)) as agent:
        agent.sendall(b'{"type":"join","protocol":%d,"token":"a token",' % PROTOCOL)
        agent.sendall(b'"rank":1,"host":"right\\u001b[31m"}\n{"type":"progress","phase":"old"}\n')
        agent.sendall(b'not JSON\n{"type":"began"}\n{"type":"progress","phase":"new"}\n')
        worker = RemoteLauncher(lobby, 1).start()
        assert "\x1b" not in worker.host
        message = worker.receive(5)
        assert getattr(message, "phase", "") == "new"
        agent.sendall(b'{"type":"left","death":"exit code 3","last_words":"no\\u001b more"}\n')
        assert worker.receive(5) is None
        assert (worker.death(), worker.starved()) == ("exit code 3", "")
        assert "\x1b" not in worker.last_words()
    lobby.close()


def test_a_link_bounds_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuperf.run.link.LONGEST_LINE", 1000)
    ours, theirs = connected()
    link = Link(ours, FromAgent)
    theirs.sendall(b"x" * 5000)
    time.sleep(0.1)
    with pytest.raises(ValueError, match="a line of over"):
        link.receive(1)
    assert link.closed
    theirs.close()


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        return server.accept()[0], theirs


def test_a_port_that_is_taken_is_said() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(CannotMeasure, match="the hosts cannot meet at port"),
    ):
        Lobby(meeting_at(taken.getsockname()[1]), (1,))
