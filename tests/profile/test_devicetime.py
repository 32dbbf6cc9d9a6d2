"""Is every nanosecond of a window told once: busy, or idle for one reason?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_kineto import Trace

from gpuperf.model.timeline import Timeline
from gpuperf.profile.devicetime import ActivityTime, device_time
from gpuperf.profile.trace.kineto import read_trace

NS = 1e-9


def approx(ns: float) -> object:
    return pytest.approx(ns * NS, abs=1e-15)


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    """A step of 10,000 ns, and 2,000 of nothing after it.

    launched   50     800                    8000
    device            1000–2000 1500–2500    8100–8300, copies and a memset 3000–3900
    host waits                    2600–5000
    """
    trace = Trace()
    trace.mark("step", 0, 10_000)
    trace.launch("gemm", at=50, start=1000, end=2000)
    trace.launch(
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        at=800,
        start=1500,
        end=2500,
        stream=20,
    )
    trace.copy("HtoD (Pageable -> Device)", 3000, 3400, 4000)
    trace.copy("HtoD (Pinned -> Device)", 3200, 3500, 3000)
    trace.copy("DtoH (Device -> Pageable)", 3500, 3600, 1000)
    trace.copy("DtoD (Device -> Device)", 3600, 3700, 100)
    trace.copy("Device", 3800, 3900, 64, cat="gpu_memset")
    trace.call("cudaStreamSynchronize", 2600, 5000)
    trace.launch("gemm", at=8000, start=8100, end=8300)
    trace.op("late", 12_000, 12_001)
    return read_trace(trace.write(tmp_path / "t.json"))


def test_what_the_device_did_is_told_by_kind(timeline: Timeline) -> None:
    found = device_time(timeline, (0, 12_000))
    assert found.wall_s == approx(12_000)
    assert found.busy_s == approx(1500 + 700 + 100 + 200)
    assert found.kernels == ActivityTime(approx(1200), 0)  # type: ignore[arg-type]
    assert found.communication.seconds == approx(1000)
    assert found.sets == ActivityTime(approx(100), 64)  # type: ignore[arg-type]
    assert {name: (round(one.seconds / NS), one.bytes) for name, one in found.copies.items()} == {
        "HtoD pageable": (400, 4000),
        "HtoD pinned": (300, 3000),
        "DtoH pageable": (100, 1000),
        "DtoD": (100, 100),
    }


def test_idle_time_has_the_reason_that_applies_first(timeline: Timeline) -> None:
    found = device_time(timeline, (0, 12_000))
    # 55 … 1000 the first kernel was queued, 8005 … 8100 the last one.
    assert found.queued_s == approx(945 + 95)
    # 2600 … 5000 but for 3000 … 3700 and 3800 … 3900.
    assert found.sync_s == approx(2400 - 800)
    # The mark: 0 … 55, 2500 … 2600, 5000 … 8005, 8300 … 10000.
    assert found.host_s == approx(55 + 100 + 3005 + 1700)
    assert found.other_s == approx(2000)
    assert found.idle_s + found.busy_s == pytest.approx(found.wall_s)


def test_the_edge_of_a_window_cuts_time_and_bytes_in_proportion(timeline: Timeline) -> None:
    found = device_time(timeline, (3100, 3300))
    assert (found.wall_s, found.busy_s) == (approx(200), approx(200))
    assert found.copies["HtoD pageable"] == ActivityTime(approx(200), 2000)  # type: ignore[arg-type]
    assert found.copies["HtoD pinned"] == ActivityTime(approx(100), 1000)  # type: ignore[arg-type]


def test_a_window_without_length_is_a_slip(timeline: Timeline) -> None:
    with pytest.raises(ValueError, match="no length"):
        device_time(timeline, (5, 5))


def test_each_device_is_told_alone(tmp_path: Path) -> None:
    trace = Trace()
    trace.kernel("a", 0, 100, device=1)
    trace.kernel("b", 50, 80, device=3)
    timeline = read_trace(trace.write(tmp_path / "t.json"))
    assert timeline.active_devices == (1, 3)
    assert device_time(timeline, (0, 100)).busy_s == approx(100)
    assert device_time(timeline, (0, 100), device=3).busy_s == approx(30)
    assert device_time(timeline, (0, 100), device=0).busy_s == 0


def test_without_a_device_operators_are_what_is_busy(tmp_path: Path) -> None:
    trace = Trace(device=None)
    trace.mark("step", 0, 150)
    trace.op("outer", 0, 100)
    trace.op("inner", 10, 50)
    trace.op("beside", 90, 120, thread=2)
    timeline = read_trace(trace.write(tmp_path / "t.json"))
    found = device_time(timeline, (0, 200))
    assert (found.busy_s, found.host_s, found.other_s) == (approx(120), approx(30), approx(50))


@pytest.mark.parametrize(
    ("call", "waits"),
    [
        ("cudaDeviceSynchronize", True),
        ("cudaEventSynchronize", True),
        ("hipStreamSynchronize", True),
        ("cuCtxSynchronize", True),
        ("cudaMemcpy", True),
        ("cudaMemcpyAsync", False),
        ("cudaStreamWaitEvent", False),
        ("cudaEventQuery", False),
        ("cudaLaunchKernel", False),
    ],
)
def test_calls_that_wait_are_told_from_those_that_do_not(
    call: str, waits: bool, tmp_path: Path
) -> None:
    trace = Trace()
    trace.call(call, 0, 100)
    trace.kernel("k", 100, 110)
    timeline = read_trace(trace.write(tmp_path / "t.json"))
    found = device_time(timeline, (0, 110))
    assert (found.sync_s > 0, found.host_s > 0) == (waits, not waits)


moments = st.tuples(st.integers(0, 300), st.integers(1, 80))


@settings(max_examples=60, deadline=None)
@given(
    kernels=st.lists(st.tuples(st.integers(0, 200), moments), max_size=8),
    waits=st.lists(moments, max_size=3),
    marks=st.lists(moments, min_size=1, max_size=3),
    window=moments,
)
def test_busy_and_idle_parts_make_the_whole(
    kernels: list[tuple[int, tuple[int, int]]],
    waits: list[tuple[int, int]],
    marks: list[tuple[int, int]],
    window: tuple[int, int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    trace = Trace()
    for at, (wait, length) in kernels:
        trace.launch("k", at, at + wait, at + wait + length)
    for start, length in waits:
        trace.call("cudaStreamSynchronize", start, start + length)
    for start, length in marks:
        trace.mark("m", start, start + length)
    timeline = read_trace(trace.write(tmp_path_factory.mktemp("t") / "t.json"))
    found = device_time(timeline, (window[0], sum(window)))
    assert found.wall_s == pytest.approx(found.busy_s + found.idle_s)
    assert found.wall_s == approx(window[1])
    assert found.kernels.seconds == pytest.approx(found.busy_s)
