"""The recorder is chosen by the environment, and torch.profiler is what remains."""

from __future__ import annotations

import pytest
import torch
from fake_activity import BUSY, FakeActivity, kernel
from fake_tracer import US

from gpuperf.errors import UnknownName
from gpuperf.measure.caveats import odd_caveats, recorder_caveats
from gpuperf.measure.recording import work
from gpuperf.measure.recording.session import Recorder
from gpuperf.measure.recording.work import DEFAULT_RECORDER, Activity, Work, record_work
from gpuperf.measure.timers import activity
from gpuperf.measure.timers.activity import Trace, trace_calls
from gpuperf.measure.timers.timer import do_nothing
from gpuperf.measure.timers.window import BLOCK, CLOSE, HAND_OVER, OPEN, Reading

BY_KINETO = Work((Activity("by_kineto", 0.0, 1.0),))
BY_KINETO_ITSELF = work.record_by_kineto
MARKS = (BLOCK, OPEN, "add", CLOSE, HAND_OVER)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeActivity:
    fake = FakeActivity()
    recorder = Recorder(fake)
    monkeypatch.setenv(work.VARIABLE, "cupti")
    monkeypatch.setattr(work, "open_recorder", lambda: recorder)
    monkeypatch.setattr(work, "record_by_kineto", lambda run: (run(), BY_KINETO)[1])
    return fake


def test_the_environment_chooses_the_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(work.VARIABLE, raising=False)
    assert work.recorder_name() == DEFAULT_RECORDER
    for name in ("cupti", "kineto"):
        monkeypatch.setenv(work.VARIABLE, name)
        assert work.recorder_name() == name
    monkeypatch.setenv(work.VARIABLE, "cupty")
    with pytest.raises(UnknownName, match="did you mean 'cupti'"):
        record_work(lambda: pytest.fail("it ran"))


def test_activities_begin_at_zero_and_keep_single_nanoseconds(library: FakeActivity) -> None:
    def run() -> None:
        for start in (1000, 3001):
            library.launch(kernel(start, last=7, now=5 * 10**9))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time_ns", lambda: 5 * 10**9)
        found = record_work(run)
    assert found.activities == (
        Activity("fill", 0.0, pytest.approx(7e-9)),
        Activity("fill", pytest.approx(2001e-9), pytest.approx(2008e-9)),
    )
    assert (found.lost, found.doubt) == (0, "")


def test_kineto_records_where_the_clock_is_its_own(library: FakeActivity) -> None:
    library.offset_ns = 10**15
    assert record_work(do_nothing) == BY_KINETO


def test_a_program_under_torchs_profiler_keeps_its_session(library: FakeActivity) -> None:
    x = torch.ones(2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for record in (record_work, BY_KINETO_ITSELF):
            assert record(lambda: x + 1).activities in ((), BY_KINETO.activities)
    names = [event.name for event in profiler.events()]
    assert names.count("aten::add") == 2


def test_another_profiler_is_named(library: FakeActivity) -> None:
    library.refused["subscribe"] = BUSY
    found = record_work(do_nothing)
    assert found.activities == BY_KINETO.activities
    assert found.doubt == f"another profiler uses CUPTI (result {BUSY})"


class OneWindow:
    """Stands in for a window: each call leaves the records of its marks in *library*."""

    tick_s = 32e-9

    def __init__(self, library: FakeActivity, shift: int = 0, last: str = HAND_OVER) -> None:
        self.library, self.shift, self.last, self.taken = library, shift, last, 0

    def take(self, *arguments: object) -> Reading:
        self.taken += 1
        for index, name in enumerate(MARKS):
            start = self.shift + 10_000 * self.taken + 1000 * index
            self.library.launch(kernel(start, name.encode(), last=500))
        return Reading(10 * US, None, None, 5 * US)


def traced(window: OneWindow, count: int = 3) -> Trace | None:
    return trace_calls(window, do_nothing, 0.0, "cold", count)  # type: ignore[arg-type]


def test_calls_are_traced_by_the_recorder(library: FakeActivity) -> None:
    trace = traced(OneWindow(library))
    assert trace is not None
    assert trace.launches == ("add",)
    assert trace.busy_s == pytest.approx([0.5 * US] * 3, abs=1e-15)
    assert (trace.lost, trace.doubt, trace.odd) == (0, "", 0)
    assert not [*odd_caveats([trace]), *recorder_caveats(trace)]


def test_lost_records_are_a_caveat(library: FakeActivity) -> None:
    library.buffers, library.most = 1, 12
    trace = traced(OneWindow(library))
    assert trace is not None
    assert (len(trace.busy_s), trace.odd, trace.lost) == (2, 1, 3)
    (caveat,) = odd_caveats([trace])
    assert caveat.kind == "lost-records"
    assert caveat.message == "CUPTI lost 3 records, and 1 of 3 traced calls were discarded"


def test_calls_that_run_again_under_kineto_are_read_once(
    library: FakeActivity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is found to be of another unit only when the records come."""
    times = iter(range(100))

    def by_kineto(run: object) -> Work:
        run()  # type: ignore[operator]
        marks = [name for _ in range(3) for name in MARKS]
        return Work(tuple(Activity(name, t := next(times), t + 0.5) for name in marks))

    monkeypatch.setattr(work, "record_by_kineto", by_kineto)
    window = OneWindow(library, shift=-(10**18))
    trace = traced(window)
    assert trace is not None
    assert (window.taken, len(trace.readings), trace.doubt) == (6, 3, "")


def test_a_recorder_that_was_replaced_is_a_caveat(library: FakeActivity) -> None:
    library.refused["register"] = BUSY
    trace = Trace((), (), (), (), 0, 0.0, doubt=record_work(do_nothing).doubt)
    (caveat,) = recorder_caveats(trace)
    assert caveat.kind == "other-profiler"
    assert f"result {BUSY}" in caveat.message
    assert activity.record_work is record_work
