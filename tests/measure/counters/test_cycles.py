"""The cycles of a call at its own speed agree with a fake window and a fake CUPTI."""

from __future__ import annotations

import ctypes
import gc
import weakref
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import pytest
from fake_cupti import CHIPS, RANGE_PROFILER, fake, known, nothing

from gpuperf.measure.counters import ranges
from gpuperf.measure.counters.cupti import Image, NoCounters
from gpuperf.measure.counters.cycles import LEAST_SPIN, WINDOWS, count_cycles
from gpuperf.measure.counters.ranges import BY_WINDOW, RangeProfiler
from gpuperf.measure.timers.timer import Call, do_nothing
from gpuperf.measure.timers.window import Reading
from gpuperf.model.contract import Cache

SMS = 132
ACTIVE, TENSOR = "sm__cycles_active.sum", "sm__pipe_tensor_cycles_active.sum"
FMA = "sm__pipe_fma_cycles_active.sum"
PEAKS = {f"{ACTIVE}.peak_sustained": SMS, f"{TENSOR}.peak_sustained": 4 * SMS}
# Of an H200's 1024³ in bf16: the spin of one SM is in every window, the call in every other one.
EMPTY = {ACTIVE: LEAST_SPIN + 2000.0, **PEAKS}
CALL = {ACTIVE: EMPTY[ACTIVE] + 7500.0 * SMS, TENSOR: 15888.0 * SMS, **PEAKS}


@pytest.fixture(autouse=True)
def context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_context", lambda: ctypes.c_void_p(1))


@dataclass
class FakeWindow:
    """Counts as the profiler's ranges are pushed; a window of nothing takes 3,000 cycles and 200
    more where it is counted, one of a call so many *cycles* more, and *longer* more."""

    cycles: Any = field(default_factory=lambda: cycle([10_000]))
    longer: int = 0
    queued_s: float = 50e-6
    seen: list[tuple[bool, int, Cache]] = field(default_factory=list)

    def take(self, call: Call, idle_s: float, cache: Cache) -> Reading:
        between = 3000 if call is do_nothing else 13_000
        return Reading(1e-5, 1.9e9, 1.9e9, self.queued_s, between)

    def count(self, call: Call, spin: int, idle_s: float, cache: Cache, ranges: Any) -> int | None:
        ranges.push()
        call()
        ranges.pop()
        self.seen.append((call is do_nothing, spin, cache))
        if call is do_nothing:
            return 3200
        cycles = next(self.cycles)
        return None if cycles is None else 3200 + cycles + self.longer


def counted(window: FakeWindow, **scripted: Any) -> dict[str, float]:
    library, driver = fake(**{"ranges": [CALL] * WINDOWS + [EMPTY] * WINDOWS, **scripted})
    try:
        return dict(count_cycles(library, 0, window, nothing, "cold", 0.004))  # type: ignore[arg-type]
    finally:
        assert driver.alive == set()


def test_cycles_are_those_of_the_call_alone_and_a_mean_over_the_sms() -> None:
    window = FakeWindow()
    found = counted(window, passes=2)
    assert found["active_cycles"] == 7500
    assert found["tensor_cycles"] == 15888 / 4  # four parts of an SM's pipe
    assert found["extra_cycles"] == 0
    passed = [False] * WINDOWS + [True] * WINDOWS
    assert [empty for empty, _, _ in window.seen] == passed * 2
    assert {cache for _, _, cache in window.seen} == {"cold"}


def test_what_the_chip_gives_no_peak_of_is_left_out() -> None:
    assert "fma_cycles" not in counted(FakeWindow())
    call = {**CALL, FMA: 8.0 * SMS, f"{FMA}.peak_sustained": 8.0 * SMS}
    empty = {**EMPTY, f"{FMA}.peak_sustained": 8.0 * SMS}
    assert counted(FakeWindow(), ranges=[call] * WINDOWS + [empty] * WINDOWS)["fma_cycles"] == 1


@pytest.mark.parametrize(("queued_s", "spin"), [(50e-6, LEAST_SPIN), (1e-3, 4_000_000)])
def test_the_window_waits_until_the_host_has_queued_the_call(queued_s: float, spin: int) -> None:
    window = FakeWindow(queued_s=queued_s)
    counted(window)
    assert {spun for _, spun, _ in window.seen} == {spin}


def test_what_a_call_takes_longer_under_the_counters_is_returned() -> None:
    assert counted(FakeWindow(longer=150))["extra_cycles"] == 150


def test_stamps_of_two_sms_tell_no_cycles() -> None:
    assert "extra_cycles" not in counted(FakeWindow(cycles=cycle([None])))
    assert counted(FakeWindow(cycles=cycle([None, 10_900])))["extra_cycles"] == 900


def test_windows_that_went_missing_leave_nothing_to_tell() -> None:
    with pytest.raises(NoCounters, match="saw 2 of 18 windows"):
        counted(FakeWindow(), ranges=[CALL, EMPTY])


def test_passes_without_end_are_given_up() -> None:
    with pytest.raises(NoCounters, match="64 passes were not enough"):
        counted(FakeWindow(), passes=65)


def test_what_the_library_reads_lives_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A config that was freed made CUPTI crash the process."""
    images: list[weakref.ref[Any]] = []

    def remembered(size: int) -> Image:
        image = Image((ctypes.c_uint8 * size)(), size)
        images.append(weakref.ref(image.data))
        return image

    monkeypatch.setattr(Image, "of", remembered)
    library, _ = fake(ranges=[CALL])
    with RangeProfiler(library, 0) as profiler:
        profiler.configure([ACTIVE], BY_WINDOW)
        gc.collect()
        assert [image() is not None for image in images] == [True, True]


@pytest.mark.parametrize("chip", [c for c in CHIPS if known(c, RANGE_PROFILER) is not None])
def test_every_chip_that_has_ranges_tells_its_active_cycles(chip: str) -> None:
    assert counted(FakeWindow(), chip=chip)["active_cycles"] == 7500


@pytest.mark.parametrize("name", ["cuptiRangeProfilerPushRange", "cuptiRangeProfilerPopRange"])
def test_where_a_window_cannot_be_counted_nothing_stays_enabled(name: str) -> None:
    with pytest.raises(NoCounters):
        counted(FakeWindow(), refused={name: 35})
