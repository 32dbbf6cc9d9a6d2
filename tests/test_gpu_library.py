"""`gpuperf.measure` on a GPU: what it refuses, and that it leaves the program as it was."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable
from typing import Any

import pytest
import torch

import gpuperf

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randn(2048, 2048, device="cuda")


def status_of(call: Callable[[], Any], **conditions: Any) -> str:
    with pytest.raises(gpuperf.NotMeasured) as error:
        gpuperf.measure(call, budget_s=0.3, **conditions)
    assert error.value.hint
    return str(error.value.record.status)


def test_a_copy_has_kernels_bytes_a_clock_and_a_place(x: torch.Tensor) -> None:
    moved = gpuperf.Bytes(x.nbytes, x.nbytes)
    found = gpuperf.measure(x.clone, bytes=moved, counters=True, budget_s=0.5)
    assert len(found.kernels) == 1
    assert found.clock_hz is not None
    assert found.placement is not None
    assert 0.2 < (found.placement.fraction or 0.0) < 1.02
    if found.dram_bytes is not None:  # the driver may forbid counters
        assert found.dram_bytes == pytest.approx(2 * x.nbytes, rel=0.1)


def test_what_cannot_be_timed_has_the_statuses_of_the_command_line(x: torch.Tensor) -> None:
    other = torch.cuda.Stream()

    def elsewhere() -> None:
        with torch.cuda.stream(other):
            x.sin()

    host = torch.ones(10_000_000)
    assert status_of(lambda: None) == "no-work"
    assert status_of(lambda: host.sin()) == "host-only"
    assert status_of(elsewhere) == "side-stream"
    assert status_of(lambda: x.sum().item(), timer="blocked") == "cannot-block"
    doubts = {c.kind for c in gpuperf.measure(lambda: x.sum().item(), budget_s=0.3).caveats}
    assert "cannot-block" in doubts


def test_the_program_keeps_its_device_stream_modes_and_memory(x: torch.Tensor) -> None:
    stream = torch.cuda.Stream()
    state = torch.cuda.get_rng_state()
    tf32 = torch.backends.cuda.matmul.allow_tf32
    with torch.cuda.stream(stream), torch.inference_mode():
        y = x * 2
        inside = gpuperf.measure(lambda: y @ y, budget_s=0.3)
        assert torch.cuda.current_stream() == stream
    outside = gpuperf.measure(lambda: x @ x, budget_s=0.3)
    assert inside.time_s == pytest.approx(outside.time_s, rel=0.05)
    assert torch.equal(state, torch.cuda.get_rng_state())
    assert tf32 == torch.backends.cuda.matmul.allow_tf32


def test_a_second_gpu_is_measured_and_does_not_become_the_current_one() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    y = torch.randn(2048, 2048, device="cuda:1")
    found = gpuperf.measure(lambda: y.sin(), device="cuda:1", budget_s=0.3)
    assert found.opened.device.index == 1
    assert torch.cuda.current_device() == 0


def test_inside_a_profiler_the_time_is_the_same_or_a_caveat_says_why(x: torch.Tensor) -> None:
    alone = gpuperf.measure(lambda: x.sin(), budget_s=0.3)
    gpu = torch.profiler.ProfilerActivity.CUDA
    with torch.profiler.profile(activities=[gpu], acc_events=True):
        beside = gpuperf.measure(lambda: x.sin(), budget_s=0.3)
    assert beside.time_s == pytest.approx(alone.time_s, rel=0.05) or beside.caveats


def test_do_bench_is_the_time_of_the_kernel(x: torch.Tensor) -> None:
    small = x[0].contiguous()
    times = [gpuperf.do_bench(lambda: small + small, return_mode="median") for _ in range(3)]
    assert statistics.median(times) < 4e-3  # milliseconds; Triton's adds the cost of its events


def test_the_faster_of_two_is_so_in_every_round(x: torch.Tensor) -> None:
    found = gpuperf.compare(
        {"two": lambda: x.sin() + x.cos(), "three": lambda: x.sin() + x.cos() + 0}, budget_s=1.0
    )
    slower = found.speedups["three"]
    assert slower.high is not None
    assert slower.high < 0.9


def test_a_part_of_the_l2_that_is_set_aside_is_a_caveat(x: torch.Tensor) -> None:
    driver, limit, usual = ctypes.CDLL("libcuda.so.1"), 6, ctypes.c_size_t()
    assert "l2-set-aside" not in {c.kind for c in gpuperf.measure(x.clone, budget_s=0.2).caveats}
    assert driver.cuCtxGetLimit(ctypes.byref(usual), limit) == 0
    assert driver.cuCtxSetLimit(limit, ctypes.c_size_t(usual.value + (4 << 20))) == 0
    try:
        doubts = {c.kind for c in gpuperf.measure(x.clone, budget_s=0.2).caveats}
    finally:
        assert driver.cuCtxSetLimit(limit, usual) == 0
    assert "l2-set-aside" in doubts
