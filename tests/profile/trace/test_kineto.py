"""Is a trace of torch.profiler read as it is, in little memory, and anything else refused?"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from synthetic_kineto import BASE, H200, Trace, write_large
from torch.profiler import ProfilerActivity, profile, record_function

from gpuperf.errors import UsageError
from gpuperf.importing.command import import_file
from gpuperf.model.aten import Tensor
from gpuperf.model.record import Launch
from gpuperf.model.timeline import COPY, KERNEL, SET, Timeline
from gpuperf.profile.trace import eventstream
from gpuperf.profile.trace.kineto import MOST_CATEGORIES, read_trace
from gpuperf.run.store import read_run

LARGE = "GPUPERF_LARGE_TRACE"  # set: the whole 200 MB, not 20


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


def test_older_traces_with_an_event_on_three_lines_are_read(tmp_path: Path) -> None:
    """torch 2.4: `ts` in one line with `dur`, and what runs a compiled graph is an operator."""
    path = tmp_path / "t.json"
    path.write_text("""{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85051572224,
      "computeMajor": 8, "computeMinor": 0, "numSms": 108
    }
  ],
  "traceEvents": [
  {
    "ph": "X", "cat": "cpu_op", "name": "## Call CompiledFxGraph fabc ##", "pid": 9, "tid": 9,
    "ts": 5000.000, "dur": 90.000,
    "args": {
      "External id": 7,"Record function id": 0, "Ev Idx": 6
    }
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "triton_poi_fused_add_0", "pid": 9, "tid": 9,
    "ts": 5010.000, "dur": 50.000,
    "args": {
      "External id": 8,"kernel_file": "/tmp/c.py", "kernel_hash": "cxyz", "stream": 0,
      "grid": "grid(1048576,)", "kernel_backend": "triton", "num_warps": 4, "num_stages": 1
    }
  },
  {
    "ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", "pid": 9, "tid": 9,
    "ts": 5020.000, "dur": 9.000,
    "args": {
      "External id": 8,
      "cbid": 307, "correlation": 31
    }
  },
  {
    "ph": "s", "id": 31, "pid": 9, "tid": 9, "ts": 5020.000,
    "cat": "ac2g", "name": "ac2g"
  },
  {
    "ph": "X", "cat": "kernel", "name": "triton_poi_fused_add_0", "pid": 0, "tid": 7,
    "ts": 5040.500, "dur": 3.250,
    "args": {
      "External id": 8,
      "queued": 0, "device": 0, "context": 1,
      "stream": 7, "correlation": 31,
      "registers per thread": 16,
      "shared memory": 0,
      "blocks per SM": 9.481482,
      "warps per SM": "inf",
      "grid": [1024, 1, 1],
      "block": [128, 1, 1],
      "est. achieved occupancy %": 59
    }
  },
  {
    "name": "Record Window End", "ph": "i", "s": "g",
    "pid": "", "tid": "", "ts": 6000.000
  }
  ],
  "traceName": "t.json"
}""")
    timeline = read_trace(path)
    assert [call.name for call in timeline.calls] == [
        "## Call CompiledFxGraph fabc ##",
        "triton_poi_fused_add_0",
    ]
    assert column(timeline.activities.start) == [40_500]
    assert column(timeline.activities.runtime) == [0]
    assert timeline.passed_over == {"ac2g": 1, "ph i": 1}


def test_newer_marks_of_compiled_graphs_are_operators_too(tmp_path: Path) -> None:
    trace = Trace()
    trace.mark("## Call CompiledFxGraph fovga ##", 0, 9)
    trace.mark("gpuperf.step", 0, 9)
    timeline = read_trace(trace.write(tmp_path / "t.json"))
    assert [call.name for call in timeline.calls] == ["## Call CompiledFxGraph fovga ##"]
    assert names(timeline, timeline.annotations.name) == ["gpuperf.step"]


def test_kernels_of_rocm_are_read(tmp_path: Path) -> None:
    """As RocprofActivity_inl.h writes them: no registers, and bytes as text on the host's side."""
    properties = {key: H200[key] for key in ("id", "totalGlobalMem", "numSms")}
    trace = Trace(device={**properties, "name": "AMD", "maxSharedMemoryPerMultiProcessor": 65536})
    copied = trace.call("hipMemcpyWithStream", 0, 9, bytes="4096", kind="1", ptr="0x7f")
    trace.copy("HtoD (Host -> Device)", 3, 8, 4096, copied)
    number = trace.call("hipLaunchKernel", 10, 12, kernel="k", grid=[4, 1, 1], block=[64, 1, 1])
    text = f'"device": 0, "stream": 0, "correlation": {number}, "kind": "Dispatch Kernel"'
    trace.add(
        "kernel", "Cijk_Ailk", 20, 30, 2, 0, f'{text}, "grid": [4, 1, 1], "block": [64, 1, 1]'
    )
    timeline = read_trace(trace.write(tmp_path / "t.json"))
    assert timeline.devices[0].kind == "rocm"
    assert column(timeline.activities.runtime) == [0, 1]
    assert timeline.launches == (Launch((4, 1, 1), (64, 1, 1)),)


def test_all_kernels_of_a_cuda_graph_have_the_call_that_launched_it(tmp_path: Path) -> None:
    trace = Trace()
    number = trace.call("cudaGraphLaunch", 0, 9)
    for i in range(3):
        trace.kernel(f"k{i}", 20 + 10 * i, 28 + 10 * i, number)
    trace.kernel("stray", 60, 70, 999_999)
    assert column(read_trace(trace.write(tmp_path / "t.json")).activities.runtime) == [0, 0, 0, -1]


def test_of_two_calls_with_one_correlation_the_outer_counts(tmp_path: Path) -> None:
    trace = Trace()
    inner = trace.call("cuLaunchKernel", 2, 8, cat="cuda_driver")
    trace.correlation -= 1
    assert trace.call("cudaLaunchKernel", 0, 9) == inner
    trace.kernel("k", 20, 30, inner)
    timeline = read_trace(trace.write(tmp_path / "t.json"))
    (by,) = timeline.activities.runtime
    assert timeline.names[timeline.runtime.name[by]] == "cudaLaunchKernel"


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


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps of a small model on this machine's CPU, under torch.profiler."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1568, 16)
    )
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 16, (4,))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as traced:
        for _ in range(3):
            with record_function("gpuperf.step"):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    path = tmp_path_factory.mktemp("real") / "trace.json"
    traced.export_chrome_trace(str(path))
    return path


def test_a_real_trace_is_read_as_json_has_it(real: Path) -> None:
    timeline = read_trace(real)
    events = json.loads(real.read_text())["traceEvents"]
    known = [one for one in events if one.get("cat") == "cpu_op"]
    assert len(timeline.operators) == len(known) > 100
    assert timeline.shapes
    assert not timeline.cut
    origin = min(one["ts"] for one in events if one.get("cat") in ("cpu_op", "user_annotation"))
    starts = sorted(round((one["ts"] - origin) * 1000) for one in known)
    assert numpy.abs(timeline.operators.start - starts).max() <= 1
    steps = [timeline.names[i] for i in timeline.annotations.name]
    assert steps.count("gpuperf.step") == 3
    (linear,) = {call for call in timeline.calls if call.name == "aten::addmm"}
    assert linear.inputs[1] == (Tensor((4, 1568), "fp32"),)
    assert linear.inputs[2] == (Tensor((1568, 16), "fp32", (1, 1568)),)
    (foreach,) = {call for call in timeline.calls if call.name == "aten::_foreach_lerp_"}
    assert [one.shape for one in foreach.inputs[0]] == [(8, 3, 3, 3), (8,), (16, 1568), (16,)]
    back = timeline.operators.forward_thread > 0
    assert {timeline.calls[i].name for i in timeline.operators.call[back]} >= {"AddmmBackward0"}


# The peak that getrusage tells would be that of this process, from which the other was forked.
MEASURE = """
import re, sys, time
from pathlib import Path
import numpy
from gpuperf.profile.trace.kineto import read_trace
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
start = time.process_time()
timeline = read_trace(Path(sys.argv[1]))
print(time.process_time() - start, peak() - before, len(timeline.activities))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, for the peak of memory")
def test_a_large_trace_is_read_fast_and_in_a_fraction_of_its_size(
    real: Path, tmp_path: Path
) -> None:
    size = 200_000_000 if os.environ.get(LARGE) else 20_000_000
    path = tmp_path / "large.json"
    rounds = write_large(path, json.loads(real.read_text(), parse_float=str)["traceEvents"], size)
    command = [sys.executable, "-c", MEASURE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, peak, activities = (float(word) for word in done.stdout.split())
    print(f"{size / 1e6:.0f} MB: {seconds:.2f} s of the CPU, {peak / 1e6:.0f} MB")
    assert activities >= 10 * rounds
    assert seconds < 30 * size / 200e6 + 1
    assert peak < 0.5 * size + 20e6


def test_the_base_of_times_is_a_quarter_of_a_year(real: Path) -> None:
    """So that doubles would do, if only just: `synthetic_kineto.BASE` is of the like."""
    first = json.loads(real.read_text())["traceEvents"][0]["ts"] * 1000
    assert 0 <= first < 100 * 86400e9
    assert BASE < 100 * 86400e9


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
