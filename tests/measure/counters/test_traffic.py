"""A call's bytes are separated from all other traffic, and used only where the counters agree with
a known traffic."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from fake_cupti import GEMM, MB, READ, REDUCE, SECTORS, Card, fake, kind_of, nothing

from gpuperf.errors import CannotMeasure
from gpuperf.measure.counters import device as counters
from gpuperf.measure.counters import ranges, traffic
from gpuperf.measure.counters.cupti import Cupti, NoCounters
from gpuperf.measure.counters.device import DeviceCounters, open_counters
from gpuperf.measure.counters.traffic import Calibration, Moved, measure_traffic, read_calibration
from gpuperf.model.contract import Cache


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", nothing)
    monkeypatch.setattr(ranges, "_context", lambda: ctypes.c_void_p(1))


# The bytes of one call


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Moved]:
    def measured(card: Any, cache: Cache = "cold", **more: float) -> Moved:
        monkeypatch.setattr(traffic, "time", card)
        return measure_traffic(card, card.call, card.flush, cache, card.call_s, **more)

    return measured


@pytest.mark.parametrize("cache", get_args(Cache))
@pytest.mark.parametrize("call_s", [0.0, 1e-6, 1e-4, 0.5])
def test_a_calls_bytes_are_separated_from_the_flushes_and_the_idle_traffic(
    measure: Callable[..., Moved], cache: Cache, call_s: float
) -> None:
    moved = measure(Card(call_s=call_s), cache)
    assert (moved.read, moved.written) == pytest.approx((3 * MB, 1 * MB))
    assert moved.total == moved.read + moved.written


@pytest.mark.parametrize("seed", range(5))
def test_noise_leaves_them_right_to_a_percent(measure: Callable[..., Moved], seed: int) -> None:
    moved = measure(Card(noise=0.4 * MB, seed=seed))
    assert moved.total == pytest.approx(4 * MB, rel=0.01)
    assert moved.uncertainty > 0


class Busy(Card):
    """A card whose counters err only while something runs."""

    def count(self, run: Callable[[], None]) -> Any:
        noise, before = self.noise, len(self.stretches)
        self.noise = 0.0
        found = super().count(run)
        self.noise = noise
        if not any(self.stretches[before:]):
            return found
        err = (self.random.gauss(0.0, noise) for _ in range(2))
        return found._replace(read=found.read + next(err), written=found.written + next(err))


@pytest.mark.parametrize("noise", [0.002, 0.004, 0.006, 0.01, 0.1])
def test_nineteen_of_twenty_times_the_truth_is_within_the_uncertainty(
    measure: Callable[..., Moved], noise: float
) -> None:
    """Though sampling stops when the values agree, be it by chance. *noise* is that of one pair of
    stretches: of four counts, over the 4 MB of 40 calls. The idle traffic is known exactly: it is
    counted once, so its error would be the same in every pair."""
    cards = [Busy(noise=noise * 40 * 4 * MB / 2, seed=seed) for seed in range(400)]
    errors = [(abs(m.total - 4 * MB), m.uncertainty) for m in map(measure, cards)]
    covered = sum(error <= uncertainty for error, uncertainty in errors) / len(errors)
    assert 0.94 <= covered <= 0.99


@pytest.mark.parametrize(
    ("card", "more", "pairs"),
    [
        (Card(), {}, 3),
        (Card(noise=10 * MB), {}, 8),
        (Card(noise=10 * MB), {"budget_s": 0.0}, 3),
        (Card(noise=0.5 * MB), {"precision": 0.001}, 8),
        (Card(noise=0.5 * MB), {"precision": 0.5}, 3),
        (Card(read=100.0, written=0.0, noise=500.0), {}, 3),
        (Card(read=0.0, written=0.0), {}, 3),
    ],
    ids=["precise", "noisy", "no budget", "fine", "coarse", "tiny", "nothing"],
)
def test_pairs_are_taken_until_the_bytes_are_known_or_the_budget_is_spent(
    measure: Callable[..., Moved], card: Card, more: dict[str, float], pairs: int
) -> None:
    """40 calls of 0.1 ms to a stretch."""
    assert measure(card, **more).calls == 40 * pairs


def test_the_budget_ends_what_is_not_yet_known(measure: Callable[..., Moved]) -> None:
    """A pair takes 9 ms."""
    calls = [measure(Card(noise=10 * MB), budget_s=budget_s).calls for budget_s in (0.05, 0.06)]
    assert 40 * 3 < calls[0] < calls[1] < 40 * 8


@pytest.mark.parametrize(("call_s", "calls"), [(0.0, 200), (1e-6, 200), (1e-3, 4), (9.0, 1)])
def test_a_stretch_has_as_many_calls_as_its_time_has_room_for(
    measure: Callable[..., Moved], call_s: float, calls: int
) -> None:
    assert measure(Card(call_s=call_s), budget_s=1e9).calls == 3 * calls


@pytest.mark.parametrize("cache", get_args(Cache))
def test_stretches_differ_by_the_calls_alone_and_end_with_a_flush(
    measure: Callable[..., Moved], cache: Cache
) -> None:
    card = Card(call_s=1e-3)
    measure(card, cache)
    before = [cache] if cache in ("cold", "cold-dirty") else []
    first = card.stretches.index(["call"])
    assert not any(card.stretches[:first])
    assert card.stretches[first : first + 4] == [
        ["call"],
        [*before, "call"] * 4 + ["cold"],
        ["call"],
        before * 4 + ["cold"],
    ]


@pytest.mark.parametrize("cache", get_args(Cache))
@pytest.mark.parametrize("factor", [1, 2])
def test_what_a_flush_reads_is_known_beside_whatever_the_call(
    measure: Callable[..., Moved], cache: Cache, factor: int
) -> None:
    moved = measure(Card(factor=factor, noise=0.1 * MB), cache)
    assert moved.flush_bytes == pytest.approx(factor * 240 * MB, rel=0.001)


# Held against known traffic


def shown(factor: float, written: float | None = None, offset: float = 0.0) -> list[Any]:
    return [
        (size, Moved(factor * size + offset, (written or factor) * size + offset, 0.0, 9, 7.0))
        for size in (200_000_000, 400_000_000)
    ]


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
@pytest.mark.parametrize("offset", [0.0, 5 * MB, -5 * MB])
@pytest.mark.parametrize("off", [0.99, 1.0, 1.01])
def test_counters_that_show_a_whole_multiple_are_divided_by_it(
    factor: int, offset: float, off: float
) -> None:
    found = read_calibration(shown(factor * off, offset=offset))
    assert (found.factor, found.flush_bytes) == (factor, 7.0)
    assert found.ratio == pytest.approx(factor * off)
    total = 2 * (4e8 * factor * off + offset)
    assert found.intercept == pytest.approx(2 * offset / total, abs=1e-12)


@pytest.mark.parametrize("offset", [30 * MB, -30 * MB])
def test_counters_that_show_much_beside_the_copy_are_not_believed(offset: float) -> None:
    with pytest.raises(NoCounters, match="do not grow with its size"):
        read_calibration(shown(1.0, offset=offset))


def test_what_the_calibration_is_off_is_in_the_uncertainty(
    counters_of: Callable[..., DeviceCounters],
) -> None:
    plain, off = (
        counters_of(Card(), Calibration(1, 240 * MB, ratio)).traffic(Card().call, "cold", 1e-3)
        for ratio in (1.0, 1.01)
    )
    moved = off["dram_read_bytes"] + off["dram_written_bytes"]
    assert off["dram_uncertainty_bytes"] >= plain["dram_uncertainty_bytes"] + 0.009 * moved


@pytest.mark.parametrize(
    ("read", "written"),
    [
        (0.0, 0.0),
        (0.5, 0.5),
        (0.97, 0.97),
        (1.03, 1.03),
        (1.5, 1.5),
        (1.0, 2.0),
        (2.0, 1.0),
        (5.0, 5.0),
    ],
)
def test_counters_that_show_anything_else_are_not_believed(read: float, written: float) -> None:
    with pytest.raises(
        NoCounters, match=f"{read:.3f} times the bytes that a copy reads and {written:.3f}"
    ) as no:
        read_calibration(shown(read, written or 1e-9))
    assert no.value.kind == "uncalibrated"


@pytest.mark.parametrize("free", [10**12, 8 * MB])
def test_they_are_held_against_copies_of_two_sizes_that_there_is_memory_for(
    monkeypatch: pytest.MonkeyPatch, free: float
) -> None:
    copied: list[int] = []

    def moved(sampler: object, copy: Any, flush: object, cache: Cache, call_s: float) -> Moved:
        source, target = copy.args[0], copy.func.__self__
        copy()
        assert torch.equal(source, target)
        assert cache == "cold"
        copied.append(4 * source.numel())
        return Moved(2.0 * copied[-1], 2.0 * copied[-1], 0.0, 9, 480 * MB)

    monkeypatch.setattr(traffic, "measure_traffic", moved)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(free), 10**12))
    card: Any = Card()
    found = traffic.calibrate(card, card.flush, 1 << 18, torch.device("cpu"))
    assert (found.factor, found.flush_bytes) == (2, 480 * MB)
    assert copied[1] == 2 * copied[0]
    assert 2 * copied[1] <= free / 2
    assert copied[1] == 8 << 18 or free < 10**12


# All together


@pytest.fixture
def counters_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., DeviceCounters]:
    def make(card: Any, known: Calibration | Exception, **scripted: Any) -> DeviceCounters:
        def calibrate(*args: object) -> Calibration:
            card.calibrated = getattr(card, "calibrated", 0) + 1
            if isinstance(known, Exception):
                raise known
            return known

        def open_sampler(library: Cupti, index: int, longest_s: float) -> Any:
            card.room_s = longest_s
            return card

        monkeypatch.setattr(traffic, "time", card)
        monkeypatch.setattr(counters, "calibrate", calibrate)
        monkeypatch.setattr(counters, "DramSampler", open_sampler)
        return DeviceCounters(torch.device("cpu"), 60 << 20, card, fake(**scripted)[0])

    return make


@pytest.mark.parametrize("cache", get_args(Cache))
def test_the_bytes_are_divided_by_the_factor(
    counters_of: Callable[..., DeviceCounters], cache: Cache
) -> None:
    counts = []
    for factor in (1, 2):
        card = Card(factor=factor, noise=factor * 0.1 * MB)
        found = counters_of(card, Calibration(factor, factor * 240 * MB, float(factor)))
        counts.append(dict(found.traffic(card.call, cache, card.call_s)))
    assert [c.pop("dram_factor") for c in counts] == [1, 2]
    assert [c.pop("dram_ratio") for c in counts] == [1.0, 2.0]
    assert counts[1] == pytest.approx(counts[0])
    assert counts[0]["dram_read_bytes"] == pytest.approx(3 * MB, rel=0.01)
    assert counts[0]["dram_written_bytes"] == pytest.approx(1 * MB, rel=0.03)
    assert 0 < counts[0]["dram_uncertainty_bytes"] < 0.02 * MB
    assert counts[0]["dram_calls"] == 120


@pytest.mark.parametrize("call_s", [1e-6, 1e-3, 2.0])
def test_the_longest_stretch_has_room_in_the_image(
    counters_of: Callable[..., DeviceCounters], call_s: float
) -> None:
    card: Any = Card(call_s=call_s)
    counters_of(card, Calibration(1, 240 * MB)).traffic(card.call, "cold", call_s)
    assert card.longest_s <= card.room_s


def test_the_counters_are_held_against_known_traffic_once(
    counters_of: Callable[..., DeviceCounters],
) -> None:
    card: Any = Card()
    found = counters_of(card, Calibration(1, 240 * MB))
    for _ in range(2):
        found.traffic(card.call, "hot", card.call_s)
    assert (found.calibration().factor, card.calibrated) == (1, 1)


@pytest.mark.parametrize("share", [0.5, 0.97, 1.03, 2.0])
def test_a_flush_that_reads_otherwise_later_is_not_believed(
    counters_of: Callable[..., DeviceCounters], share: float
) -> None:
    card = Card()
    found = counters_of(card, Calibration(1, share * 240 * MB))
    with pytest.raises(
        NoCounters, match=r"show 240\.0 MB for a flush of the L2, and showed"
    ) as caught:
        found.traffic(card.call, "cold", card.call_s)
    assert caught.value.kind == "uncalibrated"


def test_without_memory_for_the_copies_there_are_no_counters(
    counters_of: Callable[..., DeviceCounters],
) -> None:
    found = counters_of(Card(), torch.OutOfMemoryError("CUDA out of memory"))
    assert kind_of(found.calibration) == "failed"
    assert kind_of(lambda: found.traffic(nothing, "hot", 1e-3)) == "failed"


FLUSH = {READ: 240 * MB, SECTORS: 7.5 * MB}


@pytest.mark.parametrize(
    ("cache", "events"),
    [("cold", ["cold"]), ("cold-dirty", ["cold-dirty"]), ("rotate", []), ("hot", [])],
)
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_the_flushes_are_none_of_a_calls_kernels_and_the_last_tells_the_factor(
    counters_of: Callable[..., DeviceCounters], cache: Cache, events: list[str], factor: int
) -> None:
    card = Card()
    ranges = [{**r, READ: factor * r[READ]} for r in (*[FLUSH] * len(events), GEMM, REDUCE, FLUSH)]
    # At full speed the factor may be another one.
    found, passes = counters_of(card, Calibration(2, 480 * MB), ranges=ranges).kernels(
        card.call, cache
    )
    assert [c["dram_read_bytes"] for c in found] == [8.0, 2.0]
    assert found[1]["dram_written_bytes"] == 1.0 / factor
    assert [c["l2_bytes"] for c in found] == [64.0, 32.0]
    assert passes == 9
    assert card.stretches[0] == [*events, "call", "cold"]


@pytest.mark.parametrize("read", [0.0, 100 * MB, 360 * MB, math.nan])
def test_a_flush_that_reads_otherwise_kernel_by_kernel_is_not_believed(
    counters_of: Callable[..., DeviceCounters], read: float
) -> None:
    found = counters_of(Card(), Calibration(1, 240 * MB), ranges=[GEMM, {READ: read}])
    assert kind_of(lambda: found.kernels(nothing, "hot")) == "uncalibrated"


def test_a_profiler_that_saw_no_kernel_gave_no_samples(
    counters_of: Callable[..., DeviceCounters],
) -> None:
    found = counters_of(Card(), Calibration(1, 240 * MB), ranges=[])
    assert kind_of(lambda: found.kernels(nothing, "hot")) == "no-samples"


def raising(error: Exception) -> Callable[..., Any]:
    def refuse(*args: object) -> None:
        raise error

    return refuse


@pytest.mark.parametrize(
    ("device", "l2_bytes", "kind"),
    [("cpu", 1 << 20, "unsupported"), ("cuda", None, "failed"), ("cuda", 0, "failed")],
)
def test_without_an_nvidia_gpu_there_are_no_counters(
    device: str, l2_bytes: int | None, kind: str
) -> None:
    assert kind_of(lambda: open_counters(torch.device(device), l2_bytes)) == kind


def test_without_a_window_or_a_library_there_are_no_counters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def opened() -> object:
        return open_counters(torch.device("cuda", 0), 1 << 20)

    monkeypatch.setattr(counters, "open_window", raising(CannotMeasure("no NVRTC")))
    with pytest.raises(NoCounters, match="cannot be flushed: no NVRTC"):
        opened()
    monkeypatch.setattr(counters, "open_window", lambda device: Card())
    monkeypatch.setattr(counters, "find_library", lambda: Path("/nowhere/libcupti.so"))
    assert kind_of(opened) == "no-library"
