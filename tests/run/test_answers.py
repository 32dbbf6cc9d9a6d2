"""What a gang answers, rank by rank: its processes are scripts here, and no time passes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gpuperf.errors import CannotMeasure
from gpuperf.model.contract import Contract, DeviceFacts, Fingerprint
from gpuperf.model.gang import RankTimes
from gpuperf.model.protocol import (
    PROTOCOL,
    Describe,
    Described,
    Failed,
    FromWorker,
    Hello,
    Measured,
    Open,
    Opened,
    Progress,
    RunnableCases,
    ToWorker,
)
from gpuperf.model.record import Record
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case
from gpuperf.run import gang as module
from gpuperf.run.answers import combined, has_failed, named
from gpuperf.run.gang import GangConnection, GangLauncher
from gpuperf.run.supervisor import Supervisor

CONTRACT = Contract("wall")
CASE = Case("all_reduce", "gloo", {"bytes": 64, "dtype": "fp32", "world": 2})
GPU = DeviceFacts("cuda", 0, "NVIDIA H200", 132, 8, 4)
OPENED = Opened(GPU, Fingerprint(hard={"world": 2}))
OTHER = Opened(replace(GPU, index=1), Fingerprint(hard={"world": 2}))


def record(rank: int = 0, status: str = "ok", reason: str = "") -> Record:
    times = {"eager": Samples((1.0 + rank,))}
    own = (RankTimes(rank, rank, times),) if status == "ok" else ()
    return Record("r", CASE, CONTRACT, status, reason=reason, times=times, ranks=own)  # type: ignore[arg-type]


def measured(rank: int = 0, status: str = "ok", reason: str = "") -> Measured:
    return Measured(record(rank, status, reason))


@dataclass
class ScriptedRank:
    """Says its lines in order; None is silence, a text is how it dies."""

    script: list[FromWorker | str | None]
    name: str = "the worker"
    heard: list[ToWorker] = field(default_factory=list)
    end: str | None = None
    killed: bool = False
    memory: str = ""

    def send(self, message: ToWorker) -> None:
        if self.end:
            raise BrokenPipeError
        self.heard.append(message)

    def receive(self, timeout_s: float) -> FromWorker | None:
        assert timeout_s == 0.0, "a gang waits for all ranks, not for one"
        if not self.script:
            return None
        step = self.script.pop(0)
        if step == "garbled":
            raise ValueError("JSON is malformed")
        if isinstance(step, str):
            self.end = step
        return None if isinstance(step, str) else step

    def death(self) -> str | None:
        return self.end

    def starved(self) -> str:
        return self.memory

    def last_words(self) -> str:
        return "last words"

    def dismiss(self) -> None: ...

    def kill(self) -> None:
        self.killed = True


class Ranks:
    """Hands out the scripted ranks of one gang after the other."""

    def __init__(self, *scripts: list[FromWorker | str | None]) -> None:
        self.ranks = [ScriptedRank([Hello(PROTOCOL, 1, ""), *script]) for script in scripts]
        self._next = iter(self.ranks)

    def start(self) -> ScriptedRank:
        return next(self._next)


class Clock:
    """The clock of the gang: a look at it takes a millisecond, and nothing waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "time", Clock())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # not every test ends its gang


def supervise(
    *scripts: list[FromWorker | str | None], deadline_s: float = 100.0
) -> tuple[Supervisor, list[ScriptedRank]]:
    ranks = Ranks(*scripts)
    return Supervisor(GangLauncher(ranks, 2), "cuda", deadline_s), ranks.ranks


def test_each_rank_is_asked_for_its_own_place() -> None:
    supervisor, (first, second) = supervise([OPENED], [OTHER])
    assert supervisor.open().devices == (0, 1)
    folder = first.heard[0].folder  # type: ignore[union-attr]
    assert first.heard == [Open("cuda", 0, 2, folder, 0, 2)]
    assert second.heard == [Open("cuda", 1, 2, folder, 1, 2)]
    assert Path(folder).is_dir()
    supervisor.renew()
    assert first.killed and second.killed
    assert not Path(folder).exists()


def test_what_concerns_no_device_is_asked_of_one_rank() -> None:
    supervisor, (first, second) = supervise([Described(())], [])
    assert supervisor.describe("gpuperf.kernels") == Described(())
    assert first.heard == [Describe("gpuperf.kernels")]
    assert second.heard == []


def test_all_answer_and_each_has_its_times() -> None:
    supervisor, _ = supervise(
        [OPENED, Progress("time", 3), measured(0)], [OTHER, Progress("time", 9), measured(1)]
    )
    heard: list[tuple[str, int]] = []
    supervisor.listen = lambda phase, samples: heard.append((phase, samples))
    done = supervisor.measure("r", CASE, CONTRACT, 0)
    assert (done.status, done.world, done.devices) == ("ok", 2, (0, 1))
    assert [times.rank for times in done.ranks] == [0, 1]
    assert heard == [("time", 3)], "progress is that of the first rank"


@pytest.mark.parametrize("at", [0, 1])
def test_a_dead_rank_is_named_whatever_the_others_say(at: int) -> None:
    scripts: list[list[FromWorker | str | None]] = [
        [OPENED, measured(0, "error", "connection closed by peer")],
        [OTHER, measured(1, "error", "connection closed by peer")],
    ]
    scripts[at][1:] = [None, "signal 9 (SIGKILL)"]
    supervisor, _ = supervise(*scripts)
    done = supervisor.measure("r", CASE, CONTRACT, 0)
    assert done.status == "crashed"
    assert done.reason == f"rank {at} died by signal 9 (SIGKILL): last words"
    assert (done.world, done.devices) == (2, (0, 1))


def test_a_rank_that_took_all_memory_is_named() -> None:
    supervisor, (_, second) = supervise([OPENED], [OTHER, "signal 9 (SIGKILL)"])
    second.memory = "9 GB"
    done = supervisor.measure("r", CASE, CONTRACT, 0)
    assert (done.status, done.reason) == ("oom", "rank 1 took too much memory: 9 GB")


def test_a_rank_that_answers_garbage_is_named() -> None:
    supervisor, _ = supervise([OPENED], [OTHER, "garbled"])
    done = supervisor.measure("r", CASE, CONTRACT, 0)
    assert done.status == "crashed"
    assert done.reason == "the answer of rank 1 cannot be read: JSON is malformed"


def test_a_silent_rank_is_named_even_if_the_others_report() -> None:
    reports: list[FromWorker | str | None] = [Progress("time", n) for n in range(10_000)]
    supervisor, _ = supervise([OPENED, *reports], [OTHER], deadline_s=5.0)
    done = supervisor.measure("r", CASE, CONTRACT, 0)
    assert done.status == "timeout"
    assert done.reason == "rank 1 reported nothing for 5 s"


def test_a_rank_that_fails_alone_ends_the_case_for_all() -> None:
    supervisor, (first, _) = supervise([OPENED], [OTHER, measured(1, "wrong", "it is wrong")])
    done = supervisor.measure("r", CASE, CONTRACT, 0)
    assert (done.status, done.reason) == ("wrong", "rank 1: it is wrong")
    assert supervisor._worker is not None
    assert supervisor._worker.death() is not None, "the other rank waits in vain"
    assert not first.killed


def test_a_rank_that_cannot_open_its_device_is_named() -> None:
    supervisor, _ = supervise([OPENED], [Failed("cannot-measure", "no device", "get one")])
    with pytest.raises(CannotMeasure, match="rank 1: no device"):
        supervisor.open()
    both = Failed("cannot-measure", "no device", "get one")
    supervisor, _ = supervise([both], [both])
    with pytest.raises(CannotMeasure, match=r"^no device\n"):
        supervisor.open()


def test_a_gang_of_different_devices_is_refused() -> None:
    slower = Opened(replace(GPU, index=1, name="NVIDIA H100"), Fingerprint())
    supervisor, _ = supervise([OPENED], [slower])
    with pytest.raises(CannotMeasure, match="rank 1 has NVIDIA H100, and rank 0 NVIDIA H200"):
        supervisor.open()


def test_a_rank_that_is_gone_before_it_is_asked_is_named() -> None:
    ranks = [ScriptedRank([]), ScriptedRank([], end="exit code 1")]
    gang = GangConnection(ranks, Path("/nowhere"))
    with pytest.raises(BrokenPipeError):
        gang.send(Open("cuda"))
    assert (gang.name, gang.death()) == ("rank 1", "exit code 1")


def test_statuses_of_ranks_become_one() -> None:
    both = {0: measured(0, "skipped", "no"), 1: measured(1, "skipped", "no")}
    answer = combined(both, 2)
    assert isinstance(answer, Measured)
    assert (answer.record.reason, answer.changed) == ("no", "")
    mixed = combined({0: measured(0, "error", "lost a rank"), 1: measured(1, "wrong", "off")}, 2)
    assert isinstance(mixed, Measured)
    assert (mixed.record.status, mixed.record.reason) == ("wrong", "rank 1: off")
    assert mixed.changed, "the ranks are out of step, so the next case gets another gang"
    alone = combined({0: measured(0), 1: measured(1, "skipped", "no")}, 2)
    assert isinstance(alone, Measured)
    assert (alone.record.status, alone.record.reason) == ("skipped", "rank 1: no")
    assert alone.changed


def test_only_cases_that_all_ranks_can_run_are_runnable() -> None:
    assert combined({0: RunnableCases((0, 1, 2)), 1: RunnableCases((1, 2))}, 2) == RunnableCases(
        (1, 2)
    )


def test_a_rank_of_another_version_is_refused() -> None:
    supervisor, (_, second) = supervise([OPENED], [OTHER])
    second.script[0] = Hello(PROTOCOL - 1, 1, "")
    with pytest.raises(CannotMeasure, match="speaks another protocol"):
        supervisor.open()


def test_ranks_are_named_in_words() -> None:
    assert [named(ranks) for ranks in ([1], [2, 0], [3, 1, 2])] == [
        "rank 1",
        "ranks 0 and 2",
        "ranks 1, 2 and 3",
    ]
    assert has_failed(Failed("usage", "no"))
    assert not has_failed(measured())
