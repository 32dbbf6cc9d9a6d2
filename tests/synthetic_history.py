"""Runs of many nights that nobody measured: the model's own objects, written to real files."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from synthetic import h200_device, header

from gpuperf.model.contract import Contract, Fingerprint
from gpuperf.model.record import Record, Run
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case
from gpuperf.run.runfile import RunWriter

HARD = {"product": "NVIDIA H200", "sm_count": 132, "power_limit_w": 700.0, "workload_version": 1}
SOFT = {"driver": "580.159", "torch": "2.11.0", "triton": "3.6.0", "cuda": "13.0"}
BLOCKED = Contract("blocked")
MATMUL = Case("matmul", "torch", {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"})
SOFTMAX = Case("softmax", "triton", {"rows": 8192, "n": 4096, "dtype": "bf16"})
FIRST = datetime(2026, 3, 1, 3, tzinfo=UTC)


def samples_of(median_s: float, size: int = 9) -> Samples:
    """Whose median is that, and which scatter by 1 % about it."""
    half = size // 2
    return Samples(tuple(median_s * (1 + 0.005 * (i - half) / half) for i in range(size)))


def record_of(
    run: str,
    case: Case,
    when: datetime | None,
    median_s: float | None,
    hard: Mapping[str, object] = HARD,
    soft: Mapping[str, object] = SOFT,
    contract: Contract = BLOCKED,
    host: str = "aaaa1111",
    **changes: object,
) -> Record:
    """One process of one night; without a time give *changes* a status."""
    record = Record(
        run=run,
        case=case,
        contract=contract,
        status="ok",
        fingerprint=Fingerprint(hard, soft, {"host": host}),  # type: ignore[arg-type]
        started=when.isoformat() if when else "",
        times={} if median_s is None else {"window": samples_of(median_s)},
        primary="" if median_s is None else "window",
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def run_of(name: str, records: Iterable[Record], when: datetime = FIRST) -> Run:
    """A run that began at *when*."""
    top = replace(header(h200_device(), BLOCKED), run=name, created=when.isoformat())
    return Run(top, tuple(records))


def night(
    number: int, medians: Mapping[str, float], processes: Sequence[float] = (1.0,), **facts: object
) -> Run:
    """The run of night *number*: by implementation of a matmul its time, each process so many times
    as long."""
    when = FIRST + timedelta(days=number)
    name = f"{when:%Y%m%d-%H%M%S}-run-ci-{number:04x}"
    records = [
        record_of(
            name,
            replace(MATMUL, implementation=implementation),
            when,
            median_s * factor,
            pass_index=index,
            **facts,
        )  # type: ignore[arg-type]
        for index, factor in enumerate(processes)
        for implementation, median_s in medians.items()
    ]
    return run_of(name, records, when)


def nights(
    count: int,
    step_at: int | None = None,
    change: float = 0.03,
    seed: int = 1,
    first: int = 0,
    noise: float = 0.005,
    **facts: object,
) -> list[Run]:
    """So many nights of `matmul/torch`, which from *step_at* on is slower by *change*, and of
    `matmul/triton`, which is not."""
    draw = random.Random(seed)
    runs = []
    for number in range(first, first + count):
        slower = 1 + change if step_at is not None and number >= step_at else 1.0
        medians = {
            "torch": 180e-6 * slower * math.exp(draw.gauss(0, noise)),
            "triton": 200e-6 * math.exp(draw.gauss(0, noise)),
        }
        runs.append(night(number, medians, **facts))  # type: ignore[arg-type]
    return runs


def write_runs(folder: Path, runs: Iterable[Run]) -> Path:
    """A file a run; the folder."""
    for run in runs:
        write_run(folder / f"{run.header.run}.jsonl", run)
    return folder


def write_run(path: Path, run: Run) -> Path:
    """One file."""
    with RunWriter(path) as writer:
        writer.header(run.header)
        for record in run.records:
            writer.record(record)
    return path
