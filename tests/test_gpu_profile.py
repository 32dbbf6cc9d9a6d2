"""Is what a profile says of a GPU true: kernels, FLOPs, times, and the gains that it foretells?"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.version.hip is not None, reason="needs an NVIDIA GPU"
    ),
]

TESTS = Path(__file__).parent
GPT2 = TESTS.parent / "docs" / "examples" / "gpt2.py"


def profiled(folder: Path, *arguments: str | Path) -> Any:
    """The first region of a profile."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from gpuperf.app import main; main()",
            "profile",
            "--format",
            "json",
            "--out",
            str(folder),
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["regions"][0]


@pytest.mark.parametrize(
    ("flaw", "words"),
    [
        ("wait", "do not wait"),
        ("precision", "fp32 matmuls"),
        ("vocabulary", "pad the dimensions"),
        ("chain", "elementwise"),
        ("pageable", "pinned"),
    ],
)
def test_a_planted_flaw_is_found_and_its_gain_foretold(
    tmp_path: Path, flaw: str, words: str
) -> None:
    before = profiled(tmp_path, TESTS / "planted.py", flaw)
    after = profiled(tmp_path, TESTS / "planted.py", flaw, "mended")
    for one in (*before["findings"], *after["findings"]):
        print(f"{one['gain_s'] * 1e3:.4g} ms: {one['title']}; {one['basis']}")
    (found,) = (one for one in before["findings"] if words in one["title"])
    gained = before["step_s"] - after["step_s"]
    print(
        f"{flaw}: foretold {found['gain_s'] * 1e3:.4g} ms, gained {gained * 1e3:.4g} ms of "
        f"{before['step_s'] * 1e3:.4g} ms"
    )
    assert flaw == "pageable" or any("planted.py:" in place for place in found["where"])
    assert 1 / 1.5 < found["gain_s"] / gained < 1.5
    assert not [one for one in after["findings"] if words in one["title"]]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_flops_of_a_step_of_gpt2_are_six_for_each_parameter_and_token(
    tmp_path: Path, attention: str
) -> None:
    found = profiled(tmp_path, GPT2, "--attention", attention, "--batch", "8")
    b, n, width, blocks, vocabulary = 8, 1024, 768, 12, 50257
    parameters = blocks * 12 * width**2 + vocabulary * width
    pairs = n * n if attention == "eager" else n * (n + 1) // 2
    expected = 6 * parameters * b * n + 3 * blocks * 4 * b * pairs * width
    products = sum(f["count"] for f in found["cost"]["flops"] if f["kind"] == "matmul")
    assert products == pytest.approx(expected, rel=0.02)


def test_kernels_are_all_there_and_take_what_torch_says(tmp_path: Path) -> None:
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    from gpuperf.profile.attribution import call_groups
    from gpuperf.profile.trace.kineto import read_trace

    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(512, 1024, device="cuda")
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, record_shapes=True, acc_events=True) as own:
        for _ in range(5):
            model(x).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
    own.export_chrome_trace(str(tmp_path / "trace.json"))
    events = [e for e in own.events() if e.device_type == DeviceType.CUDA]
    kernels = [e for e in events if not e.is_user_annotation]
    timeline = read_trace(tmp_path / "trace.json")
    found = call_groups(timeline, [(0, timeline.length + 1)])
    assert sum(kernel.count for usage in found for kernel in usage.kernels) == len(kernels)
    theirs = sum(e.time_range.elapsed_us() for e in kernels) * 1e-6
    assert sum(usage.device_s for usage in found) == pytest.approx(theirs, rel=0.005)


def test_the_plain_pass_is_as_fast_as_the_program_alone(tmp_path: Path) -> None:
    """Of steps that wait for memory: matmuls would heat the card, and its clock follow."""
    text = """
import time, torch, gpuperf
blocks = [torch.nn.Sequential(torch.nn.LayerNorm(4096), torch.nn.GELU()) for _ in range(12)]
m = torch.nn.Sequential(*blocks).cuda().bfloat16()
o = torch.optim.AdamW(m.parameters(), fused=True)
x = torch.randn(16384, 4096, device="cuda", dtype=torch.bfloat16)
for i in range(231):
    if i == 31:  # warm; from here on the device is what a step waits for
        torch.cuda.synchronize(); began = time.perf_counter()
    m(x).float().square().mean().backward(); o.step(); o.zero_grad()
    gpuperf.step()
torch.cuda.synchronize()
print((time.perf_counter() - began) / 200)
"""
    script = tmp_path / "train.py"
    script.write_text(text, encoding="utf-8")
    arguments = [
        sys.executable,
        "-c",
        "from gpuperf.app import main; main()",
        "profile",
        "--warmup",
        "30",
        "--steps",
        "150",
        "--format",
        "json",
        "--out",
        str(tmp_path),
    ]

    def run(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    first = float(run(sys.executable, str(script)))
    region = json.loads(run(*arguments, str(script)))["regions"][0]
    second = float(run(sys.executable, str(script)))
    told = {name: f"{s * 1e3:.4g}" for name, s in region["parts_s"].items() if s}
    print(
        f"alone {first * 1e3:.4g} and {second * 1e3:.4g} ms, plain {region['mean_s'] * 1e3:.4g} "
        f"ms, by part {told}, kernels' times x {region['scale']:.4f}"
    )
    assert region["program"]["steps"]["trace"] == 5
    assert region["parts_s"]["idle: launch or host"] < 0.01 * region["step_s"]
    assert region["mean_s"] == pytest.approx((first + second) / 2, rel=0.01)


@pytest.mark.parametrize("how", ["reduce-overhead", "by hand"])
def test_cuda_graphs_run_as_they_do_alone_and_their_kernels_are_there(
    tmp_path: Path, how: str
) -> None:
    text = f"""
import torch, gpuperf
m = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8))).cuda()
x = torch.randn(256, 512, device="cuda")
with torch.no_grad():
    if {how!r} == "by hand":
        m(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = m(x)
        run = graph.replay
    else:
        compiled = torch.compile(m, mode="reduce-overhead")
        run = lambda: compiled(x)
    for _ in range(120):
        run()
        gpuperf.step()
    torch.cuda.synchronize()
"""
    script = tmp_path / "graphs.py"
    script.write_text(text, encoding="utf-8")
    found = profiled(tmp_path, script)
    assert found["program"]["steps"]["trace"] == 5
    assert found["program"]["launched"]["kernel"] >= 8
    assert 0 < found["busy_s"] <= found["step_s"]


def test_a_trace_of_a_gpu_is_imported(tmp_path: Path) -> None:
    text = """
import torch
from torch.profiler import profile
m = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))).cuda()
x = torch.randn(512, 1024, device="cuda")
m(x).mean().backward()
with profile(record_shapes=True) as own:
    for _ in range(6):
        m(x).mean().backward()
    torch.cuda.synchronize()
own.export_chrome_trace("trace.json.gz")
"""
    (tmp_path / "make.py").write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "make.py"], cwd=tmp_path, check=True)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from gpuperf.app import main; main()",
            "import",
            "trace.json.gz",
            "--format",
            "json",
            "--out",
            str(tmp_path),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (region,) = json.loads(done.stdout)["regions"]
    products = sum(f["count"] for f in region["cost"]["flops"] if f["kind"] == "matmul")
    assert products == (3 * 4 - 1) * 2 * 512 * 1024 * 1024
    assert region["region"] == "loop"


def test_the_counters_of_kernels_are_those_of_their_operators(tmp_path: Path) -> None:
    text = """
import torch, gpuperf
a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
big = torch.randn(2**28, device="cuda")
for _ in range(60):
    a @ b
    big.sin()
    gpuperf.step()
"""
    script = tmp_path / "step.py"
    script.write_text(text, encoding="utf-8")
    found = profiled(tmp_path, "--counters", "kernels", script)
    by = {one["operator"]: one for one in found["operators"]}
    moved = {name: one["dram_bytes"] for name, one in by.items()}
    print(f"DRAM {moved}, tensor operations {by['aten::mm']['tensor_operations']}")
    assert by["aten::mm"]["tensor_operations"] == 2 * 4096**3
    assert by["aten::sin"]["tensor_operations"] == 0
    # Up to half of the L2 is still to be written back when the kernel ends.
    assert by["aten::sin"]["dram_bytes"] == pytest.approx(2 * 2**30, rel=0.03)
