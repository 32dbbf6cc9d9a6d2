"""Write a run as the JSON of pytest-benchmark, version 5: a benchmark for each record with a time.

`pytest-benchmark compare FILE` reads it. A round is a sample, and its `iterations` are the calls of
a window; the statistics are those of pytest-benchmark, with its quartiles.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from gpuperf.model.record import Header, Run
from gpuperf.model.samples import Samples
from gpuperf.roofline.rows import Entry
from gpuperf.showing.exports import Exported, facts_of, timed_entries

VERSION = "5.3.1"  # of pytest-benchmark, whose fields these are
FENCE = 1.5  # interquartile ranges beyond the quartiles, from which on a round is an outlier


def export(run: Run) -> Exported:
    """Return *run* as pytest-benchmark's document; the samples are its rounds."""
    entries, left_out = timed_entries(run)
    several = len({entry.record.pass_index for entry in entries}) > 1
    return Exported(
        {
            "machine_info": _machine(run.header),
            "commit_info": {"id": "unversioned", "time": None, "dirty": False},
            "benchmarks": [_benchmark(entry, several) for entry in entries],
            "datetime": run.header.created,
            "version": VERSION,
        },
        left_out,
    )


def _machine(header: Header) -> dict[str, Any]:
    soft, device = header.fingerprint.soft, header.device
    return {
        "node": str(header.fingerprint.live.get("host") or ""),
        "machine": device.name,
        "system": str(soft.get("platform") or ""),
        "python_version": str(soft.get("python") or ""),
        "cpu": {"brand_raw": device.name} if device.kind == "cpu" else {},
        "gpuperf": {"version": header.gpuperf, "run": header.run, "device": device.name},
    }


def _benchmark(entry: Entry, several: bool) -> dict[str, Any]:
    record, samples = entry.record, entry.time
    assert samples is not None
    case, contract = record.case, record.contract
    params = {**case.point, **case.options}
    if several:
        params["process"] = record.pass_index
    text = ",".join(f"{name}={value}" for name, value in params.items())
    name = f"{case.op}/{case.implementation}[{text}]"
    return {
        "group": case.op,
        "name": name,
        "fullname": f"gpuperf::{name}",
        "params": params,
        "param": text,
        "extra_info": {**facts_of(record), "caveat_messages": [c.message for c in record.caveats]},
        "options": {
            "disable_gc": False,
            "timer": str(contract.timer),
            "min_rounds": contract.min_samples,
            "max_time": contract.budget_s,
            "min_time": 0.0,
            "warmup": contract.warmup_calls > 0,
        },
        "stats": stats_of(samples),
    }


def stats_of(samples: Samples) -> dict[str, Any]:
    """Return pytest-benchmark's statistics of *samples*, in seconds a call."""
    data = list(samples.values_s)
    ordered = sorted(data)
    mean = statistics.fmean(data)
    deviation = statistics.stdev(data) if len(data) > 1 else 0.0
    q1, q3 = _quartiles(ordered)
    low, high = q1 - FENCE * (q3 - q1), q3 + FENCE * (q3 - q1)
    inside = [value for value in ordered if low <= value <= high] or ordered
    far = sum(not low <= value <= high for value in data)
    off = sum(abs(value - mean) > deviation for value in data)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": deviation,
        "rounds": len(data),
        "median": statistics.median(ordered),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": far,
        "stddev_outliers": off,
        "outliers": f"{off};{far}",
        "ld15iqr": inside[0],
        "hd15iqr": inside[-1],
        "ops": 1 / mean if mean > 0 else None,
        "total": math.fsum(data),
        "data": data,
        "iterations": samples.calls_per_window,
    }


def _quartiles(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the quartiles of sorted values as pytest-benchmark does: the medians of both halves,
    or for an odd number the third method of https://en.wikipedia.org/wiki/Quartile."""
    size = len(ordered)
    if size == 1:
        return ordered[0], ordered[0]
    if size % 2 == 0:
        return statistics.median(ordered[: size // 2]), statistics.median(ordered[size // 2 :])
    n, rest = divmod(size, 4)
    if rest == 1:
        low = 0.25 * ordered[n - 1] + 0.75 * ordered[n]
        return low, 0.75 * ordered[3 * n] + 0.25 * ordered[3 * n + 1]
    low = 0.75 * ordered[n] + 0.25 * ordered[n + 1]
    return low, 0.25 * ordered[3 * n + 1] + 0.75 * ordered[3 * n + 2]
