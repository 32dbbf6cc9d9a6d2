"""Readings of the device become facts and caveats."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuperf.measure.caveats import telemetry_caveats
from gpuperf.measure.telemetry import HostMeter, throttle_names
from gpuperf.model.record import Telemetry


def test_throttle_reasons_are_a_bitmask() -> None:
    assert throttle_names(0x4) == ("power cap",)
    assert throttle_names(0x4 | 0x40) == ("power cap", "thermal (hardware)")
    assert throttle_names(0x1 | 0x2) == ()  # idle, and clocks that the user set


def test_a_throttled_a_shared_and_a_contended_measurement_say_so() -> None:
    kinds = [
        caveat.kind
        for caveat in telemetry_caveats(
            Telemetry(throttle=("power cap",), other_processes=2, other_load=1.5)
        )
    ]
    assert kinds == ["throttled", "shared", "contended"]
    assert not list(telemetry_caveats(Telemetry(other_processes=0, other_load=0.1)))
    assert not list(telemetry_caveats(None))


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux")
def test_the_host_meter_sees_the_work_of_others_and_not_our_own() -> None:
    meter = HostMeter()
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        meter.summary()
        time.sleep(0.6)
        busy = meter.summary().other_load
    finally:
        other.kill()
        other.wait()
    assert busy is not None
    assert busy > 0.4
    own = time.process_time()
    while time.process_time() - own < 0.4:
        pass
    alone = meter.summary().other_load
    assert alone is not None
    assert alone < busy + 0.2
