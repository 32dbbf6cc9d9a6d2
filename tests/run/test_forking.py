"""Is a forked worker what a spawned one is?"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuperf.errors import UsageError
from gpuperf.model.contract import Contract
from gpuperf.model.record import Record
from gpuperf.model.workload import Case
from gpuperf.run import forking
from gpuperf.run.connection import LocalConnection
from gpuperf.run.forking import ForkingLauncher, ForkServer, launching, way_for
from gpuperf.run.launcher import LocalLauncher, Place
from gpuperf.run.supervisor import Supervisor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: pidfds")

CONTRACT = Contract(timer="wall", gap_s=0.0, budget_s=0.01, min_samples=2, cache="hot")
FILE = r"""
import os, random, signal, subprocess, threading, time
from pathlib import Path

import numpy
import torch

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Workload

import beside

threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
FIRST = torch.ones(1 << 20).sum().item()  # starts threads of OpenMP


def prints(x):
    print("x" * 1000, flush=True)
    return x * 2


def dies(x):
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(x):
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    Path(__file__).with_name("children").write_text(f"{os.getpid()} {child.pid}")
    time.sleep(300)


def good(inputs, point, options):
    def call():
        return inputs["x"] * 2

    state = {
        "pid": os.getpid(), "group": os.getpgid(0), "beside": beside.NAME, "folder": os.getcwd(),
        "cache": os.environ.get("TRITON_CACHE_DIR"), "drawn": random.random(),
        "numpy": float(numpy.random.random()), "torch": torch.initial_seed(),
        "ignored": str(signal.getsignal(signal.SIGTERM)),
        "descriptors": sum(int(name) > 2 for name in os.listdir("/dev/fd")) < 40,
    }
    call.chosen = {name: str(value) for name, value in state.items()}
    return call


def implementation(function):
    return Implementation(function.__name__, lambda inputs, p, o: lambda: function(inputs["x"]))


FORKED = Workload(
    "forked", "twice x", "n FLOP",
    (Axis("n", 64, main=True), Axis("dtype", "auto", choices=("fp32",))),
    lambda point, make: {"x": make((point.n,), point.dtype)},
    lambda inputs, point: inputs["x"].double() * 2,
    lambda point: Cost((Flops(point.n, "elementwise", "fp32"),), (Bytes(4 * point.n, 4),)),
    (Implementation("good", good), *map(implementation, (prints, dies, hangs))),
)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forks")
    (folder / "forked.py").write_text(FILE)
    for side in ("base", "head"):
        (folder / side).mkdir()
        (folder / side / "beside.py").write_text(f"NAME = {side!r}")
    return folder


def place(folder: Path, side: str) -> Place:
    where = str(folder / side)
    return Place(folder=where, paths=(where,), environment={"TRITON_CACHE_DIR": where})


@pytest.fixture(scope="module")
def sides(folder: Path) -> Iterator[dict[str, ForkingLauncher]]:
    places = {side: place(folder, side) for side in ("base", "head")}
    server = ForkServer(list(places.values()))
    yield {side: ForkingLauncher(server, LocalLauncher(place=p)) for side, p in places.items()}
    server.close()


def attempt(launcher: ForkingLauncher, folder: Path, *names: str) -> Iterator[Record]:
    source = str(folder / "forked.py")
    with Supervisor(launcher, "cpu") as supervisor:
        assert supervisor.open().started == "forked"
        for name in names:
            case = Case("forked", name, {"n": 64, "dtype": "fp32"}, source=source)
            supervisor.deadline_s = 2.0 if name == "hangs" else 60.0
            yield supervisor.measure("r", case, CONTRACT, 0)


@pytest.fixture(scope="module")
def measured(sides: dict[str, ForkingLauncher], folder: Path) -> dict[str, Record]:
    base = attempt(sides["base"], folder, "good", "hangs", "prints", "dies")
    (head,) = attempt(sides["head"], folder, "good")
    return {**{r.case.implementation: r for r in base}, "head": head}


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("good", "ok", ""),
        ("prints", "ok", ""),
        ("dies", "crashed", "SIGSEGV"),
        ("hangs", "timeout", "nothing for 2 s"),
    ],
)
def test_a_case_in_a_fork_ends_as_in_a_spawned_worker(
    measured: dict[str, Record], name: str, status: str, reason: str
) -> None:
    assert measured[name].status == status, measured[name].reason
    assert reason in measured[name].reason


def test_each_side_of_a_gate_has_its_own_modules_variables_and_folder(
    measured: dict[str, Record], folder: Path
) -> None:
    for name, side in (("good", "base"), ("head", "head")):
        chosen = measured[name].chosen
        assert chosen["beside"] == side
        assert chosen["folder"] == chosen["cache"] == str(folder / side)


def test_forks_share_no_group_and_no_random_numbers(measured: dict[str, Record]) -> None:
    base, head = measured["good"].chosen, measured["head"].chosen
    for name in ("pid", "group", "drawn", "numpy"):
        assert base[name] != head[name]
    assert base["pid"] == base["group"]
    assert base["torch"] == head["torch"]  # as in two spawned processes
    assert base["ignored"] == "0"
    assert base["descriptors"] == "True"


def test_what_a_case_left_running_ends_with_its_fork(
    measured: dict[str, Record], folder: Path
) -> None:
    assert measured["hangs"].status == "timeout"
    for pid in (folder / "children").read_text().split():
        assert has_ended(int(pid))


def has_ended(pid: int, within_s: float = 3.0) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_killed_server_is_started_again_and_takes_its_forks_along(folder: Path) -> None:
    server = ForkServer([None])
    launcher = ForkingLauncher(server, LocalLauncher())
    try:
        with Supervisor(launcher, "cpu") as first, Supervisor(launcher, "cpu") as second:
            first.open()
            assert server._process is not None
            os.kill(server._process.pid, signal.SIGKILL)
            assert second.open().started == "forked"
            worker = first._worker
            assert isinstance(worker, LocalConnection)
            assert worker._process.wait(5.0)
            assert worker.death() is not None
    finally:
        server.close()


def test_a_supervisor_that_was_killed_leaves_neither_server_nor_forks() -> None:
    reading, writing = os.pipe()
    if (supervisor := os.fork()) == 0:
        try:
            launcher = ForkingLauncher(ForkServer([None]), LocalLauncher())
            worker = launcher.start()
            assert launcher.server._process is not None
            pids = launcher.server._process.pid, worker._process.pid
            os.write(writing, " ".join(map(str, pids)).encode())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(supervisor, 0)
    named = [int(pid) for pid in os.read(reading, 100).split()]
    os.close(reading)
    os.close(writing)
    assert len(named) == 2
    assert all(has_ended(pid) for pid in named)


def test_sides_that_one_server_cannot_fork_are_spawned(tmp_path: Path) -> None:
    def refused(*places: Place) -> str:
        return forking._unlike(places) or forking._shadowed(places, {"numpy": "/elsewhere"})

    here = Place(folder=str(tmp_path), paths=(str(tmp_path),))
    assert refused(here, here) == ""
    assert "two interpreters" in refused(here, Place(python="/usr/bin/other"))
    assert "OMP_NUM_THREADS" in refused(here, Place(environment={"OMP_NUM_THREADS": "1"}))
    (tmp_path / "numpy.py").touch()
    assert "has numpy" in refused(here, here)
    assert forking._shadowed((here,), {"numpy": str(tmp_path / "numpy.py")}) == ""


def test_the_way_depends_on_whether_a_gpu_may_be_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(forking.WAY, raising=False)
    monkeypatch.setattr(forking, "CPU_WAY", "forked")
    monkeypatch.setattr(forking, "GPU_WAY", "spawned")
    monkeypatch.setattr(forking, "DRIVERS", (str(tmp_path / "none"),))
    assert [way_for(d) for d in ("cpu", "auto", "cuda:0")] == ["forked", "forked", "spawned"]
    monkeypatch.setattr(forking, "DRIVERS", (str(tmp_path),))
    assert [way_for(d) for d in ("cpu", "auto")] == ["forked", "spawned"]
    monkeypatch.setenv(forking.WAY, "forked")
    assert way_for("cuda:0") == "forked"
    monkeypatch.setenv(forking.WAY, "spawned")
    with launching([LocalLauncher()], "cpu") as launchers:
        assert isinstance(launchers[0], LocalLauncher)
    monkeypatch.setenv(forking.WAY, "spoon")
    with pytest.raises(UsageError, match="'spoon'"):
        way_for("cpu")
