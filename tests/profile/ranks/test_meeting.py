"""Do the processes of a launch meet, agree and part, whichever of them is late, stale or dead?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuperf.errors import CannotMeasure
from gpuperf.model.program import PassName
from gpuperf.model.protocol import Profile
from gpuperf.profile.inside.agreement import Agreement, agreement_of
from gpuperf.profile.inside.courses import Course, Limits
from gpuperf.profile.ranks import meeting as module
from gpuperf.profile.ranks.meeting import Meeting
from gpuperf.run.torchrun import Place, place_of

LAUNCH = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "here", "MASTER_PORT": "29500"}


def meet(folder: Path, world: int = 2, **more: float) -> list[Meeting]:
    """All ranks of a launch, each begun on a thread of its own."""
    ranks = [Meeting(folder, Place(rank, world, "l"), **more) for rank in range(world)]
    with ThreadPoolExecutor(world) as pool:
        list(pool.map(lambda one: one.begin("the-run"), ranks))
    return ranks


def soon(holds: Callable[[], object], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(holds())


def test_a_place_is_that_of_torchrun() -> None:
    place = place_of(LAUNCH)
    assert place is not None and (place.rank, place.world) == (1, 4)
    assert place.launch == place_of({**LAUNCH, "RANK": "2"}).launch  # type: ignore[union-attr]
    assert place.launch != place_of({**LAUNCH, "MASTER_PORT": "1"}).launch  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "changed",
    [{"WORLD_SIZE": "1"}, {"RANK": "4"}, {"RANK": "-1"}, {"RANK": "one"}, {"WORLD_SIZE": ""}],
)
def test_other_values_are_a_program_of_one_process(changed: dict[str, str]) -> None:
    assert place_of({**LAUNCH, **changed}) is None
    assert place_of({}) is None


def test_all_ranks_take_the_id_of_rank_0_and_leave_no_file(tmp_path: Path) -> None:
    ranks = meet(tmp_path, 4)
    assert {one.run for one in ranks} == {"the-run"}
    for one in ranks:
        one.end(0, "")
    assert ranks[0].await_others() == {}
    assert ranks[0].failed() == ""
    ranks[0].leave()
    assert ranks[1].await_others() == {0: "rank 0 removed the run's folder"}
    assert list(tmp_path.iterdir()) == []


def test_files_of_an_earlier_launch_do_no_harm(tmp_path: Path) -> None:
    lobby = tmp_path / ".ranks-l"
    lobby.mkdir()
    old = {"token": "old", "host": "elsewhere", "pid": 1}
    (lobby / "hello-1.json").write_text(json.dumps(old))
    (lobby / "welcome-1.json").write_text(json.dumps({**old, "run": "an-old-run"}))
    second = Meeting(tmp_path, Place(1, 2, "l"))
    begun = threading.Thread(target=second.begin, args=("",))
    begun.start()
    assert soon(lambda: b"old" not in (lobby / "hello-1.json").read_bytes())
    first = Meeting(tmp_path, Place(0, 2, "l"))
    first.begin("new-run")
    begun.join(10)
    assert second.run == "new-run"
    first.leave()


def test_a_rank_that_does_not_begin_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure, match=r"ranks 1, 2 of 3 did not begin within 0 s"):
        Meeting(tmp_path, Place(0, 3, "l"), meet_s=0.1).begin("run")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CannotMeasure, match="rank 0 did not answer rank 1"):
        Meeting(tmp_path, Place(1, 3, "l"), meet_s=0.1).begin("run")


def test_a_rank_that_fails_lets_the_others_end_by_themselves_first(tmp_path: Path) -> None:
    first, second = meet(tmp_path, grace_s=0.3)
    assert first.lost() == second.lost() == ""
    second.end(None, "it died by SIGKILL")
    assert first.failed() == "rank 1: it died by SIGKILL"
    assert first.lost() == ""
    assert soon(first.lost)
    assert first.lost() == "rank 1: it died by SIGKILL"
    first.leave()


def test_ranks_that_fail_alike_are_named_once(tmp_path: Path) -> None:
    first, second, third = meet(tmp_path, 3)
    for each in (second, third):
        each.end(1, "RuntimeError: sizes")
    assert first.failed() == "ranks 1 and 2: RuntimeError: sizes"


def test_a_ctrl_c_is_no_failure_of_a_rank(tmp_path: Path) -> None:
    first, second = meet(tmp_path)
    second.end(130, "it was interrupted", interrupted=True)
    assert first.failed() == "rank 1: it was interrupted"
    assert first.failed(interrupted=False) == ""
    first.leave()


def test_a_process_that_died_is_seen(tmp_path: Path) -> None:
    first, second = meet(tmp_path)
    second.leave()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    alive = {"count": 1, "host": module.socket.gethostname(), "pid": gone.pid}
    time.sleep(0.1)
    (second.folder / "alive-1").write_text(json.dumps(alive))
    assert first.absent(1) == f"its gpuperf process {gone.pid} died"
    assert first.await_others() == {1: f"its gpuperf process {gone.pid} died"}
    first.leave()


def test_a_process_of_another_host_is_dead_once_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.2)
    first, second = meet(tmp_path)
    second.leave()
    time.sleep(0.1)
    alive = {"count": 7, "host": "elsewhere", "pid": os.getpid()}
    (second.folder / "alive-1").write_text(json.dumps(alive))
    assert first.absent(1) == ""
    assert soon(lambda: "silent" in first.absent(1))
    first.leave()


def test_waiting_ends_after_an_interrupt(tmp_path: Path) -> None:
    first, _ = meet(tmp_path)
    assert first.await_others(0.1) == {1: "its program had not ended"}
    first.leave()


def test_ranks_take_the_steps_that_rank_0_chose(tmp_path: Path) -> None:
    own = [("plain", 10), ("trace", 5), ("counters", 10)]
    first, second = (Agreement(tmp_path, rank, 5.0) for rank in (0, 1))
    assert first.settle("step", [("plain", 4), ("trace", 2)]) == [("plain", 4), ("trace", 2)]
    assert second.settle("step", own) == [("plain", 4), ("trace", 2), ("counters", 10)]  # type: ignore[arg-type]


def test_without_an_answer_a_rank_takes_its_own_steps(tmp_path: Path) -> None:
    own = [("plain", 10)]
    assert Agreement(tmp_path, 1, 0.05).settle("step", own) == own  # type: ignore[arg-type]
    assert Agreement(tmp_path / "gone", 1, 60.0).settle("step", own) == own  # type: ignore[arg-type]
    Agreement(tmp_path, 0).settle("step", [("plain", "many"), ("trace", -1)])  # type: ignore[list-item]
    assert Agreement(tmp_path, 1, 5.0).settle("step", own) == own  # type: ignore[arg-type]


def test_a_program_of_one_process_agrees_with_nobody(tmp_path: Path) -> None:
    request = Profile(("a.py",), False, 1, 1, (), str(tmp_path))
    assert agreement_of(request) is None


def test_a_rank_does_not_wait_for_steps_of_a_program_that_has_ended(tmp_path: Path) -> None:
    (tmp_path / "ended-0.json").write_text("{}")
    assert Agreement(tmp_path, 1, 60.0).settle("step", [("plain", 3)]) == [("plain", 3)]


def test_a_rank_0_that_dies_before_it_reports_is_not_waited_for(tmp_path: Path) -> None:
    first, second = meet(tmp_path)
    first.end(0, "")
    first._stop.set()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    time.sleep(0.1)
    alive = {"count": 9, "host": module.socket.gethostname(), "pid": gone.pid}
    (first.folder / "alive-0").write_text(json.dumps(alive))
    assert second.await_others() == {0: f"its gpuperf process {gone.pid} died"}
    first.leave()


class _Settled:
    """An agreement that keeps what each region was offered."""

    def __init__(self) -> None:
        self.offered: list[tuple[str, list[tuple[PassName, int]]]] = []

    def settle(self, region: str, passes: list[tuple[PassName, int]]) -> list[tuple[PassName, int]]:
        self.offered.append((region, passes))
        return passes


def test_rank_0_chooses_fewer_steps_if_they_are_slow() -> None:
    settled = _Settled()
    limits = Limits(2, 10, 60.0, agreement=settled)  # type: ignore[arg-type]
    names: tuple[PassName, ...] = ("plain", "trace", "accounting", "kernels")
    course = Course("step", limits, limits.plan(names))
    course.began_s, course.done = time.perf_counter() - 3600, 1
    assert not course.is_warm()  # by its number of steps alone, however long they take
    course.began_s, course.done = time.perf_counter() - 8.0, 2
    assert course.is_warm() and course.is_warm()
    chosen = [("plain", 4), ("trace", 2), ("accounting", 2), ("kernels", 64)]
    assert settled.offered == [("step", chosen)]
    assert course.left == chosen


def test_without_a_warm_up_the_steps_are_those_of_the_request() -> None:
    settled = _Settled()
    limits = Limits(0, 10, 60.0, agreement=settled)  # type: ignore[arg-type]
    course = Course("step", limits, limits.plan(("plain", "trace")))
    assert course.is_warm()
    assert settled.offered == [("step", [("plain", 10), ("trace", 5)])]
