"""Write a run for PyTorch's OSS benchmark database, version 3: one record for each metric.

The fields are those of its table `oss_ci_benchmark_v3` (pytorch/test-infra,
`clickhouse_db_schema/oss_ci_benchmark_v3/schema.sql`): values of `extra_info` are texts, numbers of
a metric are a list of 32-bit floats. Its uploader adds repository, commit and workflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gpuperf.model.record import Header, Run
from gpuperf.roofline.columns import column_of
from gpuperf.roofline.rows import Entry, row
from gpuperf.showing.exports import Exported, facts_of, timed_entries

NAME = "gpuperf"
LARGEST = 3.4e38  # of a 32-bit float
# The metrics of a case, by the names of the columns of its rows.
METRICS = (
    "time_s",
    "flop_per_s",
    "byte_per_s",
    "bytes_measured",
    "fraction_of_attainable",
    "mfu_data_sheet",
    "speedup",
)
SOFTWARE = ("torch", "triton", "cuda", "driver", "python")


def export(run: Run) -> Exported:
    """Return *run* as a list of metrics, with one value for each process that timed the case."""
    entries, left_out = timed_entries(run)
    groups: dict[object, list[Entry]] = {}
    for entry in entries:
        record = entry.record
        groups.setdefault((record.case.id, record.contract, record.rank), []).append(entry)
    shared = {"runners": [_runner(run.header)], "dependencies": _dependencies(run.header)}
    metrics = (m for group in groups.values() for m in _metrics(group, run.header, shared))
    return Exported(list(metrics), left_out)


def _metrics(
    group: Sequence[Entry], header: Header, shared: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield a record of each metric that all processes of a case have."""
    record = group[0].record
    case = record.case
    rows = [row(entry) for entry in group]
    point = {name: str(value) for name, value in {**case.point, **case.options}.items()}
    for name in METRICS:
        values = [each[name] for each in rows]
        if not all(v is not None and math.isfinite(v) and abs(v) < LARGEST for v in values):
            continue
        column = column_of(name)
        yield {
            "benchmark": {
                "name": NAME,
                "mode": "training" if "bwd" in point.get("mode", "") else "inference",
                "dtype": rows[0]["dtype"],
                "extra_info": {"run": header.run, "gpuperf": header.gpuperf},
            },
            "model": {
                "name": case.op,
                "type": record.kind,
                "backend": case.implementation,
                "origins": [case.source],
                "extra_info": facts_of(record),
            },
            "inputs": {"point": {"dtype": rows[0]["dtype"], "extra_info": point}},
            **shared,
            "metric": {
                "name": name,
                "benchmark_values": values,
                "extra_info": {"unit": column.unit, "meaning": column.meaning},
            },
        }


def _runner(header: Header) -> dict[str, Any]:
    device = header.device
    facts = {"sm_count": str(device.sm_count), "capability": device.capability}
    if device.kind == "cpu":
        memory: dict[str, Any] = {
            "cpu_info": device.name,
            "avail_mem_in_gb": device.free_bytes >> 30,
        }
        facts = {"threads": str(device.sm_count)}
    else:
        memory = {
            "gpu_info": device.name,
            "gpu_count": max(1, len(header.devices)),
            "avail_gpu_mem_in_gb": device.memory_bytes >> 30,
        }
    host = str(header.fingerprint.live.get("host") or "")
    return {"name": host, "type": device.name, **memory, "extra_info": facts}


def _dependencies(header: Header) -> dict[str, Any]:
    soft = header.fingerprint.soft
    return {name: {"version": str(soft[name])} for name in SOFTWARE if soft.get(name)}
