"""Does a run outlive its workers, and no worker its run?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gpuperf.errors import CannotMeasure, GpuperfError, UsageError, WorkloadError
from gpuperf.model.contract import Contract, DeviceFacts, Fingerprint
from gpuperf.model.protocol import (
    PROTOCOL,
    Describe,
    Described,
    Failed,
    FromWorker,
    Hello,
    Measure,
    Measured,
    Open,
    Opened,
    Progress,
    Timed,
    ToWorker,
)
from gpuperf.model.record import Header, Record, Status
from gpuperf.model.workload import Case
from gpuperf.run.connection import Connection
from gpuperf.run.launcher import LocalLauncher
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import measure_cases, schedule_of
from gpuperf.run.store import read_run
from gpuperf.run.supervisor import Supervisor

CONTRACT = Contract(timer="wall", gap_s=0.0, budget_s=0.02, min_samples=3)
HELLO = Hello(PROTOCOL, 1, "2.0")
OPENED = Opened(DeviceFacts("cpu", 0, "a CPU", 2, 8, 4), Fingerprint(hard={"product": "a CPU"}))


def case(
    implementation: str = "good", n: int = 64, source: str = "trouble.py", op: str = "trouble"
) -> Case:
    return Case(op, implementation, {"n": n, "dtype": "fp32"}, source=source)


def measured(implementation: str = "good") -> Measured:
    return Measured(Record("r", case(implementation), CONTRACT, "ok"))


@dataclass(frozen=True)
class Silence:
    """Nothing comes until the deadline."""


@dataclass(frozen=True)
class Death:
    """The worker ends; nobody reads what it is sent afterwards."""

    how: str = "exit code 9"
    words: str = ""
    starved: str = ""


@dataclass(frozen=True)
class Garble:
    """A line that is no message."""


Step = FromWorker | Silence | Death | Garble


@dataclass
class ScriptedWorker:
    """Says its lines in order, whatever it is asked."""

    script: list[Step]
    name: str = "the worker"
    heard: list[ToWorker] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    dead: Death | None = None
    killed: bool = False

    def send(self, message: ToWorker) -> None:
        if self.dead:
            raise BrokenPipeError
        self.heard.append(message)

    def receive(self, timeout_s: float) -> FromWorker | None:
        self.timeouts.append(timeout_s)
        step = self.script.pop(0)
        if isinstance(step, Death):
            self.dead = step
        if isinstance(step, Garble):
            raise ValueError("JSON is malformed")
        return None if isinstance(step, Silence | Death) else step

    def death(self) -> str | None:
        return self.dead.how if self.dead else None

    def starved(self) -> str:
        return self.dead.starved if self.dead else ""

    def last_words(self) -> str:
        return self.dead.words if self.dead else ""

    def dismiss(self) -> None: ...

    def kill(self) -> None:
        self.killed = True


class ScriptedLauncher:
    """Hands out workers with these scripts, one after the other."""

    def __init__(self, *scripts: list[Step]) -> None:
        self.workers = [ScriptedWorker(script) for script in scripts]
        self.started = 0

    def start(self) -> Connection:
        self.started += 1
        return self.workers[self.started - 1]


def supervise(*scripts: list[Step]) -> tuple[Supervisor, list[ScriptedWorker]]:
    launcher = ScriptedLauncher(*scripts)
    return Supervisor(launcher, "cpu", deadline_s=7.0), launcher.workers


def test_a_case_is_measured_by_one_worker_that_opened_the_device_once() -> None:
    supervisor, (worker,) = supervise([HELLO, OPENED, measured(), measured("other")])
    assert supervisor.measure("r", case(), CONTRACT, 3).status == "ok"
    assert supervisor.measure("r", case("other"), CONTRACT, 3).case == case("other")
    assert worker.heard == [
        Open("cpu"),
        Measure("r", case(), CONTRACT, 3),
        Measure("r", case("other"), CONTRACT, 3),
    ]


def test_progress_is_passed_on_and_ends_nothing() -> None:
    supervisor, _ = supervise([HELLO, OPENED, Progress("inputs"), Progress("time", 8), measured()])
    heard: list[tuple[str, int]] = []
    supervisor.listen = lambda phase, samples: heard.append((phase, samples))
    assert supervisor.measure("r", case(), CONTRACT, 0).status == "ok"
    assert heard == [("inputs", 0), ("time", 8)]


@pytest.mark.parametrize("end", [Death("signal 11 (SIGSEGV)"), Silence()])
def test_what_was_timed_stands_when_reading_the_counters_kills_the_worker(end: Step) -> None:
    timed = Timed(measured().record)
    supervisor, (first, _) = supervise(
        [HELLO, OPENED, timed, Progress("counters"), end],
        [HELLO, OPENED, Death("signal 9 (SIGKILL)")],
    )
    record = supervisor.measure("r", case(), CONTRACT, 0, counting="auto")
    assert (record.status, record.times) == ("ok", timed.record.times)
    (doubt,) = record.caveats
    assert doubt.kind == "no-counters"
    assert first.killed
    # And it is not taken for the next case's.
    assert supervisor.measure("r", case("next"), CONTRACT, 0).status == "crashed"


def test_a_worker_of_another_protocol_is_refused_and_ended() -> None:
    supervisor, (worker,) = supervise([Hello(PROTOCOL + 1, 1, "2.0")])
    with pytest.raises(CannotMeasure, match="another protocol"):
        supervisor.open()
    assert worker.killed
    assert worker.heard == []


def test_a_worker_that_dies_before_its_hello_says_how_and_another_may_be_tried() -> None:
    supervisor, workers = supervise(
        [Death("exit code 1", "No module named 'torch'")], [HELLO, OPENED]
    )
    with pytest.raises(CannotMeasure, match=r"exit code 1: No module named 'torch'.* opening"):
        supervisor.open()
    assert workers[0].killed
    assert supervisor.open() == OPENED


def test_a_case_that_kills_its_worker_is_a_record_and_the_next_has_a_fresh_one() -> None:
    supervisor, (first, second) = supervise(
        [HELLO, OPENED, Death("signal 11 (SIGSEGV)", "noise\nlast words")],
        [HELLO, OPENED, measured("next")],
    )
    record = supervisor.measure("r", case(), CONTRACT, 5)
    assert (record.run, record.case, record.contract) == ("r", case(), CONTRACT)
    assert record.status == "crashed"
    assert record.reason == "the worker died by signal 11 (SIGSEGV): last words"
    assert record.hint
    assert record.seed == 5
    assert record.fingerprint == OPENED.fingerprint
    assert first.killed
    assert supervisor.measure("r", case("next"), CONTRACT, 0).status == "ok"
    assert second.heard == [Open("cpu"), Measure("r", case("next"), CONTRACT, 0)]


def test_a_worker_killed_from_outside_makes_one_think_of_memory() -> None:
    supervisor, _ = supervise([HELLO, OPENED, Death("signal 9 (SIGKILL)")])
    assert "out-of-memory" in supervisor.measure("r", case(), CONTRACT, 0).hint


def test_a_case_that_falls_silent_is_a_timeout_and_its_worker_is_killed() -> None:
    supervisor, (worker, _) = supervise(
        [HELLO, OPENED, Progress("build"), Silence()], [HELLO, OPENED, measured()]
    )
    record = supervisor.measure("r", case(), CONTRACT, 0)
    assert (record.status, record.reason) == ("timeout", "the worker reported nothing for 7 s")
    assert "--deadline" in record.hint
    assert worker.killed
    assert worker.timeouts[-2:] == [7.0, 7.0], "each sign of life begins the deadline anew"
    assert supervisor.measure("r", case(), CONTRACT, 0).status == "ok"


def test_a_short_deadline_does_not_hurry_the_start_of_a_worker() -> None:
    supervisor, (worker,) = supervise([HELLO, OPENED, measured()])
    supervisor.measure("r", case(), CONTRACT, 0)
    hello_s, open_s, case_s = worker.timeouts
    assert case_s == 7.0
    assert min(hello_s, open_s) >= 60.0


def test_a_case_may_be_silent_for_two_minutes_unless_another_deadline_is_given() -> None:
    launcher = ScriptedLauncher([HELLO, OPENED, measured()])
    Supervisor(launcher, "cpu").measure("r", case(), CONTRACT, 0)
    assert launcher.workers[0].timeouts[-1] == 120.0


def test_a_worker_that_took_all_memory_is_oom_with_how_much() -> None:
    end = Death("signal 9 (SIGKILL)", starved="it held 5.4 GB, and 0.3 GB were free")
    supervisor, _ = supervise([HELLO, OPENED, end])
    record = supervisor.measure("r", case(), CONTRACT, 0)
    assert record.status == "oom"
    assert record.reason.endswith("it held 5.4 GB, and 0.3 GB were free")


def refused(status: Status) -> Measured:
    return Measured(replace(measured().record, status=status, reason="so"))


@pytest.mark.parametrize("status", ["error", "wrong", "impossible"])
def test_after_a_case_that_failed_the_next_has_a_fresh_worker(status: Status) -> None:
    supervisor, (first, second) = supervise(
        [HELLO, OPENED, refused(status)], [HELLO, OPENED, measured()]
    )
    assert supervisor.measure("r", case(), CONTRACT, 0).status == status
    assert not first.killed, "it may still be asked for its modules"
    assert supervisor.measure("r", case(), CONTRACT, 0).status == "ok"
    assert first.killed
    assert second.heard[0] == Open("cpu")
    assert supervisor.renewals == [f"the case ended {status}"]


def test_what_a_case_changed_costs_its_worker_the_next_case() -> None:
    changed = Measured(measured().record, "it left 300 file descriptors open")
    supervisor, (first, _) = supervise([HELLO, OPENED, changed], [HELLO, OPENED, measured()])
    supervisor.measure("r", case(), CONTRACT, 0)
    supervisor.measure("r", case(), CONTRACT, 0)
    assert first.killed
    assert supervisor.renewals == ["it left 300 file descriptors open"]


@pytest.mark.parametrize("status", ["skipped", "cannot-block", "oom"])
def test_a_case_that_was_never_run_leaves_the_worker_to_the_next(status: Status) -> None:
    supervisor, (first,) = supervise([HELLO, OPENED, refused(status), measured()])
    supervisor.measure("r", case(), CONTRACT, 0)
    assert supervisor.measure("r", case(), CONTRACT, 0).status == "ok"
    assert not first.killed


def test_a_lost_device_is_a_crash_of_the_case_and_the_end_of_the_worker() -> None:
    supervisor, (worker, _) = supervise(
        [HELLO, OPENED, Failed("device-lost", "an illegal memory access")],
        [HELLO, OPENED, measured()],
    )
    record = supervisor.measure("r", case(), CONTRACT, 0)
    assert record.status == "crashed"
    assert "an illegal memory access" in record.reason
    assert worker.killed
    assert supervisor.measure("r", case(), CONTRACT, 0).status == "ok"


def test_an_answer_that_is_no_message_is_a_crash() -> None:
    supervisor, (worker, _) = supervise([HELLO, OPENED, Garble()], [HELLO, OPENED, measured()])
    record = supervisor.measure("r", case(), CONTRACT, 0)
    assert (record.status, record.reason) == (
        "crashed",
        "the answer of the worker cannot be read: JSON is malformed",
    )
    assert worker.killed
    assert supervisor.measure("r", case(), CONTRACT, 0).status == "ok"


@pytest.mark.parametrize(
    ("kind", "error"),
    [("usage", UsageError), ("workload", WorkloadError), ("cannot-measure", CannotMeasure)],
)
def test_a_refusal_becomes_the_error_of_its_kind_and_the_worker_lives_on(
    kind: str, error: type[GpuperfError]
) -> None:
    refusal = Failed(kind, "it cannot be", "do otherwise")
    supervisor, (worker,) = supervise([HELLO, refusal, Described(())])
    with pytest.raises(error, match="it cannot be") as raised:
        supervisor.describe("./mine.py")
    assert type(raised.value) is error
    assert raised.value.hint == "do otherwise"
    assert supervisor.describe("./other.py") == Described(())
    assert not worker.killed


def test_a_worker_that_died_between_two_cases_costs_no_case() -> None:
    supervisor, (first, second) = supervise(
        [HELLO, OPENED, measured()], [HELLO, OPENED, measured("next")]
    )
    supervisor.measure("r", case(), CONTRACT, 0)
    first.dead = Death()
    assert supervisor.measure("r", case("next"), CONTRACT, 0).status == "ok"
    assert second.heard[0] == Open("cpu")


def test_while_the_first_worker_starts_other_things_are_done_once() -> None:
    launcher = ScriptedLauncher([HELLO, OPENED], [HELLO, OPENED, measured()])
    done: list[int] = []
    supervisor = Supervisor(launcher, "cpu", meanwhile=lambda: done.append(launcher.started))
    assert done == []
    supervisor.open()
    supervisor.renew()
    supervisor.measure("r", case(), CONTRACT, 0)
    assert done == [1]
    assert launcher.started == 2


def test_a_worker_that_only_described_since_the_last_death_still_opens_the_device() -> None:
    supervisor, (first, second) = supervise(
        [HELLO, OPENED], [HELLO, Described(()), OPENED, measured()]
    )
    supervisor.open()
    first.dead = Death()
    supervisor.describe("./mine.py")
    assert supervisor.measure("r", case(), CONTRACT, 0).status == "ok"
    assert second.heard == [Describe("./mine.py"), Open("cpu"), Measure("r", case(), CONTRACT, 0)]


def test_a_worker_gone_before_it_is_asked_is_a_crash_and_no_broken_pipe() -> None:
    supervisor, (worker,) = supervise([HELLO])
    worker.death = lambda: None  # type: ignore[method-assign]
    worker.dead = Death()
    with pytest.raises(CannotMeasure, match="a closed pipe while opening the device"):
        supervisor.open()


def test_ctrl_c_while_a_record_is_shown_does_not_keep_it_from_the_file(tmp_path: Path) -> None:
    supervisor, _ = supervise([HELLO, OPENED, measured(), measured("next")])
    cases = (case(), case("next"))
    opened = supervisor.open()
    header = Header("r", "", (), cases, CONTRACT, opened.device, opened.fingerprint)

    def interrupted(record: Record) -> None:
        raise KeyboardInterrupt

    with RunWriter(tmp_path / "run.jsonl") as writer:
        writer.header(header)
        with pytest.raises(KeyboardInterrupt):
            measure_cases(supervisor, writer, header, schedule_of(header), interrupted)
    assert [record.case for record in read_run(tmp_path / "run.jsonl").records] == [case()]


def test_the_end_of_the_supervisor_is_the_end_of_its_worker() -> None:
    supervisor, (worker,) = supervise([HELLO, OPENED])
    with supervisor:
        supervisor.open()
        assert not worker.killed
    assert worker.killed


TROUBLE = """
import os, signal, sys, time
from dataclasses import replace
from pathlib import Path

import torch

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Workload

HERE = Path(__file__).parent


def chatters(x):
    sys.stdout.write("{not json}\\n" * 400_000)
    sys.stdout.flush()
    os.write(1, b'{"type":"measured"}\\n' * 100_000)
    return x * 2


def exits(x):
    print("goodbye")
    sys.stdout.flush()
    os._exit(1)


def loops(x):
    (HERE / "looping").write_text(str(os.getpid()))
    while True:
        pass


def raises(x):
    raise ArithmeticError("no such sum")


def forks(x):
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    (HERE / "child").write_text(str(child))
    os._exit(9)


def naps(x):
    (HERE / "napping").write_text(str(os.getpid()))
    time.sleep(2.5)
    return x * 2


def quits(x):
    sys.exit(0)


def garbles(x):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"garbage\\n")
        except OSError:
            pass
    return x * 2


def make_inputs(point, make):
    x = make((point.n,), point.dtype)
    with (HERE / "devices").open("a") as file:
        file.write(x.device.type + "\\n")
    return {"x": x}


def implementation(function):
    return Implementation(function.__name__, lambda inputs, p, o: lambda: function(inputs["x"]))


def good(x):
    return x * 2


def mumbles(x):
    raise ValueError("stray bytes: " + os.fsdecode(b"\\xff"))


def wrong(x):
    return x * 2.001


def greedy(x):
    return torch.empty(2**46)


def cost(point):
    return Cost((Flops(point.n, "elementwise", "fp32"),), (Bytes(4 * point.n, 4 * point.n),))


def half_bytes(point):
    return Cost(bytes=(Bytes(8 * point.n / 2, 4 * point.n),))


TROUBLE = Workload(
    "trouble", "twice x", "n FLOP",
    (Axis("n", 64, main=True), Axis("dtype", "auto", choices=("fp32",))),
    make_inputs, lambda inputs, point: inputs["x"].double() * 2, cost,
    tuple(map(implementation, (
        good, chatters, exits, loops, raises, mumbles, forks, naps, quits, garbles, wrong, greedy,
    ))),
)
HALVES = replace(TROUBLE, name="halves", cost=half_bytes)
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: /proc, and its signals")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trouble") / "trouble.py"
    path.write_text(TROUBLE)
    return path


@pytest.fixture(scope="module")
def living(file: Path) -> Iterator[Supervisor]:
    with Supervisor(LocalLauncher(), "cpu", deadline_s=8.0) as supervisor:
        yield supervisor


Try = Callable[..., Record]


@pytest.fixture
def attempt(living: Supervisor, file: Path) -> Try:
    """Measures a case of the troubled workload, by a worker that is already up."""
    living.describe(str(file))

    def measure(implementation: str, n: int = 64) -> Record:
        return living.measure("r", case(implementation, n, str(file)), CONTRACT, 0)

    return measure


def wait_for(path: Path, seconds: float = 10.0) -> str:
    """What *path* holds, as soon as it holds something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written within {seconds} s")


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def dies_within(pid: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_a_good_case_is_measured(attempt: Try) -> None:
    record = attempt("good")
    assert record.status == "ok"
    assert record.samples is not None
    assert record.samples.median_s > 0


def test_megabytes_on_stdout_break_nothing(attempt: Try) -> None:
    assert attempt("chatters").status == "ok"


def test_an_exit_of_the_process_is_a_crash_and_the_next_case_is_measured(attempt: Try) -> None:
    record = attempt("exits")
    assert record.status == "crashed"
    assert record.reason == "the worker died by exit code 1: goodbye"
    assert attempt("good").status == "ok"


def test_sys_exit_inside_a_case_is_a_crash_too(attempt: Try) -> None:
    record = attempt("quits")
    assert (record.status, record.reason) == ("crashed", "the worker died by exit code 0")


@linux
def test_an_endless_loop_is_a_timeout_and_its_process_is_gone(
    attempt: Try, living: Supervisor, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(living, "deadline_s", 3.0)
    record = attempt("loops")
    assert (record.status, record.reason) == ("timeout", "the worker reported nothing for 3 s")
    assert dies_within(int((file.parent / "looping").read_text()), 1.0)


def test_an_exception_is_an_error_with_its_sentence(attempt: Try) -> None:
    record = attempt("raises")
    assert record.status == "error"
    assert "ArithmeticError: no such sum" in record.reason


def test_an_exception_of_stray_bytes_is_an_error_like_any_other(attempt: Try) -> None:
    record = attempt("mumbles")
    assert record.status == "error"
    assert "ValueError: stray bytes: ?" in record.reason


def test_a_cost_of_half_a_byte_is_an_error_of_its_case_only(
    attempt: Try, living: Supervisor, file: Path
) -> None:
    halves = case("good", 64, str(file), "halves")
    record = living.measure("r", halves, CONTRACT, 0)
    assert record.status == "error"
    assert "an invalid Cost: Expected `int`, got `float`" in record.reason


def test_a_wrong_result_has_no_time(attempt: Try) -> None:
    record = attempt("wrong")
    assert record.status == "wrong"
    assert record.times == {}
    assert "float64 reference" in record.reason


@linux
def test_a_death_is_seen_before_the_deadline_though_a_child_keeps_the_pipes_open(
    attempt: Try, file: Path
) -> None:
    record = attempt("forks")
    assert (record.status, record.reason) == ("crashed", "the worker died by exit code 9")
    child = int((file.parent / "child").read_text())
    assert dies_within(child, 1.0), "what a dead worker leaves behind is ended with it"


def test_writing_to_every_low_descriptor_does_not_reach_our_pipe(attempt: Try) -> None:
    assert attempt("garbles").status == "ok"
    assert attempt("good").status == "ok"


@linux
def test_a_worker_killed_from_outside_costs_one_case(attempt: Try, file: Path) -> None:
    note = file.parent / "napping"
    note.unlink(missing_ok=True)
    killer = threading.Thread(target=lambda: os.kill(int(wait_for(note)), signal.SIGKILL))
    killer.start()
    record = attempt("naps")
    killer.join()
    assert record.status == "crashed"
    assert "SIGKILL" in record.reason
    assert attempt("good").status == "ok"


def test_a_size_beyond_memory_is_refused_before_anything_is_allocated(
    attempt: Try, file: Path
) -> None:
    note = file.parent / "devices"
    note.unlink(missing_ok=True)
    record = attempt("good", n=2**40)
    assert record.status == "oom"
    assert record.reason.startswith("needs 13,194.1 GB")
    assert note.read_text().split() == ["meta"]


def test_an_allocation_that_fails_inside_the_call_is_oom_too(attempt: Try) -> None:
    assert attempt("greedy").status == "oom"
    assert attempt("good").status == "ok"


HELPER = """
import sys
from gpuperf.model.contract import Contract
from gpuperf.model.workload import Case
from gpuperf.run.launcher import LocalLauncher
from gpuperf.run.supervisor import Supervisor

case = Case("trouble", "loops", {"n": 64, "dtype": "fp32"}, source=sys.argv[1])
with Supervisor(LocalLauncher(), "cpu") as supervisor:
    supervisor.measure("r", case, Contract(timer="wall"), 0)
"""


@linux
def test_a_worker_dies_with_a_supervisor_that_had_no_time_for_farewells(file: Path) -> None:
    note = file.parent / "looping"
    note.unlink(missing_ok=True)
    parent = subprocess.Popen([sys.executable, "-c", HELPER, str(file)])
    try:
        worker = int(wait_for(note, 30.0))
        assert is_alive(worker)
    finally:
        parent.kill()
        parent.wait()
    try:
        assert dies_within(worker, 2.0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
