"""Do the engines bring back the shard of each host, or the reason why there is none?"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

from gpuperf.errors import CannotMeasure
from gpuperf.fleet.engines import engine as module
from gpuperf.fleet.engines.engine import Command, Job, run_command
from gpuperf.fleet.engines.ssh import SshEngine
from gpuperf.fleet.session import engine_of

TESTS = Path(__file__).parent.parent
# A unit that measures nothing: it writes the shard of its host, or fails as the host's name says.
UNIT = f"""
import sys, time
sys.path.insert(0, {str(TESTS)!r})
from synthetic_fleet import shard
words = sys.argv[1:]
given = dict(zip(words, words[1:]))
host = given["--host"]
if host == "dies":
    sys.exit("gpuperf: there is no device 'cuda:0'")
if host == "hangs":
    time.sleep(60)
reported = "node00" if host == "lies" else host
data = shard(reported, fleet=given["--fleet"], suite=sys.stdin.read()[:20] or given["--suite"])
sys.stdout.buffer.write(data[:2000] if host == "cut" else data)
"""
SSH = """#!{python}
import json, os, subprocess, sys
with open(os.environ["FAKE_SSH_LOG"], "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
host = sys.argv[-2]
if host == "unreachable":
    sys.stderr.write("ssh: connect to host unreachable port 22: Connection refused\\n")
    sys.exit(255)
sys.exit(subprocess.call(["sh", "-c", sys.argv[-1]]))
"""


@pytest.fixture
def at(tmp_path: Path) -> CommandLine:
    (tmp_path / "unit.py").write_text(UNIT)
    return CommandLine.at(tmp_path)


def program(at: CommandLine) -> str:
    return shlex.join([sys.executable, str(at.folder / "unit.py")])


def run(at: CommandLine, hosts: str, *more: str) -> Any:
    words = ("--program", program(at), "--out", "shards", "--format", "json", *more)
    return at.within("fleet", "run", "--hosts", hosts, *words)


def test_a_local_fleet_is_run_and_judged(at: CommandLine) -> None:
    ended = run(at, "a,b,c")
    assert ended.code == 0, ended.err
    assert [(r["host"], r["rows"], r["reason"]) for r in json.loads(ended.out)] == [
        (host, 45, "") for host in "abc"
    ]
    judged = at.within("fleet", "judge", "shards")
    assert "3 of 3 expected hosts judged" in judged.out
    again = run(at, "a")
    assert (again.code, again.out) == (2, "")
    assert "shards already has shards" in again.err


def test_each_host_that_fails_is_said_and_missing(at: CommandLine) -> None:
    ended = run(at, "a,dies,hangs,lies,cut,node00", "--deadline", "2")
    assert ended.code == 4
    reasons = {r["host"]: r["reason"] for r in json.loads(ended.out)}
    assert reasons["a"] == reasons["node00"] == ""
    assert reasons["dies"] == (
        "it wrote no shard; exit code 1: gpuperf: there is no device 'cuda:0'"
    )
    assert reasons["hangs"] == "it did not end within 2 s"
    assert reasons["lies"] == "it reports the name of node00"
    assert "truncated" in reasons["cut"]
    assert "4 of 6 hosts have no whole shard: dies, hangs, lies, cut" in ended.err
    report = json.loads(at.within("fleet", "judge", "shards", "--format", "json").out)
    assert report["outcome"] == "incomplete"
    kinds = {(fault["kind"], fault["host"]) for fault in report["faults"]}
    assert {("missing", host) for host in ("dies", "hangs", "lies", "cut")} <= kinds
    assert ("broken", "lies") in kinds


def test_a_fleet_run_is_resumed_with_the_hosts_that_it_lacks(at: CommandLine) -> None:
    assert run(at, "a,cut,dies").code == 4
    before = (at.folder / "shards" / "a.jsonl").read_bytes()
    (at.folder / "unit.py").write_text(UNIT.replace('"dies"', '"no"').replace('"cut"', '"no"'))
    words = ("--program", program(at), "--out", "shards", "--format", "json")
    ended = at.within("fleet", "run", "--resume", *words)
    assert ended.code == 0, ended.err
    assert [r["host"] for r in json.loads(ended.out)] == ["cut", "dies"]
    assert (at.folder / "shards" / "a.jsonl").read_bytes() == before
    report = json.loads(at.within("fleet", "judge", "shards", "--format", "json").out)
    assert (report["faults"], report["hosts_judged"]) == ([], 3)
    again = at.within("fleet", "run", "--resume", *words)
    assert "a whole shard of each host" in again.err
    assert at.within("fleet", "run", "--resume", "--hosts", "a", *words).code == 2
    assert at.within("fleet", "run", "--resume", "--out", "nowhere").code == 2


def test_a_fleet_run_is_resumed_with_what_it_asked(at: CommandLine) -> None:
    (at.folder / "my suite.toml").write_text('schema = 1\n[[case]]\nop = "copy"\n')
    ended = run(at, "a,dies", "--suite", "my suite.toml", "--processes", "2")
    assert ended.code == 4
    words = "--suite 'my suite.toml' --devices all --processes 2"
    assert f"gpuperf fleet run --resume --out shards {words}" in ended.err
    resume = ("fleet", "run", "--resume", "--program", program(at), "--out", "shards")
    for other in ((), ("--suite", "my suite.toml"), ("--processes", "2")):
        refused = at.within(*resume, *other)
        assert refused.code == 2
        assert "the fleet run in shards had other options" in refused.err
        assert f"hint: it was begun with {words}" in refused.err
    same = (*resume, "--suite", "my suite.toml", "--processes", "2")
    (at.folder / "my suite.toml").write_text('schema = 1\n[[case]]\nop = "matmul"\n')
    assert "had another suite of this name" in at.within(*same).err


def test_a_suite_of_the_user_reaches_each_host(at: CommandLine) -> None:
    (at.folder / "mine.toml").write_text('schema = 1\n[[case]]\nop = "copy"\n')
    assert run(at, "a", "--suite", "./mine.toml").code == 0
    assert r'"suite":"schema = 1\n[[case]]\n' in (at.folder / "shards" / "a.jsonl").read_text()
    (at.folder / "bad.toml").write_text("schema = 7\n")
    words = ("--hosts", "b", "--suite", "./bad.toml", "--out", "others")
    ended = at.within("fleet", "run", *words)
    assert ended.code == 2
    assert "schema of the suite" in ended.err
    assert not (at.folder / "others").exists()


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program ssh that runs the remote command here; returns the log of its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(SSH.replace("{python}", sys.executable))
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SSH_LOG", str(tmp_path / "ssh.log"))
    return tmp_path / "ssh.log"


def test_ssh_asks_nothing_and_quotes_every_word(at: CommandLine, fake_ssh: Path) -> None:
    ended = run(at, "a,b,unreachable", "--engine", "ssh", "--at-once", "2")
    assert ended.code == 4
    reasons = {r["host"]: r["reason"] for r in json.loads(ended.out)}
    assert (reasons["a"], reasons["b"]) == ("", "")
    assert "Connection refused" in reasons["unreachable"]
    for line in fake_ssh.read_text().splitlines():
        words = json.loads(line)
        assert "BatchMode=yes" in words
        assert "ConnectTimeout=15" in words
        assert words[-3] == "--"
        assert len(words) == 11


def test_no_word_is_read_by_the_remote_shell(fake_ssh: Path, tmp_path: Path) -> None:
    evil = f"x; touch {tmp_path / 'owned'} $(touch {tmp_path / 'owned'}) `id` '\" \n&"
    job = Job(("a",), lambda host: ["printf", "%s", evil], b"", 20)
    (answer,) = SshEngine().run(job)
    assert answer.stdout.decode() == evil
    assert not (tmp_path / "owned").exists()


def test_hosts_end_when_nobody_waits_for_them_any_more(fake_ssh: Path) -> None:
    job = Job(("a", "b", "c"), lambda host: ["sleep", "0" if host == "a" else "77"], b"", 90, 2)
    answers = SshEngine().run(job)
    assert next(answers).host == "a"
    begin = time.monotonic()
    answers.close()  # type: ignore[attr-defined]
    assert time.monotonic() - begin < 10


def test_ssh_that_is_missing_is_said() -> None:
    with pytest.raises(CannotMeasure, match="the program ssh is not installed"):
        SshEngine("no-such-ssh")


@pytest.mark.parametrize("name", ["ray", "submitit"])
def test_a_missing_extra_is_said_in_a_sentence(
    at: CommandLine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    ended = at.within("fleet", "run", "--engine", name, "--hosts", "a")
    assert (ended.code, ended.out) == (3, "")
    assert f"the engine {name} needs the package {name}, which is not installed" in ended.err
    assert f"pip install 'gpuperf[{name}]'" in ended.err


def test_an_unknown_engine_is_guessed(at: CommandLine) -> None:
    ended = at.within("fleet", "run", "--engine", "submit", "--hosts", "a")
    assert ended.code == 2
    assert "did you mean 'submitit'?" in ended.err
    assert "needs the names of the hosts" in at.within("fleet", "run").err


def test_a_command_ends_at_its_deadline_with_its_children() -> None:
    words = ("sh", "-c", "sleep 77 & sleep 77")
    begin = time.monotonic()
    answer = run_command("a", Command(words, b"", 0.5))
    assert answer.reason == "it did not end within 0.5 s"
    assert time.monotonic() - begin < 10


def test_a_command_that_writes_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STDOUT", 1 << 20)
    answer = run_command("a", Command(("cat", "/dev/zero"), b"", 20))
    assert answer.reason == "it wrote over 1 MiB"
    assert len(answer.stdout) == (1 << 20) + 1


def test_a_program_that_is_missing_is_said() -> None:
    answer = run_command("a", Command(("/no/such/program",), b"", 1))
    assert answer.reason == "'/no/such/program' cannot be started: No such file or directory"


# Ray and submitit, where they are installed: CI does without them.


def needs(name: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(missing, reason=f"needs {name}: pip install 'gpuperf[{name}]'")


CLUSTER = """
import os, subprocess, sys
from ray.cluster_utils import Cluster

cluster = Cluster(
    initialize_head=True,
    head_node_args={"num_cpus": 1, "node_name": "n0", "include_dashboard": False},
)
for name in ("n1", "n2"):
    cluster.add_node(num_cpus=1, node_name=name)
words = [sys.executable, "-P", "-m", "gpuperf", *sys.argv[1:]]
done = subprocess.run(words, env={**os.environ, "RAY_ADDRESS": cluster.address})
cluster.shutdown()
sys.exit(done.returncode)
"""


@needs("ray")
def test_ray_runs_the_unit_on_each_of_three_nodes(at: CommandLine) -> None:
    words = ["--engine", "ray", "--program", program(at), "--out", "shards", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-c", CLUSTER, "fleet", "run", *words],
        cwd=at.folder,
        env=at.environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout[done.stdout.index("[\n") :])
    assert {(r["host"], r["rows"], r["reason"]) for r in results} == {
        (host, 45, "") for host in ("n0", "n1", "n2")
    }
    assert "3 of 3 expected hosts judged" in at.within("fleet", "judge", "shards").out


@pytest.fixture
def submitit_folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "submitit"


@needs("submitit")
def test_submitit_runs_the_unit_as_jobs(at: CommandLine, submitit_folder: Path) -> None:
    from gpuperf.fleet.engines.submitit_jobs import SubmititEngine
    from gpuperf.fleet.session import FleetRun, begin_fleet, program_of, run_fleet

    engine = SubmititEngine(submitit_folder, cluster="local")
    words = program_of(program(at), True)
    hosts = ("a", "b", "dies")
    fleet = begin_fleet(FleetRun("screen", hosts, words, ()), at.folder / "shards")
    results = {r.host: r for r in run_fleet(fleet, engine, at.folder / "shards", 60, 2)}
    assert {host: result.rows for host, result in results.items()} == {"a": 45, "b": 45, "dies": 0}
    assert "no device 'cuda:0'" in results["dies"].reason
    report = json.loads(at.within("fleet", "judge", "shards", "--format", "json").out)
    assert [(f["kind"], f["host"]) for f in report["faults"]] == [("missing", "dies")]


@needs("ray")
def test_ray_without_a_cluster_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "1")
    import ray

    monkeypatch.setattr(ray, "init", lambda **more: (_ for _ in ()).throw(ConnectionError("none")))
    with pytest.raises(CannotMeasure, match="no Ray cluster can be reached"):
        engine_of("ray", tmp_path)
