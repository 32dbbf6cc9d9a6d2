"""Read the fingerprint of the device and the software."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import torch

import gpuperf
from gpuperf.measure.device import Device
from gpuperf.measure.recording.work import recorder_name
from gpuperf.measure.telemetry import Meter
from gpuperf.model.contract import DeviceFacts, Fingerprint


def fingerprint_of(device: Device, meter: Meter) -> tuple[DeviceFacts, Fingerprint]:
    """Return the facts of *device*, with the clock that *meter* reads, and the fingerprint."""
    hard, soft, live = meter.facts()
    clock, facts = hard.get("max_sm_clock_hz"), device.facts
    if isinstance(clock, float):
        facts = replace(facts, max_sm_clock_hz=clock)
    return facts, Fingerprint(
        hard={"product": facts.name, "sm_count": facts.sm_count, **hard},
        soft={**soft, **_software(), **_recorder(device)},
        live={**live, "host": _host()},
    )


def _host() -> str:
    """Return a hash that distinguishes this host from others and reveals nothing about it.

    `$GPUPERF_HOST` names the host where containers come and go.
    """
    name = os.environ.get("GPUPERF_HOST", "")
    with contextlib.suppress(OSError, ValueError):
        name = name or Path("/etc/machine-id").read_text(encoding="ascii").strip()
    return sha256(f"gpuperf {name or platform.node()}".encode()).hexdigest()[:8]


def _recorder(device: Device) -> dict[str, str]:
    """Return which recorder of the device's work the environment chooses. Raises: UnknownName."""
    return {"recorder": recorder_name()} if device.facts.kind == "cuda" else {}


def _software() -> dict[str, str | None]:
    try:
        from importlib.metadata import version

        triton: str | None = version("triton")
    except ImportError:
        triton = None
    return {
        "gpuperf": gpuperf.__version__,
        "torch": str(torch.__version__),
        "triton": triton,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "python": sys.version.split()[0],
        "platform": sys.platform,
    }
