"""Determine the largest loss of an operator between the peak rate and the rate it attained.

The losses are those of the budget of `explain`. Without counters of its kernels, a matmul has only
three: those that its waves and tiles predict, and the remaining one, `in the kernel`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.explain.study import LossBudget, explain
from gpuperf.model.record import Header, Record

PRODUCTS = ("aten::mm", "aten::addmm")  # products of two matrices
LARGEST = 10**9  # m, n or k from which on tiles are not counted
MEMORY_BUSY = "keeping memory busy"  # a loss of `explain`
INSIDE = "in the kernel"  # clock, feeding, instruction path: only counters separate them


@dataclass(frozen=True)
class Loss:
    """A loss of the budget by name, and the factor (0…1) by which it lowers the peak rate."""

    name: str
    factor: float


def largest_loss(record: Record, header: Header) -> Loss | None:
    """Return the loss of an operator with the smallest factor.

    None if `explain` has no budget for *record*, or if no factor is under 1.
    """
    try:
        budget = explain(_as_product(record), header)
    except (UsageError, CannotMeasure):
        return None
    known = budget.chain == "memory" or "active_cycles" in record.counters
    losses = _budgeted(budget) if known else _predicted(budget)
    worst = min(losses, key=lambda loss: loss.factor, default=None)
    return worst if worst is not None and worst.factor < 1 else None


def _as_product(record: Record) -> Record:
    """Return *record*, with the axes m, n and k if it is a product of two matrices."""
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


def _predicted(budget: LossBudget) -> list[Loss]:
    tiles = budget.predicted.get("tiles", 1.0) * budget.predicted.get("depth", 1.0)
    waves = budget.predicted.get("waves", 1.0)
    rest = budget.attained / budget.peak / (tiles * waves)
    return [Loss("waves", waves), Loss("edges of tiles", tiles), Loss(INSIDE, rest)]


def _budgeted(budget: LossBudget) -> list[Loss]:
    if budget.chain == "memory" and "dram_read_bytes" not in budget.record.counters:
        # Without counted bytes the operator may also move more than it must.
        return [Loss(f.name.replace(MEMORY_BUSY, INSIDE), f.value) for f in budget.factors]
    return [Loss(factor.name, factor.value) for factor in budget.factors]
