"""Hardware counters against exact bytes and operations, on a GPU."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpuperf.measure.counters.cupti import NoCounters
from gpuperf.measure.counters.device import DeviceCounters, open_counters
from gpuperf.measure.counters.dram import DramSampler
from gpuperf.model.contract import Contract

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.version.hip is not None, reason="needs an NVIDIA GPU"
    ),
]

CUDA = torch.device("cuda", 0)
QUARTER = 2**28  # bytes
BF16 = torch.bfloat16


@pytest.fixture(scope="module")
def counters() -> DeviceCounters:
    torch.zeros(1, device="cuda")
    return open_counters(CUDA, torch.cuda.get_device_properties(CUDA).L2_cache_size)


def vectors(count: int, size: int) -> Any:
    return [torch.randn(size // 4, device="cuda") for _ in range(count)]


def sin(size: int) -> Callable[[], Any]:
    x, y = vectors(2, size)
    return lambda: torch.sin(x, out=y)


def copy(size: int) -> Callable[[], Any]:
    x, y = vectors(2, size)
    return lambda: y.copy_(x)


def triad(size: int) -> Callable[[], Any]:
    x, y, z = vectors(3, size)
    return lambda: torch.add(x, y, alpha=2.0, out=z)


def sincos(size: int) -> Callable[[], Any]:
    (x,) = vectors(1, size)

    def call() -> Any:
        s, c = torch.sin(x), torch.cos(x)
        return s * s + c * c

    return call


def attention(n: int) -> Callable[[], Any]:
    q, k, v = (torch.randn(4, 16, n, 64, device="cuda", dtype=BF16) for _ in range(3))
    return lambda: torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def matmul(n: int) -> Callable[[], Any]:
    a, b = (torch.randn(n, n, device="cuda", dtype=BF16) for _ in range(2))
    return lambda: torch.mm(a, b)


def warm(call: Callable[[], Any]) -> Callable[[], Any]:
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    return call


# Of eager attention, u bytes of scores and v of a tensor: 4u + 4v, and 2u for the scale.
U, V = 4 * 16 * 4096**2 * 2, 4 * 16 * 4096 * 64 * 2
EXACT = {
    "sin 256 MiB": (sin, QUARTER, QUARTER, QUARTER, 0.01),
    "copy 256 MiB": (copy, QUARTER, QUARTER, QUARTER, 0.01),
    "triad 256 MiB": (triad, QUARTER, 2 * QUARTER, QUARTER, 0.01),
    "sin²+cos² 256 MiB": (sincos, QUARTER, 6 * QUARTER, 5 * QUARTER, 0.01),
    "sin 4 MB": (sin, 2**22, 2**22, 2**22, 0.03),
    "attention 4096": (attention, 4096, 3 * U + 3 * V, 3 * U + V, 0.1),
}


@pytest.mark.parametrize("name", EXACT)
def test_the_bytes_are_those_that_must_move(counters: DeviceCounters, name: str) -> None:
    make, size, read, written, allowed = EXACT[name]
    counts = counters.traffic(warm(make(size)), "cold", 1e-4)
    print(
        f"{name}: read {counts['dram_read_bytes'] / read * 100 - 100:+.3f} % of {read / 1e6:.3f} MB"
        f", written {counts['dram_written_bytes'] / written * 100 - 100:+.3f} % of "
        f"{written / 1e6:.3f} MB, ± {counts['dram_uncertainty_bytes'] / 1e6:.3f} MB"
    )
    assert counts["dram_read_bytes"] == pytest.approx(read, rel=allowed)
    assert counts["dram_written_bytes"] == pytest.approx(written, rel=allowed)


def test_what_stays_in_the_cache_moves_nothing(counters: DeviceCounters) -> None:
    counts = counters.traffic(warm(sin(2**22)), "hot", 5e-6)
    assert abs(counts["dram_read_bytes"] + counts["dram_written_bytes"]) < 0.01 * 2**23


# m, n and k as the tiles that ran on an H200 (CUDA 13.0) pad them: 256 × 128 × 64, 320 × 128 × 64,
# 160 × 192 × 64, 64 × 128 × 64, and 256 × 128 × 32 with one step of k more.
MATMULS = {
    4096: 4096**3,
    8192: 8320 * 8192 * 8192,
    4000: 4000 * 4032 * 4032,
    1000: 1024**3,
    8191: 8192 * 8192 * 8224,
}


@pytest.mark.parametrize("n", MATMULS)
def test_the_tensor_cores_do_the_operations_of_whole_tiles(
    counters: DeviceCounters, n: int
) -> None:
    from gpuperf.measure.timers.activity import traced

    call = warm(matmul(n))
    found, passes = counters.kernels(call, "cold")
    done = sum(counts["tensor_bf16"] for counts in found) / 2
    names = {a.name for a in traced(lambda: (call(), torch.cuda.synchronize()))}
    print(f"matmul {n}: {done / n**3:.6f} of 2n³, {passes} passes, {sorted(names)}")
    assert done >= n**3
    if "H200" in torch.cuda.get_device_name():
        assert done == MATMULS[n]
    assert sum(counts["tensor_fp16"] for counts in found) == 0


@pytest.mark.parametrize("name", ["sin 256 MiB", "triad 256 MiB", "sin²+cos² 256 MiB"])
def test_both_collectors_agree_on_what_is_read(counters: DeviceCounters, name: str) -> None:
    make, size, *_ = EXACT[name]
    call = warm(make(size))
    whole = counters.traffic(call, "cold", 1e-4)
    found, _ = counters.kernels(call, "cold")
    read, written = (sum(c[f"dram_{way}_bytes"] for c in found) for way in ("read", "written"))
    print(
        f"{name}: by kernel {read / whole['dram_read_bytes'] * 100 - 100:+.2f} % read, "
        f"{written / whole['dram_written_bytes'] * 100 - 100:+.2f} % written"
    )
    assert read == pytest.approx(whole["dram_read_bytes"], rel=0.03)
    assert written < 1.01 * whole["dram_written_bytes"]  # the rest is written back later


def test_both_collectors_agree_on_what_a_matmul_reads(counters: DeviceCounters) -> None:
    """What it writes is another matter: a replay leaves lines dirty that are written back in it."""
    call = warm(matmul(4096))
    whole, (found, _) = counters.traffic(call, "cold", 2e-4), counters.kernels(call, "cold")
    read = sum(counts["dram_read_bytes"] for counts in found)
    print(f"matmul 4096: by kernel {read / whole['dram_read_bytes'] * 100 - 100:+.2f} % read")
    assert read == pytest.approx(whole["dram_read_bytes"], rel=0.03)


@pytest.mark.parametrize("name", ["sin 256 MiB", "triad 256 MiB", "sin 4 MB"])
def test_the_caches_see_what_the_threads_ask_for(counters: DeviceCounters, name: str) -> None:
    make, size, read, written, _ = EXACT[name]
    ((counts), *others), _ = counters.kernels(warm(make(size)), "cold")
    assert not others
    assert counts["l2_bytes"] == pytest.approx(read + written, rel=1e-3)
    assert counts["l1_bytes"] == pytest.approx(read + written, rel=1e-3)


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 9,
    reason="needs a GPU that has a TMA",
)
def test_a_kernel_that_loads_by_tma_has_no_bytes_of_l1(counters: DeviceCounters) -> None:
    found, _ = counters.kernels(warm(matmul(4096)), "cold")
    assert found[-1]["tma_instructions"] > 0
    assert "l1_bytes" not in found[-1]
    assert found[-1]["l2_bytes"] > 3 * 4096**2 * 2


@pytest.mark.parametrize("name", ["matmul 2048", "triad 64 MiB"])
@pytest.mark.filterwarnings("ignore")
def test_counters_do_not_disturb_times(counters: DeviceCounters, name: str) -> None:
    from gpuperf.measure.stopwatch import open_stopwatch

    call = warm(matmul(2048) if name == "matmul 2048" else triad(2**26))
    watch, contract = open_stopwatch("blocked", CUDA), Contract("blocked", gap_s=0.002, duty=0.2)
    medians: dict[bool, list[float]] = {False: [], True: []}
    for counted in (False, True, True, False, False, True, True, False):
        if counted:
            counters.traffic(call, "cold", 1e-4)
        medians[counted].append(watch.take(call, contract, 1e-4, False).times["busy"].median_s)
    off, on = (statistics.median(medians[counted]) for counted in (False, True))
    print(f"{name}: {off * 1e6:.3f} µs, after counters {(on / off - 1) * 100:+.2f} %")
    assert on == pytest.approx(off, rel=0.005)


def test_two_hundred_rounds_leave_nothing_behind(counters: DeviceCounters) -> None:
    call = warm(sin(2**22))

    def rss() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def rounds(count: int) -> None:
        for _ in range(count):
            with DramSampler(counters.cupti, 0, 0.01) as sampler:
                sampler.count(lambda: (call(), torch.cuda.synchronize()))  # type: ignore[func-returns-value]

    rounds(20)
    before, free = rss(), torch.cuda.mem_get_info()[0]
    rounds(180)
    grown, taken = rss() - before, free - torch.cuda.mem_get_info()[0]
    print(f"rss {grown / 1e6:+.1f} MB, device {taken:+d} B")
    assert grown < 30e6
    assert taken == 0


SECOND = """
import ctypes, sys, time, torch
torch.zeros(1, device="cuda")
from gpuperf.measure.counters.cupti import Cupti, find_library
from gpuperf.measure.counters.dram import DramSampler
with DramSampler(Cupti(ctypes.CDLL(str(find_library()))), 0, 60.0) as sampler:
    print("armed", flush=True)
    sys.stdin.read()
"""


def test_a_second_subscriber_is_told_of(counters: DeviceCounters) -> None:
    call = warm(sin(2**22))
    counters.calibration()
    other = subprocess.Popen(
        [sys.executable, "-c", SECOND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "armed\n"
        for ask in (
            lambda: counters.traffic(call, "cold", 1e-5),
            lambda: counters.kernels(call, "cold"),
        ):
            with pytest.raises(NoCounters) as refused:
                ask()
            assert refused.value.kind == "busy"
            assert "profilers" in refused.value.hint
    finally:
        other.communicate("")
    assert counters.traffic(call, "cold", 1e-5)["dram_read_bytes"] > 0
