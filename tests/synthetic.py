"""Runs that nobody measured, for tests of what reads runs: an H200 as the facts describe it, a CPU
with measured ceilings only, and strangers' runs with hostile names.

Only `random.Random.random` is drawn from: Python promises its sequence, so golden files hold.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from gpuperf.model.codec import decode, encode
from gpuperf.model.contract import Contract, DeviceFacts, Fingerprint
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.peaks import Ceiling, Figure, Peaks
from gpuperf.model.record import Caveat, Check, Header, Record, Run, Telemetry, TimerFacts
from gpuperf.model.samples import Samples
from gpuperf.model.text import clean_json
from gpuperf.model.workload import Case
from gpuperf.peaks.physics import check_physics

# Medians in seconds and SM clocks in hertz of matmul n³ in bf16, near what one H200 gave.
H200_MATMUL = {
    128: (2.483e-6, 1.980e9),
    256: (2.871e-6, 1.980e9),
    512: (3.830e-6, 1.980e9),
    1024: (6.190e-6, 1.965e9),
    2048: (24.60e-6, 1.890e9),
    4096: (183.1e-6, 1.691e9),
    8192: (1357e-6, 1.602e9),
}
TIMER = TimerFacts(floor_s=2.35e-6, floor_uncertainty_s=0.03e-6, empty_call_s=1.17e-6, tick_s=32e-9)
THROTTLED = Caveat(
    "throttled",
    "the power cap held the SM clock below its maximum inside the samples",
    "compare at the clock observed, or raise the power limit",
)


def figure(
    value: float, unit: str, condition: str = "", status: str = "verified", source: str = "sheet"
) -> Figure:
    return Figure(value, unit, status, source, condition)  # type: ignore[arg-type]


def h200_peaks() -> Peaks:
    sheet = "NVIDIA H200 data sheet, 2024"
    at_tensor = "dense, fp32 accumulate, at the tensor clock of 1830 MHz"
    at_boost = "fused multiply-add, at the boost clock of 1980 MHz"
    return Peaks(
        id="h200-sxm",
        name="NVIDIA H200 SXM",
        vendor="nvidia",
        arch="sm_90",
        capability="9.0",
        names=("NVIDIA H200",),
        sm_count=132,
        compute=(
            Ceiling(
                "tensor",
                "bf16",
                "fp32",
                figure(989.4e12, "FLOP/s", at_tensor, source=sheet),
                1.83e9,
                4096,
            ),
            Ceiling(
                "tensor",
                "fp8",
                "fp32",
                figure(1978.9e12, "FLOP/s", at_tensor, "uncertain", sheet),
                1.83e9,
                8192,
            ),
            Ceiling(
                "vector",
                "fp32",
                "fp32",
                figure(66.9e12, "FLOP/s", at_boost, "derived", sheet),
                1.98e9,
                256,
            ),
        ),
        figures={
            "memory_bandwidth": figure(
                4.8e12, "byte/s", "theoretical, reads and writes together", source=sheet
            ),
            "l2": figure(60 * 2**20, "byte", source=sheet),
        },
    )


def h200_ceilings() -> Peaks:
    mamf = figure(824e12, "FLOP/s", "best of 40 shapes, burst", "measured", "gpuperf calibrate")
    return replace(
        h200_peaks(),
        id="measured",
        compute=(Ceiling("tensor", "bf16", "fp32", mamf),),
        figures={
            "memory_bandwidth": figure(
                4.29e12, "byte/s", "copy, read and written", "measured", "gpuperf calibrate"
            )
        },
    )


def h200_device() -> DeviceFacts:
    return DeviceFacts(
        "cuda",
        0,
        "NVIDIA H200",
        132,
        150 * 10**9,
        148 * 10**9,
        "9.0",
        60 * 2**20,
        1.98e9,
        ("bf16", "fp16", "fp32"),
    )


def header(
    device: DeviceFacts,
    contract: Contract,
    peaks: Peaks | None = None,
    peaks_reason: str = "",
    ceilings: Peaks | None = None,
) -> Header:
    return Header(
        run="2026-11-03T101500-7f3a",
        created="2026-11-03T10:15:00Z",
        command=("gpuperf", "roofline", "--op", "matmul"),
        plan=(),
        contract=contract,
        device=device,
        fingerprint=Fingerprint(soft={"driver": "580.159", "torch": "2.11.0", "cuda": "13.0"}),
        peaks=peaks,
        peaks_reason=peaks_reason,
        ceilings=ceilings,
        gpuperf="0.1.0",
    )


def noisy(median_s: float, clock_hz: float | None, seed: int, size: int = 30) -> Samples:
    """*size* samples around *median_s*, their spread 0.8 % plus a tenth of a tick."""
    draw = random.Random(seed)
    reach = 0.008 * median_s + 3e-9
    values = (median_s + reach * (draw.random() + draw.random() - 1) * 1.4 for _ in range(size))
    clocks = () if clock_hz is None else (clock_hz,) * size
    return Samples(tuple(values), clocks, 32e-9 if clock_hz else 1e-9, 0.03e-6 if clock_hz else 0.0)


def matmul_cost(m: int, n: int, k: int, dtype: str, width: int) -> Cost:
    flops = Flops(2 * m * n * k, "matmul", dtype, "fp32")
    return Cost((flops,), (Bytes(width * (m * k + k * n), width * m * n),))


def matmul(
    header: Header,
    n: int,
    median_s: float | None,
    clock_hz: float | None = None,
    implementation: str = "torch",
    dtype: str = "bf16",
    **changes: object,
) -> Record:
    """One record of an n³ matmul; without a time it did not succeed: give *changes* a status."""
    record = Record(
        run=header.run,
        case=Case("matmul", implementation, {"m": n, "n": n, "k": n, "dtype": dtype}),
        contract=header.contract,
        status="ok",
        cost=matmul_cost(n, n, n, dtype, 2 if dtype == "bf16" else 4),
        times={} if median_s is None else {"window": noisy(median_s, clock_hz, seed=n)},
        primary="" if median_s is None else "window",
        stop="" if median_s is None else "precision",
        timer=TIMER if clock_hz else TimerFacts(tick_s=1e-9),
        check=Check(0.0021, 0.0138, 256),
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def h200_sweep(
    sizes: Sequence[int] = tuple(H200_MATMUL),
    ceilings: Peaks | None = None,
    peaks: Peaks | None = None,
) -> Run:
    """A bf16 matmul sweep that went well."""
    top = header(h200_device(), Contract("blocked"), peaks or h200_peaks(), ceilings=ceilings)
    records = []
    for n in sizes:
        time_s, clock_hz = H200_MATMUL[n]
        power = Telemetry(power_w=690.0, power_limit_w=700.0) if n > 2048 else None
        caveats = (THROTTLED,) if n > 2048 else ()
        records.append(matmul(top, n, time_s, clock_hz, telemetry=power, caveats=caveats))
    return Run(top, tuple(records))


def h200_run() -> Run:
    """The sweep, with measured ceilings, and a row for each thing that goes wrong."""
    run = h200_sweep(ceilings=h200_ceilings())
    top = run.header
    failed = (
        matmul(
            top,
            131072,
            None,
            status="oom",
            reason="needs 103 GB, 24 GB free",
            hint="another process holds 117 GB of the device",
        ),
        matmul(top, 96, None, status="wrong", reason="relative error 0.31, 0.0138 allowed"),
        matmul(top, 100, None, status="skipped", reason="needs k divisible by 8"),
        matmul(top, 16384, None, status="crashed", reason="the worker died of signal 11"),
        check_physics(
            matmul(top, 6144, 0.2e-3, 1.71e9), top.peaks, top.ceilings
        ),  # above the clock
    )
    return replace(run, records=(*run.records, *failed), problems=("line 14: not JSON",))


def cpu_run() -> Run:
    """fp32 matmul on a CPU: no data sheet, measured ceilings."""
    device = DeviceFacts("cpu", 0, "Intel(R) Xeon(R) Platinum 8480C", 8, 64 * 10**9, 50 * 10**9)
    best = figure(812e9, "FLOP/s", "best matmul", "measured", "gpuperf calibrate")
    copy = figure(61.5e9, "byte/s", "copy", "measured", "gpuperf calibrate")
    ceilings = Peaks(
        id="measured",
        name=device.name,
        vendor="intel",
        arch="x86_64",
        capability="",
        names=(device.name,),
        sm_count=8,
        compute=(Ceiling("vector", "fp32", "fp32", best),),
        figures={"memory_bandwidth": copy},
    )
    contract = Contract("wall", cache="hot", gap_s=0.0)
    top = header(device, contract, None, f"no data sheet for {device.name!r}", ceilings)
    times = {64: 6.1e-6, 256: 62e-6, 1024: 2.95e-3, 2048: 22.4e-3}
    records = tuple(matmul(top, n, t, dtype="fp32") for n, t in times.items())
    return Run(top, records)


def copy_run() -> Run:
    """A copy: no FLOPs at all, from inside the L2 to far beyond it."""
    top = header(h200_device(), Contract("blocked"), h200_peaks(), ceilings=h200_ceilings())
    times = {2**20: 3.1e-6, 2**23: 6.3e-6, 2**24: 16.9e-6, 2**26: 63.5e-6, 2**28: 250e-6}
    records = []
    for n, time_s in times.items():
        case = Case("copy", "torch", {"n": n, "dtype": "bf16"})
        cost = Cost((), (Bytes(2 * n, 2 * n),))
        window = {"window": noisy(time_s, 1.95e9, seed=n)}
        records.append(
            Record(
                top.run,
                case,
                top.contract,
                "ok",
                cost=cost,
                times=window,
                primary="window",
                stop="precision",
                timer=TIMER,
            )
        )
    return Run(top, tuple(records))


def crowded_run() -> Run:
    """Four implementations in two dtypes at many sizes: more points than a chart has room for."""
    top = header(h200_device(), Contract("blocked"), h200_peaks(), ceilings=h200_ceilings())
    records = []
    for i, name in enumerate(("naive", "tiled", "triton", "torch")):
        for dtype, rate in (("bf16", 800e12), ("fp32", 50e12)):
            for n in range(256, 4097, 256):
                time_s = 2 * n**3 / (rate * (i + 1) / 4) + 3e-6
                records.append(matmul(top, n, time_s, 1.7e9, name, dtype))
    return Run(top, tuple(records))


def elementwise_run() -> Run:
    """sin on a GPU: one arithmetic intensity for all sizes, so the points stand in a column."""
    top = header(h200_device(), Contract("blocked"), h200_peaks())
    records = []
    for power in range(12, 29, 2):
        n, time_s = 2**power, 1.6e-6 + 8 * 2**power / 4.1e12
        case = Case("sin", "torch", {"n": n, "dtype": "fp32"})
        cost = Cost((Flops(n, "elementwise", "fp32"),), (Bytes(4 * n, 4 * n),))
        window = {"window": noisy(time_s, 1.95e9, seed=n)}
        records.append(
            Record(
                top.run,
                case,
                top.contract,
                "ok",
                cost=cost,
                times=window,
                primary="window",
                stop="precision",
                timer=TIMER,
            )
        )
    return Run(top, tuple(records))


HOSTILE = "\x1b[31mevil\x1b[0m [bold]x[/bold] <script>alert('$a$')</script> | `x` \u202eabc\n\x07"


def decoded(run: Run) -> Run:
    """Return *run* as a reader of its file gets it, with every text cleaned."""
    return decode(clean_json(encode(run)), Run)


def hostile_run() -> Run:
    """Return a run whose names try to break terminals, markdown and SVG."""
    run = h200_sweep((1024, 2048))
    device = replace(run.header.device, name=HOSTILE)
    caveat = Caveat(HOSTILE, HOSTILE, HOSTILE)
    records = tuple(
        replace(r, case=replace(r.case, op=HOSTILE, implementation=HOSTILE), caveats=(caveat,))
        for r in run.records
    )
    failed = replace(
        records[0],
        case=replace(records[0].case, point={"m": 1, HOSTILE: 2}),
        status="error",
        reason=HOSTILE,
        hint=HOSTILE,
    )
    top = replace(run.header, device=device, run=HOSTILE)
    return decoded(Run(top, (*records, failed), problems=(HOSTILE,)))
