"""Sum the cost of a step (the least that it needs) and its work (as implemented) over operators."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from gpuperf.model.cost import Bytes, Cost, Flops, Work
from gpuperf.profile.groups import OperatorGroup


def scaled(cost: Cost, count: float) -> Cost:
    """Return the cost of *count* calls of *cost*."""
    return Cost(
        tuple(replace(f, count=round(f.count * count)) for f in cost.flops),
        tuple(
            replace(b, read=round(b.read * count), written=round(b.written * count))
            for b in cost.bytes
        ),
    )


def summed(costs: Iterable[Cost]) -> Cost:
    """Return the sum of *costs*, by kind and dtype of their FLOPs and by channel of their bytes."""
    flops: dict[Flops, int] = {}
    moved: dict[str, Bytes] = {}
    for cost in costs:
        for f in cost.flops:
            kind = replace(f, count=0)
            flops[kind] = flops.get(kind, 0) + f.count
        for b in cost.bytes:
            total = moved.get(b.channel, replace(b, read=0, written=0))
            moved[b.channel] = replace(
                total, read=total.read + b.read, written=total.written + b.written
            )
    return Cost(tuple(replace(f, count=count) for f, count in flops.items()), tuple(moved.values()))


def step_cost(
    groups: Collection[OperatorGroup], accounted: bool, traced: bool
) -> tuple[Cost, Work]:
    """Return the cost and the work of a step.

    FLOPs are those of the calls that the accounting pass observed, if *accounted*: calls that only
    the trace has are the same calls under other names, or of other steps. Bytes are those of the
    calls in the trace, if *traced*: a compiled step moves fewer. Repeated FLOPs (checkpointing) are
    part of the work only.
    """
    counts = [(g, g.accounted if accounted else g.count) for g in groups]
    moves = [(g, g.count if g.timed else 0.0) for g in groups] if traced else counts
    return (
        Cost(
            summed(scaled(g.per_call.cost, n - g.repeated) for g, n in counts).flops,
            summed(scaled(g.per_call.cost, n) for g, n in moves).bytes,
        ),
        Work(
            summed(scaled(g.per_call.work, n) for g, n in counts).flops,
            summed(scaled(g.per_call.work, n) for g, n in moves).bytes,
        ),
    )
