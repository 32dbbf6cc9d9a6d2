"""Collect the figures of a device that predictions use, each with where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuperf.model.contract import DeviceFacts
from gpuperf.model.experiment import Number, Numbers
from gpuperf.model.gang import TunedTime
from gpuperf.model.peaks import Peaks

SHEET, CALIBRATION, DRIVER, LOG = "data sheet", "calibration", "driver", "NCCL's log"


def numbers_of(
    sheet: Peaks | None,
    ceilings: Peaks | None = None,
    device: DeviceFacts | None = None,
    measured: Mapping[str, Number] | None = None,
) -> Numbers:
    """Return the figures of the data *sheet*, replaced by what the driver reports of *device*, by
    measured *ceilings*, and by what experiments *measured*."""
    figures: dict[str, Number] = {}
    for peaks, source in ((sheet, SHEET), (ceilings, CALIBRATION)):
        if peaks is not None:
            figures |= _of_peaks(peaks, source)
    if "boost_clock" in figures:
        figures["clock"] = figures["boost_clock"]
    if device is not None:
        figures |= _of_device(device)
    if "copy_bandwidth" not in figures and "memory_bandwidth" in figures:
        figures["copy_bandwidth"] = figures["memory_bandwidth"]
    if "read_bandwidth" not in figures and "memory_bandwidth" in figures:
        figures["read_bandwidth"] = figures["memory_bandwidth"]
    return Numbers({**figures, **(measured or {})})


def numbers_of_tuning(tuning: Sequence[TunedTime]) -> dict[str, Number]:
    """Return NCCL's figures of each collective, algorithm and protocol, such as
    `nccl_allreduce_ring_ll_latency` (s) and `nccl_allreduce_ring_ll_bandwidth` (byte/s)."""
    figures = {}
    for time in tuning:
        name = f"nccl_{time.collective}_{time.algorithm}_{time.protocol}".lower()
        figures[f"{name}_latency"] = Number(time.latency_s, "s", LOG)
        figures[f"{name}_bandwidth"] = Number(time.bytes_per_s, "byte/s", LOG)
    return figures


def _of_peaks(peaks: Peaks, source: str) -> dict[str, Number]:
    figures = {n: Number(float(f.value), f.unit, source) for n, f in peaks.figures.items()}
    figures["sms"] = Number(float(peaks.sm_count), "count", source)
    for roof in peaks.compute:
        name = f"{roof.pipe}_{roof.dtype}" + (f"_{roof.function}" if roof.function else "")
        usual = roof.regime == "burst" and not roof.accurate
        if usual and (name not in figures or roof.rate.value > figures[name].value):
            figures[name] = Number(float(roof.rate.value), roof.rate.unit, source)
        if usual and roof.flop_per_clock_per_sm is not None:
            figures[f"{name}_per_clock"] = Number(roof.flop_per_clock_per_sm, "FLOP", source)
    return figures


def _of_device(device: DeviceFacts) -> dict[str, Number]:
    facts = {
        "sms": (device.sm_count, "count"),
        "l2": (device.l2_bytes, "byte"),
        "clock": (device.max_sm_clock_hz, "Hz"),
    }
    return {n: Number(float(v), unit, DRIVER) for n, (v, unit) in facts.items() if v is not None}
