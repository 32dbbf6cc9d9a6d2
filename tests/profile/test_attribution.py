"""Does each kernel find the operator that launched it, and is no time lost or counted twice?"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_kineto import Trace
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode

from gpuperf.model.timeline import Timeline
from gpuperf.profile.attribution import CallGroup, call_groups, call_stacks
from gpuperf.profile.trace.kineto import read_trace

NS = 1e-9


def timeline_of(trace: Trace, folder: Path) -> Timeline:
    return read_trace(trace.write(folder / "t.json"))


def named(timeline: Timeline) -> list[list[str]]:
    """The chain of each activity, by names."""
    calls = timeline.operators.call
    return [[timeline.calls[calls[i]].name for i in chain] for chain in call_stacks(timeline)]


def whole(timeline: Timeline) -> list[tuple[int, int]]:
    return [(0, timeline.length + 1)]


def by_name(found: tuple[CallGroup, ...]) -> dict[str, CallGroup]:
    assert len({one.call.name for one in found}) == len(found)
    return {one.call.name: one for one in found}


def test_a_chain_is_what_was_open_at_the_launch_on_its_thread(tmp_path: Path) -> None:
    trace = Trace()
    trace.op("aten::linear", 0, 100)
    trace.op("aten::t", 5, 20)
    trace.op("aten::addmm", 20, 90)
    trace.op("elsewhere", 0, 200, thread=2)
    trace.launch("in-t", at=10, start=200, end=210)
    trace.launch("in-addmm", at=20, start=210, end=220)
    trace.launch("in-linear", at=95, start=220, end=230)
    trace.launch("in-none", at=100, start=230, end=240)
    trace.launch("beside", at=50, start=240, end=250, thread=2)
    trace.launch("by-driver", at=60, start=250, end=260, api="cuLaunchKernel")
    trace.kernel("unknown", 260, 270)
    assert named(timeline_of(trace, tmp_path)) == [
        ["aten::t", "aten::linear"],
        ["aten::addmm", "aten::linear"],
        ["aten::linear"],
        [],
        ["elsewhere"],
        ["aten::addmm", "aten::linear"],
        [],
    ]


def test_of_equal_spans_the_first_in_the_file_is_the_outer(tmp_path: Path) -> None:
    trace = Trace()
    trace.op("outer", 0, 10)
    trace.op("inner", 0, 10)
    trace.launch("k", at=0, start=20, end=30)
    assert named(timeline_of(trace, tmp_path)) == [["inner", "outer"]]


def test_what_ends_on_another_thread_encloses_nothing(tmp_path: Path) -> None:
    """`nccl:all_reduce` ends with the collective, long after the operator that began it."""
    trace = Trace()
    trace.op("c10d::allreduce_", 0, 1000)
    trace.op("nccl:all_reduce", 100, 900_000)
    trace.launch("ncclDevKernel", at=200, start=3000, end=4000)
    trace.op("aten::mm", 2000, 3000)
    trace.launch("gemm", at=2500, start=4000, end=5000)
    timeline = timeline_of(trace, tmp_path)
    assert named(timeline) == [["c10d::allreduce_"], ["aten::mm"]]
    found = by_name(call_groups(timeline, whole(timeline)))
    assert found["nccl:all_reduce"].host_s == 0
    assert found["aten::mm"].host_s == pytest.approx(1000 * NS)


def test_times_rounded_to_microseconds_still_nest(tmp_path: Path) -> None:
    trace = Trace()
    trace.op("outer", 0, 10_000)
    trace.op("inner", 5000, 11_000)
    trace.launch("k", at=9000, start=20_000, end=30_000)
    timeline = timeline_of(trace, tmp_path)
    assert named(timeline) == [["inner", "outer"]]
    assert sum(one.host_s for one in call_groups(timeline, whole(timeline))) == pytest.approx(1e-5)


def test_kinetos_own_number_serves_where_the_thread_does_not_tell(tmp_path: Path) -> None:
    trace = Trace()
    outer = trace.op("outer", 0, 100)
    inner = trace.op("inner", 10, 50)
    key = "External id"
    trace.kernel("no-call", 200, 210, **{key: inner})
    trace.kernel(
        "wrong-thread", 210, 220, trace.call("cudaLaunchKernel", 20, 25, 9, **{key: inner})
    )
    trace.kernel("over", 220, 230, trace.call("cudaLaunchKernel", 60, 65, 9, **{key: inner}))
    trace.kernel("outer", 230, 240, trace.call("cudaLaunchKernel", 60, 65, 9), **{key: outer})
    trace.kernel("nobody's", 240, 250, **{key: 77})
    assert named(timeline_of(trace, tmp_path)) == [
        ["inner", "outer"],
        ["inner", "outer"],
        [],
        ["outer"],
        [],
    ]


def test_usages_have_known_answers(tmp_path: Path) -> None:
    shapes: dict[str, Any] = {"Input_Dims": [[8, 8], [8, 8]], "Input_type": ["float", "float"]}
    trace = Trace()
    for start in (0, 1000):
        trace.op("aten::matmul", start, start + 100, **shapes)
        trace.op("aten::mm", start + 10, start + 60, **shapes)
        trace.launch("gemm", at=start + 20, start=start + 200, end=start + 250)
        trace.launch("reduce", at=start + 30, start=start + 250, end=start + 260)
    trace.launch("stray", at=1500, start=1600, end=1607)
    timeline = timeline_of(trace, tmp_path)
    found = by_name(call_groups(timeline, whole(timeline)))
    mm = found["aten::mm"]
    assert (mm.count, mm.backward, mm.innermost) == (2, False, "aten::mm")
    assert mm.device_s == pytest.approx(120 * NS)
    assert mm.host_s == pytest.approx(100 * NS)
    assert [(one.name, one.count, one.time_s) for one in mm.kernels] == [
        ("gemm", 2, pytest.approx(100 * NS)),
        ("reduce", 2, pytest.approx(20 * NS)),
    ]
    assert mm.kernels[0].launch == timeline.launches[0]
    assert mm.call.inputs[0][0].shape == (8, 8)
    matmul = found["aten::matmul"]
    assert (matmul.count, matmul.device_s, matmul.kernels) == (2, 0, ())
    assert matmul.host_s == pytest.approx(100 * NS)
    assert (found[""].count, found[""].device_s) == (0, pytest.approx(7 * NS))


def test_a_window_takes_what_was_launched_in_it_whenever_it_ran(tmp_path: Path) -> None:
    trace = Trace()
    for start in (0, 100, 200):
        trace.op("f", start, start + 50)
        trace.launch(f"k{start}", at=start + 10, start=start + 1000, end=start + 1010)
    trace.kernel("unknown", 120, 125)
    timeline = timeline_of(trace, tmp_path)
    found = by_name(call_groups(timeline, [(100, 150), (110, 200)]))
    assert [one.name for one in found["f"].kernels] == ["k100"]
    assert (found["f"].count, found["f"].host_s) == (1, pytest.approx(50 * NS))
    assert [one.name for one in found[""].kernels] == ["unknown"]
    assert by_name(call_groups(timeline, [(105, 120)]))["f"].count == 1, (
        "it began before, and launched"
    )
    assert call_groups(timeline, []) == ()


def test_operators_inside_of_a_preferred_one_count_as_it(tmp_path: Path) -> None:
    trace = Trace()
    trace.op("aten::conv2d", 0, 100)
    trace.op("aten::convolution", 10, 90)
    trace.op("aten::cudnn_convolution", 20, 80)
    trace.op("aten::empty", 25, 30)
    trace.launch("conv", at=40, start=200, end=260)
    timeline = timeline_of(trace, tmp_path)
    found = by_name(call_groups(timeline, whole(timeline), {"aten::convolution", "aten::empty"}))
    assert found.keys() == {"aten::conv2d", "aten::convolution"}
    conv = found["aten::convolution"]
    assert (conv.count, conv.innermost) == (1, "aten::cudnn_convolution")
    assert (conv.device_s, conv.host_s) == (pytest.approx(60 * NS), pytest.approx(80 * NS))
    found = by_name(call_groups(timeline, whole(timeline)))
    assert found["aten::cudnn_convolution"].device_s == pytest.approx(60 * NS)
    assert len(found) == 4


def test_operators_inside_of_one_on_a_subclass_count_themselves(tmp_path: Path) -> None:
    trace = Trace()
    trace.op("autograd::engine::evaluate_function: MmBackward0", 0, 100)
    trace.op("aten::mm", 10, 90)
    trace.op("PythonSubclass", 20, 80)
    trace.op("aten::mm", 30, 60)
    trace.op("aten::empty", 40, 50)
    trace.launch("gemm", at=55, start=200, end=260)
    timeline = timeline_of(trace, tmp_path)
    groups = call_groups(timeline, whole(timeline), {"aten::mm", "aten::empty"})
    found = by_name(groups)
    product, rest = found["aten::mm"], found["PythonSubclass"]
    assert (product.count, product.backward) == (1, True)
    assert (product.device_s, product.host_s) == (pytest.approx(60 * NS), pytest.approx(30 * NS))
    assert (rest.count, rest.device_s, rest.host_s) == (1, 0.0, pytest.approx(50 * NS))
    assert "aten::empty" not in found


def test_wrappers_own_nothing_where_they_stand_in_an_operator(tmp_path: Path) -> None:
    trace = Trace()
    trace.op("c10d::allreduce_", 0, 100)
    trace.op("record_param_comms", 10, 90)
    trace.launch("ncclDevKernel", at=50, start=200, end=260)
    trace.op("autograd::engine::evaluate_function: MineBackward", 300, 400)
    trace.op("MineBackward", 310, 390)
    trace.launch("triton_mine", at=350, start=500, end=510)
    trace.op("Torch-Compiled Region: 0/0", 600, 700)
    trace.launch("odd", at=650, start=800, end=801)
    timeline = timeline_of(trace, tmp_path)
    found = by_name(call_groups(timeline, whole(timeline)))
    assert found["c10d::allreduce_"].device_s == pytest.approx(60 * NS)
    assert found["c10d::allreduce_"].innermost == "record_param_comms"
    assert "record_param_comms" not in found
    assert found["MineBackward"].backward
    assert found["Torch-Compiled Region: 0/0"].device_s == pytest.approx(1 * NS)


def test_the_backward_pass_is_told_from_the_forward_one(tmp_path: Path) -> None:
    trace = Trace()
    trace.op("aten::mm", 0, 10, Sequence_number=5, Fwd_thread_id=0)
    trace.launch("f", at=5, start=20, end=30)
    engine = "autograd::engine::evaluate_function: MmBackward0"
    trace.op(engine, 100, 200, thread=2, Sequence_number=5, Fwd_thread_id=1)
    trace.op("MmBackward0", 110, 190, thread=2, Sequence_number=5, Fwd_thread_id=1)
    trace.op("aten::mm", 120, 130, thread=2)
    trace.launch("b", at=125, start=220, end=240, thread=2)
    timeline = timeline_of(trace, tmp_path)
    found = {(one.call.name, one.backward): one for one in call_groups(timeline, whole(timeline))}
    assert found["aten::mm", False].kernels[0].name == "f"
    assert found["aten::mm", True].kernels[0].name == "b"
    assert (engine, True) in found


calls = st.recursive(
    st.builds(lambda gap, length: (gap, length, []), st.integers(0, 9), st.integers(0, 9)),
    lambda inner: st.builds(
        lambda gap, children: (gap, 0, children), st.integers(0, 9), st.lists(inner, max_size=4)
    ),
    max_leaves=20,
)


def lay(trace: Trace, call: Any, start: int, thread: int, depth: int) -> int:
    """Add *call* and those in it from *start* on; returns when it ends."""
    gap, length, children = call
    begin = now = start + gap
    place = len(trace.events)
    for child in children:
        now = lay(trace, child, now, thread, depth + 1)
    now += length
    name = ("aten::a", "autograd::engine::b", "aten::c")[depth % 3]
    trace.op(name, begin, now, thread)
    trace.events.insert(place, trace.events.pop())
    return now


@settings(max_examples=60, deadline=None)
@given(
    threads=st.lists(st.lists(calls, max_size=3), min_size=1, max_size=3),
    launches=st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 60), st.integers(0, 9)), max_size=9
    ),
    window=st.tuples(st.integers(0, 40), st.integers(0, 60)),
    preferred=st.sampled_from([None, {"aten::c"}, {"aten::a", "aten::c"}]),
)
def test_no_time_is_lost_or_counted_twice(
    threads: list[list[Any]],
    launches: list[tuple[int, int, int]],
    window: tuple[int, int],
    preferred: set[str] | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    trace = Trace()
    trace.op("origin", 0, 0, thread=9)
    busy = 0
    for thread, roots in enumerate(threads, 1):
        now = 0
        for root in roots:
            end = lay(trace, root, now, thread, 0)
            busy += end - now - root[0]
            now = end
    for thread, at, length in launches:
        trace.launch("k", at, at + 100, at + 100 + length, thread)
    timeline = timeline_of(trace, tmp_path_factory.mktemp("t"))
    found = call_groups(timeline, [(0, 10_000)], preferred)
    assert math.fsum(one.host_s for one in found) == pytest.approx(busy * NS, abs=1e-15)
    work = sum(length for _, _, length in launches)
    assert math.fsum(one.device_s for one in found) == pytest.approx(work * NS, abs=1e-15)
    found = call_groups(timeline, [window], preferred)
    inside = sum(length for _, at, length in launches if window[0] <= at < window[1])
    assert math.fsum(one.device_s for one in found) == pytest.approx(inside * NS, abs=1e-15)
    for one in found:
        kernels = math.fsum(kernel.time_s or 0 for kernel in one.kernels)
        assert kernels == pytest.approx(one.device_s, abs=1e-15)
        assert one.count > 0 or one.call.name == ""


class DispatchLog(TorchDispatchMode):
    """Counts what a dispatch mode sees, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func._schema.name] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Timeline, Counter[str]]:
    """Four steps of a small model on this CPU under torch.profiler, and what a dispatch mode sees
    of one."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(1568, 16),
        torch.nn.LayerNorm(16),
        torch.nn.Linear(16, 16),
    )
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 16, (4,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    step()
    with DispatchLog() as seen:
        step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as traced:
        for _ in range(4):
            with record_function("gpuperf.step"):
                step()
    path = tmp_path_factory.mktemp("real") / "trace.json"
    traced.export_chrome_trace(str(path))
    return read_trace(path), seen.counts


def steps_of(timeline: Timeline) -> list[tuple[int, int]]:
    marks = timeline.annotations
    mine = [timeline.names[i] == "gpuperf.step" for i in marks.name]
    return list(zip(marks.start[mine].tolist(), marks.end[mine].tolist(), strict=True))


def test_on_a_real_trace_the_hosts_time_is_that_of_the_top_operators(
    real: tuple[Timeline, Counter[str]],
) -> None:
    timeline, _ = real
    top = call_stacks(timeline).parent < 0
    length = (timeline.operators.end - timeline.operators.start)[top].sum()
    for preferred in (None, {"aten::addmm", "aten::convolution"}):
        found = call_groups(timeline, whole(timeline), preferred)
        assert math.fsum(one.host_s for one in found) == pytest.approx(length * NS)
        assert all(one.device_s == 0 and not one.kernels for one in found)


def test_a_step_of_a_real_trace_counts_what_a_dispatch_mode_sees(
    real: tuple[Timeline, Counter[str]],
) -> None:
    """The profiler and the mode differ in what autograd does of itself (gradients that it adds in
    place or stores, views that it detaches): in nothing that takes time."""
    timeline, seen = real
    steps = steps_of(timeline)
    assert len(steps) == 4
    counts: Counter[str] = Counter()
    for one in call_groups(timeline, steps, seen.keys()):
        counts[one.call.name] += one.count
    unalike = {"aten::detach", "aten::add", "aten::add_", "aten::empty"}
    for name, count in seen.items():
        if name.startswith("aten::") and name not in unalike:
            assert counts[name] == 4 * count, name
    assert {"aten::addmm", "aten::convolution_backward"} <= seen.keys()


def test_the_forward_and_backward_of_a_real_trace_are_told_apart(
    real: tuple[Timeline, Counter[str]],
) -> None:
    timeline, seen = real
    found = call_groups(timeline, steps_of(timeline), seen.keys())
    sides = {name: {one.backward for one in found if one.call.name == name} for name in seen}
    assert sides["aten::addmm"] == {False}
    assert sides["aten::convolution_backward"] == sides["aten::mm"] == {True}
    lengths = {
        one.call.inputs[1][0].shape: one.count for one in found if one.call.name == "aten::addmm"
    }
    assert lengths == {(4, 1568): 4, (4, 16): 4}


def test_columns_of_a_chain_point_where_they_say(real: tuple[Timeline, Counter[str]]) -> None:
    timeline, _ = real
    found = call_stacks(timeline)
    inner = numpy.flatnonzero(found.parent >= 0)
    parent = found.parent[inner]
    assert (timeline.operators.start[parent] <= timeline.operators.start[inner]).all()
    assert (found.until[parent] >= found.until[inner]).all()
    assert len(found) == 0
