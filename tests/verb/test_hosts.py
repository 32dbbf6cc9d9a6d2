"""Are the processes that torchrun starts one gang, whose rank 0 reports with the host of each?"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import CommandLine, Ended

from gpuperf.fleet.pairs import judge_pairs
from gpuperf.fleet.rule import FleetRule
from gpuperf.fleet.shard import Shard, parse_pieces
from gpuperf.run.store import read_run

SMALL = ("roofline", "all_reduce", "--device", "cpu", "--bytes", "64", "--impl", "gloo")
QUICK = (*SMALL, "--peaks", "peaks.toml", "--budget", "0.05")


def free_port() -> int:
    """A port whose successor is free too, where the hosts meet."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port = int(first.getsockname()[1])
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
            return port


@dataclass(frozen=True)
class Launched(CommandLine):
    """A command line as torchrun starts it: *rank* of *world*, each on a host of its own."""

    variables: tuple[tuple[str, str], ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **dict(self.variables)}


def rank(at: CommandLine, number: int, world: int, port: int, **more: str) -> Launched:
    variables = {
        "RANK": str(number),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GPUPERF_HOST": f"node{number}",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **more,
    }
    return Launched(at.folder, tuple(variables.items()))


def launch(at: CommandLine, *words: str, world: int = 2) -> list[Ended]:
    port = free_port()
    started = [rank(at, number, world, port).start(*words) for number in range(world)]
    ended = []
    for process in started:
        with process:
            out, err = process.communicate(timeout=100)
        ended.append(Ended(process.returncode, out, err))
    return ended


@pytest.fixture
def at(tmp_path: Path) -> CommandLine:
    return CommandLine.at(tmp_path)


def test_rank_0_reports_for_two_hosts(at: CommandLine) -> None:
    first, second = launch(at, *QUICK, "--out", "runs", "--format", "json")
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert second.out == ""
    assert "rank 1 of 2 serves rank 0 at 127.0.0.1" in second.err
    assert "measuring 2 processes on 2 hosts as one" in first.err
    assert json.loads(first.out)
    run = read_run(at.run_file("runs"))
    assert (run.header.world, run.header.hosts) == (2, ("node0", "node1"))
    assert (run.header.fingerprint.hard["world"], run.header.fingerprint.hard["hosts"]) == (2, 2)
    (record,) = run.records
    assert record.status == "ok"
    assert [(times.rank, times.host) for times in record.ranks] == [(0, "node0"), (1, "node1")]


def test_a_number_of_ranks_that_is_not_torchruns_is_refused(at: CommandLine) -> None:
    ended = rank(at, 0, 2, 29500)(*QUICK, "--gpus", "3")
    assert ended.code == 2
    assert "--gpus 3 and the 2 processes that torchrun started exclude each other" in ended.err


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"MASTER_ADDR": ""}, "MASTER_ADDR and MASTER_PORT lead nowhere"),
        ({"MASTER_PORT": ""}, "MASTER_ADDR and MASTER_PORT lead nowhere"),
        ({"MASTER_PORT": "65535"}, "MASTER_ADDR and MASTER_PORT lead nowhere"),
        ({"GPUPERF_PORT": "0"}, "GPUPERF_PORT is '0', and no port"),
        ({"GPUPERF_PORT": "a\x1b[1m"}, "and no port"),
    ],
)
def test_a_place_that_leads_nowhere_is_said(
    at: CommandLine, changed: dict[str, str], sentence: str
) -> None:
    ended = rank(at, 0, 2, 29500, **changed)(*QUICK)
    assert (ended.code, ended.out) == (2, "")
    assert sentence in ended.err
    assert "\x1b" not in ended.err


def test_a_verb_of_one_device_is_none_of_a_gang(at: CommandLine) -> None:
    ended = rank(at, 1, 2, 29500)("devices")
    assert ended.code == 0, ended.err


def test_a_unit_of_two_hosts_is_the_shard_of_the_pair(at: CommandLine) -> None:
    suite = at.folder / "pair.toml"
    case = '[[case]]\nop = "all_reduce"\nbytes = "1k,64k"\nimpl = "gloo"\ndtype = "fp32"\n'
    suite.write_text(f"schema = 1\n[conditions]\nbudget_s = 0.02\n{case}")
    for out in ("shards", "again"):
        words = ("--suite", "./pair.toml", "--devices", "cpu", "--processes", "2", "--out", out)
        first, second = launch(at, "fleet", "unit", *words)
        assert (first.code, second.code) == (0, 0), first.err + second.err
        (file,) = (at.folder / out).glob("*.jsonl")
        assert file.name == "node0-node1.jsonl"
        (shard,) = parse_pieces(file.read_bytes(), "a test")
        assert isinstance(shard, Shard), shard
        if not shard.failures:
            break  # otherwise a busy machine held up a call for so long that its case was skipped
    assert (shard.head.host, shard.head.peer, shard.head.processes) == ("node0", "node1", 2)
    assert (shard.rows, shard.failures, len(shard.head.devices)) == (4, {}, 1)
    judged = judge_pairs([shard], ["node0", "node1"], FleetRule())
    assert (judged.pairs, judged.missing) == (1, ())


def test_a_gang_of_one_host_reports_as_one_device(at: CommandLine) -> None:
    suite = at.folder / "gang.toml"
    case = '[[case]]\nop = "broadcast"\nbytes = "1k"\nimpl = "gloo"\ndtype = "fp32"\n'
    suite.write_text(f"schema = 1\n[conditions]\nbudget_s = 0.02\n{case}")
    words = ("fleet", "unit", "--suite", "./gang.toml", "--gpus", "2", "--host", "node9")
    done = at(*words, "--devices", "cpu", "--processes", "1", "--shard", "-")
    assert done.code == 0, done.err
    (shard,) = parse_pieces(done.out.encode(), "a test")
    assert isinstance(shard, Shard), shard
    assert (shard.head.host, shard.head.peer, shard.rows) == ("node9", "", 1)
    refused = at(*words, "--devices", "0,1")
    assert (refused.code, "--devices 0,1 and a gang exclude" in refused.err) == (2, True)
