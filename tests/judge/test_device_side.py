"""What a seat and the clerk do for a GPU, as far as it needs none: files, and errors of drivers."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpuperf.judge.clerk import Clerk
from gpuperf.judge.device_trial import DeviceTrial
from gpuperf.judge.inside import device_memory, device_side
from gpuperf.judge.inside.device_memory import HOLD_BYTES, HOLDS, CannotShare, allocate
from gpuperf.judge.inside.device_side import DeviceSide
from gpuperf.judge.inside.seat import FORGED, Seat
from gpuperf.judge.protocol import Look, Window
from gpuperf.judge.reading import read_task
from gpuperf.judge.seat import Ended
from gpuperf.judge.settings import Settings
from gpuperf.judge.task import Side, Submission
from gpuperf.measure.counters.cupti import NoCounters
from gpuperf.measure.recording.records import DeviceRecord

CORPUS = Path(__file__).parent.parent / "cheats" / "judged"


class StagingClerk(Clerk):
    """A clerk that shares files, as it does where a driver shares no memory."""

    @property
    def _gpu(self) -> bool:
        return True


def test_of_staged_results_a_submission_can_open_its_own_alone() -> None:
    task = read_task(CORPUS / "tasks" / "matmul.py", "kernelbench", 1)
    submission = Submission(str(CORPUS / "honest" / "matmul_torch.py"))
    with StagingClerk(task, task.cases[0], Settings(processes=1)) as clerk:
        with clerk._seat(0) as (seat, folder):
            others = [clerk._reference(0)]
            clerk._import(seat, submission, folder)
            shared = clerk._share_all(folder, others)
            assert clerk._staged
            assert Path(shared.results).parent == folder  # which a sandbox leaves open
            assert Path(shared.results).exists()
            assert not Path(shared.others).exists()
        assert not clerk.is_spoiled()


class RunningRecorder:
    """A recorder that runs what it is to record."""

    def record(self, run: Callable[[], None]) -> None:
        run()
        raise OSError("the recorder's own")


@pytest.mark.parametrize("own", [True, False])
def test_an_error_of_a_call_is_not_taken_for_that_of_the_recorder(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_side, "open_recorder", RunningRecorder)
    side: Any = object.__new__(DeviceSide)
    side._hold = side._mark = side.wait = lambda: None
    calls = []

    def body() -> None:
        calls.append(1)
        if own:
            raise OSError("the call's own")

    if own:
        with pytest.raises(OSError, match="the call's own"):
            side.record(body)
    else:
        assert "the recorder's own" in side.record(body).missing
    assert calls == [1]


class KnownRecords:
    """A recorder of two kernels, the mark, and sets that hold a stream for 40 ns, or fewer."""

    held = HOLDS

    def record(self, run: Callable[[], None]) -> Any:
        run()
        sets = [DeviceRecord(at, at + 1, "set", "set", bytes=HOLD_BYTES) for at in range(40)]
        held = [*sets[-self.held :], sets[-1]._replace()]  # the last is the submission's own
        kernels = [DeviceRecord(at, at + 40, "kernel", "half") for at in (20, 50)]
        mark = DeviceRecord(100, 101, "set", "set", bytes=1)
        return SimpleNamespace(records=sorted([*held, *kernels, mark]), lost=0)


@pytest.mark.parametrize("held", [HOLDS, HOLDS - 2])
def test_work_before_the_stream_is_free_is_early(
    held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KnownRecords, "held", held)
    monkeypatch.setattr(device_side, "open_recorder", KnownRecords)
    side: Any = object.__new__(DeviceSide)
    done: list[str] = []
    side._hold, side._mark = lambda: done.append("hold"), lambda: done.append("mark")
    side.wait = lambda: done.append("wait")
    seen = side.record(lambda: done.append("calls"))
    assert done == ["hold", "calls", "mark", "wait"]
    whole = held == HOLDS
    assert seen.early_s == (pytest.approx(20e-9) if whole else None)
    assert (seen.busy_s, seen.late_s) == (pytest.approx(70e-9), 0.0)
    assert [ran.name for ran in seen.ran] == (["half", "set"] if whole else ["half"])


class OfTheCall(OSError):
    """An error that a submission raises."""


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OfTheCall("no file"), "OfTheCall: no file"),
        (NoCounters("failed", "a lie"), "NoCounters: "),
        (ValueError("bad"), "ValueError: bad"),
        (torch.OutOfMemoryError("no room"), ""),
        (None, ""),
    ],
)
@pytest.mark.parametrize("side", ["submission", "reference"])
def test_an_error_of_a_call_is_not_taken_for_that_of_the_counters(
    error: Exception | None, raised: str, side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counting(library: Any, index: int, run: Callable[[], None], wanted: Any) -> None:
        with contextlib.suppress(RuntimeError):  # as an error of the profiler's end would hide it
            run()
        raise NoCounters("failed", "the counters' own")

    for name in ("find_library", "Cupti"):
        monkeypatch.setattr(device_side, name, lambda *given: None)
    monkeypatch.setattr(device_side.ctypes, "CDLL", lambda *given: None)
    monkeypatch.setattr(device_side, "count_kernels", counting)
    gpu: Any = object.__new__(DeviceSide)
    gpu.device, gpu.wait = torch.device("cuda:0"), lambda: None

    def call() -> None:
        if error is not None:
            raise error

    counts = gpu.count(call, side)
    assert counts.counted is None
    assert counts.raised.startswith(raised)
    assert bool(counts.raised) == bool(raised)
    assert bool(counts.missing) != bool(raised)

    seat: Any = SimpleNamespace(side=side, ask=lambda request: counts)
    trial = DeviceTrial(0, lambda request: None, "shared", (), False, {})
    if raised and side == "submission":
        with pytest.raises(Ended, match=f"a call raised {raised}"):
            trial.count(seat, 0)
    else:
        assert trial.count(seat, 0)
        assert "counted" in trial.missing["operations"] or counts.missing


class DriverWithoutHandles:
    """A driver that allocates memory, and shares none."""

    def __init__(self) -> None:
        self.held: set[int] = set()

    def cuMemAlloc_v2(self, address: Any, size: ctypes.c_size_t) -> int:
        address._obj.value = 4096
        self.held.add(4096)
        return 0

    def cuMemFree_v2(self, address: ctypes.c_uint64) -> int:
        self.held.remove(address.value)
        return 0

    def cuIpcGetMemHandle(self, handle: Any, address: ctypes.c_uint64) -> int:
        return 801  # CUDA_ERROR_NOT_SUPPORTED

    def cuGetErrorName(self, result: Any, name: Any) -> int:
        return 0


def test_memory_that_cannot_be_shared_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = DriverWithoutHandles()
    monkeypatch.setattr(device_memory, "_driver", lambda device: driver)
    with pytest.raises(CannotShare, match="share memory between processes"):
        allocate(64, torch.device("cuda:0"))
    assert driver.held == set()


@pytest.mark.parametrize("forges", [False, True])
def test_a_seat_says_that_its_notes_of_times_were_overwritten(forges: bool) -> None:
    seat = Seat()

    def call() -> torch.Tensor:
        claims = sys._getframe(1).f_locals["claims"]
        if forges:
            claims[:] = [1e-9] * len(claims)
        return torch.zeros(1)

    seat._calls = [call] * 3
    seat.answer(Window(1, (0, 1, 2)))
    assert seat.answer(Look()).replaced == (FORGED if forges else "")
