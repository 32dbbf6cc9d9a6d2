"""Do the processes of a gang answer as one, and is the rank named that does not?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import ranked

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.model.contract import Contract
from gpuperf.model.record import Record
from gpuperf.model.workload import Case
from gpuperf.run.gang import GangLauncher
from gpuperf.run.launcher import LocalLauncher
from gpuperf.run.stacks import Place, innermost
from gpuperf.run.supervisor import Supervisor

SOURCE = str(Path(ranked.__file__))
# Twelve samples however slow the machine is: the bad rank misbehaves at its tenth call.
CONTRACT = Contract(
    "wall", gap_s=0.0, budget_s=30.0, min_samples=12, max_samples=12, warmup_calls=0
)
DEADLINE_S = 3.0


@contextlib.contextmanager
def gang_of(world: int, device: str = "cpu", deadline_s: float = 60.0) -> Iterator[Supervisor]:
    with Supervisor(GangLauncher(LocalLauncher(), world), device, deadline_s) as supervisor:
        yield supervisor


def case(implementation: str, world: int = 2) -> Case:
    return Case("ranked", implementation, {"n": 64, "dtype": "fp32", "world": world}, {}, SOURCE)


def measure(supervisor: Supervisor, name: str, deadline_s: float = 60.0) -> Record:
    supervisor.deadline_s = deadline_s
    return supervisor.measure("r", case(name, len(supervisor.open().devices)), CONTRACT, 0)


def assert_good(record: Record, world: int) -> None:
    assert (record.status, record.reason) == ("ok", "")
    assert (record.world, record.devices) == (world, (0,) * world)
    assert [times.rank for times in record.ranks] == list(range(world))
    whole = record.times["eager"].values_s
    own = [times.times["eager"].values_s for times in record.ranks]
    assert record.primary == "eager"
    for index, seconds in enumerate(whole):
        assert seconds == max(values[index] for values in own)


def test_each_rank_of_a_gang_has_its_times_in_the_record() -> None:
    with gang_of(2) as gang:
        opened = gang.open()
        assert opened.devices == (0, 0)
        assert opened.fingerprint.hard["world"] == 2
        assert_good(measure(gang, "good"), 2)


def test_a_case_fails_with_its_rank_and_the_next_case_is_measured() -> None:
    with gang_of(2) as gang:
        assert measure(gang, "good").status == "ok"
        died = measure(gang, "dies")
        assert died.status == "crashed"
        assert died.reason.startswith("rank 1 died by signal 9 (SIGKILL)")
        assert (died.world, died.devices) == (2, (0, 0))
        hung = measure(gang, "hangs", DEADLINE_S)
        assert hung.status == "timeout"
        line = "(in fall_silent, ranked.py line "
        assert hung.reason.startswith(f"rank 1 {line}")
        assert hung.reason.endswith("reported nothing for 3 s")
        wrong = measure(gang, "wrong")
        assert wrong.status == "wrong"
        assert wrong.reason.startswith("rank 1: the result differs from the float64 reference")
        assert wrong.times == {}
        raised = measure(gang, "raises")
        assert raised.status == "error"
        assert "rank 1: " in raised.reason and "no more" in raised.reason
        assert_good(measure(gang, "good"), 2)


def test_a_rank_that_the_system_stops_is_named() -> None:
    with gang_of(2) as gang:
        stopped = measure(gang, "stops", DEADLINE_S)
        assert stopped.status == "timeout"
        assert stopped.reason == "rank 1 (no answer) reported nothing for 3 s"


def test_a_gang_of_four_continues_after_a_rank_that_lacks_something() -> None:
    with gang_of(4) as gang:
        lacks = measure(gang, "lacks")
        assert (lacks.status, lacks.reason) == ("skipped", "rank 1: this rank has no such kernel")
        assert_good(measure(gang, "good"), 4)


def test_no_process_and_no_folder_of_a_gang_remains() -> None:
    with gang_of(2) as gang:
        gang.open()
        connection = gang._worker
        folder, pids = connection.folder, list(connection._pids.values())  # type: ignore[union-attr]
        assert folder.is_dir()
    assert not folder.exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_gang_cannot_have_one_device_twice() -> None:
    with gang_of(2, "cuda:0") as gang, pytest.raises(UsageError, match="exclude each other"):
        gang.open()


def test_a_gang_cannot_have_more_gpus_than_there_are() -> None:
    with gang_of(3, "cuda") as gang, pytest.raises(CannotMeasure, match="--gpus 3 is more than"):
        gang.open()


def test_the_innermost_frame_of_a_stack_says_where_a_rank_is() -> None:
    stack = (
        "Current thread 0x00007f (most recent call first):\n"
        '  File "/home/me/mine.py", line 12 in call\n'
        '  File "/x/gpuperf/measure/bench.py", line 3 in measure\n'
    )
    place = innermost(stack)
    assert place == Place("/home/me/mine.py", 12, "call")
    assert (str(place), place.waits) == ("in call, mine.py line 12", False)
    assert innermost("") is None
    assert Place("/x/torch/distributed/distributed_c10d.py", 9, "all_reduce").waits
