"""Fake CUPTI without a GPU, for the chips whose metrics were recorded, with counts set by a test;
and a fake card without CUPTI, whose traffic is known to the byte.

The library is as strict as the real one: a struct of another size, an object that is not enabled,
an image of a config or of counters that was not filled, and a metric that the chip does not have
are refused.
"""

from __future__ import annotations

import ctypes
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuperf.measure.counters.cupti import (
    HINTS,
    PM_SAMPLING,
    RANGE_PROFILER,
    Cupti,
    NoCounters,
    NoCountersKind,
)
from gpuperf.measure.counters.dram import Traffic
from gpuperf.model.contract import Cache
from gpuperf.model.metrics import BYTES, choose

# What the host library of CUPTI 13.0.85 said of each chip.
CHIPS: Mapping[str, Mapping[str, Mapping[str, Any]]] = json.loads(
    (Path(__file__).parent / "data" / "cupti_metrics.json").read_text()
)
KINDS = {RANGE_PROFILER: "ranges", PM_SAMPLING: "sampling"}

INVALID_PARAMETER, INVALID_OPERATION, INVALID_METRIC_NAME, NOT_SUPPORTED = 1, 7, 17, 27
BY_TIME = 1  # the trigger
# Ranges and their replay: by the library, or by the caller.
BY_KERNEL, ALL_KERNELS, BY_WINDOW = (1, 2), (1, 3), (2, 3)

# Of each struct to the end of its last field, by a C++ compiler and the headers of CUPTI 13.0.85;
# that of SetConfig as 12.6 has it.
SIZES = {
    "cuptiProfilerInitialize": 16,
    "cuptiDeviceGetChipName": 32,
    "cuptiProfilerHostInitialize": 48,
    "cuptiProfilerHostDeinitialize": 24,
    "cuptiProfilerHostGetBaseMetrics": 48,
    "cuptiProfilerHostConfigAddMetrics": 40,
    "cuptiProfilerHostGetConfigImageSize": 32,
    "cuptiProfilerHostGetConfigImage": 40,
    "cuptiProfilerHostGetNumOfPasses": 40,
    "cuptiProfilerHostEvaluateToGpuValues": 72,
    "cuptiPmSamplingEnable": 32,
    "cuptiPmSamplingDisable": 24,
    "cuptiPmSamplingStart": 24,
    "cuptiPmSamplingStop": 24,
    "cuptiPmSamplingSetConfig": 60,
    "cuptiPmSamplingGetCounterDataSize": 56,
    "cuptiPmSamplingCounterDataImageInitialize": 40,
    "cuptiPmSamplingDecodeData": 45,
    "cuptiPmSamplingGetCounterDataInfo": 56,
    "cuptiRangeProfilerEnable": 32,
    "cuptiRangeProfilerDisable": 24,
    "cuptiRangeProfilerStart": 24,
    "cuptiRangeProfilerStop": 41,
    "cuptiRangeProfilerPushRange": 32,
    "cuptiRangeProfilerPopRange": 24,
    "cuptiRangeProfilerSetConfig": 90,
    "cuptiRangeProfilerGetCounterDataSize": 64,
    "cuptiRangeProfilerCounterDataImageInitialize": 40,
    "cuptiRangeProfilerDecodeData": 32,
    "cuptiRangeProfilerGetCounterDataInfo": 40,
}

ROLL_UPS = ("sum", "max", "sum.peak_sustained")
HOST, SAMPLER, PROFILER = 0x1001, 0x2001, 0x3001  # the objects it hands out
IMAGE_BYTES, EMPTY, DECODED = 64, 0xE1, 0xDE  # of counter data: its size, its first byte
CONFIG = b"a config of some bytes"

MB = 1e6

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
SECTORS = "lts__t_sectors_srcunit_tex.sum"
# Two kernels, in the metrics of GH100.
GEMM = {READ: 8.0, SECTORS: 2.0, "sm__cycles_elapsed.max": 900.0}
REDUCE = {READ: 2.0, WRITTEN: 1.0, SECTORS: 1.0, "gpu__time_duration.sum": math.nan}


@dataclass
class FakeCupti:
    """Stands in for the library; *samples* and *ranges* hold the metrics' values by name.

    *refused* gives functions the result that they fail with, *missing* those that there are not.
    """

    chip: str = "GH100"
    samples: Sequence[Mapping[str, float]] = ()
    ranges: Sequence[Mapping[str, float]] = ()
    passes: int | None = None
    windows: bool = False
    opened: int = 0
    overflow: bool = False
    stop: int = 2
    completed: int | None = None
    dropped: int = 0
    time_trigger: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    log: list[str] = field(default_factory=list)
    alive: set[str] = field(default_factory=set)
    triggers: list[tuple[int, int]] = field(default_factory=list)
    kind: int = RANGE_PROFILER
    left: int = 1

    def __getattr__(self, name: str) -> Callable[[Any], int]:
        if name not in SIZES or name in self.missing:
            raise AttributeError(name)
        return partial(self._answer, name)

    def cuptiGetResultString(self, result: int, text: Any) -> int:
        text._obj.value = f"CUPTI_ERROR_{result}".encode()
        return 0

    @property
    def steps(self) -> list[str]:
        """What was called, without `cupti` and the metrics' evaluation."""
        names = [name.removeprefix("cupti") for name in self.log]
        return [name for name in names if name != "ProfilerHostEvaluateToGpuValues"]

    def _answer(self, name: str, arg: Any) -> int:
        told = arg._obj
        self.log.append(name)
        assert told.size == SIZES[name], f"{name}: {told.size} bytes are not {SIZES[name]}"
        assert told.private is None
        if name in self.refused:
            return self.refused[name]
        short = name.removeprefix("cupti")
        for family, kind in (("PmSampling", "sampler"), ("RangeProfiler", "profiler")):
            if short.startswith(family):
                return self._take(short.removeprefix(family), kind, told)
        return self._host(short, told)

    def _host(self, name: str, told: Any) -> int:
        if name == "DeviceGetChipName":
            told.chip = self.chip.encode()
        elif name == "ProfilerHostInitialize":
            known = CHIPS[told.chip.decode()][KINDS[told.kind]]
            if "refused" in known:
                return NOT_SUPPORTED
            self.kind = told.kind
            told.host = HOST
            self.alive.add("host")
        elif name != "ProfilerInitialize" and "host" not in self.alive:
            return INVALID_PARAMETER
        elif name == "ProfilerHostGetNumOfPasses":
            told.passes = self._passes()
        elif name != "ProfilerInitialize":
            return self._of_host(name, told)
        return 0

    def _passes(self) -> int:
        known = int(CHIPS[self.chip][KINDS[self.kind]]["passes"])
        return known if self.passes is None else self.passes

    def _of_host(self, name: str, told: Any) -> int:
        known = CHIPS[self.chip][KINDS[self.kind]].get("metrics", ())
        if told.host != HOST:
            return INVALID_PARAMETER
        if name == "ProfilerHostDeinitialize":
            self.alive.remove("host")
        elif name == "ProfilerHostGetBaseMetrics":
            told.names = (ctypes.c_char_p * len(known))(*(metric.encode() for metric in known))
            told.count = len(known)
        elif name == "ProfilerHostConfigAddMetrics":
            asked = [metric.partition(".") for metric in _strings(told)]
            if not all(base in known and how in ROLL_UPS for base, _, how in asked):
                return INVALID_METRIC_NAME
        elif name == "ProfilerHostGetConfigImageSize":
            told.bytes = len(CONFIG)
        elif name == "ProfilerHostGetConfigImage":
            assert told.bytes == len(CONFIG)
            ctypes.memmove(told.image, CONFIG, len(CONFIG))
        elif name == "ProfilerHostEvaluateToGpuValues":
            assert (told.bytes, told.image[0]) == (IMAGE_BYTES, DECODED)
            values = (self.ranges if self.kind == RANGE_PROFILER else self.samples)[told.index]
            for place, metric in enumerate(_strings(told)):
                told.values[place] = values.get(metric, 0.0)
        return 0

    def _take(self, name: str, kind: str, told: Any) -> int:
        """What samples and what profiles ranges: enabled, configured, started, stopped, decoded."""
        handle = SAMPLER if kind == "sampler" else PROFILER
        if name == "Enable":
            setattr(told, kind, handle)
            self.alive.add(kind)
        elif kind not in self.alive or getattr(told, kind, handle) != handle:
            return INVALID_PARAMETER
        elif name == "Disable":
            self.alive -= {kind, "started", "window"}
        elif name == "SetConfig":
            assert ctypes.string_at(told.config, told.bytes) == CONFIG
            if kind == "sampler":
                self.triggers.append((told.trigger, told.interval))
                return self.time_trigger if told.trigger == BY_TIME else 0
            assert (told.image_bytes, told.image[0]) == (IMAGE_BYTES, EMPTY)
            assert (told.range, told.replay) in (BY_KERNEL, ALL_KERNELS, BY_WINDOW)
            self.windows = (told.range, told.replay) == BY_WINDOW
            self.left = 1 if (told.range, told.replay) == BY_KERNEL else self._passes()
        elif name == "GetCounterDataSize":
            assert _strings(told)
            told.bytes = IMAGE_BYTES
        elif name == "CounterDataImageInitialize":
            assert told.bytes == IMAGE_BYTES
            told.image[0] = EMPTY
        elif name == "Start":
            self.alive.add("started")
        elif name in ("PushRange", "PopRange"):
            assert self.windows
            if ("window" in self.alive) == (name == "PushRange"):
                return INVALID_OPERATION
            self.alive ^= {"window"}
            self.opened += name == "PushRange"
        elif name == "Stop":
            self.alive.remove("started")
            if kind == "profiler":
                self.left -= 1
                told.all_passes = self.left <= 0
        elif name == "DecodeData":
            if "started" in self.alive:
                return INVALID_OPERATION
            self._decode(kind, told)
        elif name == "GetCounterDataInfo":
            self._count(kind, told)
        return 0

    def _decode(self, kind: str, told: Any) -> None:
        if kind == "profiler":
            told.dropped = self.dropped
            return
        assert (told.bytes, told.image[0]) == (IMAGE_BYTES, EMPTY)
        told.image[0] = DECODED
        told.stop, told.overflow = self.stop, self.overflow

    def _count(self, kind: str, told: Any) -> None:
        if kind == "profiler":
            # The profiler was given its image beforehand, and fills that.
            assert (told.bytes, told.image[0]) == (IMAGE_BYTES, EMPTY)
            told.image[0] = DECODED
            told.ranges = len(self.ranges)
            return
        assert told.image[0] == DECODED
        told.completed = len(self.samples) if self.completed is None else self.completed


def _strings(told: Any) -> list[str]:
    return [told.names[i].decode() for i in range(told.count)]


def known(chip: str, kind: int) -> list[str] | None:
    """The recorded counters of *chip*; None where it was refused."""
    return CHIPS[chip][KINDS[kind]].get("metrics")


SAMPLING = [chip for chip in CHIPS if known(chip, PM_SAMPLING) is not None]
SHARED = {"GA10B", "GB10B", "GB20B"}  # their memory is the CPU's


def sampled(chip: str, *values: tuple[float, float]) -> list[dict[str, float]]:
    """Samples of *chip* with these bytes read and written, by its own names."""
    (read,), (written,) = choose(BYTES, known(chip, PM_SAMPLING) or ()).values()
    return [{read: r, written: w} for r, w in values]


def fake(**scripted: Any) -> tuple[Cupti, FakeCupti]:
    """The library by ctypes, and what it talks to."""
    library = FakeCupti(**scripted)
    return Cupti(library), library


@dataclass
class Card:
    """What the counters of a card show of its traffic, and the clock by which it goes.

    Each call and each flush moves so many bytes, something else so many a second; the counters
    show *factor* times that, and err by *noise* bytes. What moved before a stretch, since the last
    one, is still in its first sample.
    """

    read: float = 3 * MB
    written: float = 1 * MB
    call_s: float = 1e-4
    idle: float = 900 * MB  # a second, in each direction
    flush_bytes: float = 240 * MB
    noise: float = 0.0
    factor: float = 1.0
    seed: int = 0
    now: float = 0.0
    stretches: list[list[str]] = field(default_factory=lambda: [[]])
    longest_s: float = 0.0
    moved: list[float] = field(default_factory=lambda: [5e9, 5e9])

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def call(self) -> None:
        self._move("call", self.call_s, self.read, self.written)

    def flush(self, cache: Cache) -> None:
        if cache == "cold":
            self._move(cache, 6e-5, self.flush_bytes, 0.0)
        elif cache == "cold-dirty":
            self._move(cache, 6e-5, 0.0, self.flush_bytes)

    def _move(self, what: str, seconds: float, read: float, written: float) -> None:
        self.stretches[-1].append(what)
        self.now += seconds
        self.moved[0] += read
        self.moved[1] += written

    def count(self, run: Callable[[], None]) -> Traffic:
        self.stretches.append([])
        began = self.now
        run()
        seconds = self.now - began + 1e-4
        self.now = began + seconds
        read, written = (
            self.factor * (m + self.idle * seconds) + self.random.gauss(0.0, self.noise)
            for m in self.moved
        )
        self.stretches.append([])
        self.moved = [0.0, 0.0]
        self.longest_s = max(self.longest_s, seconds)
        return Traffic(read, written, seconds)

    def __enter__(self) -> Card:
        return self

    def __exit__(self, *raised: object) -> None: ...


def nothing(*args: object) -> None:
    """Instead of waiting for a device."""


def kind_of(what: Callable[[], object]) -> NoCountersKind:
    with pytest.raises(NoCounters) as caught:
        what()
    assert caught.value.hint == HINTS[caught.value.kind] != ""
    return caught.value.kind
