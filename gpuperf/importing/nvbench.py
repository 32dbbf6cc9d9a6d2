"""Read the JSON of NVBench: the isolated (`cold`) times of each state become samples.

NVBench writes the single times into files beside the JSON (`--jsonbin`), which are read where they
are in its folder. Without them, a state has the mean of its samples alone.
"""

from __future__ import annotations

import array
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gpuperf.errors import UsageError
from gpuperf.files import read_regular
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

TOOL = "nvbench"
LONGEST = 200  # characters of a reason
CONTRACT = Contract(
    "events",
    cache="cold",
    gap_s=0.0,
    data="own",
    warmup_calls=1,
    min_samples=1,
    max_samples=MOST_SAMPLES,
)
TIME = "nv/cold/time/gpu/mean"
SIZES = ("nv/cold/sample_size", "nv/cold/time/gpu/sample_size")
CLOCK = "nv/cold/sm_clock_rate/mean"
TIMES_FILE = "nv/json/bin:nv/cold/sample_times"
CLOCKS_FILE = "nv/json/freqs-bin:nv/cold/sample_freqs"
IMPORTED = Caveat(
    "imported",
    "NVBench timed each call alone between two events, by default behind a blocking kernel and "
    "after a flush of the L2; the time includes the floor of the events, and the file has neither "
    "this floor nor the bytes and FLOPs of the algorithm",
    "measure the kernel with gpuperf to compare it: its timers subtract their floor",
)
ONE_MEAN = Caveat(
    "mean-only",
    "the file has the mean of the samples alone, so the median and the interval are unknown",
    "write the file with nvbench --jsonbin FILE, and import it with the folder beside it",
)


class _Named(msgspec.Struct):
    name: str = ""
    type: str = ""
    value: Any = None


class _Summary(msgspec.Struct):
    tag: str = ""
    data: list[_Named] | None = None


class _State(msgspec.Struct):
    device: int | None = None
    axis_values: list[_Named] | None = None
    summaries: list[_Summary] | None = None
    is_skipped: bool = False
    skip_reason: str = ""


class _Benchmark(msgspec.Struct):
    name: str
    states: list[_State] | None = None


class _Device(msgspec.Struct):
    id: int = 0
    name: str = ""
    sm_version: int = 0
    number_of_sms: int = 0
    global_memory_size: int = 0
    l2_cache_size: int | None = None


class _File(msgspec.Struct):
    benchmarks: list[_Benchmark] | None = None
    devices: list[_Device] | None = None
    meta: dict[str, Any] = {}


def read(data: bytes, path: Path, run: str, device_index: int | None = None) -> Results:
    """Return the states in *data*, the file *path*, that were timed or skipped on one device.

    Raises: ValueError for another file; UsageError for one that is too large, has no isolated
    times, or has times of several devices, none of which *device_index* names.
    """
    file = parse(data, _File)
    refuse_own(path, file.meta.get("version"))
    states = [(b.name, state) for b in file.benchmarks or () for state in b.states or ()]
    if device_index is not None:
        states = [(name, state) for name, state in states if state.device == device_index]
    refuse_many(path, len(states), "states", MOST_RECORDS)
    kept = [(name, s) for name, s in states if s.is_skipped or TIME in _values(s)]
    if not any(not state.is_skipped for _, state in kept):
        raise UsageError(
            f"{path} has no isolated times of a GPU"
            + (f" with the index {device_index}" if device_index is not None else ""),
            "nvbench --json FILE writes them",
        )
    used = {state.device for _, state in kept if state.device is not None}
    if len(used) > 1:
        raise UsageError(
            f"{path} has times of {len(used)} devices", f"--device-index {min(used)} takes one"
        )
    device = _device(file.devices or [], next(iter(used), 0))
    hard: dict[str, str | int] = {
        "product": device.name,
        "sm_count": device.sm_count,
        "timed by": TOOL,
    }
    fingerprint = Fingerprint(hard={**hard}, soft={TOOL: _version(file.meta)})
    reader = _Reader(path)
    missing = len(states) - len(kept)
    records = distinct(_record(n, state, run, fingerprint, reader) for n, state in kept)
    left_out = f"{missing} states without isolated times of a GPU are left out" if missing else ""
    return Results(TOOL, device, fingerprint, CONTRACT, records, "", left_out)


def _record(
    name: str, state: _State, run: str, fingerprint: Fingerprint, reader: _Reader
) -> Record:
    point = {axis.name: _whole(axis) for axis in state.axis_values or ()}
    op, slash, implementation = name.partition("/")
    case = case_of(op, implementation if slash else TOOL, point, TOOL)
    common: dict[str, Any] = {
        "run": run,
        "case": case,
        "contract": CONTRACT,
        "fingerprint": fingerprint,
    }
    if state.is_skipped:
        reason = clean(state.skip_reason)[:LONGEST] or "NVBench skipped the state"
        return Record(status="skipped", reason=reason, **common)
    samples, single = reader.samples(_values(state), name)
    caveats = (IMPORTED,) if single else (IMPORTED, ONE_MEAN)
    return Record(
        status="ok", times={"events": samples}, primary="events", caveats=caveats, **common
    )


def _whole(axis: _Named) -> object:
    """Return the value of an axis, whose whole numbers NVBench writes as texts."""
    text = str(axis.value)
    if axis.type == "int64" and text.removeprefix("-").isdecimal() and len(text) < 20:
        return int(text)
    return text


def _values(state: _State) -> dict[str, dict[str, Any]]:
    """Return the data of each summary by its tag."""
    return {s.tag: {d.name: d.value for d in s.data or ()} for s in state.summaries or ()}


class _Reader:
    """Reads the times of states, from the files beside the JSON *path* where they are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0

    def samples(self, values: dict[str, dict[str, Any]], name: str) -> tuple[Samples, bool]:
        """Return the times of a state, and whether they are single ones rather than one mean."""
        times = self._numbers(values.get(TIMES_FILE), name)
        if times:
            clocks = self._numbers(values.get(CLOCKS_FILE), name)
            fit = len(clocks) == len(times) and all(c > 0 for c in clocks)
            return Samples(positive(times, name), tuple(clocks) if fit else ()), True
        mean = positive([float(values[TIME].get("value") or 0)], name)
        size = next((int(values[tag].get("value") or 1) for tag in SIZES if tag in values), 1)
        clock = float(values.get(CLOCK, {}).get("value") or 0)
        known = (clock,) if 0 < clock < 1e11 else ()
        return Samples(mean, known, windows=max(1, min(size, MOST_SAMPLES))), False

    def _numbers(self, values: dict[str, Any] | None, name: str) -> list[float]:
        """Return the 32-bit floats of a file that a summary names; none if it is not there."""
        if values is None:
            return []
        size = int(values.get("size") or 0)
        self.count += max(0, size)
        refuse_many(self.path, self.count, "samples", MOST_SAMPLES)
        for file in self._places(str(values.get("filename") or "")):
            try:
                data = read_regular(file, 4 * MOST_SAMPLES)
            except OSError:
                continue
            if len(data) != 4 * size:
                raise ValueError(f"{file.name} of {name} has {len(data)} bytes for {size} samples")
            return list(_floats(data))
        return []

    def _places(self, filename: str) -> Iterator[Path]:
        """Yield where the file may be: beside the JSON, in the folder that NVBench named after it.
        A path that leaves that folder is not read."""
        parts = Path(filename).parts[-2:]
        folder = self.path.resolve().parent
        if len(parts) == 2 and "\0" not in filename:
            place = (folder / parts[0] / parts[1]).resolve()
            if place.is_relative_to(folder):
                yield place


def _floats(data: bytes) -> Iterator[float]:
    numbers = array.array("f", data)
    if sys.byteorder != "little":
        numbers.byteswap()
    for number in numbers:
        if not math.isfinite(number):
            raise ValueError("a sample is not a finite number")
        yield number


def _device(devices: list[_Device], index: int) -> DeviceFacts:
    device = next((d for d in devices if d.id == index), _Device())
    capability = f"{device.sm_version // 100}.{device.sm_version % 100 // 10}"
    return DeviceFacts(
        "cuda",
        index,
        clean(device.name)[:LONGEST] or "a device that the file does not name",
        device.number_of_sms,
        device.global_memory_size,
        0,
        capability if device.sm_version > 0 else "",
        device.l2_cache_size,
    )


def _version(meta: dict[str, Any]) -> str:
    versions = meta.get("version")
    tool = versions.get("nvbench") if isinstance(versions, dict) else None
    return clean(str(tool.get("string") or ""))[:LONGEST] if isinstance(tool, dict) else ""
