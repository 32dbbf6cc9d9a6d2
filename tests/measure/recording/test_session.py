"""A session takes CUPTI as it finds it, and leaves it so: from a fake of its activity API."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from fake_activity import BUSY, NOT_INITIALIZED, FakeActivity, kernel, layout

from gpuperf.measure.recording import session
from gpuperf.measure.recording.records import MEMSET
from gpuperf.measure.recording.session import CannotRecord, Recorder, open_recorder


def names(library: FakeActivity, recorder: Recorder, *records: bytes) -> list[str]:
    def run() -> None:
        for record in records:
            library.launch(record)

    return [record.name for record in recorder.record(run).records]


def refusal(recorder: Recorder, timed: bool = True) -> CannotRecord:
    with pytest.raises(CannotRecord) as caught:
        recorder.record(lambda: pytest.fail("it ran"), timed)
    return caught.value


def test_records_come_in_order_of_start_and_cupti_is_left_as_it_was() -> None:
    library = FakeActivity()
    recorder = Recorder(library)
    now = time.time_ns()
    late, early = kernel(50, b"late", now=now), kernel(10, b"early", now=now)
    assert names(library, recorder, late, early) == ["early", "late"]
    assert (library.enabled, library.subscriber) == (set(), False)
    assert library.log == [
        *("subscribe", "register", "enable 10", "enable 1", "enable 2", "enable 22", "flush"),
        *("disable 10", "disable 1", "disable 2", "disable 22", "flush", "unsubscribe"),
    ]
    assert recorder._open == {}


def test_a_second_session_has_its_own_records_alone() -> None:
    library = FakeActivity()
    recorder = Recorder(library)
    assert names(library, recorder, kernel(1, b"first")) == ["first"]
    library.launch(kernel(2, b"between"))
    assert names(library, recorder, kernel(3, b"second")) == ["second"]


def test_what_an_earlier_session_left_behind_is_not_counted() -> None:
    library = FakeActivity(refused={"flush": 999})
    recorder = Recorder(library)
    assert names(library, recorder, kernel(1, b"first")) == []
    library.refused.clear()
    assert names(library, recorder, kernel(2, b"second")) == ["second"]
    assert recorder._open == {}


def test_many_records_fill_many_buffers() -> None:
    library = FakeActivity(most=100)
    records = [kernel(index) for index in range(1001)]
    assert len(names(library, Recorder(library), *records)) == 1001
    assert library.buffers == (1 << 20) - 11


def test_a_buffer_of_another_profiler_is_passed_over() -> None:
    import ctypes

    foreign = (ctypes.c_uint8 * 64)()
    library = FakeActivity()
    recorder = Recorder(library)
    recorder._callbacks[1](None, 0, foreign, 64, 64)
    assert recorder._full == []
    assert names(library, recorder, kernel(1)) == ["fill"]


def test_dropped_and_incomplete_records_are_counted() -> None:
    library = FakeActivity(buffers=1, most=2, dropped=77)
    recorder = Recorder(library)

    def run() -> None:
        for record in (kernel(1), layout(MEMSET), kernel(2), kernel(3), kernel(4)):
            library.launch(record)

    recording = recorder.record(run)
    assert (len(recording.records), recording.lost) == (1, 4)


@pytest.mark.parametrize("step", ["subscribe", "register", "enable 10", "enable 2"])
def test_another_user_of_cupti_is_left_alone(step: str) -> None:
    library = FakeActivity(refused={step: BUSY})
    error = refusal(Recorder(library))
    assert error.busy
    assert f"result {BUSY}" in str(error)
    assert not library.enabled
    assert not library.subscriber


def test_a_program_under_torchs_profiler_is_not_disturbed() -> None:
    library = FakeActivity()
    recorder = Recorder(library)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        error = refusal(recorder)
    assert error.busy
    assert library.log == []
    assert names(library, recorder, kernel(1)) == ["fill"]


@pytest.mark.parametrize(
    "library",
    [FakeActivity(offset_ns=-(10**18)), FakeActivity(refused={"timestamp": NOT_INITIALIZED})],
    ids=["ticks", "none"],
)
def test_a_clock_that_counts_no_nanoseconds_gives_no_times(library: FakeActivity) -> None:
    recorder = Recorder(library)
    error = refusal(recorder)
    assert not error.busy
    assert library.log == []
    assert len(recorder.record(lambda: library.launch(kernel(1)), timed=False).records) == 1


@pytest.mark.parametrize("start", [-(10**18), 10**18])
def test_records_beside_the_time_of_the_session_are_not_believed(start: int) -> None:
    library = FakeActivity()
    recorder = Recorder(library)
    with pytest.raises(CannotRecord, match="clock") as caught:
        recorder.record(lambda: library.launch(kernel(start)))
    assert not caught.value.busy
    assert not library.subscriber
    refusal(recorder)  # before it runs


def test_records_stop_when_the_call_raises() -> None:
    library = FakeActivity()
    recorder = Recorder(library)

    def run() -> None:
        library.launch(kernel(1, b"lost"))
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        recorder.record(run)
    assert (library.enabled, library.subscriber) == (set(), False)
    assert names(library, recorder, kernel(2)) == ["fill"]


def test_a_second_thread_is_refused() -> None:
    library = FakeActivity()
    recorder = Recorder(library)
    found: list[str] = []

    def run() -> None:
        thread = threading.Thread(target=lambda: found.append(str(refusal(recorder))))
        thread.start()
        thread.join()

    recorder.record(run)
    assert found == ["another thread of this process records kernels"]


def test_ten_thousand_records_are_read_in_a_second() -> None:
    library = FakeActivity()
    recorder = Recorder(library)
    data = [kernel(1)] * 10_000
    began = time.process_time()
    assert len(names(library, recorder, *data)) == 10_000
    assert time.process_time() - began < 5


@pytest.mark.parametrize("version", [17, 18])
def test_a_cupti_before_12_is_left_alone(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_library", lambda: "libcupti.so")
    monkeypatch.setattr(session.ctypes, "CDLL", lambda name: FakeActivity(version))
    open_recorder.cache_clear()
    try:
        if version == 17:
            with pytest.raises(CannotRecord, match="version 17 of CUPTI is older"):
                open_recorder()
        else:
            assert open_recorder() is open_recorder()
    finally:
        open_recorder.cache_clear()


def test_without_a_library_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError("no such file")

    monkeypatch.setattr(session, "find_library", lambda: "libcupti.so")
    monkeypatch.setattr(session.ctypes, "CDLL", missing)
    open_recorder.cache_clear()
    with pytest.raises(CannotRecord, match="cannot be loaded: no such file"):
        open_recorder()
