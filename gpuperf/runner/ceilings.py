"""What can this machine really reach? Measured once, then kept.

The best matmul per dtype over a few sizes, and the best copy. Kept per device, driver, torch and
power limit: a change in any of them moves the roofs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gpuperf.analysis.ceilings import measured_ceilings, merge_ceilings
from gpuperf.model.contract import Contract, DeviceFacts, Fingerprint
from gpuperf.model.peaks import Peaks
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Record
from gpuperf.model.workload import Case
from gpuperf.runner.cache import fetch, keep, key_of

__all__ = [
    "CALIBRATION_DTYPES",
    "SPOILING",
    "calibrate",
    "calibration_cases",
    "calibration_contract",
    "kept_ceilings",
]

CALIBRATION_DTYPES = ("bf16", "fp16", "tf32", "fp32", "fp64", "fp8", "int8")

# Sizes grow until one call takes longer than the limit: the rate is flat by then, and an hour of
# emulated bf16 on an old CPU would teach nothing.
GPU_SIZES, GPU_LIMIT_S = (4096, 6144, 8192, 16384), 0.03
CPU_SIZES, CPU_LIMIT_S = (1024, 2048), 0.5
GPU_COPY, CPU_COPY = (2**28, 2**29), (2**25, 2**26)  # elements of fp32

# Caveats of a measurement that was not alone: such roofs serve this run, and are not kept.
SPOILING = ("contended", "shared")

Measure = Callable[[Case], Record]


def calibration_cases(
    device: DeviceFacts, dtypes: Sequence[str]
) -> Iterator[tuple[Case, ...]]:
    """Series of cases, each from small to large: the copies, then each dtype's matmuls."""
    gpu = device.kind != "cpu"
    lengths = GPU_COPY if gpu else CPU_COPY
    yield tuple(Case("copy", "torch", {"n": n, "dtype": "fp32"}) for n in lengths)
    for dtype in dtypes:
        if dtype in device.dtypes:
            yield tuple(
                Case("matmul", "torch", {"m": n, "n": n, "k": n, "dtype": dtype})
                for n in (GPU_SIZES if gpu else CPU_SIZES)
            )


def calibrate(
    measure: Measure,
    opened: Opened,
    peaks: Peaks | None,
    dtypes: Sequence[str],
    on_case: Callable[[Case, Record], None] = lambda case, record: None,
) -> tuple[Peaks, tuple[Record, ...]]:
    """Measure the roofs of *dtypes* and keep them beside those known; all, and the records."""
    device = opened.device
    limit_s = CPU_LIMIT_S if device.kind == "cpu" else GPU_LIMIT_S
    records: list[Record] = []
    for series in calibration_cases(device, dtypes):
        previous: Record | None = None
        for case in series:
            if previous is not None and _predicted_s(previous, case) > limit_s:
                break
            record = measure(case)
            on_case(case, record)
            records.append(record)
            previous = record
    ceilings = merge_ceilings(
        kept_ceilings(opened), measured_ceilings(records, device, peaks)
    )
    spoiled = any(c.kind in SPOILING for record in records for c in record.caveats)
    if not spoiled and any(record.status == "ok" for record in records):
        keep("ceilings", _key(device, opened.fingerprint), ceilings)
    return ceilings, tuple(records)


def calibration_contract(contract: Contract) -> Contract:
    """*contract* with half its budget: a roof is a maximum over several cases."""
    return replace(contract, budget_s=contract.budget_s / 2)


def kept_ceilings(opened: Opened) -> Peaks | None:
    """The roofs measured earlier on this device, driver, torch and power limit."""
    return fetch("ceilings", _key(opened.device, opened.fingerprint), Peaks)


def _predicted_s(previous: Record, case: Case) -> float:
    """The time of *case* at the rate of *previous*: it grows with the product of the axes."""
    if previous.samples is None:
        return float("inf")
    return previous.samples.median_s * _volume(case) / _volume(previous.case)


def _volume(case: Case) -> float:
    volume = 1.0
    for value in case.point.values():
        volume *= value if isinstance(value, int) else 1
    return volume


def _key(device: DeviceFacts, fingerprint: Fingerprint) -> str:
    return key_of(
        device.name,
        device.sm_count,
        fingerprint.hard.get("power_limit_w"),
        fingerprint.soft.get("driver"),
        fingerprint.soft.get("torch"),
    )
