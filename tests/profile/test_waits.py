"""Is the device's idle time that of a wait only where the host, ahead, would have launched?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_kineto import Trace

from gpuperf.model.aten import Call
from gpuperf.model.program import ObservedCall, Wait
from gpuperf.profile.trace.kineto import read_trace
from gpuperf.profile.waits import idled_s, waits_of

US = 1000
ITEM = ObservedCall(Call("aten::_local_scalar_dense"), "a.py:7", "item")


def item(trace: Trace, start: int, end: int, thread: int = 1) -> None:
    """The host in `.item()`, in microseconds."""
    trace.op("aten::item", start * US - 20, end * US + 20, thread)
    trace.op("aten::_local_scalar_dense", start * US - 10, end * US + 10, thread)
    trace.call("cudaStreamSynchronize", start * US, end * US, thread)


def launch(trace: Trace, at: int, start: int, end: int) -> None:
    trace.launch("k", at * US, start * US, end * US)


def found(
    trace: Trace, path: Path, windows: Sequence[tuple[int, int]], *seen: ObservedCall
) -> dict[tuple[str, str], Wait]:
    timeline = read_trace(trace.write(path / "t.json"))
    spans = [(begin * US, end * US) for begin, end in windows]
    return {(one.what, one.where): one for one in waits_of(seen, 1, timeline, spans)}


def busy_then_late(waits: int = 190) -> Trace:
    """The device works from 10 to 200, the host waits until it is done, and launches kernels of
    10 µs every 40 µs after that."""
    trace = Trace()
    launch(trace, 5, 10, 200)
    item(trace, 200 - waits, 200)
    for at in (220, 260, 300):
        launch(trace, at, at + 5, at + 15)
    return trace


def test_a_wait_costs_what_the_device_idles_until_the_host_has_caught_up(tmp_path: Path) -> None:
    (wait,) = found(busy_then_late(), tmp_path, [(0, 400)], ITEM).values()
    assert (wait.what, wait.where, wait.count) == ("item", "a.py:7", 1.0)
    assert wait.idle_s == pytest.approx((25 + 30 + 30) * 1e-6)


def test_it_costs_no_more_than_the_host_waited(tmp_path: Path) -> None:
    (wait,) = found(busy_then_late(waits=40), tmp_path, [(0, 400)], ITEM).values()
    assert wait.idle_s == pytest.approx(40e-6)


def test_a_late_host_that_found_the_device_done_wins_nothing(tmp_path: Path) -> None:
    trace = Trace()
    launch(trace, 5, 10, 20)
    item(trace, 100, 101)
    launch(trace, 150, 155, 165)
    (wait,) = found(trace, tmp_path, [(0, 200)], ITEM).values()
    assert wait.idle_s == pytest.approx(1e-6)


def test_idle_time_before_a_wait_and_of_queued_work_is_not_its_own(tmp_path: Path) -> None:
    trace = Trace()
    launch(trace, 5, 10, 20)
    launch(trace, 60, 65, 200)  # late, before anybody waited
    launch(trace, 70, 230, 240)  # in time, and yet 30 µs later
    item(trace, 80, 240)
    (wait,) = found(trace, tmp_path, [(0, 300)], ITEM).values()
    assert wait.idle_s == 0


def test_what_no_operator_waits_in_is_a_synchronization(tmp_path: Path) -> None:
    trace = Trace()
    launch(trace, 5, 10, 200)
    trace.call("cudaDeviceSynchronize", 20 * US, 200 * US)
    launch(trace, 250, 255, 265)
    assert found(trace, tmp_path, [(0, 300)]) == {
        ("synchronize", ""): Wait("synchronize", "", 1.0, pytest.approx(55e-6))
    }
    assert found(trace, tmp_path, [(0, 235)]) == {  # the trace begins at 5
        ("synchronize", ""): Wait("synchronize", "", 1.0, pytest.approx(40e-6))
    }
    assert found(trace, tmp_path, [(240, 300)]) == {}  # the wait is of another region


def test_a_copy_from_pageable_memory_waits_without_a_call_that_says_so(tmp_path: Path) -> None:
    trace = Trace()
    launch(trace, 5, 10, 200)
    trace.op("aten::copy_", 19 * US, 211 * US)
    number = trace.call("cudaMemcpyAsync", 20 * US, 210 * US)
    trace.copy("DtoH (Device -> Pageable)", 200 * US, 209 * US, 1000, number)
    launch(trace, 250, 255, 265)
    (wait,) = found(trace, tmp_path, [(0, 300)]).values()
    assert (wait.what, wait.idle_s) == ("copy_", pytest.approx(46e-6))


def test_a_thread_that_launches_nothing_keeps_nobody_waiting(tmp_path: Path) -> None:
    trace = Trace()
    launch(trace, 5, 10, 200)
    trace.call("cudaEventSynchronize", 20 * US, 200 * US, thread=9)
    launch(trace, 250, 255, 265)
    assert found(trace, tmp_path, [(0, 300)]) == {}


def test_lines_of_one_operator_share_by_their_counts(tmp_path: Path) -> None:
    other = ObservedCall(ITEM.call, "a.py:9", "item")
    told = found(busy_then_late(), tmp_path, [(0, 200), (200, 400)], ITEM, other, other)
    assert {key[1]: round(one.idle_s * 1e9) for key, one in told.items()} == {
        "a.py:7": 14167,
        "a.py:9": 28333,  # of 85 µs in two steps
    }


def test_without_a_trace_the_lines_are_known_and_cost_nothing() -> None:
    assert waits_of([ITEM, ITEM], 1, None, []) == (Wait("item", "a.py:7", 2.0),)


LATENCY = 10  # nanoseconds from a launch to its kernel
Work = list[tuple[int, int, bool]]  # µs of the host, µs of a kernel, whether the host then waits


def played(work: Work, trace: Trace, waits: bool = True) -> int:
    """When the device is done with *work*, and a trace of it."""
    host, device = 1000, 0
    for before, length, wait in work:
        host += before * US
        start = max(host + LATENCY, device)
        device = start + length * US
        trace.launch("k", host, start, device)
        host += 5
        if wait and waits:
            trace.call("cudaDeviceSynchronize", host, max(host, device) + 100)
            host = max(host, device) + 100
    return device


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 60), st.booleans()), min_size=1, max_size=25
    )
)
def test_the_device_is_done_so_much_earlier_where_nobody_waits(
    tmp_path_factory: pytest.TempPathFactory, work: Work
) -> None:
    trace = Trace()
    saved_ns = played(work, trace) - played(work, Trace(), waits=False)
    told = found(trace, tmp_path_factory.mktemp("t"), [(0, 10_000)])
    idle_s = sum(one.idle_s for one in told.values())
    assert idle_s == pytest.approx(saved_ns * 1e-9, abs=len(work) * (LATENCY + 5) * 1e-9)


def light(waits: bool = True) -> Trace:
    """Without operators: the host waits 90 µs, and the device idles for all of that after it."""
    trace = Trace()
    launch(trace, 5, 10, 100)
    if waits:
        trace.call("cudaStreamSynchronize", 10 * US, 100 * US)
    launch(trace, 195, 200, 210)
    return trace


def test_a_light_trace_says_how_long_all_waits_idled(tmp_path: Path) -> None:
    timeline = read_trace(busy_then_late(waits=40).write(tmp_path / "t.json"))
    spans, slow = [(0, 400 * US)], read_trace(light().write(tmp_path / "light.json"))
    (wait,) = waits_of([ITEM], 1, timeline, spans, (slow, 2))
    assert (wait.where, wait.idle_s) == ("a.py:7", pytest.approx(45e-6))  # 90 µs in two steps
    calm = read_trace(light(waits=False).write(tmp_path / "calm.json"))
    (wait,) = waits_of([ITEM], 1, timeline, spans, (calm, 2))
    assert wait.idle_s == 0
    (alone,) = waits_of([], 1, None, [], (slow, 1))
    assert (alone.what, alone.where, alone.idle_s) == ("synchronize", "", pytest.approx(90e-6))


def test_between_kernels_is_what_lies_before_work_that_was_launched_in_time(tmp_path: Path) -> None:
    trace = Trace()
    launch(trace, 5, 30, 50)  # before it the device has not begun
    launch(trace, 40, 53, 60)  # in time
    launch(trace, 90, 100, 110)  # late
    timeline = read_trace(trace.write(tmp_path / "t.json"))
    windows = [(0, 115 * US)]  # since the first launch
    assert idled_s(timeline, windows) == pytest.approx(53e-6)  # and 10 behind the last
    assert idled_s(timeline, windows, between=True) == pytest.approx(3e-6)
