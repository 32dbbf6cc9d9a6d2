"""Turn a profile into the keys and values of its JSON document and CSV rows."""

from __future__ import annotations

from typing import Any

from gpuperf.model.codec import to_builtins
from gpuperf.model.metrics import moved_bytes, tensor_operations
from gpuperf.model.record import Run
from gpuperf.profile.breakdown import KernelUse, OperatorRow, Profile, kernels_of
from gpuperf.profile.findings import LEAST, LEAST_OF_LINKS, findings
from gpuperf.profile.ranks.table import together_values

SCHEMA = 1


def document_of(run: Run, profiles: tuple[Profile, ...]) -> dict[str, Any]:
    """Return everything known about *profiles* as one JSON document."""
    regions = [_region(profile, run) for profile in profiles]
    return {"schema": SCHEMA, "run": run.header.run, "regions": regions}


def _region(profile: Profile, run: Run) -> dict[str, Any]:
    region, placed = profile.region, profile.placement
    wall = region.times.get("wall")
    return {
        "region": region.region,
        "script": region.case.implementation,
        "step_s": profile.step_s,
        "mean_s": wall.median_s if wall else None,
        "busy_s": profile.busy_s,
        "scale": profile.scales.kernels,
        "pageable_scale": profile.scales.pageable,
        "collective_scale": profile.scales.collectives,
        "parts_s": dict(profile.parts),
        "placement": to_builtins(placed) if placed else None,
        "hfu": profile.hfu,
        "program": to_builtins(region.program) if region.program else None,
        "cost": to_builtins(region.cost),
        "operators": [operator_values(row) for row in profile.operators],
        "kernels": [kernel_values(use) for use in kernels_of(profile)],
        "findings": [to_builtins(gain) for gain in findings(profile, run.header)],
        "least_finding": LEAST,
        "least_link_finding": LEAST_OF_LINKS,
        "together": together_values(profile.together),
        "caveats": [to_builtins(caveat) for caveat in region.caveats],
    }


def operator_values(row: OperatorRow) -> dict[str, Any]:
    """Return an operator as a row of JSON and CSV."""
    record, placed = row.record, row.placement
    operator, cost = record.operator, record.cost
    return {
        "operator": record.case.op,
        "of": operator.operands if operator else None,
        "region": record.region,
        "backward": operator.backward if operator else None,
        "kind": operator.kind if operator else None,
        "calls": operator.count if operator else None,
        "time_s": row.seconds,
        "graph": operator.graph if operator else None,
        "host_s": operator.host_s if operator else None,
        "share": row.share,
        "flops": cost.flop_count if cost and operator and operator.known else None,
        "bytes": cost.dram_bytes if cost else None,
        "dram_bytes": moved_bytes(record.counters),
        "tensor_operations": tensor_operations(record.counters),
        "intensity": cost.intensity if cost else None,
        "of_roof": placed.fraction if placed else None,
        "part": row.part,
        "largest_loss": row.loss.name if row.loss else None,
        "loss_factor": row.loss.factor if row.loss else None,
        "kernels": "; ".join(f"{k.count} {k.name}" for k in record.kernels),
        "where": "; ".join(operator.where) if operator else "",
    }


def kernel_values(use: KernelUse) -> dict[str, Any]:
    """Return a kernel as a row of JSON and CSV."""
    return {
        "kernel": use.name,
        "launches": use.count,
        "time_s": use.seconds,
        "share": use.share,
        "dram_bytes": moved_bytes(use.counters),
        "tensor_operations": tensor_operations(use.counters),
        "operators": "; ".join(use.operators),
    }
