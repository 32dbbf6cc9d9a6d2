"""Look up the FLOPs and bytes of an operator's call, from a running program or from a trace.

`Cost` is the least that the operator's algorithm needs: its FLOPs, by kind and dtype, each distinct
element of its inputs read once and each of its results written once. `Work` is what the operator
does, which is more if it computes something again. Each family of operators has its formulas in a
file. The shapes of results that were not recorded are inferred, or else not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuperf.model.aten import Call, Tensor
from gpuperf.model.cost import Bytes, Cost, Work
from gpuperf.profile.cost import (
    attention,
    communication,
    convolution,
    indexing,
    matmul,
    movement,
    normalisation,
    optimizer,
    pointwise,
    reduction,
    sharding,
)
from gpuperf.profile.cost.arguments import Arguments
from gpuperf.profile.cost.tally import Kind, Rule, Rules, Tally, memory

RULES: Rules = {
    **matmul.RULES,
    **convolution.RULES,
    **attention.RULES,
    **normalisation.RULES,
    **pointwise.RULES,
    **reduction.RULES,
    **movement.RULES,
    **indexing.RULES,
    **optimizer.RULES,
}
# Kineto shows some of torch's own operators without their namespace.
BARE = {"detach", "detach_", "flex_attention"}
MOST_AXES = 64  # TensorIterator has at most as many: a shape of more is garbage


@dataclass(frozen=True)
class OperatorCost:
    """The cost and work of one call; only the bytes of its tensors if its FLOPs are not `known`."""

    cost: Cost
    work: Work
    kind: Kind
    known: bool


def account(call: Call, tf32: bool = False) -> OperatorCost:
    """Return the cost of *call*; with *tf32*, fp32 matmuls and convolutions are counted as tf32.

    Never raises: a call whose arguments its formula cannot read is not `known`.
    """
    kind, rule = rule_of(call.name)
    tensors = (*call.tensors, *call.outputs)
    if rule is None or any(len(tensor.shape) > MOST_AXES for tensor in tensors):
        return unread(call, kind)
    try:
        tally = rule(Arguments(call, tf32))
    except (ValueError, LookupError, ArithmeticError):  # a custom operator's or a broken trace's
        return unread(call, kind)
    return cost_of(tally, kind)


def plain_name(name: str) -> str:
    """Remove the overload from an operator's name."""
    space, colons, rest = name.rpartition("::")
    return f"{space}{colons}{rest.partition('.')[0]}"


def rule_of(name: str) -> tuple[Kind, Rule | None]:
    """Return the kind of the operator *name*, and the rule that counts it; None if unknown."""
    space = name.partition(":")[0]
    if space in communication.SPACES:
        return "communication", communication.collective
    if space == "profiler":  # marks of where a range begins and ends
        return "view", movement.nothing
    if space == "fsdp":
        return sharding.RULES.get(Arguments(Call(name)).name, ("unknown", None))
    if space not in ("aten", "higher_order") and plain_name(name) not in BARE:
        return "unknown", None
    return RULES.get(Arguments(Call(name)).name, ("unknown", None))


def cost_of(tally: Tally, kind: Kind) -> OperatorCost:
    """Return the cost and work of a call of an operator of *kind* from its *tally*."""
    moves = (tally.moves,) if tally.moves.read or tally.moves.written else ()
    work = tally.work or Work(tally.flops, moves)
    return OperatorCost(Cost(tally.flops, moves), work, tally.kind or kind, tally.known)


def unread(call: Call, kind: Kind) -> OperatorCost:
    """Return the bytes of the tensors of a call without a formula, or with one that failed.

    A result in the storage of an input may be a view, so an unknown operator does not write it.
    """
    if kind in ("view", "communication"):
        return OperatorCost(Cost(), Work(), kind, False)
    storages = {tensor.storage for tensor in call.tensors} - {0}
    written = [t for t in call.outputs if kind != "unknown" or t.storage not in storages]
    moves = Bytes(memory(plausible(call.tensors)), memory(plausible(written)))
    return cost_of(Tally((), moves, known=False), kind)


def plausible(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return those of *tensors* with a known dtype and under 2⁶² bytes."""
    kept = []
    for tensor in tensors:
        if len(tensor.shape) > MOST_AXES:
            continue
        try:
            fits = tensor.bytes < 2**62
        except ValueError:
            continue
        if fits:
            kept.append(tensor)
    return kept
