"""Write a run as the JSON of NVBench, whose file format has the version 1.0.0.

A benchmark is an implementation of a workload, a state one of its records; NVBench writes numbers
of a state as texts. A record without a time is a skipped state with its status as the reason. The
times of a cold cache are NVBench's `cold` ones, those of a warm cache its `batch`, and those of the
host's clock its `cpu_only`: NVBench's own tools compare only what was measured alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuperf.model.contract import Contract, DeviceFacts
from gpuperf.model.record import Header, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.model.timers import TIMERS
from gpuperf.model.workload import Value
from gpuperf.roofline.rows import Entry, entries_of_records
from gpuperf.showing.exports import Exported

FORMAT = (1, 0, 0)
CONDITIONS = ("timer", "cache", "regime", "data")


def export(run: Run) -> Exported:
    """Return *run* as NVBench's document, with all records."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries_of_records(run):
        case = entry.record.case
        groups.setdefault(f"{case.op}/{case.implementation}", []).append(entry)
    return Exported(
        {
            "meta": {
                "argv": list(run.header.command),
                "version": {
                    "json": _version(*FORMAT),
                    "gpuperf": {"string": run.header.gpuperf, "run": run.header.run},
                },
            },
            "devices": [_device(run.header.device)],
            "benchmarks": [
                _benchmark(index, name, group, run.header)
                for index, (name, group) in enumerate(groups.items())
            ],
        }
    )


def _version(major: int, minor: int, patch: int) -> dict[str, Any]:
    text = f"{major}.{minor}.{patch}"
    return {"major": major, "minor": minor, "patch": patch, "string": text}


def _device(device: DeviceFacts) -> dict[str, Any]:
    major, _, minor = device.capability.partition(".")
    facts: dict[str, Any] = {"id": device.index, "name": device.name}
    if major.isdecimal() and minor.isdecimal():
        facts["sm_version"] = int(major) * 100 + int(minor) * 10
    facts |= {"number_of_sms": device.sm_count, "global_memory_size": device.memory_bytes}
    if device.l2_bytes is not None:
        facts["l2_cache_size"] = device.l2_bytes
    return facts


def _benchmark(index: int, name: str, group: Sequence[Entry], header: Header) -> dict[str, Any]:
    points = _points([entry.record for entry in group])
    axes = dict.fromkeys(axis for point in points for axis in point)
    kinds = {axis: _kind([p[axis] for p in points if axis in p]) for axis in axes}
    states = [
        _state(entry, point, kinds, header) for entry, point in zip(group, points, strict=True)
    ]
    return {
        "name": name,
        "index": index,
        "min_samples": header.contract.min_samples,
        "devices": [header.device.index],
        "axes": [_axis(axis, kinds[axis], points) for axis in axes],
        "states": states,
    }


def _points(records: Sequence[Record]) -> list[dict[str, Value]]:
    """Return the axes of each record: those of its case, and of its conditions what varies."""
    varying = [n for n in CONDITIONS if len({getattr(r.contract, n) for r in records}) > 1]
    several = len({r.pass_index for r in records}) > 1
    return [
        {
            **r.case.point,
            **r.case.options,
            **{name: getattr(r.contract, name) for name in varying},
            **({"process": r.pass_index} if several else {}),
        }
        for r in records
    ]


def _kind(values: Sequence[Value]) -> str:
    return "int64" if all(isinstance(v, int) and abs(v) < 2**63 for v in values) else "string"


def _axis(name: str, kind: str, points: Sequence[Mapping[str, Value]]) -> dict[str, Any]:
    distinct = dict.fromkeys(point[name] for point in points if name in point)
    values = [
        {"input_string": str(v), "description": "", "value": v if kind == "int64" else str(v)}
        for v in distinct
    ]
    return {"name": name, "type": kind, "flags": "", "values": values}


def _state(
    entry: Entry, point: Mapping[str, Value], kinds: Mapping[str, str], header: Header
) -> dict[str, Any]:
    record, samples = entry.record, entry.time
    text = "".join(f" {name}={value}" for name, value in point.items())
    state = {
        "name": f"Device={header.device.index}{text}",
        "min_samples": record.contract.min_samples,
        "timeout": record.contract.budget_s,
        "device": header.device.index,
        "type_config_index": 0,
        "axis_values": [
            {"name": name, "type": kinds[name], "value": str(value)}
            for name, value in point.items()
        ],
        "summaries": list(_summaries(entry, samples)) if samples else [],
        "is_skipped": samples is None,
    }
    if samples is None:
        status = "no samples" if record.status == "ok" else record.status
        state["skip_reason"] = f"{status}: {record.reason}" if record.reason else status
    return state


def _summaries(entry: Entry, samples: Samples) -> Iterator[dict[str, Any]]:
    """Yield the summaries of a state; a number that is not finite is left out."""
    record = entry.record
    section, clock = _section(record.contract)
    tag = f"nv/{section}/time/{clock}"
    mean = statistics.fmean(samples.values_s)
    yield _summary(f"nv/{section}/sample_size", "Samples", "sample_size", samples.size)
    deviation = statistics.stdev(samples.values_s) if samples.size > 1 else math.nan
    q1, q3 = samples.quantile_s(0.25), samples.quantile_s(0.75)
    median = samples.median_s
    times = {
        "min": min(samples.values_s),
        "max": max(samples.values_s),
        "mean": mean,
        "median": median,
        "q1": q1,
        "q3": q3,
        "stdev/absolute": deviation,
        "iqr/absolute": q3 - q1,
    }
    for name, value in times.items():
        if math.isfinite(value):
            yield _summary(f"{tag}/{name}", _title(clock, name), "duration", value)
    shares = {"stdev/relative": (deviation, mean), "iqr/relative": (q3 - q1, median)}
    for name, (width, middle) in shares.items():
        if middle > 0 and math.isfinite(width):
            yield _summary(f"{tag}/{name}", "Noise", "percentage", width / middle)
    if samples.clock_hz is not None:
        yield _summary(
            f"nv/{section}/sm_clock_rate/mean", "Clock Rate", "frequency", samples.clock_hz
        )
    if record.cost and record.cost.dram_bytes and mean > 0:
        rate = record.cost.dram_bytes / mean
        yield _summary(
            f"nv/{section}/bw/global/bytes_per_second", "GlobalMem BW", "byte_rate", rate
        )
    if entry.placement and entry.placement.fraction is not None:
        share = entry.placement.fraction
        yield _summary("gpuperf/fraction_of_roof", "Of roof", "percentage", share)
    if record.caveats:
        kinds = ", ".join(dict.fromkeys(caveat.kind for caveat in record.caveats))
        yield _summary("gpuperf/caveats", "Caveats", "", kinds)


def _section(contract: Contract) -> tuple[str, str]:
    """Return the section of NVBench's tags to which a time of *contract* belongs, and its clock."""
    if TIMERS[contract.timer].host:
        return "cpu_only", "cpu"
    cold = contract.cache in ("cold", "cold-dirty") and contract.regime == "burst"
    return ("cold" if cold else "batch"), "gpu"


def _title(clock: str, name: str) -> str:
    return f"{clock.upper()} Time" if name == "mean" else f"{name} {clock.upper()} Time"


def _summary(tag: str, name: str, hint: str, value: float | int | str) -> dict[str, Any]:
    kind = {int: "int64", float: "float64", str: "string"}[type(value)]
    text = repr(value) if isinstance(value, float) else str(value)
    data = [{"name": "value", "type": kind, "value": text}]
    return {"tag": tag, "name": name, **({"hint": hint} if hint else {}), "data": data}
