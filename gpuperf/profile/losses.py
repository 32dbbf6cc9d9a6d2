"""What costs an operator of a profile most, between the peak and what it attained?

`explain`'s budget, by what a trace knows: without counters of kernels most steps of its ladder are
one, and what tiles and waves predict of a matmul stands beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuperf.errors import UsageError
from gpuperf.explain.study import LossBudget, explain
from gpuperf.model.record import Header, Record

PRODUCTS = ("aten::mm", "aten::addmm")  # of two matrices
LARGEST = 10**9  # of a size: beyond it there are no tiles to count
MEMORY_BUSY = "keeping memory busy"  # a step of `explain`'s
INSIDE = "in the kernel"  # clock, feeding, instruction path: only counters tell them apart


@dataclass(frozen=True)
class Loss:
    """A step of the budget, and the factor by which it is less than the peak."""

    name: str
    factor: float


def largest_loss(record: Record, header: Header) -> Loss | None:
    """Of an operator with a time; None where there is no budget, or nothing is lost."""
    try:
        told = explain(_as_product(record), header)
    except UsageError:
        return None
    known = told.chain == "memory" or "active_cycles" in record.counters
    found = _told(told) if known else _predicted(told)
    worst = min(found, key=lambda loss: loss.factor, default=None)
    return worst if worst is not None and worst.factor < 1 else None


def _as_product(record: Record) -> Record:
    """With m, n and k, where its shapes tell them: for the model of tiles."""
    operator = record.operator
    if operator is None or operator.made or operator.more or record.case.op not in PRODUCTS:
        return record
    shapes = [tensor.shape for tensor in operator.tensors]
    factors = shapes[1:] if len(shapes) == 3 and len(shapes[0]) == 1 else shapes
    if [len(shape) for shape in factors] != [2, 2] or factors[0][1] != factors[1][0]:
        return record
    (m, k), (_, n) = factors
    if max(m, n, k) >= LARGEST:
        return record
    return replace(record, case=replace(record.case, point={"m": m, "n": n, "k": k}))


def _predicted(told: LossBudget) -> list[Loss]:
    """Waves, the edges of tiles, and the rest."""
    tiles = told.predicted.get("tiles", 1.0) * told.predicted.get("depth", 1.0)
    waves = told.predicted.get("waves", 1.0)
    rest = told.attained / told.peak / (tiles * waves)
    return [Loss("waves", waves), Loss("edges of tiles", tiles), Loss(INSIDE, rest)]


def _told(told: LossBudget) -> list[Loss]:
    """Without its bytes counted nobody knows whether it moves more than it must."""
    if told.chain == "memory" and "dram_read_bytes" not in told.record.counters:
        return [Loss(f.name.replace(MEMORY_BUSY, INSIDE), f.value) for f in told.factors]
    return [Loss(factor.name, factor.value) for factor in told.factors]
