"""Benchmark scripts of Triton run unchanged, and gpuperf times what they time."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from command_line import CommandLine, assert_refused
from synthetic import h200_run

from gpuperf.bench import script
from gpuperf.bench.inside import main
from gpuperf.bench.inside.capture import Capture, value_of
from gpuperf.bench.inside.replace import summarized
from gpuperf.errors import UnknownName
from gpuperf.library.measure import name_of
from gpuperf.model.codec import encode
from gpuperf.model.contract import Fingerprint
from gpuperf.model.record import Record
from gpuperf.model.samples import Samples
from gpuperf.run.store import read_run

testing = pytest.importorskip("triton.testing", reason="the scripts import Triton")

SOFTMAX = """
import sys

import torch
import triton
from triton.testing import do_bench


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[256, 512],
        line_arg="provider",
        line_vals=["torch", "naive"],
        line_names=["Torch", "Naive"],
        plot_name="softmax performance",
        args={"M": 256, "dtype": torch.float32},
    )
)
def benchmark(M, N, dtype, provider):
    x = torch.ones(M, N, dtype=dtype)
    call = {"torch": lambda: x.softmax(-1), "naive": lambda: x.exp() / x.exp().sum(-1)[:, None]}
    ms, low, high = triton.testing.do_bench(call[provider], quantiles=[0.5, 0.2, 0.8])
    assert 0 < low <= ms <= high < 1000
    return ms, high, low


if __name__ == "__main__":
    benchmark.run(print_data=True)
    y = torch.ones(1 << 18, requires_grad=True)
    for _ in range(2):
        ms = do_bench(lambda: y.sin(), grad_to_none=[y], return_mode="median")
    sys.stderr.write(f"sin {ms > 0}")
    triton.testing.do_bench_cudagraph(torch.ones(1 << 18).cos)
"""


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run scripts in this process; an exception is an exit code of 1."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def ending(command: list[str], timeout_s: float | None) -> str:
        monkeypatch.setattr(sys, "argv", ["-c", *command[4:]])
        try:
            main.main()
        except RuntimeError:
            return "ended with exit code 1"
        return ""

    monkeypatch.setattr(script, "_ending", ending)
    before = vars(testing).copy()
    yield
    assert vars(testing) == before  # everything is put back


def bench(folder: Path, text: str, *words: str) -> Any:
    (folder / "bench_ops.py").write_text(text)
    return CommandLine(folder).within("bench", "bench_ops.py", "--budget", "0.01", *words)


def measured(folder: Path) -> tuple[Record, ...]:
    return read_run(CommandLine(folder).run_file("gpuperf-runs")).records


def test_a_script_runs_unchanged_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = bench(tmp_path, SOFTMAX)
    assert done.code == 0, done.err
    assert "softmax-performance" in done.out
    records = measured(tmp_path)
    assert [record.case.id for record in records[:4]] == [
        f"softmax-performance/{provider}[N={n},M=256,dtype=fp32]"
        for n in (256, 512)
        for provider in ("torch", "naive")
    ]
    first, second, graph = (record.case for record in records[4:])
    assert (first.op, first.implementation) == ("bench_ops", "lambda")
    line = SOFTMAX.splitlines().index(
        '        ms = do_bench(lambda: y.sin(), grad_to_none=[y], return_mode="median")'
    )
    assert first.point == {"line": line + 1}
    assert second.point == {"line": line + 1, "call": 2}
    assert graph.implementation == "Tensor.cos"
    assert {record.status for record in records} == {"ok"}
    assert [record.contract.cache for record in records[:1] + records[-1:]] == ["cold", "hot"]
    run = read_run(CommandLine(tmp_path).run_file("gpuperf-runs"))
    assert len(run.header.plan) == 7
    assert {run.header.contract, *run.header.variants} == {r.contract for r in records}


def test_calls_by_an_autotuner_are_not_measured(tmp_path: Path, in_process: None) -> None:
    text = """
import sys
from types import ModuleType
import torch
from triton import testing

tuner = ModuleType("triton.runtime.autotuner")
exec("def tune(testing, call): testing.do_bench(call, 1, 1, None, None, 'mean')", vars(tuner))
theirs = testing.do_bench.__wrapped__
assert theirs is not testing.do_bench
try:
    tuner.tune(testing, lambda: 1)
except Exception:  # Triton's own function needs a GPU
    pass
testing.do_bench(torch.ones(1 << 18).sin)
"""
    assert bench(tmp_path, text).code == 0
    assert [record.case.implementation for record in measured(tmp_path)] == ["Tensor.sin"]


def test_what_was_timed_before_a_failure_is_kept(tmp_path: Path, in_process: None) -> None:
    text = """
import torch
from triton.testing import do_bench
do_bench(torch.ones(1 << 18).sin)
raise RuntimeError("later")
"""
    done = bench(tmp_path, text)
    assert done.code == 3
    assert "ended with exit code 1; the calls until then were measured" in done.err
    assert len(measured(tmp_path)) == 1
    assert not list((tmp_path / "gpuperf-runs").glob("*.part.jsonl"))


def test_a_script_that_times_nothing_is_refused_and_the_next_one_runs(
    tmp_path: Path, in_process: None
) -> None:
    (tmp_path / "empty.py").write_text("print(1)")
    call = "testing.do_bench(torch.ones(1 << 18).sin, fast_flush=True)"  # of older versions
    done = bench(tmp_path, f"import torch\nfrom triton import testing\n{call}", "empty.py")
    assert done.code == 3
    assert "empty.py ended without a call of do_bench" in done.err
    assert len(measured(tmp_path)) == 1


SIZED = """
import sys
import torch
from triton.testing import do_bench
size = int(sys.argv[sys.argv.index("--size") + 1])
for call in (torch.sin, torch.cos)[: 1 if "--one" in sys.argv else 2]:
    do_bench(lambda: call(torch.ones(size)))
if "--fail" in sys.argv:
    raise RuntimeError("later")
do_bench(torch.ones(size).exp)
"""


def test_a_script_gets_its_arguments_and_its_cases_name_them(
    tmp_path: Path, in_process: None
) -> None:
    done = bench(tmp_path, SIZED, "--", "--size", "4096", "--one")
    assert done.code == 0, done.err
    records = measured(tmp_path)
    assert [r.case.point["arguments"] for r in records] == ["--size 4096 --one"] * 2
    run = read_run(CommandLine(tmp_path).run_file("gpuperf-runs"))
    assert run.header.command[2:] == ("bench_ops.py", "--", "--size", "4096", "--one")


def test_a_run_is_resumed_with_the_calls_that_it_lacks(tmp_path: Path, in_process: None) -> None:
    words = ("--", "--size", "4096", "--fail")
    assert bench(tmp_path, SIZED, *words).code == 3
    path = CommandLine(tmp_path).run_file("gpuperf-runs")
    begun = read_run(path)
    assert len(begun.records) == 2
    (tmp_path / "bench_ops.py").write_text(SIZED.replace('raise RuntimeError("later")', "pass"))
    older = ("bench", "bench_ops.py", "--resume", str(path), *words)
    stamp = path.stat().st_mtime - 3600
    os.utime(tmp_path / "bench_ops.py", (stamp, stamp))
    done = CommandLine(tmp_path).within(*older)
    assert done.code == 0, done.err
    run = read_run(path)
    assert run.records[:2] == begun.records
    assert [r.case.implementation for r in run.records] == ["lambda", "lambda", "Tensor.exp"]
    assert {r.run for r in run.records} == {begun.header.run}
    assert len(run.header.plan) == 3
    again = CommandLine(tmp_path).within(*older)
    assert again.code == 0
    assert "no call of bench_ops.py was missing" in again.err
    assert read_run(path) == run
    assert not list((tmp_path / "gpuperf-runs").glob("*.part.jsonl"))


def test_a_run_of_something_else_is_not_resumed(tmp_path: Path, in_process: None) -> None:
    bench(tmp_path, SIZED, "--", "--size", "4096", "--one")
    path = str(CommandLine(tmp_path).run_file("gpuperf-runs"))
    words = ("--", "--size", "8192", "--one")
    command = CommandLine(tmp_path)
    begin = ("bench", "bench_ops.py", "--resume", path)
    other = command.within(*begin, *words)
    assert_refused(other, 2, "--size 4096 --one`, and not of", "the arguments of the run")
    budget = command.within(*begin, "--budget", "1", *words)
    assert_refused(budget, 2, "--budget cannot be given with it", "leave it out")
    assert_refused(
        command.within("bench", *begin[1:], "bench_ops.py"), 2, "one script", "one by one"
    )
    assert_refused(command.within("bench", "--", "a"), 2, "no script is before", "-- --size 4096")
    os.utime(tmp_path / "bench_ops.py", (2**32, 2**32))
    changed = command.within(*begin, "--", "--size", "4096", "--one")
    assert_refused(changed, 2, "was changed after the run began", "without --resume")
    run = read_run(path)
    for created in ("2020-01-01T00:00:00", "2020-01-01T00:00:00+00:00"):
        Path(path).write_bytes(encode(replace(run.header, created=created)) + b"\n")
        refused = command.within(*begin, "--", "--size", "4096", "--one")
        assert_refused(refused, 2, "was changed after the run began", "without --resume")


def test_a_run_of_another_device_is_not_resumed(tmp_path: Path, in_process: None) -> None:
    bench(tmp_path, SIZED, "--", "--size", "4096", "--one")
    path = CommandLine(tmp_path).run_file("gpuperf-runs")
    other = Fingerprint(hard={"product": "another"})
    header = replace(read_run(path).header, fingerprint=other, created="some day")
    path.write_bytes(encode(header) + b"\n")
    words = ("--resume", str(path), "--", "--size", "4096", "--one")
    refused = CommandLine(tmp_path).within("bench", "bench_ops.py", *words)
    assert refused.code == 3
    assert "product was 'another'" in refused.err
    assert read_run(path).header == header
    assert not list((tmp_path / "gpuperf-runs").glob("*.part.jsonl"))


def test_slips_are_refused_before_a_script_runs(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    assert_refused(command.within("bench", "none.py"), 2, "no script 'none.py'", "gpuperf bench")
    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()
    several = command.within("bench", "a.py", "b.py", "--format", "csv")
    assert_refused(several, 2, "not those of 2 scripts", "one by one")


def test_ctrl_c_keeps_what_was_measured(
    tmp_path: Path, in_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = script._ending

    def interrupted(*words: Any) -> str:
        ending(*words)
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "_ending", interrupted)
    text = "import torch\nfrom triton import testing\ntesting.do_bench(torch.ones(1 << 18).sin)"
    done = bench(tmp_path, text)
    assert done.code == 130
    assert "run file: " in done.err
    assert len(measured(tmp_path)) == 1


def test_a_script_that_hangs_is_ended(tmp_path: Path) -> None:
    assert script._ending([sys.executable, "-c", "import time; time.sleep(60)"], 0.3) == (
        "was ended after 0.3 s"
    )
    assert script._ending([sys.executable, "-c", "import os; os.abort()"], None) == (
        "died by SIGABRT"
    )


@pytest.mark.parametrize("place", ["flashinfer.testing", "flashinfer.testing.utils"])
def test_flashinfer_gets_the_time_of_each_call(
    place: str, tmp_path: Path, in_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, utils = ModuleType("flashinfer.testing"), ModuleType("flashinfer.testing.utils")
    for each in (module, utils):
        each.bench_gpu_time = None  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, each.__name__, each)
    monkeypatch.setitem(sys.modules, "flashinfer", ModuleType("flashinfer"))
    text = f"""
import torch
from {place} import bench_gpu_time
x = torch.ones(1 << 18)
times = bench_gpu_time(torch.add, repeat_iters=3, input_args=(x, x))
assert len(times) > 1 and all(0 < ms < 1000 for ms in times)
bench_gpu_time(torch.ones(1 << 18).sin, cold_l2_cache=False)
"""
    assert bench(tmp_path, text).code == 0
    records = measured(tmp_path)
    assert [(r.case.implementation, r.contract.cache) for r in records] == [
        (name_of(torch.add), "cold"),
        ("Tensor.sin", "hot"),
    ]
    assert module.bench_gpu_time is utils.bench_gpu_time is None  # type: ignore[attr-defined]


def test_the_bench_of_a_repository_of_somebody_else_runs_unchanged(
    tmp_path: Path, in_process: None
) -> None:
    shutil.copytree(Path(__file__).parents[1] / "kernel_repository", tmp_path, dirs_exist_ok=True)
    ended = CommandLine(tmp_path).within("bench", "bench_rowwise.py", "--budget", "0.01")
    assert ended.code == 0, ended.err
    assert [(r.case.op, r.case.implementation, r.case.point["n"]) for r in measured(tmp_path)] == [
        ("rowwise", kernel, n) for n in (512, 1024) for kernel in ("rms_norm", "swiglu")
    ]
    sys.modules.pop("rowwise", None)


def test_a_script_that_fails_at_once_is_told_so(tmp_path: Path, in_process: None) -> None:
    ended = bench(tmp_path, "raise RuntimeError('no such module')")
    assert ended.code == 3
    assert "bench_ops.py ended with exit code 1 before anything was timed" in ended.err
    assert "see what it printed above" in ended.err


def test_a_record_is_summarized_as_triton_does() -> None:
    run = h200_run()
    times = Samples((3e-3, 1e-3, 2e-3, 6e-3))
    record = replace(run.records[0], times={"window": times}, primary="window")
    assert summarized(record, None, "mean") == pytest.approx(3.0)
    assert summarized(record, None, "all") == pytest.approx([3, 1, 2, 6])
    assert summarized(record, [0.5], "mean") == pytest.approx(2.5)
    assert summarized(record, [0.0, 1.0], "mean") == pytest.approx([1, 6])
    failed = next(r for r in run.records if r.status == "oom")
    assert math.isnan(summarized(failed, None, "mean"))
    assert summarized(failed, None, "all") == []
    assert all(map(math.isnan, summarized(failed, [0.1, 0.9], "mean")))
    with pytest.raises(UnknownName):
        summarized(record, None, "avg")


def test_values_of_axes_are_numbers_or_short_texts(tmp_path: Path) -> None:
    assert value_of(7) == 7
    assert value_of(2**70) == str(2**70)
    assert (value_of(True), value_of(0.5), value_of(torch.bfloat16)) == ("True", "0.5", "bf16")
    assert value_of("a]b,c=d\x1b[31m") == "a)b;c:d(31m"
    assert len(str(value_of("x" * 1000))) == 60
    capture = Capture(tmp_path / "bench.py", tmp_path / "run.jsonl", "run", 0.01, 0.01)
    with capture.at("my op", None, {"a,b": 1}):
        place = capture._places[-1]
    assert (place.op, place.implementation, place.point) == ("my op", "None", {"a;b": 1})
