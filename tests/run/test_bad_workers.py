"""Is every case after a bad one measured as if the bad one had not been?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuperf.model.contract import Contract
from gpuperf.model.record import Header, Record
from gpuperf.model.workload import Case
from gpuperf.run.launcher import LocalLauncher
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import measure_cases, schedule_of
from gpuperf.run.supervisor import Supervisor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: /proc, its signals")

CONTRACT = Contract(timer="wall", gap_s=0.0, budget_s=0.02, min_samples=3)
MEMORY = 1 << 30  # bytes that a worker may hold here

BAD = r"""
import os, signal, subprocess, sys, threading, time
from pathlib import Path

import torch

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Workload

HERE = Path(__file__).parent
KEPT = []


def descriptors():
    return [int(name) for name in os.listdir("/dev/fd") if int(name) > 2]


def write_everywhere(junk):
    for descriptor in descriptors():
        try:
            os.write(descriptor, junk)
        except OSError:
            pass


def no_files(x):
    while True:
        KEPT.append(os.open(os.devnull, os.O_RDONLY))


def keeps_files(x):
    KEPT.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(40))
    return x * 2


def closes_all(x):
    os.closerange(3, 4096)
    return x * 2


def closes_stdout(x):
    for descriptor in (1, 2):
        try:
            os.close(descriptor)
        except OSError:
            pass
    return x * 2


def memory_error(x):
    while True:
        KEPT.append(bytearray(os.urandom(1) * (64 << 20)))


def child_takes_memory(x):
    program = "k = []\nwhile True: k.append(bytearray(b'x' * (64 << 20)))"
    subprocess.run([sys.executable, "-c", program])


def forks_both(x):
    os.fork()
    return x * 2


def junk(x):
    write_everywhere(b"junk\n")
    return x * 2


def junk_no_newline(x):
    while True:
        write_everywhere(b"x" * 4096)


def eats_requests(x):
    for descriptor in descriptors():
        try:
            os.set_blocking(descriptor, False)
            os.read(descriptor, 1 << 20)
        except OSError:
            pass
    return x * 2


def stops_clock(x):
    time.perf_counter = lambda: 0.0
    return x * 2


def recurses(x):
    return recurses(x)


def prints_4_mb(x):
    sys.stdout.write("x" * (4 << 20))
    sys.stdout.flush()
    return x * 2


def leaves_child(x):
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    (HERE / "child").write_text(str(child.pid))
    KEPT.append(child)
    return x * 2


def leaves_thread(x):
    if not KEPT:
        KEPT.append(threading.Thread(target=time.sleep, args=(300,), name="left", daemon=True))
        KEPT[-1].start()
    return x * 2


def waits_beside_children(x):
    children = [subprocess.Popen(["sleep", "300"], start_new_session=own) for own in (0, 1)]
    pids = os.getpid(), *(child.pid for child in children)
    (HERE / "children").write_text(" ".join(map(str, pids)))
    time.sleep(300)


def sets_alarm(x):
    signal.setitimer(signal.ITIMER_REAL, 60)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return x * 2


def unsettles(x):
    os.chdir("/")
    os.umask(0o777)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("PATH", None)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = True
    sys.setrecursionlimit(100_000)
    sys.stdout = sys.stderr = None
    return x * 2


def state():
    mask = os.umask(0)
    os.umask(mask)
    return {
        "clock": time.perf_counter() > 0, "folder": os.getcwd(), "umask": mask,
        "environment": ("OMP_NUM_THREADS" in os.environ, "PATH" in os.environ),
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()), "gradients": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(), "python": len(threading.enumerate()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "tf32": torch.backends.cuda.matmul.allow_tf32, "alarm": signal.getitimer(0)[0] > 0,
        "terminated": str(signal.getsignal(signal.SIGTERM)), "stdout": sys.stdout is not None,
        "recursion": sys.getrecursionlimit(), "files": len(descriptors()) < 100,
        "kept": len(KEPT) < 100,
    }


def good(inputs, point, options):
    def call():
        return inputs["x"] * 2

    call.chosen = {name: str(value) for name, value in {**state(), "pid": os.getpid()}.items()}
    return call


def implementation(function):
    return Implementation(function.__name__, lambda inputs, p, o: lambda: function(inputs["x"]))


def cost(point):
    return Cost((Flops(point.n, "elementwise", "fp32"),), (Bytes(4 * point.n, 4 * point.n),))


BAD = Workload(
    "bad", "twice x", "n FLOP",
    (Axis("n", 64, main=True), Axis("dtype", "auto", choices=("fp32",))),
    lambda point, make: {"x": make((point.n,), point.dtype)},
    lambda inputs, point: inputs["x"].double() * 2, cost,
    (Implementation("good", good), *map(implementation, (
        no_files, keeps_files, closes_all, closes_stdout, memory_error, child_takes_memory,
        forks_both, junk, junk_no_newline, eats_requests, stops_clock,
        recurses, prints_4_mb, leaves_child, leaves_thread, sets_alarm, unsettles,
        waits_beside_children,
    ))),
)
"""

ENDED = ("crashed",)
ANY = ("ok", "error", "wrong", "impossible", "no-work", "crashed", "timeout")
# What may become of each bad case, and whether the same worker goes on after it (None: either).
EXPECTED: Mapping[str, tuple[tuple[str, ...], bool | None]] = {
    "no_files": (("error", "crashed"), False),
    "keeps_files": (("ok",), False),
    "closes_all": (("crashed",), False),
    "closes_stdout": (("ok",), False),
    "memory_error": (("oom",), False),
    "child_takes_memory": (("oom",), False),
    "forks_both": (("ok",), False),
    "junk": (("crashed",), False),
    "junk_no_newline": (("crashed",), False),
    "eats_requests": (("ok",), None),
    "stops_clock": (ANY, False),
    "recurses": (("error",), False),
    "prints_4_mb": (("ok",), True),
    "leaves_child": (("ok",), False),
    "leaves_thread": (("ok",), False),
    "sets_alarm": (("ok",), True),
    "unsettles": (("ok", "wrong", "error"), None),
}


def case(source: Path, implementation: str) -> Case:
    return Case("bad", implementation, {"n": 64, "dtype": "fp32"}, source=str(source))


@dataclass(frozen=True)
class Sweep:
    """The records of every bad case, each between two good ones, as a run file holds them."""

    records: tuple[Record, ...]
    names: tuple[str, ...]

    def after(self, name: str) -> Record:
        """The good case's record after the bad one."""
        return self.records[self.names.index(name) + 1]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bad") / "bad.py"
    path.write_text(BAD)
    return path


@pytest.fixture(scope="module")
def sweep(source: Path) -> Sweep:
    names = ["good"]
    for name in EXPECTED:
        names += [name, "good"]
    path = source.with_name("run.jsonl")
    records: list[Record] = []
    launcher = LocalLauncher(memory_bytes=MEMORY)
    with Supervisor(launcher, "cpu", deadline_s=30.0) as supervisor, RunWriter(path) as writer:
        opened = supervisor.open()
        for index, name in enumerate(names):
            cases = (case(source, name),)
            header = Header(f"r{index}", "", (), cases, CONTRACT, opened.device, opened.fingerprint)
            measure_cases(supervisor, writer, header, schedule_of(header), records.append)
    lines = path.read_text().splitlines()
    assert len([line for line in lines if line]) == len(names) == len(records)
    return Sweep(tuple(records), tuple(names))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_bad_case_is_one_record_with_a_status_that_fits(sweep: Sweep, name: str) -> None:
    found = sweep.records[sweep.names.index(name)]
    assert found.case.implementation == name
    assert found.status in EXPECTED[name][0], found.reason
    assert found.status == "ok" or found.reason


@pytest.mark.parametrize("name", EXPECTED)
def test_a_good_case_after_a_bad_one_finds_everything_as_the_first(sweep: Sweep, name: str) -> None:
    first, after = sweep.records[0], sweep.after(name)
    assert (first.status, after.status) == ("ok", "ok"), after.reason
    assert {**after.chosen, "pid": ""} == {**first.chosen, "pid": ""}


@pytest.mark.parametrize("name", [name for name, (_, same) in EXPECTED.items() if same is not None])
def test_a_worker_is_replaced_only_where_something_cannot_be_put_back(
    sweep: Sweep, name: str
) -> None:
    before = sweep.records[sweep.names.index(name) - 1]
    same = before.chosen["pid"] == sweep.after(name).chosen["pid"]
    assert same is EXPECTED[name][1]


def test_what_a_case_left_running_ends_with_its_worker(sweep: Sweep, source: Path) -> None:
    assert sweep.after("leaves_child").status == "ok"
    assert not is_alive(int(source.with_name("child").read_text()))


HELPER = """
import sys
from gpuperf.model.contract import Contract
from gpuperf.model.workload import Case
from gpuperf.run.launcher import LocalLauncher
from gpuperf.run.supervisor import Supervisor

case = Case("bad", "waits_beside_children", {"n": 64, "dtype": "fp32"}, source=sys.argv[1])
with Supervisor(LocalLauncher(), "cpu") as supervisor:
    supervisor.measure("r", case, Contract(timer="wall"), 0)
"""


def test_a_supervisor_that_was_killed_leaves_neither_worker_nor_children(source: Path) -> None:
    note = source.with_name("children")
    supervisor = subprocess.Popen([sys.executable, "-c", HELPER, str(source)])
    try:
        pids = [int(pid) for pid in wait_for(note).split()]
        assert all(map(is_alive, pids))
    finally:
        supervisor.kill()
        supervisor.wait()
    try:
        assert all(dies(pid) for pid in pids)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def wait_for(path: Path) -> str:
    """What *path* holds, as soon as it holds a whole line's worth; fails after two minutes."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if path.exists() and len((text := path.read_text()).split()) == 3:
            return text
        time.sleep(0.05)
    raise AssertionError(f"{path} was not written")


def dies(pid: int) -> bool:
    """Whether the process ends, long before it would by itself."""
    end = time.monotonic() + 30
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_alive(pid)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
