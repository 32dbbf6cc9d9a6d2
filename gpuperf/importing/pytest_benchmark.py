"""Read the JSON of pytest-benchmark: the rounds of each test become samples of the wall timer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from gpuperf.errors import UsageError
from gpuperf.importing.results import (
    MOST_RECORDS,
    MOST_SAMPLES,
    Results,
    case_of,
    distinct,
    parse,
    positive,
    refuse_many,
    refuse_own,
)
from gpuperf.model.contract import Contract, DeviceFacts, Fingerprint
from gpuperf.model.record import Caveat, Record
from gpuperf.model.samples import Samples
from gpuperf.model.text import clean

TOOL = "pytest-benchmark"
MOST_ITERATIONS = 2**40
LONGEST = 200  # characters of the name of a processor
CONTRACT = Contract(
    "wall",
    cache="hot",
    regime="sustained",
    gap_s=0.0,
    data="own",
    warmup_calls=0,
    min_samples=1,
    max_samples=MOST_SAMPLES,
    settle_s=0.0,
)
MESSAGE = (
    "pytest-benchmark read {timer} on the host around each round: work that a test queued on a GPU "
    "is in the time only if the test waits for it, the caches are as the previous round left them, "
    "and neither the timer's floor, the clocks, the bytes nor the FLOPs are known"
)
HINT = "measure the call with gpuperf to compare it"


class _Stats(msgspec.Struct):
    data: list[float] | None = None
    iterations: int = 1


class _Options(msgspec.Struct):
    timer: Any = None


class _Benchmark(msgspec.Struct):
    name: str
    stats: _Stats
    fullname: str = ""
    params: dict[str, Any] | None = None
    param: Any = None
    options: _Options | None = None


class _File(msgspec.Struct):
    benchmarks: list[_Benchmark]
    machine_info: dict[str, Any] = {}
    datetime: str = ""
    version: str = ""


def read(data: bytes, path: Path, run: str) -> Results:
    """Return the tests in *data*, the file *path*, that have the times of their rounds.

    Raises: ValueError for another file, UsageError for one that is too large or has no rounds.
    """
    file = parse(data, _File)
    refuse_own(path, file.machine_info)
    refuse_many(path, len(file.benchmarks), "benchmarks", MOST_RECORDS)
    if not file.benchmarks:
        raise UsageError(f"{path} holds no benchmark", "were all tests skipped or deselected?")
    kept = [each for each in file.benchmarks if each.stats.data]
    refuse_many(path, sum(len(b.stats.data or ()) for b in kept), "rounds", MOST_SAMPLES)
    if not kept:
        raise UsageError(
            f"{path} has no times of single rounds, and a summary has no interval",
            "pytest --benchmark-json FILE writes them, and --benchmark-save-data stores them",
        )
    missing = len(file.benchmarks) - len(kept)
    device, fingerprint = _machine(file, map(_timer, kept))
    return Results(
        TOOL,
        device,
        fingerprint,
        CONTRACT,
        distinct(_record(each, run, fingerprint) for each in kept),
        file.datetime,
        f"{missing} benchmarks without times of single rounds are left out" if missing else "",
    )


def _record(benchmark: _Benchmark, run: str, fingerprint: Fingerprint) -> Record:
    stats = benchmark.stats
    if not 1 <= stats.iterations <= MOST_ITERATIONS:
        raise ValueError(f"{benchmark.name} has {stats.iterations} iterations a round")
    where, _, name = (benchmark.fullname or benchmark.name).partition("[")[0].rpartition("::")
    point = benchmark.params
    if point is None:
        parameter = benchmark.name.partition("[")[2].removesuffix("]")
        point = {"param": parameter} if parameter else {}
    samples = Samples(positive(stats.data or (), benchmark.name), calls_per_window=stats.iterations)
    return Record(
        run=run,
        case=case_of(name, where or TOOL, point, TOOL),
        contract=CONTRACT,
        status="ok",
        fingerprint=fingerprint,
        times={"wall": samples},
        primary="wall",
        caveats=(Caveat("imported", MESSAGE.format(timer=_timer(benchmark)), HINT),),
    )


def _timer(benchmark: _Benchmark) -> str:
    name = benchmark.options.timer if benchmark.options else None
    return clean(name)[:LONGEST] if isinstance(name, str) else "a timer"


def _machine(file: _File, timers: Iterable[str]) -> tuple[DeviceFacts, Fingerprint]:
    """Return the processor that *file* names, and the fingerprint with the tool in it."""
    info = file.machine_info
    cpu = info.get("cpu")
    cpu = cpu if isinstance(cpu, dict) else {}
    name = clean(str(cpu.get("brand_raw") or info.get("machine") or "a processor"))[:LONGEST]
    count = cpu.get("count")
    count = count if isinstance(count, int) and 0 < count < 2**20 else 1
    python = clean(str(info.get("python_version") or ""))[:LONGEST]
    return DeviceFacts("cpu", 0, name, count, 0, 0), Fingerprint(
        hard={"product": name, "timed by": " ".join((TOOL, *sorted(set(timers))))[:LONGEST]},
        soft={TOOL: clean(file.version)[:LONGEST], "python": python},
    )
