"""Define the conditions of a measurement: the contract, the device and its fingerprint.

Two records can be compared only if they have the same `Contract`. The `Fingerprint` identifies the
device and the software of a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuperf.model.timers import TIMERS, timer_names

TimerName = str  # one of `timer_names()`
Cache = Literal["cold", "cold-dirty", "rotate", "hot"]
Regime = Literal["burst", "sustained"]
Data = Literal["randn", "uniform", "zeros", "ints", "own"]

# What can be asked for: a precision, as a fraction of the median, and the seconds of a case.
LEAST_PRECISE, LONGEST_BUDGET_S = 1.0, 3600.0

# Hardware counters that are read: `off` none; `auto` the DRAM bytes of a call, if possible;
# `require` the same, or an error; `kernels` those of each kernel too; `ncu` by Nsight Compute.
Counting = Literal["off", "auto", "require", "kernels", "ncu"]


@dataclass(frozen=True)
class Contract:
    """The conditions of a time: timer, cache and clock state, data, warm-up, stopping rule.

    `timer` is a name from `model/timers.py`.

    `cache` is the state of the L2 before a call: full of clean lines of other data (`cold`), full
    of dirty lines (`cold-dirty`), another copy of the inputs for each call (`rotate`), or as the
    previous call left it (`hot`).

    `regime`: in `burst` the device rests before each sample for at least `gap_s`, and longer if its
    busy share would exceed `duty`. In `sustained` calls run back to back until clock and time are
    steady, for at most `settle_s`.

    `data`: standard normal, uniform in [−1, 1], zeros, or whole numbers from −8 to 8; `own` is the
    data of a profiled program.

    `precision` is the half-width of the 95 % interval, as a fraction of the median, at which
    sampling stops after at least `min_samples`. It stops after `budget_s` in any case. The
    uncertainty of the timer's floor is in the interval but not in this rule, since more samples do
    not reduce it.
    """

    timer: TimerName
    cache: Cache = "cold"
    regime: Regime = "burst"
    gap_s: float = 0.01
    data: Data = "randn"
    warmup_calls: int = 3
    precision: float = 0.01
    budget_s: float = 2.0
    min_samples: int = 20
    max_samples: int = 1000
    statistic: Literal["median"] = "median"
    duty: float = 1.0
    settle_s: float = 10.0

    def __post_init__(self) -> None:
        if self.timer not in TIMERS or not TIMERS[self.timer].chosen:
            raise ValueError(f"no timer {self.timer[:40]!r}; known: {', '.join(timer_names())}")


@dataclass(frozen=True)
class DeviceFacts:
    """Properties that a device reports; `None` for one that it does not report.

    `sm_count` counts multiprocessors (on AMD compute units, on a CPU the threads used).
    `capability` is CUDA's compute capability or AMD's gfx name.
    """

    kind: Literal["cuda", "rocm", "cpu"]
    index: int
    name: str
    sm_count: int
    memory_bytes: int
    free_bytes: int
    capability: str = ""
    l2_bytes: int | None = None
    max_sm_clock_hz: float | None = None
    dtypes: tuple[str, ...] = ()
    mig: bool | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.memory_bytes < 2**80 and 0 <= self.free_bytes < 2**80):
            raise ValueError(f"a device cannot have {str(self.memory_bytes)[:20]} bytes of memory")


@dataclass(frozen=True)
class Fingerprint:
    """The device and the software of a record.

    Two records can be compared only if their `hard` facts agree (product, SM count, MIG, power
    limit, ECC, workload version). A difference in `soft` facts is noted (driver, torch, Triton,
    CUDA). `live` facts judge the measurement itself (other processes on the device, temperature).
    """

    hard: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    soft: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    live: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
