"""Measure the rates that a device reaches, and store them as its ceilings.

Matmuls of each dtype in a few shapes, DRAM, caches, vector and special-function units, and the link
to the host are measured. The rates are stored for one device, driver, torch and power limit, since
a change of any of these changes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpuperf.errors import CannotMeasure
from gpuperf.model.contract import Contract, DeviceFacts
from gpuperf.model.peaks import Peaks
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Record
from gpuperf.model.workload import Case, Value
from gpuperf.peaks.find import resolve_peaks
from gpuperf.peaks.measured import SPOILING, measured_ceilings, merge_ceilings
from gpuperf.run.cache import fetch, fetch_newest, keep, key_of

CALIBRATION_DTYPES = ("bf16", "fp16", "tf32", "fp32", "fp64", "fp8", "int8")
SUSTAINED = ("bf16", "fp8")

# Cases whose call would take more seconds are left out: the rate no longer rises at such sizes, and
# emulated bf16 on an old CPU would take an hour.
GPU_LIMIT_S, CPU_LIMIT_S = 0.03, 0.5
CPU_SIZES = (1024, 2048)
FUNCTIONS = ("sin", "exp")
CPU_ROWS = 2**13  # of four elements for each thread: the least that torch gives a thread
GPU_COPY, CPU_COPY = (2**28, 2**29), (2**25, 2**26)  # elements of fp32

# Tiles of 256 × 128 are what the best matmuls of NVIDIA's library use from Ampere on.
TILE_M, TILE_N, DEPTH = 256, 128, 8192
WAVES = (2, 4, 8, 16)
SQUARES = (4096, 6144, 8192, 16384)

DOUBTFUL_S = 3600.0  # seconds for which later commands use doubtful roofs


@dataclass(frozen=True)
class Doubtful:
    """Roofs measured while other work disturbed the device, which are used for an hour only.

    `measured` is the time of the measurement in seconds since 1970; `doubt` names the other work.
    """

    ceilings: Peaks
    measured: float
    doubt: str


RoofCase = tuple[Case, Contract]
Measure = Callable[[Case, Contract], Record]


def matmul_shapes(sm_count: int) -> tuple[tuple[int, int, int], ...]:
    """Return (m, n, k) of squares and of matmuls that fill every wave, from small to large.

    The m × n of the latter is a whole number of waves of tiles, as nearly square as possible.
    """
    shapes = {(n, n, n) for n in SQUARES}
    for waves in WAVES:
        tiles = waves * sm_count
        rows = [i for i in range(1, tiles + 1) if tiles % i == 0]
        best = min(rows, key=lambda i: abs(TILE_M * i - TILE_N * (tiles // i)))
        shapes.add((TILE_M * best, TILE_N * (tiles // best), DEPTH))
    return tuple(sorted(shapes, key=lambda s: s[0] * s[1] * s[2]))


def calibration_plan(
    device: DeviceFacts, dtypes: Sequence[str], contract: Contract
) -> Iterator[tuple[RoofCase, ...]]:
    """Yield series of cases, each from small to large: memory, arithmetic, then matmuls."""
    if device.kind == "cpu":
        yield tuple((_case("copy", "torch", n=n), contract) for n in CPU_COPY)
        n = CPU_ROWS * device.sm_count
        for function in FUNCTIONS:
            case = _case("special", "torch", n=n, repeats=16, function=function)
            yield ((case, contract),)
        if {"bf16", "fp16"} & {*dtypes} and "fp32" not in dtypes:
            dtypes = (*dtypes, "fp32")  # elementwise work in them is done in fp32
    else:
        yield from _gpu_plan(device, contract)
    for dtype in dtypes:
        if dtype not in device.dtypes:
            continue
        shapes = (
            tuple((n, n, n) for n in CPU_SIZES)
            if device.kind == "cpu"
            else matmul_shapes(device.sm_count)
        )
        yield tuple(
            (_case("matmul", "torch", m=m, n=n, k=k, dtype=dtype), contract) for m, n, k in shapes
        )


def _gpu_plan(device: DeviceFacts, contract: Contract) -> Iterator[tuple[RoofCase, ...]]:
    """Yield the series of memory and arithmetic: torch's kernels, and on NVIDIA gpuperf's too."""
    ours = device.kind == "cuda"
    yield ((_case("copy", "torch", n=1024), contract),)  # for the latency of a launch
    for implementation in ("torch", "cuda") if ours else ("torch",):
        for op in ("copy", "write", "triad"):
            yield tuple((_case(op, implementation, n=n), contract) for n in GPU_COPY)
        yield ((_case("read", implementation, m=4096, n=2**16), contract),)
    for op in ("h2d", "d2h"):
        yield ((_case(op, "torch", n=2**26), contract),)
    if not ours:
        return
    hot = replace(contract, cache="hot")
    for n in (2**18, 2**19, 2**20):
        yield ((_case("l2", "cuda", n=n, passes=64), hot),)
    yield ((_case("l1", "cuda", m=16 * device.sm_count, n=4096, passes=512), hot),)
    yield ((_case("fma", "cuda", n=2**19, repeats=2048), contract),)
    for function in FUNCTIONS:
        for implementation in ("cuda", "cuda_fast"):
            case = _case("special", implementation, n=2**19, repeats=128, function=function)
            yield ((case, contract),)


def _case(op: str, implementation: str, **point: Value) -> Case:
    """Make a case with its axes in the workload's order, the dtype last."""
    return Case(op, implementation, {**point, "dtype": point.get("dtype", "fp32")})


def calibrate(
    measure: Measure,
    opened: Opened,
    peaks: Peaks | None,
    dtypes: Sequence[str],
    contract: Contract,
    sustained: bool = False,
) -> Peaks:
    """Measure the roofs of *dtypes*, store them with those known before, and return them all.

    With *sustained*, the rates of bf16 and fp8 under a sustained load are measured too.
    """
    device = opened.device
    records: list[Record] = []

    def take(planned: RoofCase) -> Record:
        record = measure(*planned)
        records.append(record)
        return record

    limit_s = CPU_LIMIT_S if device.kind == "cpu" else GPU_LIMIT_S
    for series in calibration_plan(device, dtypes, contract):
        previous: Record | None = None
        for planned in series:
            if previous is not None and _predicted_s(previous, planned[0]) > limit_s:
                break
            previous = take(planned)
    if sustained and device.kind == "cuda":
        load = replace(contract, regime="sustained", cache="hot")
        for dtype in SUSTAINED:
            best = _fastest(r for r in records if r.case.op == "matmul" and _dtype(r) == dtype)
            if best is not None:
                take((best.case, load))
    ceilings = merge_ceilings(kept_ceilings(opened), measured_ceilings(records, device, peaks))
    doubts = [c.message for record in records for c in record.caveats if c.kind in SPOILING]
    if any(record.status == "ok" for record in records):
        if doubts:
            keep("doubtful", device_key(opened), Doubtful(ceilings, time.time(), doubts[0]))
        else:
            keep("ceilings", device_key(opened), ceilings)
    return ceilings


def _dtype(record: Record) -> object:
    return record.case.point.get("dtype")


def _fastest(records: Iterable[Record]) -> Record | None:
    rates = [
        (record.cost.flop_count / record.samples.median_s, record)
        for record in records
        if record.status == "ok" and record.cost and record.samples
    ]
    return max(rates, key=lambda pair: pair[0])[1] if rates else None


def calibration_contract(contract: Contract) -> Contract:
    """Return *contract* with half its time budget: a roof is the maximum over several cases."""
    return replace(contract, budget_s=contract.budget_s / 2)


def kept_ceilings(opened: Opened) -> Peaks | None:
    """Return the roofs measured earlier on this device, driver, torch and power limit."""
    return fetch("ceilings", device_key(opened), Peaks)


def newest_ceilings() -> Peaks:
    """Return the roofs that were measured last on this machine.

    What was not measured, such as sizes, is the data sheet's. Raises: CannotMeasure if none are
    stored.
    """
    roofs = fetch_newest("ceilings", Peaks)
    if roofs is None:
        raise CannotMeasure("no measured roofs are stored", "`gpuperf calibrate` measures them")
    sheet, _ = resolve_peaks(roofs.name, roofs.sm_count)
    return replace(roofs, figures={**sheet.figures, **roofs.figures}) if sheet else roofs


def doubtful_ceilings(opened: Opened) -> Doubtful | None:
    """Return the roofs measured on this device within the last hour while other work ran.

    Their figures are marked uncertain, so that they never make a case impossible.
    """
    roofs = fetch("doubtful", device_key(opened), Doubtful)
    if roofs is None or not 0 <= time.time() - roofs.measured < DOUBTFUL_S:
        return None
    return replace(roofs, ceilings=_uncertain(roofs.ceilings))


def _uncertain(peaks: Peaks) -> Peaks:
    return replace(
        peaks,
        figures={k: replace(f, status="uncertain") for k, f in peaks.figures.items()},
        compute=tuple(replace(c, rate=replace(c.rate, status="uncertain")) for c in peaks.compute),
    )


def _predicted_s(previous: Record, case: Case) -> float:
    """Predict the time of *case* from *previous*: it grows with the product of the axes."""
    if previous.samples is None:
        return float("inf")
    return previous.samples.median_s * _volume(case) / _volume(previous.case)


def _volume(case: Case) -> float:
    volume = 1.0
    for value in case.point.values():
        volume *= value if isinstance(value, int) else 1
    return volume


def device_key(opened: Opened, *more: object) -> str:
    """Return the key of stored measurements: a change in any of its parts invalidates them."""
    device, fingerprint = opened.device, opened.fingerprint
    return key_of(
        device.name,
        device.sm_count,
        fingerprint.hard.get("power_limit_w"),
        fingerprint.soft.get("driver"),
        fingerprint.soft.get("torch"),
        *more,
    )
