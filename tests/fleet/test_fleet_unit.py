"""Does a host measure a suite into one shard, under its own name?"""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest
from command_line import COMMAND, CommandLine

from gpuperf.errors import UsageError
from gpuperf.fleet.shard import Shard, parse_pieces
from gpuperf.fleet.unit import _indices, host_name, machine_mark, suite_of
from gpuperf.run.suite import suites

SUITE = """
schema = 1
[conditions]
precision = 0.1
budget_s = 0.02
[[case]]
op = "matmul"
sizes = "64,96"
impl = "torch"
dtype = "fp32"
[[case]]
op = "h2d"
n = "64k"
"""


def read(data: bytes) -> Shard:
    (piece,) = parse_pieces(data, "a test")
    assert isinstance(piece, Shard), piece
    return piece


def test_a_host_writes_one_shard_with_every_case(tmp_path: Path) -> None:
    at = CommandLine.at(tmp_path)
    (tmp_path / "mine.toml").write_text(SUITE)
    words = ("--devices", "cpu", "--processes", "2", "--peaks", "peaks.toml", "--host", "node1")
    ended = at.within("fleet", "unit", "--suite", "./mine.toml", "--fleet", "today", *words)
    assert ended.code == 0, ended.err
    assert ended.out == ""
    piece = read((tmp_path / "gpuperf-runs" / "node1.jsonl").read_bytes())
    head = piece.head
    assert (head.host, head.hostname, head.fleet) == ("node1", platform.node(), "today")
    assert (head.machine, head.processes, head.planned) == (machine_mark(), 2, 6)
    (device,) = head.devices
    assert device.hard["sm_count"]
    assert device.soft["torch"]
    assert [status for status, _ in piece.failures.values()] == ["skipped", "skipped"]
    assert len(piece.cases) == 3
    (run,) = (tmp_path / "gpuperf-runs" / "runs" / "node1").glob("*.jsonl")
    assert "-fleet-mine-" in run.name


def test_a_shard_goes_to_stdout_and_its_suite_may_come_from_stdin(tmp_path: Path) -> None:
    at = CommandLine.at(tmp_path)
    (tmp_path / "mine.toml").write_text(SUITE)
    words = ("--devices", "cpu", "--processes", "1", "--peaks", "peaks.toml", "--shard", "-")
    with (tmp_path / "mine.toml").open("rb") as suite:
        done = subprocess.run(
            [*COMMAND, "fleet", "unit", "--suite", "-", "--host", "a", *words],
            cwd=tmp_path,
            env=at.environment,
            stdin=suite,
            capture_output=True,
            timeout=100,
            check=True,
        )
    piece = read(done.stdout)
    assert (piece.head.suite, piece.rows) == ("stdin", 3)


def test_a_shard_that_cannot_be_written_is_refused_before_it_is_measured(tmp_path: Path) -> None:
    words = ("--devices", "cpu", "--processes", "1", "--shard", "/proc/none/x.jsonl")
    ended = CommandLine(tmp_path)("fleet", "unit", *words)
    assert ended.code == 2
    assert "nothing can be written to /proc/none" in ended.err
    assert "hint: choose another --shard" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_the_host_is_checked() -> None:
    assert host_name("node1.cluster") == "node1.cluster"
    with pytest.raises(UsageError, match="is not the name of a host"):
        host_name("-x")


def test_machines_differ_by_their_boot_or_their_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUPERF_HOST", raising=False)
    assert machine_mark() == machine_mark()
    monkeypatch.setenv("GPUPERF_HOST", "another")
    other = machine_mark()
    monkeypatch.setenv("GPUPERF_HOST", "a third")
    assert machine_mark() != other


@pytest.mark.parametrize("text", ["", "a", "0,", "-1", "0,99", "1e3"])
def test_devices_are_indices(text: str) -> None:
    with pytest.raises(UsageError, match="names no devices"):
        _indices(text)


def test_the_screen_is_a_suite() -> None:
    assert "screen" in suites()
    screen = suite_of("screen")
    assert {entry.op for entry in screen.entries} >= {"copy", "matmul"}


def test_an_id_of_a_fleet_run_is_checked(tmp_path: Path) -> None:
    ended = CommandLine.at(tmp_path).within("fleet", "unit", "--fleet", "a b")
    assert ended.code == 2
    assert "is no id" in ended.err
