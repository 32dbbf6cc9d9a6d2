"""Examine an open device for what impairs measurements."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from gpuperf.measure.counters.cupti import NoCounters
from gpuperf.measure.counters.device import open_counters
from gpuperf.measure.device import Device
from gpuperf.measure.telemetry import Meter, NvmlMeter
from gpuperf.measure.timers.activity import traced
from gpuperf.measure.topology import read_topology
from gpuperf.model.protocol import DeviceCheck
from gpuperf.model.topology import Topology


def examine(device: Device, meter: Meter) -> tuple[DeviceCheck, ...]:
    """Return the checks of the software, of *device* and of its hardware counters."""
    checks = [*_software(device)]
    if device.facts.kind == "cpu":
        checks += _cpu()
    elif isinstance(meter, NvmlMeter):
        checks.append(_kernel_records(device.torch))
        checks += _card(meter)
        checks.append(_counters(device))
        checks += _links(read_topology(), device.facts.index)
    else:
        checks.append(
            _check("NVML", False, "not available", "clocks, power and throttling are unknown")
        )
    return tuple(checks)


def _check(name: str, good: bool, value: str, hint: str) -> DeviceCheck:
    return DeviceCheck(name, "ok", value) if good else DeviceCheck(name, "note", value, hint)


def _software(device: Device) -> Iterator[DeviceCheck]:
    build = torch.version.cuda or torch.version.hip
    kind = f"CUDA {build}" if torch.version.cuda else f"ROCm {build}" if build else "CPU build"
    yield DeviceCheck("torch", "ok", f"{torch.__version__}, {kind}")
    if device.facts.kind == "cpu":
        hint = (
            "this torch is built without CUDA"
            if build is None
            else "check that the driver is loaded, and that CUDA_VISIBLE_DEVICES is not empty"
        )
        yield DeviceCheck("GPU", "note", "none that torch can use", hint)
    triton = importlib.util.find_spec("triton") is not None
    hint = "kernels written in Triton are skipped"
    yield _check("triton", triton, "installed" if triton else "not installed", hint)
    if device.facts.kind == "cuda":
        yield _nvrtc()


def _links(topology: Topology, index: int) -> Iterator[DeviceCheck]:
    """Yield the link of the device to each other GPU."""
    for pair in topology.pairs:
        if pair.source == index:
            hint = "collectives between them go through the host (MIG, or ACS of the bridge?)"
            yield _check(f"link to GPU {pair.target}", pair.access is not False, pair.words, hint)


def _nvrtc() -> DeviceCheck:
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        hint = "pip install 'gpuperf[cuda]'; the timer 'blocked' needs it"
        return DeviceCheck("NVRTC", "bad", f"cannot be used: {error}", hint)
    return DeviceCheck("NVRTC", "ok", f"{major}.{minor}")


def _kernel_records(device: torch.device) -> DeviceCheck:
    x = torch.ones(1024, dtype=torch.float32, device=device)

    def run() -> None:
        torch.add(x, x)
        torch.cuda.synchronize(device)

    run()
    if any(activity.end_s > activity.start_s for activity in traced(run)):
        return DeviceCheck("kernel records", "ok", "CUPTI gives them")
    hint = "end other profilers: without kernel records, times of single kernels are less certain"
    return DeviceCheck("kernel records", "bad", "CUPTI gives none", hint)


def _cpu() -> Iterator[DeviceCheck]:
    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    load = os.getloadavg()[0]
    yield DeviceCheck("threads", "ok", f"{threads} of {cores} processors")
    hint = "other work is running: times will be noisy"
    yield _check("load", load <= 0.5 * cores, f"{load:.1f}", hint)
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor.exists():
        name = governor.read_text().strip()
        hint = "the clock changes with the load; 'performance' keeps it constant"
        yield _check("governor", name == "performance", name, hint)


def _card(meter: NvmlMeter) -> Iterator[DeviceCheck]:
    hard, soft, live = meter.facts()
    yield DeviceCheck("driver", "ok", str(soft["driver"]))
    hint = "the driver may unload between runs, which makes starts slow: nvidia-smi -pm 1"
    yield _flag("persistence", soft["persistence"], True, hint)
    yield _power(meter, hard)
    yield _clocks(meter, hard)
    yield _flag("ECC", hard["ecc"], True, "without ECC, memory is a little larger and faster")
    yield _flag("MIG", hard["mig"], False, "a slice of the card: whole-card peaks do not apply")
    others = live["other_processes"]
    yield DeviceCheck(
        "other processes",
        "ok" if others == 0 else "bad" if others else "note",
        "unknown" if others is None else str(others),
        "they share the clock, the power and the memory: end them" if others else "",
    )
    temperature = live["temperature_c"]
    yield DeviceCheck(
        "temperature", "ok", "unknown" if temperature is None else f"{temperature} °C"
    )


def _power(meter: NvmlMeter, hard: dict[str, Any]) -> DeviceCheck:
    limit, usual = hard["power_limit_w"], meter.default_power_limit_w()
    if limit is None:
        return DeviceCheck("power limit", "note", "unknown")
    value = f"{limit:.0f} W" + (f" of {usual:.0f} W" if usual else "")
    hint = "the limit is lowered, so the clock falls sooner in big matmuls"
    return _check("power limit", usual is None or limit >= usual - 1, value, hint)


def _clocks(meter: NvmlMeter, hard: dict[str, Any]) -> DeviceCheck:
    meter.read()
    now = meter.summary()
    most = hard["max_sm_clock_hz"]
    clock = now.sm_clock_hz if now else None
    text = f"{clock / 1e6:.0f} MHz now" if clock else "unknown"
    if most:
        text += f", {most / 1e6:.0f} MHz at most"
    slowed = now.throttle if now else ()
    if not slowed:
        return DeviceCheck("SM clock", "ok", text)
    text += f", lowered by {', '.join(slowed)}"
    return DeviceCheck("SM clock", "bad", text, "let the card cool or idle, then check again")


def _flag(name: str, value: object, wanted: bool, hint: str) -> DeviceCheck:
    if value is None:
        return DeviceCheck(name, "ok", "not reported by this card")
    return _check(name, bool(value) is wanted, "on" if value else "off", hint)


def _counters(device: Device) -> DeviceCheck:
    """Check that the hardware counters read the known DRAM bytes of a copy."""
    try:
        counters = open_counters(device.torch, device.facts.l2_bytes)
        known = counters.calibration()
        x = torch.zeros(1 << 20, dtype=torch.float32, device=device.torch)
        (counts, *_), passes = counters.kernels(lambda: x.add_(1.0), "hot")
    except NoCounters as error:
        return DeviceCheck("hardware counters", "note", f"{error.kind}: {error}", error.hint)
    except RuntimeError as error:  # such as too little memory
        return DeviceCheck("hardware counters", "note", str(error).splitlines()[0])
    scaled = f" (after dividing by {known.factor})" if known.factor > 1 else ""
    return DeviceCheck(
        "hardware counters",
        "ok",
        f"a known copy reads {known.ratio / known.factor * 100:.2f} % of its DRAM bytes{scaled}; "
        f"{len(counts)} counters of a kernel in {passes} passes",
    )
