"""Traces of older and newer versions of torch, of ROCm, and of CUDA graphs are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from synthetic_kineto import H200, Trace

from gpuperf.model.record import Launch
from gpuperf.model.timeline import Timeline
from gpuperf.profile.trace.kineto import read_trace


def column(values: Any) -> list[int]:
    return [int(value) for value in values]


def names(timeline: Timeline, values: Any) -> list[str]:
    return [timeline.names[value] for value in values]


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
