"""What did the device say beside the measurement: clocks, power, temperature, throttling?

NVML's throttle reasons are a bitmask; the software power cap (0x4) is met by every big matmul.
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

from gpuperf.model.record import Caveat, Telemetry

THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}

# Processors: beyond this, other work shows in the times of a CPU.
CONTENDED = 0.2

Fact = str | int | float | bool | None


def throttle_names(mask: int) -> tuple[str, ...]:
    """The reasons in *mask* that slow the clock down; idle and user settings are not among them."""
    return tuple(name for bit, name in THROTTLE.items() if mask & bit)


def telemetry_caveats(telemetry: Telemetry | None) -> tuple[Caveat, ...]:
    """What a reader must know of a measurement that was throttled, or not alone."""
    if telemetry is None:
        return ()
    caveats = []
    if telemetry.throttle:
        caveats.append(
            Caveat(
                "throttled",
                f"the clock was held down: {', '.join(telemetry.throttle)}",
                "read the MFU at the observed clock; samples were kept",
            )
        )
    others = telemetry.other_processes
    if others:
        caveats.append(
            Caveat("shared", f"{others} other processes used the GPU", "end them and run again")
        )
    load = telemetry.other_load
    if load is not None and load > CONTENDED:
        caveats.append(
            Caveat(
                "contended",
                f"other processes kept {load:.1f} processors busy",
                "end other work: threads that wait for a processor wait for each other",
            )
        )
    return tuple(caveats)


class HostMeter:
    """How many processors other processes kept busy, by Linux's own accounts.

    A CPU measurement beside other work is not its own: torch's threads wait for each other, and
    for whatever holds their processor.
    """

    def __init__(self) -> None:
        self._start = self._now()

    def _now(self) -> tuple[float, float]:
        """The clock, and the processor time of everyone else, in seconds."""
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        user, nice, system, _idle, _wait, irq, soft = (int(f) for f in fields[:7])
        busy = (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")
        own = os.times()
        return time.monotonic(), busy - own.user - own.system

    def read(self) -> None:
        """Linux counts by itself."""

    def summary(self) -> Telemetry:
        """The load of others since the last summary."""
        before, self._start = self._start, self._now()
        elapsed = self._start[0] - before[0]
        load = (self._start[1] - before[1]) / elapsed if elapsed > 0 else 0.0
        return Telemetry(other_load=max(0.0, round(load, 3)))

    def facts(self) -> tuple[dict[str, Fact], dict[str, Fact], dict[str, Fact]]:
        """Hard, soft and live facts: none."""
        return {}, {}, {}


class NoMeter:
    """No telemetry: a GPU without NVML, a CPU without Linux."""

    def read(self) -> None:
        """Nothing to read."""

    def summary(self) -> Telemetry | None:
        """Nothing was read."""
        return None

    def facts(self) -> tuple[dict[str, Fact], dict[str, Fact], dict[str, Fact]]:
        """Hard, soft and live facts: none."""
        return {}, {}, {}


class NvmlMeter:
    """Reads one GPU through NVML; what a card does not tell is `None`."""

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
        """Take one reading; cheap enough to be taken between samples."""
        nvml = self._nvml
        readings = (
            (self._clocks, self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM), 1e6),
            (self._memory_clocks, self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM), 1e6),
            (self._powers, self._ask("nvmlDeviceGetPowerUsage"), 1e-3),
            (
                self._temperatures,
                self._ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
                1.0,
            ),
        )
        for series, value, scale in readings:
            if value is not None:
                series.append(value * scale)
        self._mask |= self._ask("nvmlDeviceGetCurrentClocksEventReasons") or 0

    def summary(self) -> Telemetry | None:
        """The readings since the last summary: medians, the highest power and temperature."""
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

    def default_power_limit_w(self) -> float | None:
        """The limit that the card came with, in watt."""
        limit = self._ask("nvmlDeviceGetPowerManagementDefaultLimit")
        return limit * 1e-3 if limit else None

    def facts(self) -> tuple[dict[str, Fact], dict[str, Fact], dict[str, Fact]]:
        """Hard, soft and live facts of the card, for the fingerprint."""
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


Meter = NoMeter | HostMeter | NvmlMeter


def open_meter(device: torch.device) -> Meter:
    """The meter of *device*, found by its UUID: torch and NVML may number the GPUs differently."""
    if device.type == "cpu" and sys.platform == "linux":
        return HostMeter()
    if device.type != "cuda" or torch.version.hip:
        return NoMeter()
    try:
        import pynvml
    except ImportError:
        return NoMeter()
    try:
        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(
            (uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}").encode()
        )
    except (AttributeError, pynvml.NVMLError):
        return NoMeter()
    return NvmlMeter(pynvml, handle)


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
