"""Read clocks, power, temperature and throttling of the device, and the load of the host.

NVML's throttle reasons are a bitmask; every big matmul reaches the software power cap (0x4).
Constants: nvml.h, `nvmlClocksEventReasons`, driver 580.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from gpuperf.measure.card import Card
from gpuperf.model.record import Telemetry

THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}

Fact = str | int | float | bool | None


def throttle_names(mask: int) -> tuple[str, ...]:
    """Return the reasons in *mask* why the clock is lowered, without idleness and user settings."""
    return tuple(name for bit, name in THROTTLE.items() if mask & bit)


class Meter:
    """Telemetry of a device; this base class, for a GPU without NVML, reads nothing."""

    def read(self) -> None:
        """Take one reading, to be summarized later."""

    def summary(self) -> Telemetry | None:
        """Return the readings since the last summary in one value; None without readings."""
        return None

    def facts(self) -> tuple[dict[str, Fact], dict[str, Fact], dict[str, Fact]]:
        """Return hard, soft and live facts for the fingerprint."""
        return {}, {}, {}


class HostMeter(Meter):
    """Meter of the number of processors that other processes keep busy, from /proc/stat.

    Other work lengthens times on a CPU: torch's threads wait for each other, and for a processor
    that another process uses.
    """

    def __init__(self) -> None:
        self._start = self._now()

    def _now(self) -> tuple[float, float]:
        """Return the clock, and the processor time of all other processes, in seconds."""
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        user, nice, system, _idle, _wait, irq, soft = (int(f) for f in fields[:7])
        busy = (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")
        own = os.times()
        return time.monotonic(), busy - own.user - own.system

    def summary(self) -> Telemetry:
        """Return the mean number of processors that others kept busy since the last summary."""
        before, self._start = self._start, self._now()
        elapsed = self._start[0] - before[0]
        load = (self._start[1] - before[1]) / elapsed if elapsed > 0 else 0.0
        return Telemetry(other_load=max(0.0, round(load, 3)))


class NvmlMeter(Meter):
    """Meter of one GPU through NVML; a value that the card does not report is None."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._clocks: list[float] = []
        self._memory_clocks: list[float] = []
        self._powers: list[float] = []
        self._temperatures: list[float] = []
        self._mask = 0

    def _ask(self, function: str, *args: Any) -> Any:
        try:
            return getattr(self._nvml, function)(self._handle, *args)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def read(self) -> None:
        nvml, ask = self._nvml, self._ask
        readings = (
            (self._clocks, ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM), 1e6),
            (self._memory_clocks, ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM), 1e6),
            (self._powers, ask("nvmlDeviceGetPowerUsage"), 1e-3),
            (self._temperatures, ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU), 1.0),
        )
        for series, value, scale in readings:
            if value is not None:
                series.append(value * scale)
        self._mask |= ask("nvmlDeviceGetCurrentClocksEventReasons") or 0

    def summary(self) -> Telemetry | None:
        """Return median clocks, and the highest power and temperature since the last summary."""
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        telemetry = Telemetry(
            sm_clock_hz=_median(self._clocks),
            memory_clock_hz=_median(self._memory_clocks),
            power_w=max(self._powers, default=None),
            power_limit_w=limit * 1e-3 if limit else None,
            temperature_c=max(self._temperatures, default=None),
            throttle=throttle_names(self._mask),
            other_processes=self._other_processes(),
        )
        for series in (self._clocks, self._memory_clocks, self._powers, self._temperatures):
            series.clear()
        self._mask = 0
        return telemetry

    def _other_processes(self) -> int | None:
        running = self._ask("nvmlDeviceGetComputeRunningProcesses")
        if running is None:
            return None
        return sum(1 for process in running if process.pid != os.getpid())

    def card(self) -> Card:
        """Return the readings of this GPU that an energy needs."""
        return Card(self._nvml, self._handle, self._other_processes)

    def default_power_limit_w(self) -> float | None:
        """Return the factory power limit of the card, in watt."""
        limit = self._ask("nvmlDeviceGetPowerManagementDefaultLimit")
        return limit * 1e-3 if limit else None

    def facts(self) -> tuple[dict[str, Fact], dict[str, Fact], dict[str, Fact]]:
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        ecc, mig = self._ask("nvmlDeviceGetEccMode"), self._ask("nvmlDeviceGetMigMode")
        clock = self._ask("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_SM)
        hard: dict[str, Fact] = {
            "power_limit_w": limit * 1e-3 if limit else None,
            "max_sm_clock_hz": clock * 1e6 if clock else None,
            "ecc": bool(ecc[0]) if ecc else None,
            "mig": bool(mig[0]) if mig else None,
        }
        soft: dict[str, Fact] = {
            "driver": _text(self._nvml.nvmlSystemGetDriverVersion()),
            "persistence": _flag(self._ask("nvmlDeviceGetPersistenceMode")),
        }
        live: dict[str, Fact] = {
            "other_processes": self._other_processes(),
            "temperature_c": self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
        }
        return hard, soft, live


def open_meter(device: torch.device) -> Meter:
    """Open the meter of *device* by its UUID: torch and NVML may number the GPUs differently."""
    if device.type == "cpu" and sys.platform == "linux":
        return HostMeter()
    if device.type != "cuda" or torch.version.hip:
        return Meter()
    try:
        import pynvml
    except ImportError:
        return Meter()
    try:
        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(
            (uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}").encode()
        )
    except (AttributeError, pynvml.NVMLError):
        return Meter()
    return NvmlMeter(pynvml, handle)


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
