"""Is a trace of torch.profiler read as it is, in little memory, and anything else refused?"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from synthetic_kineto import Trace

from gpuperf.errors import UsageError
from gpuperf.importing.command import import_file
from gpuperf.model.aten import Tensor
from gpuperf.model.record import Launch
from gpuperf.model.timeline import COPY, KERNEL, SET, Timeline
from gpuperf.profile.trace import eventstream
from gpuperf.profile.trace.kineto import MOST_CATEGORIES, read_trace
from gpuperf.run.store import read_run


def column(values: Any) -> list[int]:
    return [int(value) for value in values]


def names(timeline: Timeline, values: Any) -> list[str]:
    return [timeline.names[value] for value in values]


@pytest.fixture
def example() -> Trace:
    """One step: an operator with a kernel, a copy, a memset, a wait and marks."""
    trace = Trace()
    trace.mark("ProfilerStep#3", 0, 9000)
    trace.op(
        "aten::mm",
        100,
        200,
        Input_Dims=[[8, 16], [16, 4]],
        Input_type=["float", "c10::BFloat16"],
        Input_Strides=[[16, 1], [1, 16]],
        Concrete_Inputs=["", ""],
        Sequence_number=5,
        Fwd_thread_id=0,
    )
    trace.launch("gemm<float>", at=150, start=1001, end=2002)
    trace.copy(
        "HtoD (Pageable -> Device)", 3000, 3500, 4096, trace.call("cudaMemcpyAsync", 210, 300)
    )
    trace.copy("Device", 4000, 4100, 64, trace.call("cudaMemsetAsync", 310, 320), cat="gpu_memset")
    trace.call("cudaDeviceSynchronize", 400, 5000)
    trace.add("gpu_user_annotation", "ProfilerStep#3", 1000, 4101, 0, 7, '"External id": 1')
    trace.add("python_function", "train.py(3): step", 0, 9000, 1, 1, '"Python id": 3')
    return trace


def test_a_trace_becomes_columns_to_the_nanosecond(example: Trace, tmp_path: Path) -> None:
    timeline = read_trace(example.write(tmp_path / "t.json"))
    ops, work, host = timeline.operators, timeline.activities, timeline.runtime
    assert (column(ops.start), column(ops.end)) == ([100], [200])
    assert column([*ops.sequence, *ops.forward_thread, *ops.external]) == [5, 0, 2]
    assert (column(work.start), column(work.end)) == ([1001, 3000, 4000], [2002, 3500, 4100])
    assert names(timeline, work.name)[1:] == ["Memcpy HtoD (Pageable -> Device)", "Memset (Device)"]
    assert column(work.kind) == [KERNEL, COPY, SET]
    assert column(work.bytes) == [0, 4096, 64]
    assert column(work.stream) == [7, 7, 7]
    assert timeline.active_devices == (0,)
    assert names(timeline, host.name) == [
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
        "cudaMemsetAsync",
        "cudaDeviceSynchronize",
    ]
    assert column(work.runtime) == [0, 1, 2]
    assert timeline.launches == (
        Launch((32, 1, 2), (128, 1, 1), registers=240, shared_bytes=98304),
    )
    assert column(work.launch) == [0, -1, -1]
    assert column(timeline.annotations.on_device) == [0, 1]
    assert set(names(timeline, timeline.annotations.name)) == {"ProfilerStep#3"}
    assert timeline.length == 9000
    assert (timeline.shapes, timeline.cut) == (True, False)
    assert timeline.passed_over == {"ac2g": 2, "python_function": 1}


def test_a_call_has_its_tensors_and_the_device_its_name(example: Trace, tmp_path: Path) -> None:
    timeline = read_trace(example.write(tmp_path / "t.json"))
    (call,) = timeline.calls
    assert call.name == "aten::mm"
    assert call.inputs == ((Tensor((8, 16), "fp32"),), (Tensor((16, 4), "bf16", (1, 16)),))
    assert call.concrete == ("", "")
    (device,) = timeline.devices
    assert (device.kind, device.name, device.sm_count) == ("cuda", "NVIDIA H200", 132)
    assert (device.capability, device.memory_bytes) == ("9.0", 150109880320)


@pytest.mark.parametrize(
    ("dims", "kinds", "strides", "expected"),
    [
        (
            [[[2, 3], [4]], []],
            ["TensorList", "Scalar"],
            [[[3, 1], [1]], []],
            ((Tensor((2, 3), ""), Tensor((4,), "")), ()),
        ),
        (
            [[[2, 3], []]],
            ["TensorList"],
            [[[1, 2], []]],
            ((Tensor((2, 3), "", (1, 2)), Tensor((), "")),),
        ),
        ([[], [], []], ["float", "", "ScalarList"], [[], [], []], ((Tensor((), "fp32"),), (), ())),
        (
            [[5], [5], [5]],
            ["bool", "long int", "short unsigned int"],
            [[1], [0], [1]],
            ((Tensor((5,), "bool"),), (Tensor((5,), "int64", (0,)),), (Tensor((5,), "uint16"),)),
        ),
        ([[1, 7]], ["c10::Float8_e4m3fn"], [[1, 1]], ((Tensor((1, 7), "fp8"),),)),
        ([[0, 7]], ["c10::Float8_e4m3fnuz"], None, ((Tensor((0, 7), "c10::Float8_e4m3fnuz"),),)),
        ([[3]], None, "no list", ((Tensor((3,), ""),),)),
    ],
    ids=["list", "list-strided", "scalars", "dtypes", "ones", "unknown-dtype", "nothing-else"],
)
def test_shapes_are_read_as_kineto_writes_them(
    dims: Any, kinds: Any, strides: Any, expected: Any, tmp_path: Path
) -> None:
    trace = Trace()
    trace.op("aten::f", 0, 9, Input_Dims=dims, Input_type=kinds, Input_Strides=strides)
    assert read_trace(trace.write(tmp_path / "t.json")).calls[0].inputs == expected


@pytest.mark.parametrize("dims", [[[-1]], [["x"]], "x", 7, [7], [[1.5]], [[[2], 3]], [[True]]])
def test_shapes_that_are_none_leave_the_name_and_are_counted(dims: Any, tmp_path: Path) -> None:
    trace = Trace()
    trace.op("aten::f", 0, 9, Input_Dims=dims)
    timeline = read_trace(trace.write(tmp_path / "t.json"))
    assert (timeline.calls[0].name, timeline.calls[0].inputs) == ("aten::f", ())
    assert timeline.passed_over == {"operators with unreadable shapes": 1}


def test_a_trace_without_shapes_says_so(tmp_path: Path) -> None:
    trace = Trace(device=None)
    trace.op("aten::f", 0, 9)
    timeline = read_trace(trace.write(tmp_path / "t.json"))
    assert not timeline.shapes
    assert timeline.devices == ()


def test_equal_calls_are_kept_once(tmp_path: Path) -> None:
    trace = Trace()
    for i in range(6):
        trace.op("aten::f", 10 * i, 10 * i + 9, Input_Dims=[[i % 2 + 1]], Input_type=["float"])
    timeline = read_trace(trace.write(tmp_path / "t.json"))
    assert column(timeline.operators.call) == [0, 1] * 3
    assert len(timeline.calls) == 2


def test_times_since_1970_keep_their_nanoseconds(tmp_path: Path) -> None:
    trace = Trace(base=1_790_857_026_123_456_789)
    trace.op("a", 0, 1)
    trace.op("b", 1, 3)
    ops = read_trace(trace.write(tmp_path / "t.json")).operators
    assert (column(ops.start), column(ops.end)) == ([0, 1], [1, 3])


@pytest.mark.parametrize(
    ("ts", "dur", "expected"),
    [
        ("7", "2", (0, 2000)),
        ("7.5", "0.25", (0, 250)),
        ("7e3", "1E0", (0, 1000)),
        ('"7.000"', '"0.001"', (0, 1)),
        ("0.0004", "0.0016", (0, 2)),
    ],
)
def test_times_in_other_forms_are_read_too(
    ts: str, dur: str, expected: Any, tmp_path: Path
) -> None:
    event = f'{{"ph": "X", "cat": "cpu_op", "name": "a", "ts": {ts}, "dur": {dur}}}'
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents": [{event}]}}')
    ops = read_trace(path).operators
    assert (int(ops.start[0]), int(ops.end[0])) == expected


def test_facts_count_before_and_after_the_events(example: Trace, tmp_path: Path) -> None:
    head, events = json.loads(example.text()), {}
    events["traceEvents"] = head.pop("traceEvents")
    for i, parts in enumerate((head | events, events | head)):
        path = tmp_path / f"{i}.json"
        path.write_text(json.dumps(parts))
        timeline = read_trace(path)
        assert timeline.devices[0].name == "NVIDIA H200"
        assert len(timeline.activities) == 3


@pytest.mark.parametrize("chunk", [1, 7, 100, 4096])
def test_where_chunks_end_does_not_matter(
    chunk: int, example: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example.op("aten::é\u2028", 9000, 9001, Input_Dims=[[12345]], Input_type=["double"])
    path = example.write(tmp_path / "t.json")
    whole = read_trace(path)
    monkeypatch.setattr(eventstream, "CHUNK", chunk)
    assert_same(read_trace(path), whole)


def assert_same(one: Timeline, other: Timeline) -> None:
    for table in ("operators", "activities", "runtime", "annotations"):
        for name, values in vars(getattr(one, table)).items():
            assert numpy.array_equal(values, getattr(getattr(other, table), name)), (table, name)
    for name in ("calls", "names", "launches", "threads", "devices", "shapes", "passed_over"):
        assert getattr(one, name) == getattr(other, name)


def test_gzip_makes_no_difference(example: Trace, tmp_path: Path) -> None:
    plain = example.write(tmp_path / "t.json")
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert_same(read_trace(packed), read_trace(plain))


def test_a_name_that_breaks_a_python_event_is_passed_over(example: Trace, tmp_path: Path) -> None:
    """torch 2.13 writes names as they are: here a file called `we"ird`."""
    path = tmp_path / "t.json"
    path.write_text(example.text().replace("train.py(3)", 'we"ird(1)'))
    timeline = read_trace(path)
    assert timeline.passed_over == {"ac2g": 2, "unreadable": 1}
    assert not timeline.cut
    path.write_text(example.text().replace("gemm<float>", 'we"ird'))
    with pytest.raises(UsageError, match="not JSON at event 5: Expecting ',' delimiter"):
        read_trace(path)


def test_categories_beyond_a_hundred_are_counted_together(tmp_path: Path) -> None:
    trace = Trace()
    trace.op("aten::f", 0, 9)
    for number in (*range(MOST_CATEGORIES + 20), 3, MOST_CATEGORIES + 3):
        trace.add(f"odd {number}", "a", 0, 9, 1, 1, "")
    passed_over = read_trace(trace.write(tmp_path / "t.json")).passed_over
    named = {f"odd {number}": 1 for number in range(MOST_CATEGORIES)} | {"odd 3": 2}
    assert passed_over == {**named, "others": 21}


@pytest.mark.parametrize("number", [2**62, 2**63, 3**62])
def test_a_moment_beyond_the_year_2116_is_refused(tmp_path: Path, number: int) -> None:
    trace = Trace(base=0)
    trace.op("aten::f", number, number + 9)
    with pytest.raises(UsageError, match="event 1"):
        read_trace(trace.write(tmp_path / "t.json"))


def test_a_broken_last_event_is_passed_over(tmp_path: Path) -> None:
    trace = Trace()
    trace.op("a", 0, 9)
    trace.add("python_function", "QUOTE", 0, 9, 1, 1, "")
    path = tmp_path / "t.json"
    path.write_text(trace.text().replace("QUOTE", '"""'))
    timeline = read_trace(path)
    assert (timeline.passed_over, timeline.cut) == ({"unreadable": 1}, False)


def test_hostile_names_are_cut_and_made_legible(tmp_path: Path) -> None:
    trace = Trace()
    trace.kernel("a\x1b[31m\u202e\nb<script>", 0, 9)
    trace.kernel("x" * 1_000_000 + "end", 10, 19)
    trace.op("\ud800op\x00", 0, 9, Concrete_Inputs=["\x07" * 9], Input_Dims=[[]])
    timeline = read_trace(trace.write(tmp_path / "t.json"))
    assert timeline.names[0] == "a[31mb<script>"
    assert len(timeline.names[1]) == 2000
    assert timeline.names[1].endswith("xend")
    assert (timeline.calls[0].name, timeline.calls[0].concrete) == ("op", ("",))


def test_raw_control_characters_and_bad_utf8_are_borne(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    event = b'{"ph": "X", "cat": "kernel", "name": "a\nb\xff\x01", "ts": 1, "dur": 1}'
    path.write_bytes(b'\xef\xbb\xbf{"traceEvents": [' + event + b"]}")
    assert read_trace(path).names == ("ab\ufffd",)


@pytest.mark.parametrize("shapes", [False, True])
def test_an_import_says_what_a_trace_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shapes: bool
) -> None:
    trace = Trace(device=None)
    given = {"Input_Dims": [[8, 8]], "Input_type": ["float"]} if shapes else {}
    trace.mark("ProfilerStep#1", 0, 900_000)
    trace.op("aten::relu", 100, 200_000, **given)
    trace.launch("relu_kernel", 150, 1_000, 300_000)
    import_file(trace.write(tmp_path / "t.json"), out=tmp_path / "runs")
    said = capsys.readouterr().err
    assert ("has no shapes, so FLOPs are unknown" in said) is not shapes
    (path,) = (tmp_path / "runs").glob("*.jsonl")
    header = read_run(path).header
    assert (header.device.kind, header.devices) == ("cuda", (0,))
    assert header.device.name == "a device that the trace does not name"
