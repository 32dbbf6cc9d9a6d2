"""NVML of a card in Python: its counter moves in steps, and its power follows the load."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

IDLE_W, LOAD_W = 100.0, 600.0


class NVMLError(Exception):
    """What NVML raises for a reading that a card does not have."""


@dataclass
class FakeNvml:
    """The functions of pynvml that an energy needs, by the clock of the process.

    The counter moves every *tick_s*; *skew* is the counted over the true energy.
    """

    tick_s: float = 0.004
    skew: float = 1.0
    counts: bool = True
    instant: bool = True
    mig: bool = False
    others: int = 0
    celsius: float = 40.0
    power_w: float = IDLE_W
    began_s: float = field(default_factory=time.perf_counter)
    NVMLError: Any = NVMLError
    NVML_TEMPERATURE_GPU: int = 0
    _joules: float = 1000.0
    _at_s: float = field(default_factory=time.perf_counter)

    def load(self, watts: float) -> None:
        """Let the card draw *watts* from now on."""
        self._joules, self._at_s = self._now(), time.perf_counter()
        self.power_w = watts

    def _now(self, at_s: float | None = None) -> float:
        at_s = time.perf_counter() if at_s is None else at_s
        return self._joules + self.power_w * max(0.0, at_s - self._at_s)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: object) -> int:
        if not self.counts:
            raise NVMLError("Not Supported")
        ticks = (time.perf_counter() - self.began_s) // self.tick_s
        at_s = self.began_s + ticks * self.tick_s
        return int(1000 * self.skew * self._now(at_s))

    def nvmlDeviceGetFieldValues(self, handle: object, fields: list[int]) -> list[Any]:
        assert fields == [186]
        value = SimpleNamespace(uiVal=int(self.power_w * 1000))
        return [SimpleNamespace(nvmlReturn=0 if self.instant else 3, value=value)]

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int:
        return int(self.power_w * 1000)

    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> int:
        return int(self.celsius)

    def nvmlDeviceGetMigMode(self, handle: object) -> tuple[int, int]:
        return int(self.mig), int(self.mig)
