"""The records of CUPTI are split by call, and lost or misplaced ones are not counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.measure.recording.work import Activity
from gpuperf.measure.timers.activity import Trace, read_trace
from gpuperf.measure.timers.window import BLOCK, CLOSE, OPEN, OWN_KERNELS, Reading
from gpuperf.model.record import Kernel

US = 1e-6
PERIOD = 1000  # microseconds from one window to the next
OPENED = 20  # microseconds after which the first mark of a window has ended

# A kernel of a call: its name, its start and its end in microseconds after the window opened.
Ran = tuple[str, float, float]


def window(calls: Sequence[Ran], index: int = 0, closes: float | None = None) -> list[Activity]:
    """The flush, the blocker, the marks and *calls* between them, by their start."""
    begin = index * PERIOD
    closes = max((end for _, _, end in calls), default=0.0) + 1 if closes is None else closes
    ran = [
        ("gpuperf_read_lines", -15.0, -5.0),
        (BLOCK, 0.0, OPENED - 2.0),
        (OPEN, OPENED - 2.0, OPENED + 0.0),
        *((name, OPENED + start, OPENED + end) for name, start, end in calls),
        (CLOSE, OPENED + closes, OPENED + closes + 1),
        ("gpuperf_hand_over", OPENED + closes + 2, OPENED + closes + 4),
    ]
    return sorted(
        (Activity(name, (begin + 20 + s) * US, (begin + 20 + e) * US) for name, s, e in ran),
        key=lambda activity: activity.start_s,
    )


def reading(index: int) -> Reading:
    return Reading(10 * US + index, 1.9e9 + index, 1.98e9, 5 * US)


def read(windows: Iterable[Sequence[Activity]]) -> Trace:
    """The trace of *windows*, one reading to each; an empty window lost all its records."""
    windows = list(windows)
    activities = [activity for one in windows for activity in one]
    return read_trace(activities, [reading(i) for i in range(len(windows))])


def without(name: str, activities: Sequence[Activity]) -> list[Activity]:
    return [activity for activity in activities if activity.name != name]


def micros(times_s: Sequence[float]) -> list[float]:
    return [round(time_s / US, 6) for time_s in times_s]


def test_a_call_of_one_kernel_is_busy_for_its_duration() -> None:
    trace = read(window([("gemm", 1, 4 + i)], i) for i in range(3))
    assert micros(trace.busy_s) == micros(trace.span_s) == [3, 4, 5]
    assert trace.kernels == (Kernel("gemm"),)
    assert trace.kernel_count == 1
    assert trace.readings == tuple(reading(i) for i in range(3))
    assert (trace.odd, trace.outside_s) == (0, 0.0)


def test_the_gaps_between_kernels_are_in_the_span_alone() -> None:
    trace = read([window([("gemm", 0, 4), ("scale", 5, 6), ("gemm", 8, 11)])])
    assert micros(trace.busy_s) == [4 + 1 + 3]
    assert micros(trace.span_s) == [11]
    assert trace.kernels == (Kernel("gemm", 2), Kernel("scale", 1))
    assert trace.kernel_count == 3


def test_kernels_of_two_streams_at_once_are_busy_once() -> None:
    apart = [("left", 0.0, 6.0), ("right", 4.0, 10.0)]
    within = [("left", 0.0, 10.0), ("right", 2.0, 5.0), ("right", 6.0, 8.0), ("left", 9.0, 12.0)]
    for calls, busy in ((apart, 10), (within, 12)):
        trace = read([window(calls)])
        assert micros(trace.busy_s) == micros(trace.span_s) == [busy]


def test_copies_and_memsets_are_kernels_of_the_call() -> None:
    trace = read([window([("Memcpy HtoD (Pinned -> Device)", 0, 9), ("Memset (Device)", 9, 10)])])
    assert trace.kernel_count == 2
    assert micros(trace.busy_s) == [10]


def test_what_gpuperf_itself_runs_is_none_of_the_call() -> None:
    """The flush before a window is recorded after the mark that closes the last one."""
    trace = read(window([("gemm", 0, 4)], i) for i in range(4))
    assert not {kernel.name for kernel in trace.kernels} & set(OWN_KERNELS)
    dirty = [
        Activity("gpuperf_write_lines", a.start_s, a.end_s) if a.name == "gpuperf_read_lines" else a
        for a in window([("gemm", 0, 4)])
    ]
    assert read([dirty]).kernels == (Kernel("gemm"),)


def test_a_call_whose_record_was_lost_is_odd_and_in_no_time() -> None:
    both: list[Ran] = [("gemm", 0, 4), ("scale", 5, 6)]
    windows = [window(both, i) for i in range(5)]
    windows[2] = window(both[:1], 2)
    trace = read(windows)
    assert trace.odd == 1
    assert micros(trace.busy_s) == [5] * 4
    assert trace.readings == tuple(reading(i) for i in (0, 1, 3, 4))
    assert trace.kernels == (Kernel("gemm"), Kernel("scale"))
    assert trace.outside_s == 0


def test_the_kernels_of_most_calls_are_the_usual_ones() -> None:
    windows = [window([("tune", 0, 50), ("gemm", 60, 64)], 0)]
    windows += [window([("gemm", 0, 4)], i) for i in range(1, 4)]
    trace = read(windows)
    assert trace.kernels == (Kernel("gemm"),)
    assert (trace.odd, micros(trace.busy_s)) == (1, [4, 4, 4])


@pytest.mark.parametrize("name", OWN_KERNELS)
def test_a_kernel_of_the_call_counts_whatever_its_name(name: str) -> None:
    """A kernel that does the work may bear the name of the flush, beside a tiny one."""
    trace = read(window([("tiny", 0, 1), (name, 2, 1002)], i) for i in range(4))
    counted = sum(micros(trace.busy_s))
    assert counted == 4 * 1001 or (counted, trace.odd) == (0, 4)


def test_a_call_that_imitates_whole_windows_has_no_time() -> None:
    half: list[Ran] = [
        ("gemm", 0, 4),
        (CLOSE, 5, 6),
        ("gpuperf_hand_over", 7, 8),
        (BLOCK, 9, 10),
        (OPEN, 11, 12),
        ("gemm", 13, 17),
    ]
    trace = read(window(half, i) for i in range(4))
    assert (trace.busy_s, trace.odd) == ((), 4)


def test_what_calls_with_more_kernels_add_is_shared_by_all() -> None:
    windows = [window([("tiny", 0, 1)], i) for i in range(9)]
    windows[4] = window([("tiny", 0, 1), ("gemm", 2, 92)], 4)
    assert read(windows).extra_s == pytest.approx(10 * US)
    lost = [window([("tiny", 0, 1), ("gemm", 2, 92)], i) for i in range(9)]
    lost[4] = window([("tiny", 0, 1)], 4)
    assert read(lost).extra_s == 0


def test_two_calls_behind_one_blocker_are_not_one_that_does_more() -> None:
    windows = [window([("gemm", 0, 4)], i) for i in range(5)]
    windows[2] = without(BLOCK, windows[2])
    assert read(windows).extra_s == 0


@pytest.mark.parametrize("mark", [OPEN, CLOSE])
@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_window_that_lost_a_mark_is_odd_and_the_others_keep_their_readings(
    mark: str, place: int
) -> None:
    windows = [window([("gemm", 0, 4 + i)], i) for i in range(5)]
    windows[place] = without(mark, windows[place])
    trace = read(windows)
    left = [i for i in range(5) if i != place]
    assert (trace.odd, trace.outside_s) == (1, 0.0)
    assert micros(trace.busy_s) == [4 + i for i in left]
    assert trace.readings == tuple(reading(i) for i in left)


def test_windows_without_their_marks_are_not_the_usual_call_however_many() -> None:
    windows = [window([("gemm", 0, 4)], i) for i in range(5)]
    windows[1:] = [without(OPEN, one) for one in windows[1:]]
    trace = read(windows)
    assert (trace.kernels, trace.odd, len(trace.busy_s)) == ((Kernel("gemm"),), 4, 1)


def test_a_window_that_lost_a_mark_is_odd_though_the_call_has_no_kernel() -> None:
    trace = read([window([], 0), without(CLOSE, window([], 1)), window([], 2)])
    assert (trace.kernels, trace.odd, len(trace.busy_s)) == ((), 1, 2)


def test_where_two_windows_cannot_be_separated_no_reading_is_assigned() -> None:
    """Two calls behind one blocker: neither is in the times, and no clock is given to another."""
    windows = [window([("gemm", 0, 4 + i)], i) for i in range(5)]
    windows[2] = without(BLOCK, windows[2])
    trace = read(windows)
    assert micros(trace.busy_s) == [4, 7, 8]
    assert trace.odd == 2
    assert trace.readings == ()


def test_a_blocker_that_was_lost_is_no_side_stream() -> None:
    windows = [window([("gemm", 0, 4)], i) for i in range(3)]
    windows[1] = without(BLOCK, windows[1])
    assert read(windows).outside_s == 0


def test_kernels_of_two_streams_are_the_same_whichever_starts_first() -> None:
    left: list[Ran] = [("left", 0.0, 6.0), ("right", 0.1, 6.0)]
    right: list[Ran] = [("left", 0.1, 6.0), ("right", 0.0, 6.0)]
    assert read(window(call, i) for i, call in enumerate([left, right, left])).odd == 0


def test_calls_that_were_lost_altogether_are_odd() -> None:
    trace = read([window([("gemm", 0, 4)], 0), [], window([("gemm", 0, 4)], 2)])
    assert (trace.odd, trace.kernels) == (1, (Kernel("gemm"),))
    assert len(trace.busy_s) == 2
    assert trace.readings == ()


def test_no_record_at_all_is_no_call() -> None:
    assert read([[], []]) == Trace((), (), (), (), odd=2, outside_s=0.0)
    assert read([]) == Trace((), (), (), (), odd=0, outside_s=0.0)


def test_a_call_that_gives_the_device_nothing_has_no_kernel_and_is_not_odd() -> None:
    trace = read(window([], i) for i in range(3))
    assert trace.busy_s == trace.span_s == (0.0,) * 3
    assert (trace.kernels, trace.kernel_count, trace.odd) == ((), 0, 0)
    assert len(trace.readings) == 3


@pytest.mark.parametrize(("start", "outside"), [(-6, 6), (-0.5, 0.5), (0, 0), (3, 0)])
def test_work_before_the_window_opened_is_outside(start: float, outside: float) -> None:
    trace = read([window([("side", start, 4), ("gemm", 4, 8)])])
    assert micros([trace.outside_s]) == [outside]


@pytest.mark.parametrize(("end", "outside"), [(30, 20), (10.5, 0.5), (10, 0), (9, 0)])
def test_work_after_the_window_closed_is_outside(end: float, outside: float) -> None:
    trace = read([window([("gemm", 0, 8), ("side", 2, end)], closes=10)])
    assert micros([trace.outside_s]) == [outside]


def test_work_wholly_before_or_after_its_window_is_outside_by_all_its_length() -> None:
    early = read([window([("side", -10, -4)], closes=1)])
    late = read([window([("gemm", 0, 8), ("side", 15, 18)], closes=10)])
    assert early.outside_s >= 6 * US
    assert late.outside_s >= 3 * US


def test_of_many_calls_the_one_that_escaped_furthest_is_reported() -> None:
    calls: list[list[Ran]] = [[("gemm", 0, 8)], [("gemm", -3, 8)], [("gemm", -5, 8)]]
    trace = read(window(call, i) for i, call in enumerate(calls))
    assert micros([trace.outside_s]) == [5]


whole = st.integers(0, 200)
kernels = st.lists(
    st.tuples(st.sampled_from(["gemm", "scale", "Memset"]), whole, st.integers(1, 60)).map(
        lambda ran: (ran[0], float(ran[1]), float(ran[1] + ran[2]))
    ),
    min_size=1,
    max_size=12,
)


@given(kernels)
def test_the_busy_time_is_the_union_of_the_kernels(calls: list[Ran]) -> None:
    """Counted another way: the microseconds in which at least one of them ran."""
    trace = read([window(calls)])
    covered = {us for _, start, end in calls for us in range(int(start), int(end))}
    assert micros(trace.busy_s) == [len(covered)]
    assert micros(trace.span_s) == [max(e for _, _, e in calls) - min(s for _, s, _ in calls)]
    assert trace.kernel_count == len(calls)
    assert trace.outside_s == 0


@given(kernels)
def test_the_busy_time_is_within_its_bounds(calls: list[Ran]) -> None:
    trace = read([window(calls)])
    durations = [end - start for _, start, end in calls]
    busy, span = trace.busy_s[0] / US, trace.span_s[0] / US
    assert max(durations) - 1e-6 <= busy <= sum(durations) + 1e-6
    assert busy <= span + 1e-6


@given(kernels, st.integers(1, 10**6))
def test_when_it_ran_is_no_matter(calls: list[Ran], later: int) -> None:
    here, there = read([window(calls)]), read([window(calls, later)])
    assert there.busy_s == pytest.approx(here.busy_s, abs=1e-11)
    assert there.span_s == pytest.approx(here.span_s, abs=1e-11)
    assert there.kernels == here.kernels


@given(
    st.lists(kernels, min_size=1, max_size=2), st.lists(st.integers(0, 1), min_size=1, max_size=8)
)
def test_every_call_is_in_the_times_or_odd(calls: list[list[Ran]], which: list[int]) -> None:
    trace = read(window(calls[w % len(calls)], i) for i, w in enumerate(which))
    assert len(trace.busy_s) == len(trace.span_s) == len(trace.readings)
    assert len(trace.busy_s) + trace.odd == len(which)
    assert len(trace.busy_s) >= trace.odd or len(calls) > 1
    assert 2 * len(trace.busy_s) >= len(which)
