"""How was a time taken, and on what?

Two records compare only under one `Contract`; the `Fingerprint` says on what they were taken.
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

# Of the hardware's counters: none; the DRAM bytes of each call, where they can be had; the same, or
# an error; each kernel's too; each kernel's, by Nsight Compute.
Counting = Literal["off", "auto", "require", "kernels", "ncu"]


@dataclass(frozen=True)
class Contract:
    """How a time was taken: timer, cache and clock state, data, warm-up, stopping rule.

    `timer` is one of those in `model/timers.py`.

    `cache`: L2 is full of other, clean lines (`cold`) or dirty ones (`cold-dirty`), the call goes
    over to other copies of its inputs each time (`rotate`), or it finds what it left (`hot`).

    `regime`: in `burst` the device rests before each sample, for `gap_s` and for as long as keeps
    its busy share under `duty`. In `sustained` calls run back to back until clock and time are
    flat, `settle_s` at most.

    `data`: standard normal, uniform in [−1, 1], zeros, or the whole numbers −8 … 8; `own` is what
    a program that was profiled worked on.

    `precision` is the half-width of the 95 % interval (a fraction of the median) at which sampling
    stops, from `min_samples` on; `budget_s` the time after which it stops anyway. What the timer's
    floor leaves uncertain is in the interval but not in this rule: more samples would not narrow
    it.
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
            raise ValueError(f"no timer {self.timer[:40]!r}: {', '.join(timer_names())}")


@dataclass(frozen=True)
class DeviceFacts:
    """What a device says of itself; `None` where it does not say.

    `sm_count` is multiprocessors (compute units; physical threads used on a CPU), `capability`
    CUDA's compute capability or AMD's gfx name; clocks in hertz, memory and caches in bytes.
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
            raise ValueError(f"{str(self.memory_bytes)[:20]} bytes are no memory of any device")


@dataclass(frozen=True)
class Fingerprint:
    """What a record was taken on.

    `hard` facts must agree for two records to compare (product, SM count, MIG, power limit, ECC,
    workload version); `soft` ones are annotated when they differ (driver, torch, Triton, CUDA);
    `live` ones judge the pass itself (other processes on the device, its temperature).
    """

    hard: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    soft: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    live: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
