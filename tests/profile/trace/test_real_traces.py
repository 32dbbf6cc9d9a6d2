"""A trace that torch.profiler writes here is read right, and a large one fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from synthetic_kineto import BASE, write_large
from torch.profiler import ProfilerActivity, profile, record_function

from gpuperf.model.aten import Tensor
from gpuperf.profile.trace.kineto import read_trace

LARGE = "GPUPERF_LARGE_TRACE"  # set: the whole 200 MB, not 20


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
