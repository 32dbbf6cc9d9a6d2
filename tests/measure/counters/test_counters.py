"""Counters report what a card moved, or why they cannot: against a fake CUPTI, and a fake card
whose traffic is known to the byte."""

from __future__ import annotations

import ctypes
import math
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch
from fake_cupti import (
    CHIPS,
    GEMM,
    REDUCE,
    SAMPLING,
    SHARED,
    SIZES,
    FakeCupti,
    fake,
    kind_of,
    known,
    nothing,
    sampled,
)

from gpuperf.measure.counters import cupti, dram, ranges
from gpuperf.measure.counters.cupti import (
    HINTS,
    KINDS,
    PM_SAMPLING,
    RANGE_PROFILER,
    Cupti,
    Host,
    NoCounters,
    NoCountersKind,
)
from gpuperf.measure.counters.device import StepKernelCounter
from gpuperf.measure.counters.dram import LEAST_INTERVAL_S, MOST_SAMPLES, DramSampler
from gpuperf.measure.counters.kernels import KernelCounter, count_kernels, summed, with_counts
from gpuperf.model.contract import Counting
from gpuperf.model.metrics import KERNEL, OF_STEP
from gpuperf.model.record import Kernel


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", nothing)
    monkeypatch.setattr(ranges, "_context", lambda: ctypes.c_void_p(1))


# The library


def test_the_chip_is_called_by_its_name() -> None:
    library, driver = fake(chip="GB202")
    assert library.chip(3) == "GB202"
    assert driver.log == ["cuptiProfilerInitialize", "cuptiDeviceGetChipName"]


@pytest.mark.parametrize(
    ("result", "kind"), [*KINDS.items(), (17, "unknown-metric"), (999, "failed")]
)
def test_a_result_has_its_kind_a_hint_and_the_librarys_own_words(
    result: int, kind: NoCountersKind
) -> None:
    library, _ = fake(refused={"cuptiDeviceGetChipName": result})
    with pytest.raises(NoCounters) as caught:
        library.chip(0)
    assert caught.value.kind == kind
    assert caught.value.hint == HINTS[kind] != ""
    assert str(caught.value) == f"cuptiDeviceGetChipName: CUPTI_ERROR_{result}"


def test_a_library_that_lacks_a_function_is_old() -> None:
    older = FakeCupti(missing=frozenset({"cuptiProfilerInitialize"}))
    assert kind_of(lambda: Cupti(older)) == "old-cuda"
    library, _ = fake(missing=frozenset({"cuptiPmSamplingEnable"}))
    assert kind_of(lambda: DramSampler(library, 0, 1e-3)) == "old-cuda"


def test_every_kind_has_a_hint_that_names_options_that_there_are() -> None:
    assert HINTS.keys() == set(get_args(NoCountersKind))
    for hint in HINTS.values():
        words = hint.replace(";", " ").split()
        asked = {b for a, b in pairwise(words) if a == "--counters"}
        assert asked <= set(get_args(Counting)), hint


@pytest.mark.parametrize("result", [1, 17, 46])
def test_metrics_that_are_refused_are_unknown_whatever_the_result(result: int) -> None:
    library, driver = fake(refused={"cuptiProfilerHostConfigAddMetrics": result})
    assert kind_of(lambda: DramSampler(library, 0, 1e-3)) == "unknown-metric"
    assert driver.alive == set()


def test_a_metric_that_the_chip_does_not_have_is_unknown() -> None:
    host = Host(fake()[0], PM_SAMPLING, "GH100")
    assert kind_of(lambda: host.configure(["dram__bytes_op_read.sum"])) == "unknown-metric"


def test_the_library_is_found_beside_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cupti, "_loaded", lambda: ())
    file = tmp_path / "nvidia" / "cuda_cupti" / "lib" / "libcupti.so.12"
    file.parent.mkdir(parents=True)
    file.touch()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert cupti.find_library() == file
    monkeypatch.setattr(cupti, "_installed", lambda: ())
    assert kind_of(cupti.find_library) == "no-library"


# Metrics, by the recorded replies of each chip


# DRAM at full speed


def sampler_of(**scripted: Any) -> tuple[DramSampler, FakeCupti]:
    library, driver = fake(**scripted)
    return DramSampler(library, 0, 1e-3), driver


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(dram.time, "sleep", slept.append)
    return slept


@pytest.mark.parametrize("chip", sorted(set(SAMPLING) - SHARED))
def test_the_samples_are_summed(chip: str, naps: list[float]) -> None:
    sampler, driver = sampler_of(
        chip=chip, samples=sampled(chip, (5.0, 1.0), (0.0, 2.0), (7.5, 0.0))
    )
    with sampler:
        moved = sampler.count(nothing)
    assert (moved.read, moved.written) == (12.5, 3.0)
    assert driver.alive == set()


def test_what_is_counted_lies_between_start_and_stop_and_a_sample_more(naps: list[float]) -> None:
    sampler, driver = sampler_of(samples=sampled("GH100", (1.0, 1.0)))
    seen: list[tuple[str, int]] = []
    sampler.count(lambda: seen.append((driver.steps[-1], len(naps))))
    assert seen == [("PmSamplingStart", 0)]
    (_, interval_ns), (nap,) = driver.triggers[-1], naps
    assert nap >= interval_ns * 1e-9
    assert driver.steps[-3:] == [
        "PmSamplingStop",
        "PmSamplingDecodeData",
        "PmSamplingGetCounterDataInfo",
    ]


@pytest.mark.parametrize("longest_s", [1e-6, 1e-3, 1.0, 60.0])
def test_the_interval_leaves_room_for_twice_the_longest_stretch(longest_s: float) -> None:
    library, driver = fake()
    DramSampler(library, 0, longest_s)
    ((_, interval_ns),) = driver.triggers
    assert interval_ns >= LEAST_INTERVAL_S * 1e9
    assert MOST_SAMPLES * interval_ns * 1e-9 >= 2 * longest_s * (1 - 1e-6)


@pytest.mark.parametrize(
    ("scripted", "kind"),
    [
        ({"overflow": True}, "overflow"),
        ({"stop": 1}, "overflow"),
        ({"stop": 0}, "overflow"),
        ({"refused": {"cuptiPmSamplingDecodeData": 8}}, "overflow"),
        ({"completed": 0}, "no-samples"),
        ({"samples": sampled("GH100", (1.0, math.nan), (1.0, 1.0))}, "no-samples"),
        ({"samples": sampled("GH100", (math.nan, math.nan))}, "no-samples"),
    ],
    ids=str,
)
def test_samples_that_are_not_whole_count_nothing(
    scripted: dict[str, Any], kind: str, naps: list[float]
) -> None:
    sampler, driver = sampler_of(**{"samples": sampled("GH100", (1.0, 1.0)), **scripted})
    with sampler:
        assert kind_of(lambda: sampler.count(nothing)) == kind
    assert driver.alive == set()


def fail() -> None:
    raise ArithmeticError("the call's own")


def test_a_run_that_raises_is_stopped_and_disabled() -> None:
    sampler, driver = sampler_of()
    with pytest.raises(ArithmeticError, match="the call's own"), sampler:
        sampler.count(fail)
    assert driver.steps[-3:] == ["PmSamplingStop", "PmSamplingDisable", "ProfilerHostDeinitialize"]
    assert driver.alive == set()


OPENING = [n for n in SIZES if n.startswith(("cuptiProfilerHost", "cuptiPmSampling"))]


@pytest.mark.parametrize("name", OPENING)
def test_wherever_sampling_fails_nothing_stays_enabled(name: str, naps: list[float]) -> None:
    """But for what itself cannot be disabled or closed."""
    library, driver = fake(refused={name: 35}, samples=sampled("GH100", (1.0, 1.0)))

    def sample() -> None:
        with DramSampler(library, 0, 1e-3) as sampler:
            sampler.count(nothing)

    assert kind_of(sample) == ("unknown-metric" if "Add" in name else "permission")
    left = {"cuptiPmSamplingDisable": {"sampler"}, "cuptiProfilerHostDeinitialize": {"host"}}
    assert driver.alive - left.get(name, set()) == set()


@pytest.mark.parametrize("chip", sorted(SHARED))
def test_a_chip_that_shares_its_memory_has_no_bytes_of_dram(chip: str) -> None:
    library, driver = fake(chip=chip)
    assert kind_of(lambda: DramSampler(library, 0, 1e-3)) == "unsupported"
    assert driver.alive == set()


@pytest.mark.parametrize("chip", ["GV100", "GV11B"])
def test_a_chip_older_than_turing_does_not_sample(chip: str) -> None:
    library, _ = fake(chip=chip)
    assert kind_of(lambda: DramSampler(library, 0, 1e-3)) == "unsupported"


@pytest.mark.parametrize("passes", [0, 2])
def test_what_does_not_fit_into_one_pass_cannot_be_sampled(passes: int) -> None:
    library, driver = fake(passes=passes)
    assert kind_of(lambda: DramSampler(library, 0, 1e-3)) == "unsupported"
    assert driver.alive == set()


@pytest.mark.parametrize("result", [7, 27])
def test_without_a_timer_on_the_chip_its_clock_triggers(result: int) -> None:
    library, driver = fake(chip="TU102", time_trigger=result)
    DramSampler(library, 0, 1e-3)
    (by_time, interval_ns), (by_clock, cycles) = driver.triggers
    assert (by_time, by_clock) == (1, 0)
    assert cycles == 1.5 * interval_ns  # at about 1.5 GHz


def test_without_any_trigger_nothing_is_sampled() -> None:
    library, driver = fake(refused={"cuptiPmSamplingSetConfig": 27})
    assert kind_of(lambda: DramSampler(library, 0, 1e-3)) == "unsupported"
    assert driver.alive == set()


@pytest.mark.parametrize("result", [26, 33, 35, 40])
def test_what_forbids_one_trigger_forbids_the_other(result: int) -> None:
    library, driver = fake(time_trigger=result)
    assert kind_of(lambda: DramSampler(library, 0, 1e-3)) == KINDS[result]
    assert [trigger for trigger, _ in driver.triggers] == [1]
    assert driver.alive == set()


# Kernel by kernel


def test_kernels_are_counted_in_their_order() -> None:
    library, driver = fake(ranges=[GEMM, REDUCE])
    seen: list[str] = []
    found, passes = count_kernels(library, 0, lambda: seen.append(driver.steps[-1]))
    assert seen == ["RangeProfilerStart"]
    assert [c["dram_read_bytes"] for c in found] == [8.0, 2.0]
    assert [c["l2_bytes"] for c in found] == [64.0, 32.0]
    assert found[0]["cycles"] == 900.0
    assert found[0]["fp32_flops"] == 0.0
    assert "time_ns" in found[0]
    assert "time_ns" not in found[1]
    assert passes == CHIPS["GH100"]["ranges"]["passes"] == 9
    assert driver.alive == set()


def test_one_quantity_of_kernels_is_counted_without_the_others() -> None:
    library, driver = fake(ranges=[GEMM, REDUCE])
    wanted = {"l2_bytes": KERNEL["l2_bytes"]}
    found, _ = count_kernels(library, 0, nothing, wanted)
    assert found == [{"l2_bytes": 64.0}, {"l2_bytes": 32.0}]
    assert driver.alive == set()


@pytest.mark.parametrize("chip", [c for c in CHIPS if known(c, RANGE_PROFILER) is not None])
def test_every_chip_that_has_ranges_counts_them(chip: str) -> None:
    library, driver = fake(chip=chip, ranges=[{"lts__t_sectors_srcunit_tex.sum": 5.0}])
    found, passes = count_kernels(library, 0, nothing)
    assert found[0]["l2_bytes"] == 160.0
    assert passes == CHIPS[chip]["ranges"]["passes"]
    assert driver.alive == set()


def test_kernels_beyond_the_room_are_too_many() -> None:
    library, driver = fake(ranges=[GEMM], dropped=1)
    assert kind_of(lambda: count_kernels(library, 0, nothing)) == "overflow"
    assert driver.alive == set()


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in SIZES
        if n.startswith(("cuptiProfilerHost", "cuptiRangeProfiler")) and not n.endswith("Range")
    ],
)
def test_wherever_profiling_fails_nothing_stays_enabled(name: str) -> None:
    library, driver = fake(refused={name: 35}, ranges=[GEMM])
    kind = kind_of(lambda: count_kernels(library, 0, nothing))
    assert kind == ("unknown-metric" if "Add" in name else "permission")
    left = {"cuptiProfilerHostDeinitialize": {"host"}, "cuptiRangeProfilerDisable": {"profiler"}}
    assert driver.alive - left.get(name, set()) == set()


def test_a_call_that_raises_under_the_profiler_leaves_nothing_enabled() -> None:
    library, driver = fake(ranges=[GEMM])
    with pytest.raises(ArithmeticError, match="the call's own"):
        count_kernels(library, 0, fail)
    assert driver.steps[-3:] == [
        "RangeProfilerStop",
        "RangeProfilerDisable",
        "ProfilerHostDeinitialize",
    ]


def test_kernels_of_a_step_are_counted_in_as_many_steps_as_there_are_passes() -> None:
    library, driver = fake(ranges=[GEMM, REDUCE])
    with KernelCounter(library, 0, OF_STEP, {}, again=True) as counter:
        steps = 0
        while True:
            counter.start()
            steps += 1
            if counter.stop():
                break
        assert steps == counter.passes == CHIPS["GH100"]["ranges"]["passes"]
        assert [c["dram_read_bytes"] for c in counter.counts()] == [8.0, 2.0]
    assert driver.alive == set()


def test_the_counters_of_a_step_are_scaled_by_the_flush_behind_it() -> None:
    """A flush of 100 bytes that reads as 200 here: the counters show all twice."""
    library, driver = fake(ranges=[GEMM, {**REDUCE, "dram__bytes_read.sum": 200.0}])
    flushes: list[str] = []
    counters: Any = SimpleNamespace(
        window=SimpleNamespace(flush=lambda policy: flushes.append(driver.steps[-1])), device=None
    )
    flush: Any = SimpleNamespace(flush_bytes=100.0, factor=1)
    with KernelCounter(library, 0, OF_STEP, {}, again=True) as counter:
        step = StepKernelCounter(counters, counter, flush)
        step.start()
        while not step.stop():
            step.start()
        (gemm,) = step.counts()
    assert gemm["dram_read_bytes"] == 4.0
    assert flushes == ["RangeProfilerStart"] * counter.passes


def test_the_sum_over_kernels_leaves_out_what_is_known_better() -> None:
    found = [
        {"l2_bytes": 64.0, "cycles": 9.0, "time_ns": 5.0, "dram_read_bytes": 8.0},
        {"l2_bytes": 6.0, "tensor_bf16": 2.0, "dram_read_bytes": 1.0},
    ]
    assert summed(found) == {"l2_bytes": 70.0}  # of the tensor pipe one kernel's is unknown
    assert summed([]) == {}


def test_counters_go_to_the_kernels_of_their_name_in_the_order_of_their_start() -> None:
    launches = ("Memset (Device)", "split", "gemm", "Memcpy DtoD (Device -> Device)", "split")
    listed = (Kernel("gemm"), Kernel("split", 2), Kernel("Memset (Device)"), Kernel("other"))
    found = [{"l2_bytes": 1.0}, {"l2_bytes": 10.0}, {"l2_bytes": 100.0, "cycles": 3.0}]
    assert with_counts(launches, listed, found) == (
        Kernel("gemm", 1, {"l2_bytes": 10.0}),
        Kernel("split", 2, {"l2_bytes": 101.0}),
        Kernel("Memset (Device)"),
        Kernel("other"),
    )


@pytest.mark.parametrize("count", [0, 1, 3])
def test_where_the_kernels_are_others_than_were_recorded_none_has_counters(count: int) -> None:
    listed = (Kernel("gemm"), Kernel("split"))
    assert with_counts(("gemm", "split"), listed, [{"l2_bytes": 1.0}] * count) == listed
